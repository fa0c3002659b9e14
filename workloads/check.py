"""What a guest of the gate found: pure functions over its console and files.

The guest lays its files out with a checksum in each block, does a short form of the cases
and then steps of its own (``check_job.py``), all compared with what was written, and counts
what is in use before and after (``check.sh``).
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
from typing import Literal

from experiment.plan import MIN_BRD_MIB, Size
from results.record import CheckProblem
from workloads.job import arm_files, limit_text
from workloads.job_file import names_of
from workloads.parse import MOST_DIGITS, ParseError, whole
from workloads.spec import Phase, Workload

SCRIPT = Path(__file__).with_name("check.sh")
CONTENT = ("--verify=crc32c", "--verify_interval=4096", "--verify_fatal=1")
# What each job of a step reads or writes, in MiB: a huge folio comes and goes for each 4 KiB.
SHARE_MIB = 1
# Of a program's operations, one of so many is done, but in a phase that others need whole.
SHARE_OPS = 10
OWN_STEPS = ("huge", "small", "huge-again", "small-again", "write", "whole", "device")
# Of the gate's own steps where the experiment has no file and no limit that would do:
# those of filemap-v4 in the smallest guest.
IMAGE_MIB, LIMIT_MIB = 52, 32
# Of a limit that the experiment does not have: fio's own memory in each job.
JOB_MIB = 8
# The gate's own file system where the experiment has none on a device: that of the workloads.
MKFS = "mkfs.xfs -q -f --unsupported -c options=/etc/xfs.conf"

SYNCHRONOUS = ("sync", "psync", "pvsync", "pvsync2", "vsync", "mmap")

Writes = Literal["no", "some", "all"]


@dataclass(frozen=True)
class Selftest:
    """A self-test: the initcall that runs it, and how its one line begins."""

    initcall: str
    prints: str


# By the names that an experiment gives them.
SELFTESTS = {
    name: Selftest(**entry)
    for name, entry in tomllib.loads(SCRIPT.with_name("selftests.toml").read_text()).items()
}


@dataclass(frozen=True)
class CheckCase:
    """A case in a guest of the gate: its workload, and the phases of its variant."""

    workload: Workload
    phases: tuple[Phase, ...]


@dataclass(frozen=True)
class CheckTask:
    """What one guest of the gate was asked to do.

    ``steps`` are all that it makes, ``compared`` those that read something back, and
    ``found_again`` those of them that look for what a phase wrote.  Each of its ``vcpus``
    may hold back some of what is counted as used.
    """

    selftests: tuple[str, ...]
    steps: tuple[str, ...]
    lockdep: bool
    compared: tuple[str, ...] = ()
    read_back: tuple[str, ...] = ()
    vcpus: int = 1


@dataclass(frozen=True)
class Room:
    """Sizes of one guest, in MiB; 0 is none.

    ``limit`` is the cgroup's while the phases run, ``left`` the memory that is not taken
    away meanwhile; ``image`` and ``own_limit`` are of the gate's own steps.
    """

    brd: int
    limit: int
    left: int
    image: int
    own_limit: int


def command_line(selftests: Sequence[str]) -> tuple[str, ...]:
    """Words for the kernel of a guest of the gate.

    Everything is printed; slabs of tree nodes have red zones and are looked through when
    they are freed; a task that waits for 10 virtual seconds is told.  Self-tests that are
    not asked for are left out: a name that the kernel does not know does nothing.
    """
    words = ["loglevel=7", "slub_debug=FZ,radix_tree_node", "panic_on_warn=0"]
    words.append("sysctl.kernel.hung_task_timeout_secs=10")
    unasked = [test.initcall for name, test in SELFTESTS.items() if name not in selftests]
    return (*words, *([f"initcall_blacklist={','.join(unasked)}"] if unasked else []))


def room(size: Size, workload: Workload) -> Room:
    """The sizes of a guest for cases of ``workload``, from the experiment's scaled ones.

    A limit of the experiment's holds for the phases.  Where it says what memory is left,
    that much is left and there is no limit; else there is one, of half of the files and
    what the jobs take themselves, but not in tmpfs, where nothing can be reclaimed.  The
    gate's own steps have the experiment's file and limit where there is one file and a
    limit, and sizes of their own else.
    """
    on_device = workload.fs != "tmpfs"
    limit, left = size.cgroup_limit_mib, 0
    if not limit and size.memory_mib:
        left = size.memory_mib
    elif not limit and on_device:
        limit = size.file_mib // 2 + JOB_MIB * size.jobs
    shared = on_device and not workload.file_per_job and size.cgroup_limit_mib
    return Room(
        brd=size.brd_mib if on_device else MIN_BRD_MIB,
        limit=limit,
        left=left,
        image=size.file_mib if shared else IMAGE_MIB,
        own_limit=size.cgroup_limit_mib if shared else LIMIT_MIB,
    )


def writes_of(phase: Phase, workload: Workload) -> Writes:
    """Whether a phase writes to the files, and whether to all of them."""
    if not _of_the_files(phase, workload) or "write" not in phase.directions:
        return "no"
    return "some" if phase.time_based else "all"


def _of_the_files(phase: Phase, workload: Workload) -> bool:
    """Whether the phase works on the files that the agent lays out, and on all of them."""
    return workload.file_per_job or workload.files(1) == names_of(phase.fio)


def _named(cases: Sequence[CheckCase]) -> list[tuple[str, Phase, Workload]]:
    return [
        (f"{number}-{phase.name}", phase, case.workload)
        for number, case in enumerate(cases, start=1)
        for phase in case.phases
    ]


def task_of(
    cases: Sequence[CheckCase], selftests: tuple[str, ...], *, lockdep: bool, vcpus: int
) -> CheckTask:
    """Every step of a guest, in order."""
    steps: list[str] = []
    compared: list[str] = []
    read_back: list[str] = []
    for name, phase, workload in _named(cases):
        kind = writes_of(phase, workload)
        steps.append(name)
        if kind == "no" and _of_the_files(phase, workload):
            compared.append(name)
        if kind != "no":
            read_back.append(f"{name}-back")
            more = [f"{name}-back"]
            more += [f"{name}-again", f"{name}-whole"] if kind == "some" else []
            steps += more
            compared += [step for step in more if not step.endswith("-again")]
    return CheckTask(
        selftests,
        (*steps, *OWN_STEPS),
        lockdep,
        compared=(*compared, *OWN_STEPS),
        read_back=tuple(read_back),
        vcpus=vcpus,
    )


def job_text(
    cases: Sequence[CheckCase],
    *,
    jobs: int,
    seed: int,
    room: Room,
    file_mib: int,
    sysctl: Mapping[str, str] = MappingProxyType({}),
    files: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """What is sent into a guest of the gate; ``file_mib`` is that of all files together."""
    named = _named(cases)
    values = {
        "JOBS": str(jobs),
        "SEED": str(seed),
        "SHARE": str(SHARE_MIB),
        "LIMIT": limit_text(room.limit << 20),
        "LEFT_MIB": str(room.left),
        "IMAGE_MIB": str(room.image),
        "OWN_LIMIT": str(room.own_limit << 20),
        "OWN_MKFS": MKFS,
        "PHASES": str(len(named)),
    }
    if sysctl:
        values["SYSCTL"] = "\n".join(f"{name}={value}" for name, value in sorted(sysctl.items()))
    for number, (name, phase, workload) in enumerate(named, start=1):
        # What a phase writes must not be what another one wrote.
        own_seed = seed if writes_of(phase, workload) == "no" else seed + number
        values |= {
            f"NAME_{number}": name,
            f"DROP_{number}": str(int(phase.drop_caches)),
            f"THP_{number}": phase.thp,
            f"READAHEAD_{number}": str(phase.readahead_kib),
            f"FIO_{number}": shlex.join(_command(phase, workload, jobs, own_seed, file_mib)),
            f"WRITES_{number}": writes_of(phase, workload),
        }
    text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    return text + arm_files(files) + SCRIPT.read_text(encoding="utf-8")


def _command(phase: Phase, workload: Workload, jobs: int, seed: int, file_mib: int) -> list[str]:
    """The arguments of fio, or the command of a program."""
    if phase.program:
        ops = phase.ops if phase.whole else max(1, phase.ops // SHARE_OPS)
        return [*phase.program, str(ops), str(seed)]
    arguments = [*phase.fio, f"--numjobs={jobs}"]
    # Without time_based the work is given, and a part of it may not do what it is about.
    arguments += [f"--io_size={SHARE_MIB}M"] if phase.time_based else []
    arguments += ["--group_reporting", "--randrepeat=0", f"--randseed={seed}"]
    # Such an engine has one request under way, and fio a buffer for each that may be.
    arguments += ["--iodepth=1"] if phase.option("ioengine") in SYNCHRONOUS else []
    kind = writes_of(phase, workload)
    if kind == "no":
        return arguments + (list(CONTENT) if _of_the_files(phase, workload) else [])
    if not workload.file_per_job and jobs > 1:
        # A part for each: what two jobs wrote to one block could not be compared.
        part = f"{file_mib * 1024 // jobs // 4 * 4}k"
        arguments += [f"--size={part}", f"--offset_increment={part}"]
    return arguments


PATTERNS = tomllib.loads(Path(__file__).with_name("splats.toml").read_text(encoding="utf-8"))
# Kind, title and pattern of every kind of splat, in the order they are tried.
SPLATS = tuple(
    (entry["kind"], entry["title"], re.compile("|".join(f"(?:{p})" for p in entry["patterns"])))
    for entry in PATTERNS["splats"]
)
PLACES = tuple(map(re.compile, PATTERNS["places"]))
TELLERS = re.compile("|".join(PATTERNS["tellers"]))
STAMP = re.compile(r"^(?:<\d+>)?\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? ?")
TRACED = re.compile(r"^ +([\w.]+)\+0x[0-9a-f]+/0x[0-9a-f]+$")
LINES_OF_SPLAT = 100
# Ends the evidence of a splat, with the line itself.
END = re.compile(r"</TASK>|---\[ end (?:trace|Kernel panic)|^twinboot: ")
# The same splat again and again says nothing new.
MOST = 20


def find(console: str) -> tuple[CheckProblem, ...]:
    """Every splat of a console, once for each cause, without panics that others led to."""
    lines = [STAMP.sub("", line.rstrip("\r")) for line in console.splitlines()]
    splats: dict[str, CheckProblem] = {}
    number = 0
    while number < len(lines) and len(splats) < MOST:
        first = _kind(lines[number])
        if first is None:
            number += 1
            continue
        # A splat ends with a line that ends one, and before one of another kind.
        begin, last = number, min(len(lines), number + LINES_OF_SPLAT)
        number += 1
        while number < last:
            line = lines[number]
            if line.startswith("twinboot: ") or (
                not END.search(line) and _kind(line) not in (None, first)
            ):
                break
            number += 1
            if END.search(line):
                break
        evidence = tuple(line for line in lines[begin:number] if line.strip())
        text, (kind, says) = "\n".join(evidence), first
        placed = (match[1] for place in PLACES if (match := place.search(text)))
        traced = (match[1] for line in evidence if (match := TRACED.match(line)))
        where = next(placed, next((name for name in traced if not TELLERS.fullmatch(name)), ""))
        splat = CheckProblem(
            kind=kind,
            title=lines[begin].strip(),
            says=says,
            where=where,
            evidence=evidence,
        )
        if splat.kind != "panic" or not splats:
            splats.setdefault(splat.cause, splat)
    return tuple(splats.values())


def _kind(line: str) -> tuple[str, str] | None:
    return next(((kind, title) for kind, title, pattern in SPLATS if pattern.search(line)), None)


BLOCK = 4096
EVIDENCE_LINES = 12
# What fio says of a block that is not what was written.
DIFFERS = re.compile(r"verify: |\w+: verify failed at ")
# What may be left when file and file system are gone: slabs of the CPUs and of the guest's
# own work, never a node or page for each folio.
SLACK_NODES = 150
SLACK_KIB = 512
# What a CPU charges ahead for a cgroup and gives back when another one comes
# (MEMCG_CHARGE_BATCH of mm/memcontrol.c, 64 pages).
CHARGED_AHEAD_KIB = 256
SLACK_FILE_PAGES = 256
# Flags set when something is wrong: Documentation/admin-guide/tainted-kernels.rst.
TAINTS = {4: "machine check", 5: "bad page", 7: "died", 9: "warned", 14: "soft lockup"}


@dataclass(frozen=True)
class CheckResult:
    """What it said: problems, and one line for each thing that was looked at and is well."""

    problems: tuple[CheckProblem, ...]
    checked: tuple[str, ...]


KINDS = {
    "selftest": "fails the kernel's own tests",
    "data": "returns wrong data",
    "step": "fails a step",
    "leak": "loses memory",
    "taint": "is tainted",
}


def problem(kind: str, title: str, evidence: Sequence[str] = ()) -> CheckProblem:
    """A problem of a kind, in its words."""
    return CheckProblem(kind=kind, title=title, says=KINDS[kind], evidence=tuple(evidence))


def judge(console: str, files: Mapping[str, bytes] | None, task: CheckTask) -> CheckResult:
    """What a guest's console and files say.

    ``files`` is None where none came: then only what the console says is known.  A step
    that is missing, or compared nothing, is a problem: a check that did not check
    something is not green.
    """
    problems = [*find(console)]
    checked: list[str] = []
    for name in task.selftests:
        report = re.search(rf"{SELFTESTS[name].prints}: (\d+) of (\d+) tests passed", console)
        if report is None and not any(each.kind == "selftest" for each in problems):
            problems.append(problem("selftest", f"the {name} self-test did not report"))
        elif report and (report[1] != report[2] or report[2] == "0"):
            problems.append(problem("selftest", report[0]))
        elif report:
            checked.append(report[0])
    if files is not None:
        _steps(files, task, problems, checked)
        _leaks(files, task, problems, checked)
        flags = _digits(files.get("tainted", b"").strip())
        named = [word for bit, word in TAINTS.items() if flags >> bit & 1]
        if named and not problems:
            problems.append(problem("taint", f"taint flags of the kernel: {', '.join(named)}"))
        text = files.get("lockdep_stats", b"").decode(errors="replace")
        classes = re.search(r"lock-classes: +(\d+)", text)
        if task.lockdep and classes is None:
            problems.append(problem("step", "this kernel has no lockdep"))
        elif task.lockdep and classes and re.search(r"debug_locks: +1", text):
            checked.append(f"lockdep watched {classes[1]} classes of locks to the end")
        elif task.lockdep and not problems:
            problems.append(problem("step", "lockdep turned itself off and did not say why"))
    return CheckResult(tuple(problems), tuple(checked))


def _steps(
    files: Mapping[str, bytes], task: CheckTask, problems: list[CheckProblem], checked: list[str]
) -> None:
    if failure := files.get("failure"):
        problems.append(problem("step", failure.decode(errors="replace").strip()))
    blocks = dict.fromkeys(task.compared, 0)
    huge = reclaimed = 0
    for name in task.steps:
        status, output = (
            files.get(f"{name}/{file}", b"").decode(errors="replace")
            for file in ("status", "fio.out")
        )
        lines = output.splitlines()
        wrong = [line for line in lines if DIFFERS.match(line)]
        if wrong:
            title = f"{name}: {wrong[0].strip()}"
            problems.append(problem("data", title, lines[:EVIDENCE_LINES]))
        elif status.strip() != "0":
            what = f"ended with {status.strip()}" if status.strip() else "did not run"
            problems.append(problem("step", f"{name}: {what}", lines[:EVIDENCE_LINES]))
        elif name in blocks:
            blocks[name] = _compared_blocks(files.get(f"{name}/fio.json", b""))
        memory = files.get(f"{name}/memory.stat", b"")
        huge = max(huge, _value(memory, "file_thp"))
        reclaimed = max(reclaimed, _value(memory, "pgsteal"))
    if not problems:
        unread = [name for name, read in blocks.items() if not read]
        problems += [problem("step", f"{name}: no block was read back") for name in unread]
    if count := sum(blocks.values()):
        checked.append(f"{count} blocks of 4 KiB read back and compared in {len(blocks)} steps")
    if written := sum(blocks[name] for name in task.read_back):
        checked.append(f"{written} of them written by the cases' own phases, none lost")
    if reclaimed:
        checked.append(f"{reclaimed * BLOCK >> 20} MiB of page cache reclaimed meanwhile")
    if huge:
        checked.append(f"up to {huge >> 20} MiB in huge folios, reclaimed and read again by 4 KiB")


def _compared_blocks(text: bytes) -> int:
    """Blocks that fio read back to compare, by its own count; 0 for no result of fio's."""
    total = 0
    try:
        for job in json.loads(text[text.index(b"{") :])["jobs"]:
            read, written = (whole(job[way]["io_bytes"]) for way in ("read", "write"))
            total += min(read, written) if written else read
    except (AttributeError, ParseError, RecursionError, ValueError, LookupError, TypeError):
        return 0
    return total // BLOCK


