"""b4, which knows mail threads: run apart from everything of the user's.

It gets an empty home, so that it neither reads nor writes the user's git
configuration, and a folder of its own outside of any repository.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from errors import InfraError, SeriesError
from host import sandbox
from host.process import Finished, TimedOutError, run
from kernels.cleaning import clean
from kernels.mail import Mail

AM_TIMEOUT_S = 300.0
FETCH_TIMEOUT_S = 120.0
MESSAGE_CHARACTERS = 400
# Between the mails that b4 writes; it escapes nothing in them.
SEPARATOR = b"From git@z Thu Jan  1 00:00:00 1970\n"
# What a fetch needs of the caller's environment to get out of some networks.
NETWORK = ("http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


def patches_of(mails: Sequence[Mail], version: int, where: str) -> list[bytes]:
    """The patches of one version of a thread as b4 makes them ready, with their trailers.

    Nothing is fetched.  They are in the order b4 gives them, which is that of the
    series; whoever takes them checks that they are the patches asked for.

    Raises:
        SeriesError: b4 makes nothing of them.
        InfraError: b4 is not installed.
    """
    with _private() as folder:
        maildir = folder / "thread"
        for name in ("cur", "new", "tmp"):
            (maildir / name).mkdir(parents=True)
        for number, mail in enumerate(mails):
            # In an mbox a line of a body could be taken for the begin of a mail.
            header = b"" if _has_id(mail) else f"Message-ID: <{mail.message_id}>\n".encode()
            (maildir / "cur" / f"{number:05d}.thread:2,S").write_bytes(header + mail.raw)
        options = ["-m", str(maildir), "-v", str(version), "--no-partial-reroll", "-o", "-"]
        try:
            result = _b4(folder, ["--offline-mode", "am", *options], AM_TIMEOUT_S, boxed=True)
        except TimedOutError as error:
            raise SeriesError(
                f"b4 takes more than {AM_TIMEOUT_S:.0f} s for it", where=where,
                next_step="name a folder of patches",
            ) from error  # fmt: skip
        first, *raw_mails = result.stdout.encode().split(SEPARATOR)
        if result.returncode != 0 or first or not raw_mails:
            raise SeriesError(
                f"b4 finds no series in it: {clean(result.tail(), MESSAGE_CHARACTERS)}",
                where=where,
                next_step="check the thread with b4 am -m FILE, or name a folder of patches",
            )
        return raw_mails


def fetch_thread(message_id: str, into: Path) -> None:
    """Write the thread of a message from the public archive to the mbox file ``into``.

    Raises:
        InfraError: it cannot be fetched.
    """
    with _private() as folder:
        result = _b4(
            folder, ["mbox", "-o", str(folder), "-n", "thread", message_id], FETCH_TIMEOUT_S
        )
        files = sorted(folder.glob("thread*"))
        if result.returncode != 0 or not files:
            raise InfraError(
                f"the thread cannot be fetched: {clean(result.tail(), MESSAGE_CHARACTERS)}",
                where=clean(message_id),
                next_step="save the thread as an mbox file where there is a network, and name it",
            )
        into.parent.mkdir(parents=True, exist_ok=True)
        beside = into.with_suffix(f".{os.getpid()}")
        shutil.copyfile(files[0], beside)
        beside.replace(into)


@contextmanager
def _private() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="twinboot-b4-") as folder:
        yield Path(folder)


def _b4(
    folder: Path, arguments: Sequence[str], timeout_s: float, *, boxed: bool = False
) -> Finished:
    """Run b4; with ``boxed`` where nothing else is, if the host can (``host.sandbox``)."""
    home = folder / "home"
    home.mkdir()
    variables = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": str(folder.parent),
        "LC_ALL": "C.UTF-8",
        # Else it asks who the user is, which nobody knows in a box.
        "GIT_COMMITTER_NAME": "twinboot",
        "GIT_COMMITTER_EMAIL": "twinboot@localhost",
        **{name: os.environ[name] for name in NETWORK if name in os.environ},
    }
    # -I: neither PYTHONPATH nor a file in the folder can stand in for a module.
    python = [sys.executable, "-I", "-m", "b4.command"]
    quiet = ["--no-interactive", "--no-stdin", "-c", "b4.attestation-policy=off"]
    assignments = [f"{name}={value}" for name, value in variables.items()]
    argv = ["env", "-i", *assignments, *python, *quiet, *arguments]
    if boxed and sandbox.available() is not None:
        box = sandbox.box((folder, folder), readable=sandbox.programs())
        with box.owned():
            result = run(box.argv(argv, folder), timeout_s=timeout_s, check=False)
    else:
        result = run(argv, timeout_s=timeout_s, cwd=folder, check=False)
    if "No module named" in result.stderr:
        raise InfraError("b4 is not installed", where="b4", next_step="make setup")
    return result


def _has_id(mail: Mail) -> bool:
    return not mail.message_id.endswith("@no-message-id.invalid")
