"""The Before/After block of a cover letter: ASCII, at most 75 columns, ready to paste.

The percentages come from the same comparison as the figures around them, and the
averages are the geometric means whose ratio that percentage is: the block cannot
say +10.4 % over numbers that give +12.5 %.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from analysis.explain.lines import EXPLANATION as LINES
from analysis.explain.memory import EXPLANATION as MEMORY
from analysis.findings import executed_on_host
from analysis.many import ArmCell, MetricRow, SessionComparison
from analysis.model import CaseComparison, Comparison, MetricComparison, Summary
from analysis.verdict import CALLED
from reports import mail, sentences, wording
from reports.headline import headline
from reports.mail import WIDTH
from reports.sections import functions, memory, subject, trust
from reports.sections import lines as lines_section
from reports.sentences import of_finding
from results.record import PhaseRecord
from results.units import is_virtual
from text import ascii_only, counted, wrap_command

SHOWN = ("bw", "iops")
# Lines on where the change came from, in the whole letter.
MOST_LINES = 5
DROP_CACHES = "echo 3 > /proc/sys/vm/drop_caches"
# (decimals of min and max, decimals of avg and stdev): the first that fits, fio's own last but one.
PRECISIONS = ((2, 2), (0, 2), (0, 1), (0, 0))


def _size(mib: float) -> str:
    return f"{mib / 1024:g}G" if mib >= 1024 else f"{mib:g}M"


def setup(comparison: Comparison, case: CaseComparison) -> list[str]:
    """The setup in one sentence."""
    manifest, size = comparison.manifest, case.size
    guest = manifest.guest
    jobs = f"{size.jobs} jobs" if size.jobs else ""
    within = f"in a {_size(size.limit_mib)} cgroup" if size.limit_mib else ""
    file = f"a {_size(size.file_mib)} file" if size.file_mib else ""
    brd = f"on a {_size(size.brd_mib)} brd" if size.brd_mib else ""
    # What a case has not got is not said.
    facts = (
        " ".join(filter(None, (jobs, within))),
        " ".join(filter(None, (file, brd))),
        counted(guest.vcpus, "vCPU"),
    )
    sentence = f"{case.title}: {', '.join(filter(None, facts))}"
    if manifest.experiment.mode == "exact":
        sentence += " under QEMU TCG -icount, times are virtual"
    if comparison.wall is not None:
        under = comparison.wall.accelerator
        on = (
            "KVM on this host, real time"
            if comparison.wall.real_time
            else (f"{'TCG' if under == 'tcg' else under}, emulated time")
        )
        sentence += f" under {on}"
    most = max((metric for metric in case.metrics if metric.base), default=None,
               key=lambda metric: metric.base.n if metric.base else 0)  # fmt: skip
    sentence += f"; samples are {sentences.samples(most)}:" if most else ":"
    return mail.wrapped(sentence, hang="")


def commands(phases: tuple[PhaseRecord, ...]) -> list[str]:
    """The command lines, with what has to be done before them."""
    lines = []
    for phase in phases:
        if phase.caches == "dropped":
            lines.append(DROP_CACHES)
        lines += wrap_command(ascii_only(phase.command), WIDTH)
    return lines


def summary_line(label: str, summary: Summary) -> list[str]:
    """One line in fio's words; the spread is printed in the metric's unit as fio does."""
    deviation = (summary.stddev or 0.0) * summary.mean
    text = ""
    for outer, inner in PRECISIONS:
        text = (
            f"{label}: min={summary.minimum:.{outer}f}, max={summary.maximum:.{outer}f}, "
            f"avg={summary.mean:.{inner}f}, stdev={deviation:.{inner}f}, samples={summary.n}"
        )
        if len(text) <= WIDTH:
            return [text]
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ")


def percentage(metric: MetricComparison) -> str:
    """The change as cover letters print it: ``+1.31%``."""
    change = metric.judgement.change
    return ascii_only(wording.percent(change.estimate if change else None)).replace(" ", "")


def _label(row: MetricRow) -> str:
    if row.short == "bw":
        return f"bw ({row.unit})"
    return f"{row.short} (virtual)" if is_virtual(row.unit) else row.short


def _claim(cell: ArmCell) -> str:
    """The percentage over an arm's figures: in this place it is a claim, whatever stands below.

    What is not judged and does not stand out either has none, and says so.
    """
    metric = cell.against
    if metric is None or metric.judgement.change is None or cell.withheld:
        return ""
    if not metric.primary and not metric.judgement.differs:
        return " (not judged, not significant)"
    return f" ({percentage(metric)})"


def _arm(
    session: SessionComparison, case: CaseComparison, rows: Sequence[MetricRow], at: int
) -> list[str]:
    """One arm's figures: those of two arms are Before and After, as in every cover letter."""
    name = session.arms[at].name
    title = name if len(session.arms) > 2 else "After" if at else "Before"
    lines = []
    for phase in case.phases:
        table = [row for short in SHOWN for row in rows
                 if (row.phase, row.short) == (phase.name, short) and row.measured
                 and row.cell(name).summary]  # fmt: skip
        if not table:
            continue
        where = f", {phase.name} phase" if len(case.phases) > 1 else ""
        lines += mail.wrapped(f"{title}{where}{_claim(table[0].cell(name)) if at else ''}:")
        for row in table:
            summary = row.cell(name).summary
            assert summary is not None
            lines += summary_line(ascii_only(_label(row)), summary)
    return lines


