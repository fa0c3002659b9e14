"""Who vouches for the sender of mails: patatt's signatures and DKIM, checked by b4's libraries.

A patatt signature counts by a key of the keyring that b4 keeps for this user
(``~/.local/share/b4/keyring``), a DKIM signature by the key that the sender's domain publishes.
Both have to be of all of a mail: one that leaves the end of it open vouches for nothing.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from errors import InfraError
from host import sandbox
from host.process import run
from text import clean

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
