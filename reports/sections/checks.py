"""The correctness checks: one line an arm, what was checked, and what the kernel printed."""

from __future__ import annotations

from collections.abc import Sequence

from reports.document import Block, Code, Fold, Item, Listing, Strong
from reports.gate_model import ArmGate
from reports.sections.view import View, titled
from results.checks import Check, CheckProblem

# Lines of a splat that are quoted; the whole is in the console's log.
QUOTED_LINES = 30
# Splats of one arm that are quoted: what follows the first is mostly its consequence.
QUOTED = 2
# Words of the record for people.
STATUS = {"green": "passed", "red": "failed"}


def problem_text(problem: CheckProblem) -> str:
    """``sleeps where it must not: BUG: sleeping function ... (in xas_split_alloc)``."""
    where = f" (in {problem.where})" if problem.where else ""
    return f"{problem.says}: {problem.title}{where}"


def line(gate: ArmGate) -> str:
    """The arm, and how it stands."""
    if gate.standing == "green":
        return f"{gate.arm}: passed ({guests(gate.checks)})"
    if gate.standing == "pending":
        return f"{gate.arm}: pending: {gate.reason}"
    if gate.standing == "not run":
        return f"{gate.arm}: not run: {gate.reason}"
    if gate.standing == "red before the series":
        return f"{gate.arm}: fails without the series too: {problem_text(gate.inherited[0][1])}"
    return f"{gate.arm}: failed: {problem_text(gate.problems[0][1])}"


def guests(checks: Sequence[Check]) -> str:
    """Kernels and vCPUs of the guests: ``lockdep on 1 and 4 vCPUs, selftest on 1 vCPU``."""
    flavours: dict[str, list[int]] = {}
    for check in checks:
        flavours.setdefault(check.flavour, []).append(check.vcpus)
    parts = []
    for flavour, vcpus in flavours.items():
        counts = [str(count) for count in sorted(set(vcpus))]
        several = len(counts) > 1 or counts != ["1"]
        parts.append(f"{flavour} on {' and '.join(counts)} vCPU{'s' if several else ''}")
    return ", ".join(parts)


def sentence(gates: Sequence[ArmGate]) -> str:
    """How every arm stands, in one sentence for a mail; empty without checks.

    ``Correctness checks: base, patched: passed (lockdep on 1 and 4 vCPUs).``
    """
    alike: dict[str, list[str]] = {}
    for gate in gates:
        alike.setdefault(line(gate).partition(": ")[2], []).append(gate.arm)
    if not alike:
        return ""
    return (
        "Correctness checks: "
        + "; ".join(f"{', '.join(arms)}: {text}" for text, arms in alike.items())
        + "."
    )


def details(gate: ArmGate) -> tuple[str, ...]:
    """One line a guest with what it checked, or what it found."""
    lines = []
    # Workloads that prepare their files in another way have guests of their own.
    several = len({check.cases for check in gate.checks}) > 1
    for check in gate.checks:
        cpus = f"{check.vcpus} vCPU{'' if check.vcpus == 1 else 's'}"
        of = f", {', '.join(check.cases)}" if several else ""
        head = f"{check.flavour}, {cpus}{of}: {STATUS.get(check.status, check.status)}"
        texts = [problem_text(problem) for problem in check.problems]
        texts += [check.reason] if check.reason else []
        texts += [f"log {check.console}"] if check.status != "green" and check.console else []
        lines.append(f"{head}: {'; '.join(texts or check.checked)}")
    return tuple(lines)


def quoted(gate: ArmGate) -> tuple[tuple[str, ...], ...]:
    """The first lines of the first splats of this arm, those of one cause once."""
    quotes: dict[str, tuple[str, ...]] = {}
    for _, problem in gate.problems or gate.inherited:
        if problem.evidence:
            quotes.setdefault(problem.cause, problem.evidence[:QUOTED_LINES])
    return tuple(quotes.values())[:QUOTED]


def blocks(view: View) -> list[Block]:
    """What was checked; of an arm that is not green what was found, quoted."""
    items, checked = [], []
    for gate in view.session.gates:
        texts = details(gate)
        if gate.standing == "green":
            items.append(Item(line(gate)))
            checked += [Item(f"{gate.arm}, {text}") for text in texts]
            continue
        evidence: list[Block] = [Listing(tuple(map(Item, texts)))] if texts else []
        evidence += [Code("\n".join(lines)) for lines in quoted(gate)]
        items.append(Item((Strong(line(gate)),), blocks=tuple(evidence)))
    body: list[Block] = [Listing(tuple(items))] if items else []
    if checked:
        body.append(Fold("What was checked", (Listing(tuple(checked)),), page_only=True))
    return titled("Correctness checks", "checks", body)
