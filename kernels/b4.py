"""b4 as a library: threads fetched from lore, and who signed a mail."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from errors import InfraError
from files import written_beside
from host import sandbox
from host.process import run
from text import clean

FETCH_TIMEOUT_S = 120.0
MESSAGE_CHARACTERS = 400
# What a fetch needs of the caller's environment to get out of some networks.
NETWORK = ("http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


def fetch_thread(message_id: str, into: Path) -> None:
    """Write the thread of a message from the public archive to the mbox file ``into``.

    Raises:
        InfraError: it cannot be fetched.
    """
    with tempfile.TemporaryDirectory(prefix="twinboot-b4-") as name:
        folder = Path(name)
        home = folder / "home"
        home.mkdir()
        variables = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CEILING_DIRECTORIES": str(folder.parent),
            "LC_ALL": "C.UTF-8",
            **{name: os.environ[name] for name in NETWORK if name in os.environ},
        }
        # -I: neither PYTHONPATH nor a file in the folder can stand in for a module.
        python = [sys.executable, "-I", "-m", "b4.command"]
        quiet = ["--no-interactive", "--no-stdin", "-c", "b4.attestation-policy=off"]
        arguments = ["mbox", "-o", str(folder), "-n", "thread", message_id]
        assignments = [f"{name}={value}" for name, value in variables.items()]
        result = run(
            ["env", "-i", *assignments, *python, *quiet, *arguments],
            timeout_s=FETCH_TIMEOUT_S, cwd=folder, check=False,
        )  # fmt: skip
        if "No module named" in result.stderr:
            raise InfraError("b4 is not installed", where="b4", next_step="make setup")
        files = sorted(folder.glob("thread*"))
        if result.returncode != 0 or not files:
            raise InfraError(
                f"the thread cannot be fetched: {clean(result.tail(), MESSAGE_CHARACTERS)}",
                where=clean(message_id),
                next_step="save the thread as an mbox file where there is a network, and name it",
            )
        with written_beside(into) as beside:
            shutil.copyfile(files[0], beside)


TIMEOUT_S = 60.0
LONGEST = 200
KEYRING = Path("b4/keyring")
# Where DNS is asked; nothing else of /etc is needed for that.
RESOLVER = Path("/etc/resolv.conf")
CHECK = Path(__file__).with_name("attestation_check.py")


def attested(mails: Sequence[bytes], sender: str) -> str:
    """What vouches that all of these mails are of the address ``sender``; empty where nothing does.

    For example ``DKIM example.org`` or ``ed25519 ada@example.org``.  Where there is no network or a
    signature cannot be read, nothing vouches.
    """
    with tempfile.TemporaryDirectory(prefix="twinboot-attest-") as name:
        folder = Path(name)
        for number, raw in enumerate(mails):
            (folder / f"{number:05d}.eml").write_bytes(raw)
        variables = {
            "PATH": os.environ.get("PATH", os.defpath), "HOME": name, "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
        }  # fmt: skip
        # -I: neither PYTHONPATH nor a file in the folder can stand in for a module.
        argv = [sys.executable, "-I", str(CHECK), name, sender, str(keyring())]
        try:
            done = _run(argv, folder, variables)
        except InfraError:
            return ""
    try:
        attestors = json.loads(done) if done else []
    except (ValueError, RecursionError):
        return ""
    if not isinstance(attestors, list):
        return ""
    words = [clean(word, LONGEST) for word in attestors if isinstance(word, str)]
    return ", ".join(dict.fromkeys(words)) if len(words) == len(mails) and all(words) else ""


def keyring() -> Path:
    """The keys that this user trusts, as b4 keeps them."""
    home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    return home / KEYRING


def _run(argv: Sequence[str], folder: Path, variables: dict[str, str]) -> str:
    if sandbox.available() is None:
        bare = ["env", "-i", *(f"{key}={value}" for key, value in variables.items()), *argv]
        return run(bare, timeout_s=TIMEOUT_S, cwd=folder, check=False).stdout
    readable = (CHECK, keyring(), RESOLVER, *sandbox.programs())
    box = replace(sandbox.box((folder, folder), readable=readable), network=True, sockets=True)
    with box.owned():
        line = box.argv(argv, folder, variables)
        return run(line, timeout_s=TIMEOUT_S, check=False).stdout
