"""What this machine lacks to run the lab: each check a value with its reason and its mend."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from errors import InfraError
from files import sha256_of
from host import facts, sandbox
from host.packages import (
    SystemPackage,
    install_line,
    locate,
    package_of,
    packages,
    require,
    search_path,
    table,
)
from host.process import run

Status = Literal["ok", "warn", "fail"]
# In the cache: hosts whose kept runs are not used, one a line, each with its reason.
ASIDE = "runs/set-aside.txt"

# A session of the default experiment leaves 2.0 GiB without its checks' kernels, which have objects
# of 0.3 GiB for each configuration; a second source takes 2 GiB more.
COLD_BUILD_GIB = 5
LEAST_GIB = 2
# A machine sold with 4 GiB shows less: firmware and kernel keep some.
MEMORY_MIB = 3600
LEAST_MEMORY_MIB = 1800
GIB = 2**30


@dataclass(frozen=True)
class DoctorCheck:
    """One thing looked at; ``mend`` is an imperative, empty where nothing need be done."""

    name: str
    status: Status
    found: str
    why: str
    mend: str = ""


def judged(
    name: str, found: str, wrong: Status | Literal[""] | bool, why: str, mend: str
) -> DoctorCheck:
    """A check that is ok, or ``wrong`` in this way (true: a warning) with reason and mend."""
    if not wrong:
        return DoctorCheck(name, "ok", found, "")
    return DoctorCheck(name, "warn" if wrong is True else wrong, found, why, mend)


@dataclass(frozen=True)
class KnownVersions:
    """Versions of a tool that the lab was run with: from ``least`` up to, not with, ``below``.

    Without a ``below`` something else decides of newer ones.
    """

    tool: str
    least: tuple[int, ...]
    below: tuple[int, ...] | None
    too_old: Status
    why: str


KNOWN = (
    # Which newer one is exact: check_qemu.
    KnownVersions("qemu", (7, 2), None, "fail", "bit-exact guests need QEMU's -icount and -action"),
    KnownVersions("fio", (3, 33), (4,), "warn", "the lab reads fio's json+ output"),
)


def check_package(package: SystemPackage) -> DoctorCheck:
    """Whether all that a package provides is there."""
    places = {provided: locate(provided) for provided in package.provides}
    lacking = [provided for provided, place in places.items() if place is None]
    there = " ".join(map(str, places.values()))
    state = f"{facts.NOT_FOUND}: {' '.join(lacking)}" if lacking else there
    wrong: Status = "fail" if package.need == "required" else "warn"
    mend = install_line([package.name])
    return judged(package.name, state, wrong if lacking else "", package.why, mend)


def check_version(known: KnownVersions, version: str) -> DoctorCheck:
    """Whether a tool's version is one that the lab was run with."""
    name = f"{known.tool} version"
    numbers = facts.version_numbers(version)
    if numbers and known.below is not None and numbers >= known.below:
        why = f"newer than any the lab was run with; {known.why}"
        return DoctorCheck(name, "warn", version, why, "run make test before trusting its numbers")
    span = f"{'.'.join(map(str, known.least))} or newer"
    if known.below is not None:
        span += f", older than {'.'.join(map(str, known.below))}"
    wrong = "warn" if not numbers else known.too_old if numbers < known.least else ""
    return judged(name, version, wrong, known.why, f"use {known.tool} {span}")


def check_exact_mode() -> DoctorCheck:
    """Whether QEMU starts an x86 machine with TCG and -icount as exact guests use it."""
    argv = ["qemu-system-x86_64", "-machine", "none", "-nodefaults", "-display", "none"]
    argv += ["-accel", "tcg", "-icount", "shift=0,sleep=off", "-monitor", "stdio"]
    why = "exact mode counts instructions in QEMU's translator"
    env = {"PATH": search_path()}
    try:
        done = run(argv, timeout_s=facts.QUERY_TIMEOUT_S, env=env, stdin_text="quit\n", check=False)
    except InfraError as error:
        mend = install_line([package_of(argv[0])])
        return DoctorCheck("exact mode", "fail", error.what, why, mend)
    message = (done.tail().splitlines() or ["no message"])[-1]
    good = "QEMU accepts tcg with -icount shift=0,sleep=off"
    return judged(
        "exact mode",
        message if done.returncode else good,
        "fail" if done.returncode else "",
        why,
        "install a QEMU with TCG for x86_64",
    )


