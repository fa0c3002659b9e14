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
TIMEOUT_S = 60.0
LONGEST = 200
KEYRING = Path("b4/keyring")
# Where DNS is asked; nothing else of /etc is needed for that.
RESOLVER = Path("/etc/resolv.conf")
CHECK = Path(__file__).with_name("attestation_check.py")
# -I: neither PYTHONPATH nor a file in the folder can stand in for a module.
PYTHON = (sys.executable, "-I")


def _environment(home: Path) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "LC_ALL": "C.UTF-8",
    }


def fetch_thread(message_id: str, into: Path) -> None:
    """Write a message's thread from the public archive as an mbox; InfraError: not to be had."""
    with tempfile.TemporaryDirectory(prefix="twinboot-b4-") as name:
        folder = Path(name)
        (folder / "home").mkdir()
        variables = _environment(folder / "home")
        variables |= {"GIT_CEILING_DIRECTORIES": str(folder.parent)}
        variables |= {key: os.environ[key] for key in NETWORK if key in os.environ}
        quiet = ["--no-interactive", "--no-stdin", "-c", "b4.attestation-policy=off"]
        argv = ["-m", "b4.command", *quiet, "mbox", "-o", name, "-n", "thread", message_id]
        assigned = [f"{key}={value}" for key, value in variables.items()]
        bare = ["env", "-i", *assigned, *PYTHON, *argv]
        result = run(bare, timeout_s=FETCH_TIMEOUT_S, cwd=folder, check=False)
        if "No module named" in result.stderr:
            raise InfraError("b4 is not installed", where="b4", next_step="make setup")
        files = sorted(folder.glob("thread*"))
        if result.returncode != 0 or not files:
            what = f"the thread cannot be fetched: {clean(result.tail(), MESSAGE_CHARACTERS)}"
            step = "save the thread as an mbox file where there is a network, and name it"
            raise InfraError(what, where=clean(message_id), next_step=step)
        with written_beside(into) as beside:
            shutil.copyfile(files[0], beside)


def attested(mails: Sequence[bytes], sender: str) -> str:
    """What vouches that all mails are of ``sender``, as ``DKIM example.org``; or nothing."""
    with tempfile.TemporaryDirectory(prefix="twinboot-attest-") as name:
        folder = Path(name)
        for number, raw in enumerate(mails):
            (folder / f"{number:05d}.eml").write_bytes(raw)
        variables = _environment(folder)
        argv = [*PYTHON, str(CHECK), name, sender, str(keyring())]
        try:
            if sandbox.available() is None:
                assigned = [f"{key}={value}" for key, value in variables.items()]
                bare = ["env", "-i", *assigned, *argv]
                done = run(bare, timeout_s=TIMEOUT_S, cwd=folder, check=False)
            else:
                readable = (CHECK, keyring(), RESOLVER, *sandbox.programs())
                box = sandbox.box((folder, folder), readable=readable)
                box = replace(box, network=True, sockets=True)
                with box.owned():
                    line = box.argv(argv, folder, variables)
                    done = run(line, timeout_s=TIMEOUT_S, check=False)
            attestors = json.loads(done.stdout or "[]")
        except (InfraError, ValueError, RecursionError):
            return ""
    words = attestors if isinstance(attestors, list) else []
    words = [clean(word, LONGEST) for word in words if isinstance(word, str)]
    return ", ".join(dict.fromkeys(words)) if len(words) == len(mails) and all(words) else ""


def keyring() -> Path:
    """The keys that this user trusts, as b4 keeps them."""
    home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    return home / KEYRING