def _judged(row: MetricRow, cell: ArmCell) -> str:
    """What may be claimed of one metric, and what may not."""
    metric = cell.against
    assert metric is not None
    word = metric.judgement.verdict
    reason = (
        f" ({metric.judgement.reason})" if word not in CALLED and metric.judgement.reason else ""
    )
    if metric.judgement.change is None or cell.withheld:
        return f"{row.shown_name}: {word}{reason}"
    bounds = wording.interval(metric)
    size = percentage(metric) if not row.is_share else wording.change(metric)
    return f"{row.shown_name} {size} {bounds}".rstrip() + f": {word}{reason}"


def _closing(session: SessionComparison, rows: Sequence[MetricRow]) -> list[str]:
    """One sentence an arm from the same judgements, and in wall mode what chance shows."""
    judged = [row for row in rows if row.primary]
    lines = []
    for at, arm in enumerate(session.arms[1:], 1):
        cells = [(row, row.cells[at]) for row in judged if row.cells[at].against]
        name = f"{arm.name}: " if len(session.arms) > 2 else ""
        text = "; ".join(_judged(row, cell) for row, cell in cells).replace(" %", "%")
        lines += mail.wrapped(f"{name}{text}.", hang="") if text else []
        lines += [line for _, cell in cells for line in _noise(cell.against)]
    return lines


def _noise(metric: MetricComparison | None) -> list[str]:
    """What base differs by from itself, in one line; wall mode only."""
    again = metric.again if metric else None
    if metric is None or again is None or again.estimate is None:
        return []
    within = ""
    if again.low is not None and again.high is not None:
        within = f" {wording.between(again.low, again.high)} at {100 * again.level:g}%"
    size = wording.percent(again.estimate).replace(" ", "")
    return [ascii_only(f"A/A noise of {metric.name}: {size}{within}.")]


def _case(session: SessionComparison, case: CaseComparison) -> list[str]:
    rows = session.of_case(case.name)
    parts = [setup(session.comparisons[0], case), commands(case.phases), _closing(session, rows)]
    parts += [_arm(session, case, rows, at) for at in range(len(session.arms))]
    return [line for part in parts if part for line in (*part, "")]


def _origin(comparison: Comparison) -> list[str]:
    """Where the change came from, by fewer words until it fits into so many lines."""
    texts = [
        *functions.letter(comparison),
        *(f"{memory.brief(each)}." for each in MEMORY.of(comparison)[:1]),
        *(f"{text}." for each in LINES.of(comparison)[:1] if (text := lines_section.brief(each))),
    ]
    texts = [ascii_only(text).replace(" %", "%") for text in texts]
    for count in range(len(texts), 0, -1):
        lines = textwrap.wrap(" ".join(texts[:count]), WIDTH, break_on_hyphens=False)
        if len(lines) <= MOST_LINES:
            return lines
    return []


def render(session: SessionComparison) -> str:
    """Return the block of every case and where the change came from, ending in a newline."""
    lines = [*mail.measured_under(session), *mail.banner(session)]
    lines += [line for case in session.cases for line in _case(session, case)]
    lines += mail.family(session) if any(m.judgement.change for m in session.primary) else []
    notes = [subject.path_and_work(metric.name for metric in session.primary)]
    notes.append(trust.checks_sentence(session.gates))
    # Whoever applies the series is to know it before a build of their own.
    notes += [f"The series {text}." for series in session.manifest.series
              for text in executed_on_host(series)]  # fmt: skip
    of_host = (f for f in mail.of_host(session) if f.kind == "one-build")
    notes += [f"{text[:1].upper()}{text[1:]}." for text in map(of_finding, of_host)][:1]
    lines += [line for note in notes for line in mail.paragraph(note)]
    if session.is_pair:
        lines += _origin(session.comparisons[0])
    else:
        lines += mail.wrapped(headline(session).sentence)
    return "\n".join(lines).rstrip() + "\n"
