"""The gate's job, and what it found: pure functions over texts and files.

A guest of the gate lays a file out with a checksum in each block, runs a short form of
the cases and then steps of its own, all compared with what was written, and counts what
is in use before and after (``check.sh``).
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from results.checks import Problem
from workloads import splats
from workloads.spec import Phase

SCRIPT = Path(__file__).with_name("check.sh")
SELFTESTS = Path(__file__).with_name("selftests.toml")
IMAGE = "/mnt/test.img"
CONTENT = ("--verify=crc32c", "--verify_interval=4096", "--verify_fatal=1")
READS = {"read", "randread"}
# What each job of a step reads, in MiB: a huge folio comes and goes for each 4 KiB.
SHARE_MIB = 1
OWN_STEPS = ("huge", "small", "huge-again", "small-again", "write", "whole", "device")
BLOCK = 4096
EVIDENCE_LINES = 12
# What may be left when file and file system are gone: the guest's own work leaves a few
# pages of its results and per-CPU caches, never one for each folio.
SLACK_NODES = 150
SLACK_KIB = 1024
SLACK_FILE_PAGES = 256
# Flags set when something is wrong: Documentation/admin-guide/tainted-kernels.rst.
TAINTS = {4: "machine check", 5: "bad page", 7: "died", 9: "warned", 14: "soft lockup"}


@dataclass(frozen=True)
class Selftest:
    """A self-test: the initcall that runs it, and how its one line begins."""

    initcall: str
    prints: str


@dataclass(frozen=True)
class Asked:
    """What one guest of the gate was asked to do."""

    selftests: tuple[str, ...]
    steps: tuple[str, ...]
    lockdep: bool


@dataclass(frozen=True)
class Found:
    """What it said: problems, and one line for each thing that was looked at and is well."""

    problems: tuple[Problem, ...]
    checked: tuple[str, ...]


def known_selftests(path: Path = SELFTESTS) -> dict[str, Selftest]:
    """Self-tests by the names that an experiment gives them."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: Selftest(**entry) for name, entry in data.items()}


def command_line(selftests: Sequence[str]) -> tuple[str, ...]:
    """Words for the kernel of a guest of the gate.

    Everything is printed; slabs of tree nodes have red zones and are looked through when
    they are freed; a task that waits for 10 virtual seconds is told.  Self-tests that are
    not asked for are left out: a name that the kernel does not know does nothing.
    """
    words = ["loglevel=7", "slub_debug=FZ,radix_tree_node", "panic_on_warn=0"]
    words.append("sysctl.kernel.hung_task_timeout_secs=10")
    unasked = [test.initcall for name, test in known_selftests().items() if name not in selftests]
    return (*words, *([f"initcall_blacklist={','.join(unasked)}"] if unasked else []))


def steps_of(cases: Sequence[tuple[str, Sequence[Phase]]]) -> list[tuple[str, Phase]]:
    """The phases of the cases as steps, each with a name of its own."""
    return [
        (f"{number}-{phase.name}", phase)
        for number, (_, phases) in enumerate(cases, start=1)
        for phase in phases
    ]


