"""What the site says of nights and changes, in the blocks that reports are made of; pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from history.changes import NightlyChange
from history.entry import CaseEntry, ChangedFunctions, Entry
from history.pages import tracks
from history.pages.tracks import TrendChart
from history.wording import interval, of_session, reasons
from reports import sentences, wording
from reports.document import (
    Block,
    Cell,
    Column,
    Heading,
    Item,
    Link,
    Listing,
    Mono,
    Paragraph,
    Row,
    Strong,
    Table,
    VerdictRow,
    Verdicts,
    Words,
    facts,
    listing,
    row,
)
from results.units import read_name
from text import in_words


def changes(
    nightly: Sequence[NightlyChange], root: str, entries: Mapping[str, Entry]
) -> list[Block]:
    """Changes as verdicts: what, how much, whose, and how to look for its cause.

    ``root`` leads from the page to the site's top; ``entries`` are the nights by their ids.
    """
    rows = []
    for change in nightly:
        word, course, size = tracks.of_change(change), change.course, change.estimate
        lines: list[Words] = [*reasons(change)]
        lines += [(f"{what}: ", Mono(command)) for what, command in search(change, entries)]
        rows.append(
            VerdictRow(
                word.word,
                word.mark,
                f"{course.case} {read_name(course.metric)}",
                metric=f"({course.arm}), night of {change.night}, change {change.id}",
                change=wording.percent(size) if size is not None else "not judged",
                interval=interval(change),
                lines=tuple(lines),
                to=f"{root}night/{change.entry}.html",
                anchor=f"change-{change.id}",
                style=word.style,
            )
        )
    return [Verdicts(tuple(rows))] if rows else []


def search(change: NightlyChange, entries: Mapping[str, Entry]) -> list[tuple[str, str]]:
    """What to call each command, and the command: the commits of a change, and their bisection.

    Only where the kernel changed from one commit of a repository to another.
    """
    after = entries.get(change.entry)
    if not change.commits or after is None or change.kind not in ("step", "drift", "mixed"):
        return []
    arm = after.arm(change.course.arm)
    commands = [("commits", f"git log --oneline {change.commits}")]
    kind, _, rest = arm.kernel.source.partition(":") if arm else ("", "", "")
    place = rest.partition("@")[0]
    if kind == "git" and place and after.mode == "exact":
        words = ["--range", change.commits, "--source", f"git:{place}"]
        words += ["--metric", read_name(change.course.metric), "--workloads", change.course.case]
        commands.append(("bisect", shlex.join(["./lab.py", "bisect", *words])))
    return commands


def night(
    entry: Entry, nightly: Sequence[NightlyChange], link: str, before: Entry | None = None
) -> list[Block]:
    """One night: what changed, what was judged, every metric, the kernels and the environment.

    ``link`` is where it was measured, empty if it was not told or is no address; ``before`` is the
    night before, which may have been judged by another rule.
    """
    blocks = changes(nightly, "../", {entry.id: entry})
    if blocks:
        blocks.insert(0, Heading("What changed", 2, "changes"))
    if entry.findings:
        blocks += [Heading("Findings", 2, "findings"), *listing(entry.findings)]
    for case in entry.cases:
        title = f": {case.title}" if case.title != case.name else ""
        blocks.append(Heading(f"{case.name}{title}", 2))
        if case.conclusions:
            verdicts = (
                VerdictRow(
                    each.verdict.value,
                    sentences.MARKS[each.verdict.value],
                    read_name(each.metric),
                    metric=f"{each.arm} against {each.against}",
                    change=wording.percent(each.estimate),
                    interval=interval(each),
                    lines=(each.reason,),
                )
                for each in case.conclusions
            )
            blocks.append(Verdicts(tuple(verdicts)))
        for each in (each for each in case.functions if each.count):
            blocks += _functions(each)
        if same := [each.phase for each in case.functions if not each.count]:
            blocks.append(Paragraph(f"No function changed in {in_words(same)}."))
        failed = []
        for arm in case.arms:
            if arm.failed:
                head = Strong(f"{arm.arm}: {arm.failed} of {arm.runs} runs failed", "failed")
                failed.append(Item((head, f": {arm.failures[0]}" if arm.failures else "")))
        blocks += [Listing(tuple(failed))] if failed else []
        blocks.append(_metrics(entry, case))
    heads = tuple(
        Column(name, left=name != "patches") for name in ("arm", "kernel", "patches", "key")
    )
    kernels = tuple(
        row(
            arm.name,
            arm.version,
            str(len(arm.kernel.patches)),
            Cell(arm.kernel.key[:12], mono=True),
        )
        for arm in entry.arms
    )
    blocks += [Heading("Kernels", 2, "kernels"), Table("Kernels", heads, kernels)]
    return [*blocks, *_environment(entry, link, before)]


def _functions(functions: ChangedFunctions) -> list[Block]:
    """Which functions of a phase changed, in the words of the session's report."""
    head = f"{functions.phase}.functions, {functions.arm} against {functions.against}: "
    heads = (
        Column("function", left=True),
        Column("instructions"),
        Column("calls"),
        Column("changed", left=True, drop=1),
    )
    rows = tuple(
        row(
            Cell(each.name, small=each.file, mono=True),
            f"{wording.amount(each.base, 2)} -> {wording.amount(each.patched, 2)}",
            f"{wording.amount(each.calls_base, 3)} -> {wording.amount(each.calls_patched, 3)}",
            " and ".join(each.moved),
        )
        for each in functions.largest
    )
    label = f"Functions that changed in {functions.phase}, per {functions.unit_title}"
    return [Paragraph((head, Strong(of_session(functions)))), Table(label, heads, rows)]


