"""Facts of this machine, for provenance: pure parsers, and readers that never fail.

What cannot be found out is called "not found": a session with a missing fact is
still a session, and the doctor is who complains.
"""

from __future__ import annotations

import os
import platform
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from types import MappingProxyType

from errors import InfraError, LabError
from host.packages import search_path
from host.process import run

NOT_FOUND = "not found"
QUERY_TIMEOUT_S = 20.0
CHECKOUT = Path(__file__).resolve().parent.parent
# Letters are those of any alphabet.
CACHE_CHARACTERS, CHECKOUT_CHARACTERS = re.compile(r"[\w./+@,=~-]"), re.compile(r"[^:\n\r\0]")
# What QEMU takes beside the guest's memory: its own 100 MiB, and translated code,
# which grows with the kernel and fio code that runs.
QEMU_OVERHEAD_MIB = 400
# Left to the host, so that guests never push it into swapping.
HOST_RESERVE_MIB = 512


@dataclass(frozen=True)
class Tool:
    """A program, how to ask for its version, and the version's form in the answer."""

    name: str
    argv: tuple[str, ...]
    pattern: str = r"(.+)"


TOOLS = (
    Tool("qemu", ("qemu-system-x86_64", "--version"), r"version (.+)"),
    Tool("fio", ("fio", "--version"), r"fio-(\S+)"),
    Tool("gcc", ("gcc", "--version")),
    Tool("ld", ("ld", "--version")),
    Tool("busybox", ("busybox",), r"BusyBox v(.+?\))"),
    Tool("mkfs.xfs", ("mkfs.xfs", "-V"), r"version (\S+)"),
    # That of the host, which guests' programs are linked with.
    Tool("libc", ("ldd", "--version"), r"^ldd (.+)"),
)


def meminfo_mib(meminfo: str, field: str) -> int:
    """A field of /proc/meminfo in MiB; 0 when it is not there."""
    match = re.search(rf"^{re.escape(field)}:\s*(\d+) kB$", meminfo, re.M)
    return int(match[1]) // 1024 if match else 0


def distribution(os_release: str) -> str:
    """PRETTY_NAME in the text of /etc/os-release."""
    match = re.search(r'^PRETTY_NAME="?([^"\n]+)"?$', os_release, re.M)
    return match[1] if match else NOT_FOUND


def version_in(tool: Tool, output: str) -> str:
    """The version in what a tool said when asked for it."""
    match = re.search(tool.pattern, output)
    return match[1].strip() if match else NOT_FOUND


