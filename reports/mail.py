"""Forms that go into mail: plain ASCII of 75 columns, lines beside a table, and the cover letter.

The Before/After block of a cover letter is ready to paste.  Its percentages come from the same
comparison as the figures around them, and the averages are the geometric means whose ratio that
percentage is: the block cannot say +10.4 % over numbers that give +12.5 %.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, cast

from analysis import execution
from analysis.findings import executed_on_host
from analysis.many import ArmCell, MetricRow, SessionComparison
from analysis.model import CaseComparison, Comparison, Finding, MetricComparison, Summary, is_share
from analysis.verdict import CALLED
from reports import sentences, wording
from reports.render import text
from reports.repeat import repeat
from reports.sections import View, answer, subject, trust
from reports.sentences import of_finding, upper_first
from results.units import is_virtual, shown_name
from text import ascii_only, counted, wrap_command

WIDTH = 75


def under(session: SessionComparison) -> list[str]:
    """What all numbers are, as a paragraph."""
    return paragraph(answer.is_of(session), hang="")


def wrapped(text: str, indent: str = "", hang: str = "  ") -> list[str]:
    """The text as plain ASCII lines of at most 75 columns, continued with ``hang``.

    A word longer than a line is broken: hostile names must not widen a mail.
    """
    further, plain = indent + hang, ascii_only(text)
    return textwrap.wrap(
        plain, WIDTH, initial_indent=indent, subsequent_indent=further, break_on_hyphens=False
    )


def paragraph(*texts: str, hang: str = "  ") -> list[str]:
    """Each text wrapped, and a blank line below them all; nothing for none."""
    lines = [line for text in texts for line in wrapped(text, hang=hang)]
    return [*lines, ""] if lines else []


def fit(text: str, width: int) -> str:
    """One line of plain ASCII, cut to ``width`` with two dots where it is longer."""
    plain = "".join(" " if c.isspace() else c for c in text)
    plain = plain if plain.isascii() and plain.isprintable() else ascii_only(plain)
    return plain if len(plain) <= width else f"{plain[: max(0, width - 2)]}.."


def metric_name(case: str, name: str, unit: str) -> str:
    """``filemap-4k.4k.virtual_bw``; a percentage ends in ``%``, and changes by its difference."""
    return f"{case}.{shown_name(name, unit)}{'%' if is_share(unit) and name[-1] != '%' else ''}"


def plain(line: str) -> str:
    """A line of ASCII with its tab at the front, and however long it is."""
    return f"{line[: line.startswith(chr(9))]}{ascii_only(line)}"


def repeating(session: SessionComparison, called: MetricComparison | None = None) -> list[str]:
    """How to measure it again, and the number that comes out wherever an exact session is.

    The number is of the metric that is ``called``, else of the first.
    """
    again, notes = repeat(session, of_others=True), []
    metric = called or next((m for m in session.primary if m.patched), None)
    if session.manifest.experiment.mode == "exact" and metric and metric.base and metric.patched:
        name = metric_name(metric.case, metric.name, metric.unit)
        notes.append(f"On any host {name} is {sentences.means(metric)} to the last digit.")
    head = f"To repeat it, in a checkout of Twinboot {session.manifest.provenance.lab_version}:"
    commands = [
        f"\t{line}"
        for command in again.commands
        for line in wrap_command(ascii_only(command), WIDTH - len("        "))
    ]
    note = " ".join((*again.notes, *notes))
    return [head, "", *commands, "", *paragraph(note, hang="")]


def apart(session: SessionComparison) -> list[str]:
    """What the arms differ by beyond the series; nothing where they do not."""
    texts = execution.sentences(session.arms)
    lines = [line for text in texts for line in wrapped(text, "  ")]
    return [*wrapped(f"{execution.LEAD}:"), *lines, ""] if lines else []


def _of_host(session: SessionComparison) -> Iterator[Finding]:
    """What is to be known of a wall session's host; nothing in exact mode."""
    return (f for comparison in session.comparisons for f in comparison.host_findings)


def warnings(session: SessionComparison) -> list[str]:
    """What the gate found broken, and the findings that weaken trust."""
    texts = [trust.check_line(gate) for gate in session.gates if gate.standing != "green"]
    findings = (*_of_host(session), *session.findings)
    texts += [f"{f.scope}: {of_finding(f)}" for f in findings if f.level == "warning"]
    return paragraph(*(f"WARNING: {text}" for text in texts))


def below(rows: Sequence[MetricRow]) -> list[str]:
    """For each metric that is judged its unit and n; interval and verdict, an arm at a time."""
    lines = []
    for row in (row for row in rows if row.primary):
        lines += wrapped(f"{row.case} {row.shown_name}, {row.unit}, {wording.row_samples(row)}:")
        for cell in row.others:
            if cell.against is not None:
                lines += wrapped(_claim(cell.arm, cell.against, withheld=cell.withheld), "  ")
                noise = f"A/A: {sentences.noise(cell.against)}" if cell.against.again else ""
                lines += wrapped(noise, "  ")
    return [*lines, ""] if lines else []


