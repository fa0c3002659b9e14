"""What must be equal on every host, since a guest's bits depend on it."""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from errors import InfraError
from experiment.architecture import X86_64
from guests.kept import emulator
from host.packages import locate
from host.process import run

CHECKOUT = Path(__file__).resolve().parents[2]
CODE = (
    "errors",
    "files",
    "text",
    "experiment",
    "host",
    "results",
    "kernels",
    "workloads",
    "guests",
    "runs",
)
SUFFIXES = (".py", ".sh", ".c", ".toml", ".fio")
TIMEOUT_S = 30.0
SHOWN = 16


@lru_cache(maxsize=1)
def identity() -> dict[str, str]:
    """Lab, QEMU, its firmware and Python of this process, each as text that can be compared.

    Raises:
        InfraError: there is no QEMU.
    """
    qemu = X86_64.board.qemu
    path = locate(qemu)
    if path is None:
        raise InfraError("program not found", where=qemu, next_step="./lab.py doctor")
    version = run([qemu, "--version"], timeout_s=TIMEOUT_S).stdout
    match = re.search(r"version (.+)", version)
    return {
        "lab code": lab_code(CHECKOUT),
        "QEMU version": match[1].strip() if match else "not found",
        **emulator(Path(path)),
        # What is sent is pickled.
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "machine": platform.machine(),
    }


def lab_code(checkout: Path) -> str:
    """Digest of everything in a checkout that says what is booted and how it is read."""
    files = sorted(
        path.relative_to(checkout)
        for folder in CODE
        for path in [checkout / f"{folder}.py", *(checkout / folder).rglob("*")]
        if path.suffix in SUFFIXES and path.is_file()
    )
    total = hashlib.sha256()
    for path in files:
        total.update(f"{path.as_posix()}\0".encode())
        total.update(hashlib.sha256((checkout / path).read_bytes()).digest())
    return total.hexdigest()[:SHOWN]


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> tuple[str, ...]:
    """What differs, each with both values; empty when all is equal."""
    return tuple(
        f"{key}: {there.get(key, 'unknown')} there, {here.get(key, 'unknown')} here"
        for key in dict.fromkeys([*here, *there])
        if there.get(key) != here.get(key)
    )


def refusal(client: Mapping[str, str]) -> str:
    """Why this process may not serve a session of that identity; empty where it may."""
    differing = differences(client, identity())
    return f"another identity: {'; '.join(differing)}" if differing else ""