def version_numbers(version: str) -> tuple[int, ...]:
    """The leading dotted number of a version text, for comparing; empty when none."""
    match = re.match(r"\D*?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def commit_text(status: str) -> str:
    """Commit and dirty flag from ``git status --porcelain=v2 --branch``."""
    match = re.search(r"^# branch\.oid ([0-9a-f]{40,64})$", status, re.M)
    if not match:
        return NOT_FOUND
    changed = any(line and line[0] not in "#?!" for line in status.splitlines())
    return match[1] + ("-dirty" if changed else "")


def guests_that_fit(cores: int, available_mib: int, memory_mib_per_guest: int) -> int:
    """How many guests run side by side: one a core, as memory allows, at least one."""
    by_memory = (available_mib - HOST_RESERVE_MIB) // (memory_mib_per_guest + QEMU_OVERHEAD_MIB)
    return max(1, min(cores, by_memory))


def guests_at_once(memory_mib_per_guest: int) -> int:
    """How many guests of this memory (MiB) this machine runs side by side, at least one."""
    return guests_that_fit(cores_available(), memory_available_mib(), memory_mib_per_guest)


def memory_total_mib() -> int:
    """Memory and swap of this machine, MiB."""
    meminfo = text_of(Path("/proc/meminfo"))
    return meminfo_mib(meminfo, "MemTotal") + meminfo_mib(meminfo, "SwapTotal")


def memory_available_mib(
    *, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")
) -> int:
    """Memory (MiB) that processes like this one may still take: the host's, and its cgroups'."""
    available_mib = meminfo_mib(text_of(proc / "meminfo"), "MemAvailable")
    # Version 2 alone: "0::/user.slice/session-1.scope".
    match = re.search(r"^0::/(.*)$", text_of(proc / "self/cgroup"), re.M)
    place = cgroups / match[1] if match else cgroups
    for group in (place, *place.parents):
        limit, used = (text_of(group / f"memory.{name}").strip() for name in ("max", "current"))
        if limit.isdigit() and used.isdigit():
            available_mib = min(available_mib, (int(limit) - int(used)) >> 20)
    return max(0, available_mib)


def cores_available() -> int:
    """Cores this process may run on, which in a container is less than there are."""
    return len(os.sched_getaffinity(0))


def cache_folder() -> Path:
    """Where kernels, trees and snapshots are kept: $TWINBOOT_CACHE or ~/.cache/twinboot."""
    if given := os.environ.get("TWINBOOT_CACHE"):
        return Path(given).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "twinboot"


def require_usable(cache: Path, checkout: Path = CHECKOUT) -> None:
    """Refuse a place of whose characters kbuild, make, a shell or LD_PRELOAD make something.

    Raises InfraError: names the place, its first such character, and what moves it.
    """
    rename = "to a folder of another name"
    places = (
        (cache, CACHE_CHARACTERS, f"set TWINBOOT_CACHE {rename}"),
        (checkout, CHECKOUT_CHARACTERS, f"move the checkout {rename}"),
    )
    for place, usable, next_step in places:
        refused = next((c for c in str(place) if not usable.fullmatch(c)), "")
        if refused:
            what = f"has {refused!r} in its path, which kernel builds or guests cannot have there"
            raise InfraError(what, where=str(place).replace("\n", "\\n"), next_step=next_step)


def host_facts(*, proc: Path = Path("/proc"), etc: Path = Path("/etc")) -> dict[str, str]:
    """The machine, each fact as text."""
    memory_mib = meminfo_mib(text_of(proc / "meminfo"), "MemTotal")
    cpu = re.search(r"^model name\s*:\s*(.+)$", text_of(proc / "cpuinfo"), re.M)
    return {
        "cpu": " ".join(cpu[1].split()) if cpu else NOT_FOUND,
        "cores": f"{cores_available()} of {os.cpu_count() or 1}",
        "memory": f"{memory_mib} MiB" if memory_mib else NOT_FOUND,
        "kernel": platform.release() or NOT_FOUND,
        "distribution": distribution(text_of(etc / "os-release")),
    }


def tool_version(tool: Tool) -> str:
    """Ask one tool for its version."""
    env = {"PATH": search_path(), "LC_ALL": "C"}
    try:
        done = run(tool.argv, timeout_s=QUERY_TIMEOUT_S, env=env, check=False)
    except (LabError, OSError):
        return NOT_FOUND
    return version_in(tool, done.stdout + done.stderr)


def tool_versions(programs: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Versions of all that has a say in a number; ``programs`` are asked in place of some."""
    tools = [
        replace(tool, argv=(programs.get(tool.name, tool.argv[0]), *tool.argv[1:]))
        for tool in TOOLS
    ]
    try:
        virtme = metadata.version("virtme-ng")
    except metadata.PackageNotFoundError:
        virtme = NOT_FOUND
    return {
        **{tool.name: tool_version(tool) for tool in tools},
        "python": platform.python_version(),
        "virtme-ng": virtme,
    }


def lab_version(checkout: Path = CHECKOUT) -> str:
    """The lab's version, as pyproject.toml says."""
    try:
        return str(tomllib.loads((checkout / "pyproject.toml").read_text())["project"]["version"])
    except (OSError, LookupError, ValueError):
        return NOT_FOUND


def lab_commit(checkout: Path = CHECKOUT) -> str:
    """The checkout's commit, with ``-dirty`` behind it when tracked files were changed."""
    argv = ["git", "-C", str(checkout), "status", "--porcelain=v2", "--branch"]
    # A git command of the user's may hold the index lock; only look.
    env = {"GIT_OPTIONAL_LOCKS": "0"}
    try:
        return commit_text(run(argv, timeout_s=QUERY_TIMEOUT_S, env=env).stdout)
    except (LabError, OSError):
        return NOT_FOUND


def text_of(path: Path) -> str:
    """A file of /proc or /etc; empty when it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