QEMU = "qemu-system-x86_64"
# Releases whose guests were compared bit by bit.
QEMU_TABLE = Path(__file__).with_name("qemu.txt")
RELEASE_NUMBERS = 2


@dataclass(frozen=True)
class KnownRelease:
    """A release that was run: its program, its number, the numbers of vCPUs, and what."""

    program: str
    release: str
    vcpus: str
    what: str


@dataclass(frozen=True)
class QemuStanding:
    """Whether a QEMU's release was run before; ``text`` is one line for people."""

    known: bool
    binary_sha256: str
    text: str


def shipped(text: str = "") -> tuple[KnownRelease, ...]:
    """The table, ``program | release | vCPUs | what``; InfraError: it is malformed."""
    rows = table(text or QEMU_TABLE.read_text(), where=QEMU_TABLE.name, fields=4)
    return tuple(KnownRelease(*fields) for _, fields in rows)


def standing(program: str = QEMU) -> QemuStanding:
    """What is known of the QEMU at hand, by no boot; InfraError: no program, or a bad table."""
    path = require(program)
    qemu = next(tool for tool in facts.TOOLS if tool.name == "qemu")
    version = facts.tool_version(replace(qemu, argv=(program, *qemu.argv[1:])))
    known = vcpus_run(program, version, shipped())
    text = f"this release was run with {known} vCPUs" if known else "this release was never run"
    return QemuStanding(bool(known), sha256_of(path), f"QEMU {version}: {text}")


def vcpus_run(program: str, version: str, known: Iterable[KnownRelease]) -> str:
    """The numbers of vCPUs that a release was run with; empty: it never was."""
    numbers = facts.version_numbers(version)[:RELEASE_NUMBERS]
    by_release = {(each.program, facts.version_numbers(each.release)): each.vcpus for each in known}
    return by_release.get((program, numbers), "")


def check_qemu() -> DoctorCheck:
    """Whether this QEMU's guests are known to be exact, by its release."""
    why = "a QEMU may give guests that differ from boot to boot; each session repeats a run"
    try:
        qemu = standing()
    except InfraError as error:
        return DoctorCheck("exactness", "fail", error.what, why, install_line([package_of(QEMU)]))
    mend = "./lab.py doctor --kernel TREE boots runs twice and compares all bits (docs/systems.md)"
    return judged("exactness", qemu.text, not qemu.known, why, mend)


def check_kvm(device: Path = Path("/dev/kvm")) -> DoctorCheck:
    """Note whether KVM is offered; that it opens does not mean that it runs a kernel."""
    offered = os.access(device, os.R_OK | os.W_OK)
    state = f"{device} opens" if offered else f"no access to {device}"
    why = "wall mode finds out by booting a guest"
    return DoctorCheck("kvm", "ok", f"{state}; not needed in exact mode", why)


def check_boxes() -> DoctorCheck:
    """What strangers' series are built in, and how their memory is bounded here."""
    tool = sandbox.available()
    none = "neither bwrap nor unshare makes one"
    return judged(
        "boxes",
        f"{tool}; their memory: {sandbox.accounting()}" if tool else none,
        not tool,
        "series from mails are built in a box, see SECURITY.md",
        sandbox.remedy(),
    )


def check_memory(total_mib: int) -> DoctorCheck:
    """Whether the machine's memory (MiB) carries guests and a kernel build."""
    wrong: Status = "fail" if total_mib < LEAST_MEMORY_MIB else "warn"
    why = "the default guest and a kernel build fit 4 GiB"
    mend = "use a machine with 4 GiB, or the smoke guest"
    return judged("memory", f"{total_mib} MiB", wrong if total_mib < MEMORY_MIB else "", why, mend)


def check_cores(cores: int) -> DoctorCheck:
    """How many guests can run side by side."""
    why = "guests run one after the other, each on one core"
    return judged(
        "cores", f"{cores} to run on", cores < 2, why, "use two cores or more, or be patient"
    )


