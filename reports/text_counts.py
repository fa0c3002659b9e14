"""The sections on functions and locks as plain text, for the terminal's report."""

from __future__ import annotations

from collections.abc import Sequence

from reports import count_wording as counts
from reports import lock_wording, wording
from reports.attribution_model import Attribution
from reports.lock_model import LockComparison
from reports.model import Comparison
from reports.paired import Paired

MOST_LOCKS = 6
LONGEST_NAME = 40
# The first column is not cut below this: what is left would name nothing.
SHORTEST_NAME = 20
GAP = 2


def columns(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Rows as aligned lines, indented by two; the columns of ``left`` to the left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def fitted(
    rows: Sequence[Sequence[str]],
    width: int,
    left: Sequence[int] = (0,),
    drop: Sequence[Sequence[int]] = (),
    before_names: int = 0,
) -> list[str]:
    """As :func:`columns`, no line wider than ``width``.

    Groups of columns in ``drop`` go one after the other until the rest fits; when the first
    ``before_names`` of them are gone, names in the first column are cut where that helps.
    """
    for gone in range(len(drop) + 1):
        dropped = {i for group in drop[:gone] for i in group}
        kept = [i for i in range(len(rows[0])) if i not in dropped]
        shown = [[row[i] for i in kept] for row in rows]
        room = width - sum(max(len(row[i]) for row in rows) + GAP for i in kept[1:]) - GAP
        if gone >= before_names and room >= SHORTEST_NAME:
            shown = [[cut(row[0], room), *row[1:]] for row in shown]
        lines = columns(shown, [at for at, i in enumerate(kept) if i in left])
        if max(map(len, lines)) <= width:
            return lines
    return [line[:width].rstrip() for line in lines]


def cut(text: str, most: int) -> str:
    """The text, or as much of it as fits with dots behind it."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def name(text: str) -> str:
    """A guest's name on one line and no longer than a column may be."""
    return cut(" ".join(wording.clean(text).split()), LONGEST_NAME)


def _cells(pair: Paired | counts.Sums) -> tuple[str, str, str]:
    return (
        counts.amount(pair.base),
        counts.amount(pair.patched),
        counts.signed(pair.difference),
    )


def functions(found: Attribution, base: str, patched: str, width: int) -> list[str]:
    """The table of functions that moved most, with everything else in one row."""
    rows = [
        (name(counts.function(row)), *_cells(row.instructions), counts.note(row, base, patched))
        for row in counts.shown(found)
    ]
    further = counts.further(found)
    if further is not None:
        rows.append((further[0], *_cells(further[1]), ""))
    if found.others is not None:
        rows.append((counts.others(found), *_cells(found.others), ""))
    rows.append(("all", *_cells(found.total), ""))
    head = ("function", base, patched, "difference", "")
    return fitted([head, *rows], width, left=(0, 4), drop=((1,), (2,), (4,)))


def _locks(found: LockComparison, base: str, patched: str, width: int) -> list[str]:
    rows = []
    for row in found.shown[:MOST_LOCKS]:
        pair = row.hold or row.contentions
        if pair is not None:
            rows.append((
                name(row.label), counts.short(pair.base), counts.short(pair.patched),
                counts.moved(pair), lock_wording.cpus(row.saturation),
            ))  # fmt: skip
    what = "held" if found.serial else "contended"
    head = ("lock", f"{what} {base}", patched, "change", "saturates, CPUs" if found.serial else "")
    return fitted([head, *rows], width, drop=((4,), (1,), (2,))) if rows else []


def _waits(found: LockComparison, base: str, patched: str, width: int) -> list[str]:
    rows = [
        (name(row.caller), name(row.flags), counts.short(row.count.base),
         counts.short(row.count.patched), counts.moved(row.count))
        for row in found.waits[:MOST_LOCKS]
    ]  # fmt: skip
    head = ("waiting", "kind", base, patched, "change")
    return fitted([head, *rows], width, left=(0, 1), drop=((2,), (3,), (1,))) if rows else []


def origin(comparison: Comparison, width: int) -> list[tuple[str, list[str]]]:
    """One (sentence, table) after the other: sentences are to be wrapped, tables are not."""
    base, patched = comparison.manifest.base, comparison.manifest.patched
    parts: list[tuple[str, list[str]]] = []
    for found in comparison.headlines:
        parts += [("", [])] if parts else []
        where = f"{found.case}, phase {found.phase}"
        if found.identical:
            parts.append((f"{where}: {counts.IDENTICAL[0].lower()}{counts.IDENTICAL[1:]}", []))
            continue
        parts.append((f"{where}: {counts.total(found)}.", []))
        clear = counts.beyond_scatter(found)
        parts += [(f"{clear}.", [])] if clear else []
        parts += [(f"{counts.ratio(row)}.", []) for row in found.ratios]
        parts += [(f"! {counts.absent(row)}.", []) for row in found.ratios if row.absent]
        if found.listed:
            parts.append(("", functions(found, base, patched, width)))
            more = counts.elsewhere(found)
            parts += [(f"{more}.", [])] if more else []
            parts.append((f"{counts.share(found)}.", []))
        parts += [(f"- {counts.hint(hint, base, patched)}", []) for hint in found.hints]
    return parts


def locks(comparison: Comparison, width: int) -> list[tuple[str, list[str]]]:
    """As :func:`origin`, for the twins."""
    base, patched = comparison.manifest.base, comparison.manifest.patched
    parts: list[tuple[str, list[str]]] = []
    for found in comparison.locks:
        parts += [("", [])] if parts else []
        where = f"{found.case}, phase {found.phase}, twin {found.twin}"
        held, many = f"{found.ns} per {found.unit_title}", counts.plural(found.unit_title)
        per = held if found.serial else f"per 1,000 {many}"
        parts.append(
            (f"{where} ({lock_wording.guest(found)}). {lock_wording.banner(found)}; {per}.", [])
        )
        tables = (_locks(found, base, patched, width), _waits(found, base, patched, width))
        parts += [("", table) for table in tables if table]
        parts += [(f"{lock_wording.slow_path(found)}.", [])] if found.slow_share else []
        parts.append((lock_wording.limits(found), []))
    return parts
