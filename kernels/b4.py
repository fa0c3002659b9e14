"""b4, which fetches threads: run apart from everything of the user's.

It gets an empty home, so that it neither reads nor writes the user's git
configuration, and a folder of its own outside of any repository.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from errors import InfraError
from files import written_beside
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