def job_text(
    cases: Sequence[tuple[str, Sequence[Phase]]],
    *,
    jobs: int,
    seed: int,
    limit_bytes: int,
    sysctl: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """What is sent into a guest of the gate: assignments, and the script that reads them.

    A phase that only reads the file is compared with what was written; after one that
    writes the file is laid out again.
    """
    steps = steps_of(cases)
    values = {"JOBS": str(jobs), "SEED": str(seed), "LIMIT": str(limit_bytes)}
    values |= {"SHARE": str(SHARE_MIB), "PHASES": str(len(steps))}
    if sysctl:
        values["SYSCTL"] = "\n".join(f"{name}={value}" for name, value in sorted(sysctl.items()))
    for number, (name, phase) in enumerate(steps, start=1):
        reads = _only_reads(phase.fio)
        ours = any(word.endswith(f"={IMAGE}") for word in phase.fio)
        arguments = [*phase.fio, f"--numjobs={jobs}", f"--io_size={SHARE_MIB}M"]
        arguments += ["--group_reporting", "--randrepeat=0", f"--randseed={seed}"]
        arguments += CONTENT if reads and ours else ()
        values |= {
            f"NAME_{number}": name,
            f"DROP_{number}": str(int(phase.drop_caches)),
            f"THP_{number}": phase.thp,
            f"FIO_{number}": shlex.join(arguments),
            f"WRITES_{number}": str(int(ours and not reads)),
        }
    text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    return text + SCRIPT.read_text(encoding="utf-8")


def _only_reads(fio: Sequence[str]) -> bool:
    kinds = [word.partition("=")[2] for word in fio if re.match(r"--(rw|readwrite)=", word)]
    return bool(kinds) and set(kinds) <= READS


def judge(console: str, files: Mapping[str, bytes] | None, asked: Asked) -> Found:
    """What a guest's console and files say.

    ``files`` is None where none came: then only what the console says is known.  A step
    that is missing, or compared nothing, is a problem: a check that did not check
    something is not green.
    """
    problems = [
        Problem(kind=s.kind, title=s.line, where=s.where, says=s.title, evidence=s.evidence)
        for s in splats.find(console)
    ]
    checked: list[str] = []
    _selftests(console, asked, problems, checked)
    if files is not None:
        _steps(files, asked, problems, checked)
        _left(files, problems, checked)
        _taint(files, problems)
        _lockdep(files.get("lockdep_stats", b"").decode(errors="replace"), asked, problems, checked)
    return Found(tuple(problems), tuple(checked))


def _selftests(console: str, asked: Asked, problems: list[Problem], checked: list[str]) -> None:
    known = known_selftests()
    for name in asked.selftests:
        said = re.search(rf"{known[name].prints}: (\d+) of (\d+) tests passed", console)
        if said is None and any(problem.kind == "selftest" for problem in problems):
            continue
        if said is None:
            problems.append(_problem("selftest", f"the {name} self-test did not report"))
        elif said[1] != said[2] or said[2] == "0":
            problems.append(_problem("selftest", said[0]))
        else:
            checked.append(said[0])


def _problem(kind: str, title: str, evidence: Sequence[str] = ()) -> Problem:
    says = {
        "selftest": "fails the kernel's own tests",
        "data": "returns wrong data",
        "step": "fails a step",
        "leak": "loses memory",
        "taint": "is tainted",
    }[kind]
    return Problem(kind=kind, title=title, says=says, evidence=tuple(evidence))


def _steps(
    files: Mapping[str, bytes], asked: Asked, problems: list[Problem], checked: list[str]
) -> None:
    if failure := files.get("failure"):
        problems.append(_problem("step", failure.decode(errors="replace").strip()))
    blocks, huge = 0, 0
    for name in asked.steps:
        status = files.get(f"{name}/status", b"").decode(errors="replace").strip()
        said = files.get(f"{name}/fio.out", b"").decode(errors="replace").splitlines()
        wrong = [line for line in said if line.startswith(("verify:", "fio: pid="))]
        if wrong and any(line.startswith("verify:") for line in wrong):
            title = f"{name}: {wrong[0].strip()}"
            problems.append(_problem("data", title, said[:EVIDENCE_LINES]))
        elif status != "0":
            what = f"fio ended with {status}" if status else "did not run"
            problems.append(_problem("step", f"{name}: {what}", said[:EVIDENCE_LINES]))
        else:
            blocks += _read_blocks(files.get(f"{name}/fio.json", b""))
            huge = max(huge, _value(files.get(f"{name}/memory.stat", b""), "file_thp"))
    if not blocks and not problems:
        problems.append(_problem("step", "no block was read back"))
    elif blocks:
        checked.append(
            f"{blocks} blocks of 4 KiB read back and compared in {len(asked.steps)} steps"
        )
    if huge:
        checked.append(f"up to {huge >> 20} MiB in huge folios, reclaimed and read again by 4 KiB")


def _read_blocks(text: bytes) -> int:
    """Blocks that fio read, by its own count; 0 for what is no result of fio's."""
    try:
        jobs = json.loads(text[text.index(b"{") :])["jobs"]
        return sum(int(job["read"]["io_bytes"]) // BLOCK for job in jobs)
    except (ValueError, LookupError, TypeError):
        return 0


def _left(files: Mapping[str, bytes], problems: list[Problem], checked: list[str]) -> None:
    counts = {when: _counts(files, when) for when in ("before", "after")}
    before, after = counts["before"], counts["after"]
    if not before or not after:
        problems.append(_problem("step", "what is left in use was not counted"))
        return
    grown = {name: after[name] - before[name] for name in before}
    kinds = (
        ("nodes", "nodes of trees (radix_tree_node)", SLACK_NODES),
        ("charged_kib", "KiB charged to the cgroup", SLACK_KIB),
        ("file_pages", "pages of files", SLACK_FILE_PAGES),
    )
    lost = [(grown[name], what, slack) for name, what, slack in kinds if grown[name] > slack]
    for number, what, slack in lost:
        title = f"{number} {what} more in use than before, at most {slack} are expected"
        problems.append(_problem("leak", title, [f"before {before}", f"after {after}"]))
    if not lost:
        checked.append(f"nothing left: {grown['nodes']:+d} nodes of trees with the file gone")


def _counts(files: Mapping[str, bytes], when: str) -> dict[str, int]:
    slabs = files.get(f"{when}/slabinfo", b"").decode(errors="replace")
    nodes = re.search(r"^radix_tree_node +(\d+)", slabs, re.M)
    current = files.get(f"{when}/memory.current", b"").strip()
    vmstat = files.get(f"{when}/vmstat", b"")
    if nodes is None or not current.isdigit() or not vmstat:
        return {}
    pages = _value(vmstat, "nr_file_pages") - _value(vmstat, "nr_shmem")
    return {"nodes": int(nodes[1]), "charged_kib": int(current) >> 10, "file_pages": pages}


def _value(text: bytes, name: str) -> int:
    found = re.search(rf"^{name} (\d+)$", text.decode(errors="replace"), re.M)
    return int(found[1]) if found else 0


def _taint(files: Mapping[str, bytes], problems: list[Problem]) -> None:
    text = files.get("tainted", b"").strip()
    flags = int(text) if text.isdigit() else 0
    named = [word for bit, word in TAINTS.items() if flags >> bit & 1]
    if named and not problems:
        problems.append(_problem("taint", f"taint flags of the kernel: {', '.join(named)}"))


def _lockdep(text: str, asked: Asked, problems: list[Problem], checked: list[str]) -> None:
    if not asked.lockdep:
        return
    classes = re.search(r"lock-classes: +(\d+)", text)
    if classes is None:
        problems.append(_problem("step", "this kernel has no lockdep"))
    elif re.search(r"debug_locks: +1", text):
        checked.append(f"lockdep watched {classes[1]} classes of locks to the end")
    elif not problems:
        problems.append(_problem("step", "lockdep turned itself off and did not say why"))
