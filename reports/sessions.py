"""Sessions in a list, each with what its report says, one in a line, and two side by side.

The line is for who edits a kernel and looks at one verdict after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from analysis.many import SessionComparison, compare_session
from analysis.native import Judged, judge
from analysis.operations import operation_of
from analysis.two_sessions import PairedMetric, SessionPair
from analysis.verdict import CALLED, Judgement, Verdict
from errors import RecordError
from reports import sentences, wording
from reports.headline import exit_code, headline, outcome
from reports.render.text import columns, wrapped
from results.native import NativeHead
from results.native import read as read_native
from results.profile import PATH, WORK
from results.record import Record
from results.session import SessionHead, open_session
from results.units import read_name
from text import clean_line, counted, enumerated

HEADS = ("metric", "mean 1", "median 1", "mean 2", "median 2", "change", "verdict")


class ListedMetric(Record):
    """A primary metric of two arms; change and interval are fractions."""

    base: str
    patched: str
    case: str
    metric: str
    verdict: str
    change: float | None
    low: float | None
    high: float | None
    line: str


class ListedSession(Record):
    """A session as its report judges it; ``problem`` says why there is no report.

    ``created`` is UTC, ``exit_code`` that of ``lab.py report``, None without a report.
    """

    folder: str
    created: str = ""
    experiment: str = ""
    mode: str = ""
    subject: str = ""
    exit_code: int | None = None
    verdict: str = ""
    primary: tuple[ListedMetric, ...] = ()
    problem: str = ""


def listed(head: SessionHead, *, strict: bool = False) -> ListedSession:
    """What the report of a session says."""
    known = {"folder": str(head.folder), "created": head.created}
    if head.native:
        native = head.native
        known |= {"experiment": native.name, "mode": "native", "subject": native.title}
    elif head.manifest:
        experiment = head.manifest.experiment
        known |= {"experiment": experiment.name, "mode": experiment.mode}
        known["subject"] = sentences.subject(experiment)
    else:
        return ListedSession(**known, problem=head.problem)
    try:
        if head.native:
            judged = judge(*read_native(head.folder))
            judgements = [each.judgement for each in judged]
            code = exit_code(judgements, (), strict=strict)
            verdict, primary = sentences.verdict_counts(judgements), _timed(head.native, judged)
        else:
            session = compare_session(open_session(head.folder, counted=False))
            code = outcome(session, strict=strict)
            verdict, primary = headline(session).text, _primary(session)
    except (RecordError, OSError) as error:
        return ListedSession(**known, problem=str(error).splitlines()[0])
    return ListedSession(**known, exit_code=code, verdict=verdict, primary=tuple(primary))


def _timed(head: NativeHead, judged: Iterable[Judged]) -> Iterator[ListedMetric]:
    for each in judged:
        size = [wording.percent(each.change.estimate)] if each.change else []
        line = "  ".join((each.case, each.phase, *size, str(each.verdict)))
        yield _metric((head.arms[0].name, each.arm), each.case, each.phase, each.judgement, line)


def _primary(session: SessionComparison) -> Iterator[ListedMetric]:
    for pair in session.comparisons:
        for metric in pair.primary:
            line = f"{session.name_of(pair)}: ".removeprefix(": ") + sentences.head(metric)
            arms = pair.manifest.base, pair.manifest.patched
            yield _metric(arms, metric.case, metric.name, metric.judgement, line)


def _metric(
    arms: tuple[str, str], case: str, name: str, judgement: Judgement, line: str
) -> ListedMetric:
    change = judgement.change
    return ListedMetric(
        base=arms[0],
        patched=arms[1],
        case=case,
        metric=name,
        verdict=str(judgement.verdict),
        change=change and change.estimate,
        low=change and change.low,
        high=change and change.high,
        line=line,
    )


def text_lines(listed_sessions: Sequence[ListedSession]) -> list[str]:
    """The list for a terminal: when, exit code, name, verdict; then each primary metric."""
    lines = []
    for session in listed_sessions:
        name = session.folder.rstrip("/").rpartition("/")[2]
        when = session.created[:16].replace("T", " ")
        code = "-" if session.exit_code is None else session.exit_code
        end = f"cannot be reported: {session.problem}" if session.problem else session.verdict
        lines.append(f"{when:<16}  exit {code}  {name}  {end}")
        lines += [f"    {metric.line}" for metric in session.primary]
    return [clean_line(line) for line in lines]


def line(
    session: SessionComparison, since: SessionPair | None = None, unexecuted: Sequence[str] = ()
) -> str:
    """What happened, the result that changed most, its change since another session, and where.

    ``1 regression: direct buffered.instructions +0.15 % [+0.15, +0.16]; since the last save
    +0.05 % [+0.04, +0.06]; filemap_get_read_batch +4.3 instructions; 8 seeds``.  ``unexecuted`` are
    the functions of the last save where none of them ran: of that save nothing is known.
    """
    happened = headline(session)
    tested = [
        metric
        for metric in session.primary
        if metric.judgement.change and metric.judgement.verdict is not Verdict.NOT_TESTED
    ]
    if not (tested and happened.has_verdicts):
        return "; ".join((happened.text, *happened.causes))
    most = max(
        tested,
        key=lambda m: (
            m.judgement.verdict in CALLED,
            abs(wording.estimate(m.judgement.change) or 0.0),
        ),
    )
    bounds = wording.bounds(most)
    if not bounds and (of_seeds := [each.change for each in most.pairs if each.change is not None]):
        bounds = (
            f"({wording.within(most.unit, most.base, min(of_seeds), max(of_seeds))} seed by seed)"
        )
    words = sentences.verdict_counts(metric.judgement for metric in tested)
    parts = [f"{words}: {most.case} {read_name(most.name)} {wording.change(most)} {bounds}"]
    if unexecuted:
        which = enumerated(unexecuted)
        parts.append(f"last save not tested: {which} not executed")
    elif since is not None:
        parts.append(f"since the last save {since_other(since, most.case, most.name)}")
    parts += [
        f"{row.name} {wording.signed(row.instructions.difference, 2)} instructions"
        for comparison in session.comparisons
        for own in comparison.headlines
        if (own.case, own.phase) == (most.case, most.phase)
        for row in own.functions[:1]
        if row.instructions.difference
    ]
    return "; ".join((*parts, counted(most.judgement.pairs, "seed")))


def since_other(pair: SessionPair, case: str, name: str) -> str:
    """The change of a metric of the patched arm since another session, or why there is none."""
    patched = pair.second.arms[-1].name
    if patched in pair.same_code:
        return "the same machine code"
    for metric in pair.metrics:
        change = metric.judgement and metric.judgement.change
        if change and (metric.arm, metric.case, metric.name) == (patched, case, name):
            both = wording.ends(change)
            interval = wording.between(*both) if both else ""
            return f"{wording.percent(change.estimate)} {interval}".rstrip()
    return f"not comparable: {pair.obstacles[0]}" if pair.obstacles else "another workload"


def side_by_side(pair: SessionPair) -> str:
    """Two sessions as text for a terminal; ``--json`` has the metrics that are not primary."""
    lines = []
    for number, manifest in (("1", pair.first), ("2", pair.second)):
        lines.append(clean_line(f"{number}  {manifest.session}, begun {manifest.created}"))
        lines += wrapped(sentences.subject(manifest.experiment), indent="   ")
    lines.append("")
    if pair.obstacles:
        lines.append("Not comparable, so nothing is judged")
        lines += [line for text in pair.obstacles for line in wrapped(text)] + [""]
    lines += ["Different between them" if pair.differences else "Nothing differs between them"]
    for each in pair.differences:
        lines += wrapped(f"{each.name}: {each.first} -> {each.second}")
    for note in pair.notes:
        lines += wrapped(note)
    for arm in dict.fromkeys(metric.arm for metric in pair.metrics):
        same = ", the same machine code and settings" if arm in pair.same_code else ""
        lines += ["", clean_line(f"Arm {arm}{same}")]
        of_arm = [metric for metric in pair.metrics if metric.arm == arm]
        for case in dict.fromkeys(metric.case for metric in of_arm):
            primary = [metric for metric in of_arm if metric.case == case and metric.primary]
            lines.append(clean_line(f"  {case}"))
            if not primary:
                lines.append("  no primary metric is in both")
                continue
            heads = HEADS[:-1] if pair.obstacles else HEADS
            rows = [_row(pair, metric)[: len(heads)] for metric in primary]
            lines += columns([heads, *rows], left=(0, 6))
            for metric in primary:
                lines += wrapped(f"{read_name(metric.name)}: {_evidence(metric)}", indent="    ")
    return "\n".join(lines) + "\n"


def _row(pair: SessionPair, metric: PairedMetric) -> tuple[str, ...]:
    label, factor = _of_operation(pair, metric)
    before = metric.first.mean if metric.first else None
    after = metric.second.mean if metric.second else None
    change = metric.judgement.change if metric.judgement else None
    ratio = after / before - 1 if before and after is not None else None
    return (
        label,
        *(
            wording.figure(None if number is None else factor * number)
            for number in (before, metric.first_median, after, metric.second_median)
        ),
        wording.percent(change.estimate if change else ratio),
        str(metric.judgement.verdict) if metric.judgement else "",
    )


def _of_operation(pair: SessionPair, metric: PairedMetric) -> tuple[str, float]:
    """A metric's name and unit as people read them, and what its values are multiplied by.

    One factor for both sessions and all arms: the work of the first session's base arm.
    """
    phase, _, short = metric.name.partition(".")
    if short != PATH:
        return f"{metric.name}, {metric.unit}", 1.0
    at = (pair.first.arms[0].name, metric.case, f"{phase}.{WORK}")
    work = (e.first for e in pair.metrics if (e.arm, e.case, e.name) == at and e.first)
    phases = (of.phases for of in pair.first.cases if of.name == metric.case)
    record = next(each for each in next(phases) if each.name == phase)
    operation = operation_of(record, next((each.mean for each in work), None))
    return f"{read_name(metric.name)} per {operation.title}", operation.factor


def _evidence(metric: PairedMetric) -> str:
    """Seeds, interval, and the reason of a verdict that says no change."""
    parts = [counted(metric.seeds, "seed")]
    judgement = metric.judgement
    change = judgement.change if judgement else None
    if change and (both := wording.ends(change)):
        parts.append(f"{wording.between(*both)} at {100 * change.level:g} %")
    if judgement and judgement.verdict not in CALLED:
        parts.append(judgement.reason)
    return ", ".join(parts)
