"""What a guest of the gate found: pure functions over its console and files.

The guest lays its files out with a checksum in each block, does a short form of the cases
and then steps of its own (``check_job.py``), all compared with what was written, and counts
what is in use before and after (``check.sh``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from results.checks import CheckProblem
from workloads import splats
from workloads.check_job import CheckTask, known_selftests
from workloads.parse import MOST_DIGITS, ParseError, whole

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


def judge(console: str, files: Mapping[str, bytes] | None, task: CheckTask) -> CheckResult:
    """What a guest's console and files say.

    ``files`` is None where none came: then only what the console says is known.  A step
    that is missing, or compared nothing, is a problem: a check that did not check
    something is not green.
    """
    problems = [
        CheckProblem(kind=s.kind, title=s.line, where=s.where, says=s.title, evidence=s.evidence)
        for s in splats.find(console)
    ]
    checked: list[str] = []
    _selftests(console, task, problems, checked)
    if files is not None:
        _steps(files, task, problems, checked)
        _leaks(files, task, problems, checked)
        _taint(files, problems)
        _lockdep(files.get("lockdep_stats", b"").decode(errors="replace"), task, problems, checked)
    return CheckResult(tuple(problems), tuple(checked))


def _selftests(
    console: str, task: CheckTask, problems: list[CheckProblem], checked: list[str]
) -> None:
    known = known_selftests()
    for name in task.selftests:
        report = re.search(rf"{known[name].prints}: (\d+) of (\d+) tests passed", console)
        if report is None and any(problem.kind == "selftest" for problem in problems):
            continue
        if report is None:
            problems.append(problem("selftest", f"the {name} self-test did not report"))
        elif report[1] != report[2] or report[2] == "0":
            problems.append(problem("selftest", report[0]))
        else:
            checked.append(report[0])


def problem(kind: str, title: str, evidence: Sequence[str] = ()) -> CheckProblem:
    """A problem of a kind, in its words."""
    says = {
        "selftest": "fails the kernel's own tests",
        "data": "returns wrong data",
        "step": "fails a step",
        "leak": "loses memory",
        "taint": "is tainted",
    }[kind]
    return CheckProblem(kind=kind, title=title, says=says, evidence=tuple(evidence))


def _steps(
    files: Mapping[str, bytes], task: CheckTask, problems: list[CheckProblem], checked: list[str]
) -> None:
    if failure := files.get("failure"):
        problems.append(problem("step", failure.decode(errors="replace").strip()))
    blocks = dict.fromkeys(task.compared, 0)
    huge = 0
    for name in task.steps:
        status = files.get(f"{name}/status", b"").decode(errors="replace").strip()
        output = files.get(f"{name}/fio.out", b"").decode(errors="replace").splitlines()
        wrong = [line for line in output if DIFFERS.match(line)]
        if wrong:
            title = f"{name}: {wrong[0].strip()}"
            problems.append(problem("data", title, output[:EVIDENCE_LINES]))
        elif status != "0":
            what = f"ended with {status}" if status else "did not run"
            problems.append(problem("step", f"{name}: {what}", output[:EVIDENCE_LINES]))
        elif name in blocks:
            blocks[name] = _compared_blocks(files.get(f"{name}/fio.json", b""))
        huge = max(huge, _value(files.get(f"{name}/memory.stat", b""), "file_thp"))
    if not problems:
        problems += [
            problem("step", f"{name}: no block was read back")
            for name, read in blocks.items()
            if not read
        ]
    if any(blocks.values()):
        checked.append(
            f"{sum(blocks.values())} blocks of 4 KiB read back and compared in {len(blocks)} steps"
        )
    if written := sum(blocks[name] for name in task.read_back):
        checked.append(f"{written} of them written by the cases' own phases, none lost")
    reclaimed = max(_value(files.get(f"{name}/memory.stat", b""), "pgsteal") for name in task.steps)
    if reclaimed:
        checked.append(f"{reclaimed * BLOCK >> 20} MiB of page cache reclaimed meanwhile")
    if huge:
        checked.append(f"up to {huge >> 20} MiB in huge folios, reclaimed and read again by 4 KiB")


def _compared_blocks(text: bytes) -> int:
    """Blocks that fio read back, by its own count; 0 for what is no result of fio's.

    A job that writes too reads back what it wrote; what else it read is not compared.
    """
    try:
        jobs = json.loads(text[text.index(b"{") :])["jobs"]
        return sum(_compared_bytes(job) for job in jobs) // BLOCK
    except (AttributeError, ParseError, RecursionError, ValueError, LookupError, TypeError):
        return 0


def _compared_bytes(job: Mapping[str, Mapping[str, int]]) -> int:
    read, written = whole(job["read"]["io_bytes"]), whole(job["write"]["io_bytes"])
    return min(read, written) if written else read


def _leaks(
    files: Mapping[str, bytes], task: CheckTask, problems: list[CheckProblem], checked: list[str]
) -> None:
    counts = {when: _counts(files, when) for when in ("before", "after")}
    before, after = counts["before"], counts["after"]
    if not before or not after:
        problems.append(problem("step", "what is left in use was not counted"))
        return
    grown = {name: after[name] - before[name] for name in before}
    kinds = (
        ("nodes", "nodes of trees (radix_tree_node)", SLACK_NODES),
        ("charged_kib", "KiB charged to the cgroup", SLACK_KIB + task.vcpus * CHARGED_AHEAD_KIB),
        ("file_pages", "pages of files", SLACK_FILE_PAGES),
    )
    lost = [(grown[name], what, slack) for name, what, slack in kinds if grown[name] > slack]
    for number, what, slack in lost:
        title = f"{number} {what} more in use than before, at most {slack} are expected"
        evidence = [
            f"{when}: " + ", ".join(f"{counted[name]} {what}" for name, what, _ in kinds)
            for when, counted in counts.items()
        ]
        problems.append(problem("leak", title, evidence))
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
    # What the guest keeps of its steps lies in memory, charged to the same cgroup.
    charged = _digits(current) - _value(files.get(f"{when}/memory.stat", b""), "shmem")
    return {"nodes": _digits(nodes[1]), "charged_kib": charged >> 10, "file_pages": pages}


def _value(text: bytes, name: str) -> int:
    match = re.search(rf"^{name} (\d+)$", text.decode(errors="replace"), re.M)
    return _digits(match[1]) if match else 0


def _digits(text: str | bytes) -> int:
    """A counter of the kernel; one of more than 64 bits is none, and shows nothing."""
    return int(text) if text.isdigit() and len(text) < MOST_DIGITS else 0


def _taint(files: Mapping[str, bytes], problems: list[CheckProblem]) -> None:
    text = files.get("tainted", b"").strip()
    flags = _digits(text)
    named = [word for bit, word in TAINTS.items() if flags >> bit & 1]
    if named and not problems:
        problems.append(problem("taint", f"taint flags of the kernel: {', '.join(named)}"))


def _lockdep(text: str, task: CheckTask, problems: list[CheckProblem], checked: list[str]) -> None:
    if not task.lockdep:
        return
    classes = re.search(r"lock-classes: +(\d+)", text)
    if classes is None:
        problems.append(problem("step", "this kernel has no lockdep"))
    elif re.search(r"debug_locks: +1", text):
        checked.append(f"lockdep watched {classes[1]} classes of locks to the end")
    elif not problems:
        problems.append(problem("step", "lockdep turned itself off and did not say why"))
