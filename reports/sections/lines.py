"""Lines that move between a modelled machine's CPUs: a line a phase, and tables behind it."""

from __future__ import annotations

from analysis.explain.lines import EXPLANATION, LinesComparison, MovedLines
from analysis.model import Comparison
from reports import wording
from reports.document import Block, Cell, Column, Paragraph, Row, Strong, row
from reports.sections.counted import change, first_and_more, notes, of_phases, only
from reports.sections.view import View, by_phase, titled
from text import counted

COUNTED = (
    "Modelled, not measured: in diagnostic runs of a guest with several vCPUs a QEMU plugin "
    "follows every access to memory through a private cache of each. A line moves where one reads "
    "what another wrote, or writes what another has. All numbers are virtual and are never judged."
)
SHARING = (
    "False sharing: until it loses the line again, who took it touches no byte that the other had "
    "written (or, where readers lost it, read)."
)
TURNS = (
    "vCPUs take turns, and how long these are decides who meets: “turns” marks rows that differ by "
    "more than a quarter with turns of another length. Compare arms; they predict no machine."
)


def _moved(comparison: LinesComparison) -> str:
    total = comparison.total.all_lines
    if total.equal:
        return f"unchanged at {wording.short(total.base)}"
    return f"{wording.few(total)} ({change(total)})"


def sentence(lines: LinesComparison) -> str:
    """``lines that moved per folio added 34.2 -> 33.9 (-0.9 %); false sharing ...``."""
    parts = [f"lines that moved between {lines.vcpus} CPUs per {lines.unit_title} {_moved(lines)}"]
    false = lines.falsest
    if false:
        most = "most false sharing" if false.apart.equal else "false sharing changed most"
        parts.append(f"{most}: {false.object} {wording.few(false.apart)}")
    else:
        parts.append("nothing known by name with false sharing")
    if lines.by_turns:
        parts.append("the number depends on the turns")
    return f"{'; '.join(parts)}; {counted(len(lines.seeds), 'seed')} of a modelled {lines.machine}"


def brief(lines: LinesComparison) -> str:
    """What a mail has room for; where nothing moved more or less, nothing."""
    if lines.total.all_lines.equal:
        return ""
    where = f"Modelled lines between {lines.vcpus} virtual CPUs per {lines.unit_title}"
    return f"{where}: {_moved(lines)}"


def blocks(_view: View, comparison: Comparison) -> list[Block]:
    """The section: a line for each phase, and the tables of all in a fold."""
    phases = of_phases(
        comparison, EXPLANATION.of(comparison), sentence, lambda each: _tables(comparison, each)
    )
    body = by_phase(
        comparison, "Lines by object and by function", phases, (COUNTED, SHARING, TURNS)
    )
    return titled(EXPLANATION.title, EXPLANATION.name, body)


def _tables(comparison: Comparison, lines: LinesComparison) -> list[Block]:
    where = f"{lines.case}, phase {lines.phase}"
    turns = f"turns of {lines.metronome_ns / 1000:g} µs"
    if lines.other_ns:
        turns += f", and of {lines.other_ns / 1000:g} µs beside"
    banner = f" Per {lines.unit_title}, {lines.vcpus} vCPUs, {turns}."
    section: list[Block] = [Paragraph((Strong(f"{lines.machine_title}."), banner), "banner")]
    for title, rows in (("object", lines.objects), ("function", lines.pairs)):
        section += first_and_more(
            f"Lines that moved by {title}, {where}",
            f"More lines by {title}, {where}",
            f"{{}} more rows by {title}",
            _heads(comparison, lines, title),
            [_row(comparison, lines, each) for each in rows],
        )
    return section


def _heads(comparison: Comparison, lines: LinesComparison, title: str) -> tuple[Column, ...]:
    base, patched = comparison.manifest.base, comparison.manifest.patched
    first = (
        [Column("object", left=True)]
        if title == "object"
        else [Column("taken by", left=True), Column("from", left=True), Column("object", left=True)]
    )
    groups = [("lines that moved", 0), ("of these false sharing", 3), ("to be read", 1)]
    if lines.other_ns:
        groups.append((f"turns of {lines.other_ns / 1000:g} µs", 2))
    columns = [Column("change", group=groups[0][0])]
    for group, drop in groups:
        columns += [Column(base, group=group, drop=drop), Column(patched, group=group, drop=drop)]
    return (*first, *columns)


def _of_bytes(ends: tuple[int, int] | None) -> str:
    """The first and the last byte; those before the object are of what lies in the line, too."""
    if ends is None:
        return ""
    first, last = ends
    if first >= 0:
        return f"{first}-{last}"
    return f"{-first} before it to {f'{-last} before it' if last < 0 else last}"


def _row(comparison: Comparison, lines: LinesComparison, each: MovedLines) -> Row:
    mine, theirs = _of_bytes(each.mine), _of_bytes(each.theirs)
    note = notes(
        f"bytes {mine}, theirs {theirs}" if mine else "",
        "turns" if each.by_turns else "",
        only(each.only_in, comparison),
    )
    first = [Cell(each.object, small=note, mono=each.named)]
    if each.taker:
        first = [
            Cell(each.taker, mono=True), Cell(each.holder, mono=True),
            Cell(each.object, under=note, mono=each.named),
        ]  # fmt: skip
    numbers = [
        wording.amount(value, 3)
        for pair in (each.all_lines, each.apart, each.reads)
        for value in (pair.base, pair.patched)
    ]
    if lines.other_ns:
        numbers += [wording.amount(value, 3) for value in each.other or (0.0, 0.0)]
    change = wording.moved_if_at_all(each.all_lines)
    return row(*first, change, *numbers)