def _claim(arm: str, metric: MetricComparison, *, withheld: bool) -> str:
    """``sorted: -1.06% [-1.20, -0.95] at 99%: regression``, with the reason where it needs one.

    Of a change that is ``withheld`` not even the size is said.
    """
    verdict = sentences.verdict(metric)
    if withheld:
        return f"{arm}: {verdict} ({metric.judgement.reason})"
    change = wording.change(metric) if metric.judgement.change else "not measured"
    size = " ".join(filter(None, (change, wording.interval(metric))))
    reason = sentences.reason(metric)
    text = f"{arm}: {size}, n={metric.judgement.pairs}: {verdict}"
    return (f"{text} ({reason})" if reason else text).replace(" %", "%")


def unmeasured(session: SessionComparison) -> list[str]:
    """Why nothing was measured, each reason once: in place of tables that hold nothing."""
    reasons = dict.fromkeys(metric.judgement.reason for metric in session.primary)
    return paragraph(*(f"{upper_first(text)}." for text in reasons if text))


def checks_sentence(session: SessionComparison, *, withheld: bool = True) -> str:
    """``Correctness checks: base, patched: passed (lockdep on 1 and 4 vCPUs).``"""
    text = trust.checks_of(session, withheld=withheld).removeprefix("correctness: ")
    return f"Correctness checks: {text}." if text else ""


def closing(session: SessionComparison, *, measured: bool) -> list[str]:
    """What was checked of the arms whose verdicts stand; and that all verdicts are one family."""
    checks = checks_sentence(session, withheld=False)
    many = measured and len(session.primary) > 1
    family = paragraph(f"{sentences.family(session)}.") if many else []
    return [*(paragraph(checks) if checks else []), *family]


# Of the letter.
SHOWN = ("bw", "iops")
DROP_CACHES = "echo 3 > /proc/sys/vm/drop_caches"
# (decimals of min and max, decimals of avg and stdev): the first that fits, fio's own last but one.
PRECISIONS = ((2, 2), (0, 2), (0, 1), (0, 0))


def _size(mib: float, of: str) -> str:
    """``a 2G file``, or nothing of nothing: what a case has not got is not said."""
    return f"a {mib / 1024:g}G {of}" if mib >= 1024 else f"a {mib:g}M {of}" if mib else ""


def _setup(comparison: Comparison, case: CaseComparison) -> list[str]:
    """The setup in one sentence."""
    manifest, size, wall = comparison.manifest, case.size, comparison.wall
    cgroup, brd = _size(size.limit_mib, "cgroup"), _size(size.brd_mib, "brd")
    facts = (
        (f"{size.jobs} jobs" if size.jobs else "", f"in {cgroup}" if cgroup else ""),
        (_size(size.file_mib, "file"), f"on {brd}" if brd else ""),
        (counted(manifest.guest.vcpus, "vCPU"),),
    )
    text = ", ".join(filter(None, (" ".join(filter(None, parts)) for parts in facts)))
    sentence = f"{case.title}: {text}"
    if manifest.experiment.mode == "exact":
        sentence += " under QEMU TCG -icount, times are virtual"
    if wall is not None:
        name = "TCG" if wall.accelerator == "tcg" else wall.accelerator
        real = "KVM on this host, real time"
        sentence += f" under {real if wall.real_time else f'{name}, emulated time'}"
    measured = [(metric.base.n, metric) for metric in case.metrics if metric.base]
    if measured:
        most = max(measured, key=lambda each: each[0])[1]
        sentence += f"; samples are {sentences.samples(most)}"
    return wrapped(f"{sentence}:", hang="")


def _summary_line(label: str, summary: Summary) -> list[str]:
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


def _percentage(metric: MetricComparison) -> str:
    """The change as cover letters print it: ``+1.31%``."""
    return _close(wording.percent(wording.estimate(metric.judgement.change)))


def _close(percent: str) -> str:
    return ascii_only(percent).replace(" ", "")


def _over(cell: ArmCell) -> str:
    """The percentage over an arm's figures: in this place it is a claim, whatever stands below.

    What is not judged and does not stand out either has none, and says so.
    """
    metric = cell.against
    if metric is None or cell.withheld:
        return ""
    if metric.judgement.change is None:
        return " (not judged)"
    if not metric.primary and not metric.judgement.differs:
        return " (not judged, not significant)"
    return f" ({_percentage(metric)})"