def _metrics(entry: Entry, case: CaseEntry) -> Table:
    heads = (Column("metric", left=True), *(Column(arm.arm) for arm in case.arms))
    rows = []
    for metric in case.metrics:
        factor, unit = case.shown(metric, entry.mode)
        cells = [Cell(read_name(metric.name), small=unit)]
        for arm in case.arms:
            stored = arm.metrics.get(metric.name)
            summary = stored.summary if stored else None
            spread = wording.spread(summary.stddev) if summary else ""
            cells.append(
                Cell(wording.figure(factor * summary.mean if summary else None), small=spread)
            )
        rows.append(Row(tuple(cells), strong=metric.name in case.primary))
    return Table(f"Metrics of {case.name}", heads, tuple(rows))


def _environment(entry: Entry, link: str, before: Entry | None) -> list[Block]:
    """All that may move a number besides the kernel."""
    where: list[tuple[str, Words]] = []
    if entry.link:
        where = [("link", (Link(entry.link, entry.link),) if link else entry.link)]
    judged = []
    if entry.method:
        looks = f": after {', '.join(map(str, entry.looks))}" if entry.looks else ""
        moved = before is not None and before.method != entry.method
        until = f" (until {before.night}: {before.method or 'unknown'})" if before and moved else ""
        judged = [("judged", f"{entry.method}{looks}{until}")]
    return [
        Heading("Environment", 2, "environment"),
        Paragraph(
            f"All that may change a number besides the kernel ({entry.setting_key}).", "note"
        ),
        *facts(
            [
                ("session", entry.session),
                ("measured", entry.created),
                ("entry", (Mono(entry.id),)),
                *where,
                ("exactness", entry.exactness),
                *judged,
                *sorted(entry.setting.items()),
            ]
        ),
    ]


def newest(chart: TrendChart, most: int) -> Table:
    """The newest nights of a chart, the last one first."""
    head = chart.head
    heads = (
        Column("night", left=True),
        Column(f"{head.course.arm}, {head.unit}"),
        Column("stddev"),
        Column("level"),
        Column("kernel", left=True),
    )
    rows = tuple(
        row(
            Cell(point.night, to=f"../night/{point.entry}.html"),
            wording.figure(point.value) if point.value is not None else point.why_not,
            wording.spread(point.stddev),
            wording.figure(point.level),
            point.kernel,
        )
        for point in list(head.points)[-most:][::-1]
    )
    return Table(f"The newest nights of {chart.metric}", heads, rows)