def _leaks(
    files: Mapping[str, bytes], task: CheckTask, problems: list[CheckProblem], checked: list[str]
) -> None:
    before, after = _counts(files, "before"), _counts(files, "after")
    if not before or not after:
        problems.append(problem("step", "what is left in use was not counted"))
        return
    kinds = (
        ("nodes of trees (radix_tree_node)", SLACK_NODES),
        ("KiB charged to the cgroup", SLACK_KIB + task.vcpus * CHARGED_AHEAD_KIB),
        ("pages of files", SLACK_FILE_PAGES),
    )
    evidence = [
        f"{when}: " + ", ".join(f"{n} {what}" for n, (what, _) in zip(counts, kinds, strict=True))
        for when, counts in (("before", before), ("after", after))
    ]
    grown = [b - a for a, b in zip(before, after, strict=True)]
    lost = [
        problem(
            "leak", f"{n} {what} more in use than before, at most {slack} are expected", evidence
        )
        for n, (what, slack) in zip(grown, kinds, strict=True)
        if n > slack
    ]
    problems += lost
    if not lost:
        checked.append(f"nothing left: {grown[0]:+d} nodes of trees with the file gone")


def _counts(files: Mapping[str, bytes], when: str) -> tuple[int, int, int] | None:
    """Nodes of trees, KiB charged to the cgroup, pages of files; None where one is not told."""
    slabs = files.get(f"{when}/slabinfo", b"").decode(errors="replace")
    nodes = re.search(r"^radix_tree_node +(\d+)", slabs, re.M)
    current = files.get(f"{when}/memory.current", b"").strip()
    vmstat = files.get(f"{when}/vmstat", b"")
    if nodes is None or not current.isdigit() or not vmstat:
        return None
    pages = _value(vmstat, "nr_file_pages") - _value(vmstat, "nr_shmem")
    # What the guest keeps of its steps lies in memory, charged to the same cgroup.
    charged = _digits(current) - _value(files.get(f"{when}/memory.stat", b""), "shmem")
    return _digits(nodes[1]), charged >> 10, pages


def _value(text: bytes, name: str) -> int:
    match = re.search(rf"^{name} (\d+)$", text.decode(errors="replace"), re.M)
    return _digits(match[1]) if match else 0


def _digits(text: str | bytes) -> int:
    """A counter of the kernel; one of more than 64 bits is none, and shows nothing."""
    return int(text) if text.isdigit() and len(text) < MOST_DIGITS else 0
