"""Whether to believe it: differences of the arms, the host, the checks, findings, failed runs."""

from __future__ import annotations

from analysis import execution as apart
from analysis.many import SessionComparison
from analysis.model import FailedRun
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
    listing,
    row,
)
from reports.sections import View, titled
from reports.sentences import of_finding
from results.record import ArmGate, CheckProblem
from text import counted

# So many lines stand beside the cause; a console's are folded.
SHORT_EVIDENCE = 2
# Lines of a splat that are quoted; the whole is in the console's log.
QUOTED_LINES = 30
# Splats of one arm that are quoted: what follows the first is mostly its consequence.
QUOTED = 2
# Words of the record for people.
STATUS = {"green": "passed", "red": "failed"}
VALUES = (
    "Values are geometric means over the blocks, with the spread between boots as ± standard "
    "deviation. A/A is base-again against base: the size of chance differences on this host."
)


def differences(view: View) -> list[Block]:
    """What the arms differ by beyond the series: as a banner, so that nobody overlooks it."""
    arms = view.session.arms
    texts, options = apart.sentences(arms), apart.options(arms)
    if not texts:
        return []
    banner = (Paragraph((Strong(f"{apart.LEAD}:"),)), *listing(texts))
    heads = (Column("Option", left=True), *(Column(arm.name) for arm in arms))
    rows = tuple(row(option.name, *option.values) for option in options)
    title = f"All {len(options)} options that differ"
    more = [Fold(title, (Table(title, heads, rows),))] if len(options) > apart.NAMED else []
    return [Callout(apart.LEAD, banner), *more]


def findings(view: View) -> list[Block]:
    """Warnings first; then, of an inexact session, what differs."""
    items = [Item(of_finding(f), f.level, f.scope) for f in view.session.findings]
    items += [Item(text, "note", "differs") for text in view.session.exactness.fields]
    return titled("Findings", "findings", [Listing(tuple(items))] if items else [])


def failures(view: View) -> list[Block]:
    """``fail:runs`` by arm, and every cause once with the runs that failed so."""
    session = view.session
    counts = session.failures
    arms = [arm.name for arm in session.manifest.arms]
    rows = tuple(
        row(case, *(":".join(map(str, counts.get((case, arm), ("", "")))) for arm in arms))
        for case in sorted({case for (case, _), (bad, _) in counts.items() if bad})
    )
    body: list[Block] = []
    if rows:
        heads = (Column("fail:runs", left=True), *map(Column, arms))
        body.append(Table("Failed runs by arm", heads, rows, together=1))
        repeated = session.manifest.experiment.repeated
        text = f"Failed runs are not data points; their {repeated} are excluded on all arms."
        body.append(Paragraph(text, "note"))
    causes: dict[str, list[FailedRun]] = {}
    for run in session.failed_runs:
        why = f"{run.failure.kind}, blame {run.failure.blame}: {run.failure.message}"
        causes.setdefault(why, []).append(run)
    items = []
    for why, alike in causes.items():
        evidence = alike[0].failure.evidence
        runs = ", ".join(run.run_id for run in alike)
        fold: tuple[Block, ...] = ()
        if len(evidence) > SHORT_EVIDENCE:
            quoted = (Code("\n".join(evidence)),)
            fold = (Fold(f"{len(evidence)} lines", quoted, page_only=True),)
        elif evidence:
            why = f"{why} ({'; '.join(evidence)})"
        items.append(Item(f"{why}: {runs}", "note", blocks=fold))
    return titled("Failed runs", "failures", [*body, Listing(tuple(items))] if items else body)


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


def _problem_text(problem: CheckProblem) -> str:
    """``sleeps where it must not: BUG: sleeping function ... (in xas_split_alloc)``."""
    where = f" (in {problem.where})" if problem.where else ""
    return f"{problem.says}: {problem.title}{where}"


def _standing(gate: ArmGate) -> str:
    """How an arm stands; where it passed, on what: ``lockdep on 1 and 4 vCPUs, selftest ...``."""
    if gate.standing == "green":
        flavours: dict[str, set[int]] = {}
        for check in gate.checks:
            flavours.setdefault(check.flavour, set()).add(check.vcpus)
        guests = ", ".join(
            f"{flavour} on {' and '.join(map(str, sorted(vcpus)))} vCPU{'s' * (vcpus != {1})}"
            for flavour, vcpus in flavours.items()
        )
        return f"passed ({guests})"
    if gate.standing == "red before the series":
        return f"fails without the series too: {_problem_text(gate.inherited[0][1])}"
    if gate.standing == "red":
        return f"failed: {_problem_text(gate.problems[0][1])}"
    return f"{gate.standing}: {gate.reason}"


def check_line(gate: ArmGate) -> str:
    """The arm, and how it stands."""
    return f"{gate.arm}: {_standing(gate)}"


def checks_of(session: SessionComparison, *, withheld: bool = True) -> str:
    """How every arm stands, or that nobody asked; empty where there is nothing to check.

    ``base, patched: passed (lockdep on 1 and 4 vCPUs)``; without ``withheld`` of those judged.
    """
    manifest = session.manifest
    experiment = manifest.experiment
    if not (experiment.check or experiment.prebuilt or manifest.same_code):
        return "correctness: none requested (--check)"
    alike: dict[str, list[str]] = {}
    for gate in session.gates:
        if withheld or not gate.withholds:
            alike.setdefault(_standing(gate), []).append(gate.arm)
    return "; ".join(f"{', '.join(arms)}: {text}" for text, arms in alike.items())


def _details(gate: ArmGate) -> list[str]:
    """One line a guest with what it checked, or what it found."""
    lines = []
    # Workloads that prepare their files in another way have guests of their own.
    several = len({check.cases for check in gate.checks}) > 1
    for check in gate.checks:
        cpus = counted(check.vcpus, "vCPU")
        of = f", {', '.join(check.cases)}" if several else ""
        status = STATUS.get(check.status, check.status)
        kept = f", kept from {check.kept_at}" if check.kept_at else ""
        head = f"{check.flavour}, {cpus}{of}: {status}{kept}"
        texts = [_problem_text(problem) for problem in check.problems]
        texts += [check.reason] if check.reason else []
        texts += [f"log {check.console}"] if check.status != "green" and check.console else []
        lines.append(f"{head}: {'; '.join(texts or check.checked)}")
    return lines


def checks(view: View) -> list[Block]:
    """What was checked; of an arm that is not green what was found, quoted."""
    items, passed = [], []
    for gate in view.session.gates:
        texts = _details(gate)
        if gate.standing == "green":
            items.append(Item(check_line(gate)))
            passed += [f"{gate.arm}, {text}" for text in texts]
            continue
        # The first lines of the first splats, those of one cause once.
        quotes: dict[str, tuple[str, ...]] = {}
        for _, problem in gate.problems or gate.inherited:
            if problem.evidence:
                quotes.setdefault(problem.cause, problem.evidence[:QUOTED_LINES])
        quoted = [Code("\n".join(lines)) for lines in list(quotes.values())[:QUOTED]]
        items.append(Item((Strong(check_line(gate)),), blocks=(*listing(texts), *quoted)))
    body: list[Block] = [Listing(tuple(items))] if items else []
    if passed:
        body.append(Fold("What was checked", tuple(listing(passed)), page_only=True))
    return titled("Correctness checks", "checks", body)
