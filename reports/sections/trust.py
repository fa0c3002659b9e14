"""Whether to believe it: differences of the arms, the host, the checks, findings, failed runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap

from analysis import execution as apart
from analysis.model import ArmGate, Comparison, FailedRun
from reports import sentences
from reports.document import (
    Block,
    Callout,
    Code,
    Column,
    Fold,
    Item,
    Listing,
    Paragraph,
    Strong,
    Table,
    row,
)
from reports.sections.view import View, titled
from reports.sentences import of_finding
from results.checks import Check, CheckProblem
from text import counted

# So many lines stand beside the cause; a console's are folded.
SHORT_EVIDENCE = 2


def differences(view: View) -> list[Block]:
    """What the arms differ by beyond the series: as a banner, so that nobody overlooks it."""
    texts = apart.sentences(view.session.arms)
    if not texts:
        return []
    items = Listing(tuple(map(Item, texts)))
    options, arms = apart.options(view.session.arms), view.session.arms
    heads = (Column("Option", left=True), *(Column(arm.name) for arm in arms))
    rows = tuple(row(option.name, *option.values) for option in options)
    title = f"All {len(options)} options that differ"
    more = [Fold(title, (Table(title, heads, rows),))] if len(options) > apart.NAMED else []
    return [Callout(apart.LEAD, (Paragraph((Strong(f"{apart.LEAD}:"),)), items)), *more]


def findings(view: View) -> list[Block]:
    """Warnings first; then, of an inexact session, what differs."""
    items = [Item(of_finding(f), f.level, f.scope) for f in view.session.findings]
    items += [Item(text, "note", "differs") for text in view.session.exactness.fields]
    return titled("Findings", "findings", [Listing(tuple(items))] if items else [])


def failures(view: View) -> list[Block]:
    """``fail:runs`` by arm, and every cause once with the runs that failed so."""
    session = view.session
    counts = session.failures
    failed = sorted({case for (case, _), (bad, _) in counts.items() if bad})
    arms = [arm.name for arm in session.manifest.arms]
    body: list[Block] = []
    if failed:
        heads = (Column("fail:runs", left=True), *map(Column, arms))
        rows = tuple(
            row(case, *(":".join(map(str, counts.get((case, arm), ("", "")))) for arm in arms))
            for case in failed
        )
        body += [
            Table("Failed runs by arm", heads, rows, together=1),
            Paragraph(
                "Failed runs are not data points; their "
                f"{session.manifest.experiment.repeated} are excluded on all arms.",
                "note",
            ),
        ]
    items = tuple(starmap(_failure, _by_cause(session.failed_runs).items()))
    return titled("Failed runs", "failures", [*body, Listing(items)] if items else body)


def _failure(why: str, alike: list[FailedRun]) -> Item:
    """A cause with the runs that failed so, and the evidence of the first of them."""
    evidence = alike[0].failure.evidence
    runs = ", ".join(run.run_id for run in alike)
    if len(evidence) <= SHORT_EVIDENCE:
        text = f" ({'; '.join(evidence)})" if evidence else ""
        return Item(f"{why}{text}: {runs}", "note")
    fold = Fold(f"{len(evidence)} lines", (Code("\n".join(evidence)),), page_only=True)
    return Item(f"{why}: {runs}", "note", blocks=(fold,))


def _by_cause(runs: tuple[FailedRun, ...]) -> dict[str, list[FailedRun]]:
    alike: dict[str, list[FailedRun]] = {}
    for run in runs:
        why = f"{run.failure.kind}, blame {run.failure.blame}: {run.failure.message}"
        alike.setdefault(why, []).append(run)
    return alike


VALUES = (
    "Values are geometric means over the blocks, with the spread between boots as ± standard "
    "deviation. A/A is base-again against base: the size of chance differences on this host."
)


def level(comparison: Comparison) -> float:
    """The level of all intervals of a wall session: at an early look a higher one."""
    levels = (metric.again.level for metric in comparison.primary if metric.again)
    return next(levels, 1 - comparison.manifest.experiment.thresholds.alpha)


def host(view: View) -> list[Block]:
    """A/A of everything that is judged, then what was found of the host; none in exact mode."""
    if view.first.wall is None:
        return []
    items = [
        Item(f"A/A on this host, {metric.case} {metric.name}: {sentences.noise(metric)}", "note")
        for metric in view.first.primary
        if metric.again is not None
    ]
    items += [Item(of_finding(finding), finding.level) for finding in view.first.host_findings]
    return titled("This host", "host", [Listing(tuple(items))])


# Lines of a splat that are quoted; the whole is in the console's log.
QUOTED_LINES = 30
# Splats of one arm that are quoted: what follows the first is mostly its consequence.
QUOTED = 2
# Words of the record for people.
STATUS = {"green": "passed", "red": "failed"}


def _problem_text(problem: CheckProblem) -> str:
    """``sleeps where it must not: BUG: sleeping function ... (in xas_split_alloc)``."""
    where = f" (in {problem.where})" if problem.where else ""
    return f"{problem.says}: {problem.title}{where}"


def check_line(gate: ArmGate) -> str:
    """The arm, and how it stands."""
    if gate.standing == "green":
        return f"{gate.arm}: passed ({_guests(gate.checks)})"
    if gate.standing == "pending":
        return f"{gate.arm}: pending: {gate.reason}"
    if gate.standing == "not run":
        return f"{gate.arm}: not run: {gate.reason}"
    if gate.standing == "red before the series":
        return f"{gate.arm}: fails without the series too: {_problem_text(gate.inherited[0][1])}"
    return f"{gate.arm}: failed: {_problem_text(gate.problems[0][1])}"


def _guests(every: Sequence[Check]) -> str:
    """Kernels and vCPUs of the guests: ``lockdep on 1 and 4 vCPUs, selftest on 1 vCPU``."""
    flavours: dict[str, list[int]] = {}
    for check in every:
        flavours.setdefault(check.flavour, []).append(check.vcpus)
    parts = []
    for flavour, vcpus in flavours.items():
        counts = [str(count) for count in sorted(set(vcpus))]
        several = len(counts) > 1 or counts != ["1"]
        parts.append(f"{flavour} on {' and '.join(counts)} vCPU{'s' if several else ''}")
    return ", ".join(parts)


def checks_sentence(gates: Sequence[ArmGate]) -> str:
    """How every arm stands, in one sentence for a mail; empty without checks.

    ``Correctness checks: base, patched: passed (lockdep on 1 and 4 vCPUs).``
    """
    alike: dict[str, list[str]] = {}
    for gate in gates:
        alike.setdefault(check_line(gate).partition(": ")[2], []).append(gate.arm)
    if not alike:
        return ""
    return (
        "Correctness checks: "
        + "; ".join(f"{', '.join(arms)}: {text}" for text, arms in alike.items())
        + "."
    )


def _details(gate: ArmGate) -> tuple[str, ...]:
    """One line a guest with what it checked, or what it found."""
    lines = []
    # Workloads that prepare their files in another way have guests of their own.
    several = len({check.cases for check in gate.checks}) > 1
    for check in gate.checks:
        cpus = counted(check.vcpus, "vCPU")
        of = f", {', '.join(check.cases)}" if several else ""
        head = f"{check.flavour}, {cpus}{of}: {STATUS.get(check.status, check.status)}"
        texts = [_problem_text(problem) for problem in check.problems]
        texts += [check.reason] if check.reason else []
        texts += [f"log {check.console}"] if check.status != "green" and check.console else []
        lines.append(f"{head}: {'; '.join(texts or check.checked)}")
    return tuple(lines)


def _quoted(gate: ArmGate) -> tuple[tuple[str, ...], ...]:
    """The first lines of the first splats of this arm, those of one cause once."""
    quotes: dict[str, tuple[str, ...]] = {}
    for _, problem in gate.problems or gate.inherited:
        if problem.evidence:
            quotes.setdefault(problem.cause, problem.evidence[:QUOTED_LINES])
    return tuple(quotes.values())[:QUOTED]


def checks(view: View) -> list[Block]:
    """What was checked; of an arm that is not green what was found, quoted."""
    items, checked = [], []
    for gate in view.session.gates:
        texts = _details(gate)
        if gate.standing == "green":
            items.append(Item(check_line(gate)))
            checked += [Item(f"{gate.arm}, {text}") for text in texts]
            continue
        evidence: list[Block] = [Listing(tuple(map(Item, texts)))] if texts else []
        evidence += [Code("\n".join(lines)) for lines in _quoted(gate)]
        items.append(Item((Strong(check_line(gate)),), blocks=tuple(evidence)))
    body: list[Block] = [Listing(tuple(items))] if items else []
    if checked:
        body.append(Fold("What was checked", (Listing(tuple(checked)),), page_only=True))
    return titled("Correctness checks", "checks", body)