def _arm(
    session: SessionComparison, case: CaseComparison, rows: Sequence[MetricRow], at: int
) -> list[str]:
    """One arm's figures: those of two arms are Before and After, as in every cover letter."""
    name = session.arms[at].name
    title = name if len(session.arms) > 2 else "After" if at else "Before"
    lines = []
    for phase in case.phases:
        of_phase = [row for row in rows if row.phase == phase.name and row.measured]
        table = [
            (row, summary)
            for short in SHOWN
            for row in of_phase
            if row.short == short and (summary := row.cell(name).summary)
        ]
        if table:
            where = f", {phase.name} phase" if len(case.phases) > 1 else ""
            over = _over(table[0][0].cell(name)) if at else ""
            lines += wrapped(f"{title}{where}{over}:")
        for row, summary in table:
            label = f"{row.short} (virtual)" if is_virtual(row.unit) else row.short
            label = f"bw ({row.unit})" if row.short == "bw" else label
            lines += _summary_line(ascii_only(label), summary)
    return lines


def _judged(row: MetricRow, cell: ArmCell, metric: MetricComparison) -> str:
    """What may be claimed of one metric, and what may not."""
    word, why = metric.judgement.verdict, metric.judgement.reason
    reason = f" ({why})" if word not in CALLED and why else ""
    if metric.judgement.change is None or cell.withheld:
        return f"{row.shown_name}: {word}{reason}"
    size = wording.change(metric) if row.is_share else _percentage(metric)
    return f"{row.shown_name} {size} {wording.interval(metric)}".rstrip() + f": {word}{reason}"


def _judgements(session: SessionComparison, rows: Sequence[MetricRow]) -> list[str]:
    """One sentence an arm from the same judgements, and in wall mode what chance shows."""
    lines = []
    for at, arm in enumerate(session.arms[1:], 1):
        cells = [
            (row, row.cells[at], against)
            for row in rows
            if row.primary and (against := row.cells[at].against)
        ]
        name = f"{arm.name}: " if len(session.arms) > 2 else ""
        # Of two arms the answer has them.
        judged = cells if len(session.arms) > 2 else []
        text = "; ".join(_judged(*each) for each in judged).replace(" %", "%")
        lines += wrapped(f"{name}{text}.", hang="") if text else []
        for _, _, metric in cells:
            again = metric.again
            if again is None or again.estimate is None:
                continue
            size = _close(wording.percent(again.estimate))
            if both := wording.ends(again):
                size += f" {wording.between(*both)} at {100 * again.level:g}%"
            lines.append(ascii_only(f"A/A noise of {metric.name}: {size}."))
    return lines


T = TypeVar("T")


def _ascii(value: T) -> T:
    """A block in plain ASCII before it is laid out: a character may become two."""
    plain: object = value
    if isinstance(value, str):
        # A word at a time: blanks at its ends stay.
        plain = " ".join(map(ascii_only, value.split(" ")))
    elif isinstance(value, tuple) and not hasattr(value, "_fields"):
        plain = tuple(map(_ascii, value))
    elif dataclasses.is_dataclass(value):
        own = {each.name: _ascii(getattr(value, each.name)) for each in dataclasses.fields(value)}
        plain = dataclasses.replace(cast("Any", value), **own)
    return cast("T", plain)


def letter(session: SessionComparison) -> str:
    """Return the answer, then the figures of every case, ending in a newline."""
    blocks = answer.answer(View(session, of_others=True), folds=False)
    lines = text.render([_ascii(block) for block in blocks], WIDTH)
    lines += apart(session)
    lines += repeating(session) if any(row.measured for row in session.rows) else []
    for case in session.cases:
        rows, commands = session.of_case(case.name), []
        for phase in case.phases:
            commands += [DROP_CACHES] if phase.caches == "dropped" else []
            commands += wrap_command(ascii_only(phase.command), WIDTH)
        parts = [_setup(session.comparisons[0], case), commands, _judgements(session, rows)]
        parts += [_arm(session, case, rows, at) for at in range(len(session.arms))]
        lines += [line for part in parts if part for line in (*part, "")]
    if len(session.primary) > 1 and any(m.judgement.change for m in session.primary):
        lines += paragraph(f"{sentences.family(session)}.")
    notes = [subject.path_and_work(session.comparisons[0])]
    notes.append(checks_sentence(session) if not session.is_pair else "")
    # Whoever applies the series is to know it before a build of their own.
    for series in session.manifest.series:
        notes += [f"The series {text}." for text in executed_on_host(series)]
    builds = (of_finding(f) for f in _of_host(session) if f.kind == "one-build")
    notes += [f"{upper_first(text)}." for text in builds][:1]
    lines += [line for note in notes for line in paragraph(note, hang="")]
    return "\n".join(lines).rstrip() + "\n"