def check_cache(folder: Path) -> DoctorCheck:
    """Whether the cache folder can be written, or made where it is not there yet.

    Its path, and that of the checkout, may have no characters that builds and guests cannot have.
    """
    try:
        facts.require_usable(folder)
    except InfraError as error:
        return DoctorCheck("cache folder", "fail", error.where, error.what, error.next_step)
    at = _existing(folder)
    usable = at.is_dir() and os.access(at, os.W_OK | os.X_OK)
    there = f"{folder}{'' if at == folder else ', to be made'}"
    found = there if usable else f"{at} cannot be written"
    why = "kernels, trees and snapshots are kept there"
    mend = "set TWINBOOT_CACHE to a folder of yours"
    return judged("cache folder", found, "" if usable else "fail", why, mend)


def check_disk(folder: Path, free_bytes: int) -> DoctorCheck:
    """Whether ``free_bytes`` at the cache folder suffice to build with nothing cached."""
    wrong: Status = "fail" if free_bytes < LEAST_GIB * GIB else "warn"
    found = f"{free_bytes / GIB:.1f} GiB free at {folder}"
    why = f"a build with nothing cached takes up to {COLD_BUILD_GIB} GiB"
    mend = "./lab.py clean, or set TWINBOOT_CACHE to a larger disk"
    return judged("disk", found, wrong if free_bytes < COLD_BUILD_GIB * GIB else "", why, mend)


def run_checks(*, cache: Path | None = None, proc: Path = Path("/proc")) -> tuple[DoctorCheck, ...]:
    """Look at everything, in the order of mending; InfraError: the package list is malformed."""
    folder = cache if cache is not None else facts.cache_folder()
    listed = [package for package in packages() if package.need in ("required", "useful")]
    versions = {tool.name: tool for tool in facts.TOOLS}
    return (
        *(check_package(package) for package in listed),
        *(check_version(known, facts.tool_version(versions[known.tool])) for known in KNOWN),
        check_exact_mode(),
        check_qemu(),
        check_kvm(),
        check_boxes(),
        check_memory(facts.meminfo_mib(facts.text_of(proc / "meminfo"), "MemTotal")),
        check_cores(facts.cores_available()),
        check_cache(folder),
        check_disk(folder, shutil.disk_usage(_existing(folder)).free),
        check_kept_runs(folder),
    )


def check_kept_runs(folder: Path) -> DoctorCheck:
    """The hosts of which no kept run is used, since one of theirs had other bytes when repeated."""
    hosts = [line.partition(" # ") for line in facts.text_of(folder / ASIDE).splitlines()]
    return judged(
        "kept runs",
        f"not used from {', '.join(host for host, _, _ in hosts)}" if hosts else "of every host",
        bool(hosts),
        "; ".join(f"{host}: {why or 'no reason is on record'}" for host, _, why in hosts),
        f"./lab.py doctor --kernel TREE on both hosts; then remove the line from {folder / ASIDE}",
    )


def worst(checks: Iterable[DoctorCheck]) -> Status:
    """The worst status among checks."""
    statuses = {check.status for check in checks}
    return "fail" if "fail" in statuses else "warn" if "warn" in statuses else "ok"


def as_text(checks: Iterable[DoctorCheck]) -> str:
    """The checks as aligned lines; what is wrong comes with its reason and its mend.

    The last line installs everything that is missing with one command.
    """
    checks = tuple(checks)
    width = max((len(check.name) for check in checks), default=0)
    lines = []
    for check in checks:
        lines.append(f"{check.status:4}  {check.name:{width}}  {check.found}")
        if check.status != "ok":
            lines += [f"{'':{width + 8}}{part}" for part in (check.why, check.mend) if part]
    prefix = f"{install_line([])} "
    absent = [check.mend.removeprefix(prefix) for check in checks if check.mend.startswith(prefix)]
    if absent:
        lines += ["", f"as root: {install_line(absent)}"]
    return "\n".join(lines)


def conclusion(checks: Iterable[DoctorCheck]) -> str:
    """Whether this host is ready, or what is missing, in one line."""
    checks = tuple(checks)
    failing = ", ".join(each.name for each in checks if each.status == "fail")
    if failing:
        return f"this host is not ready, missing: {failing}"
    warned = ", ".join(each.name for each in checks if each.status == "warn")
    warned = f", with warnings: {warned}" if warned else ""
    return f"this host is ready{warned}"


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(each for each in (folder, *folder.parents) if each.exists())
