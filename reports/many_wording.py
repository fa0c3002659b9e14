"""How a session of many arms is said, in every form alike."""

from __future__ import annotations

from reports import wording
from reports.across import Cell, Row
from reports.many import SessionComparison
from reports.model import Comparison, Reference
from reports.verdict import Verdict


def against(session: SessionComparison) -> str:
    """What is compared with what."""
    compare, base = session.manifest.experiment.compare, session.manifest.base
    many = len(session.comparisons)
    if compare == "pairs":
        return f"all {many} pairs of {len(session.arms)} arms"
    if compare == "steps":
        return f"each of {len(session.arms)} arms against the one before, and the last against base"
    return f"{len(session.arms) - 1} arms against {base}"


def family(session: SessionComparison) -> str:
    """That all verdicts are one family, and how large it is."""
    return (
        f"{len(session.primary)} verdicts in one family: Holm's correction is over all of them, "
        "as each is one more chance to be wrong"
    )


def name(one: Comparison) -> str:
    """``base -> sorted``."""
    return f"{one.manifest.base} -> {one.manifest.patched}"


def figure(cell: Cell) -> str:
    """The arm's mean; a dash where nothing was measured."""
    return wording.figure(cell.summary.mean if cell.summary else None)


def spread(cell: Cell) -> str:
    """The arm's relative standard deviation."""
    return wording.spread(cell.summary.stddev if cell.summary else None)


def difference(row: Row, cell: Cell) -> float | None:
    """Of a metric that is a percentage: the arm's mean less that of base, in points."""
    if cell.summary is None or row.base.summary is None:
        return None
    return cell.summary.mean - row.base.summary.mean


def points(value: float | None) -> str:
    """``+1.30 points``; a dash for None."""
    if value is None:
        return wording.NOTHING
    return "0 points" if value == 0 else f"{value:+.2f} points"


def change(row: Row, cell: Cell) -> str:
    """The arm's change from base in percent; in points where the metric is a percentage."""
    if row.is_share:
        return points(difference(row, cell))
    return wording.percent(cell.change.estimate if cell.change else None)


def bounds(row: Row, cell: Cell) -> str:
    """The interval of the change in percent; none in points."""
    found = cell.change
    if row.is_share or found is None or found.low is None or found.high is None:
        return ""
    return wording.between(found.low, found.high)


def verdict(cell: Cell) -> str:
    """The verdict's word, or what stands out; empty for the base and where none was asked."""
    return wording.verdict(cell.against) if cell.against else ""


def samples(row: Row) -> str:
    """``8 seeds``, in wall mode ``24 blocks``; where arms have not as many, ``6 to 8 seeds``."""
    counts = sorted({len(cell.values) for cell in row.cells})
    if not counts or counts == [0]:
        return "nothing measured"
    in_wall = any(cell.against and cell.against.again for cell in row.others)
    what = "block" if in_wall else "seed"
    if len(counts) > 1:
        return f"{counts[0]} to {counts[-1]} {what}s"
    return f"{counts[0]} {what}{'' if counts[0] == 1 else 's'}"


def published(row: Row, cell: Cell) -> list[tuple[str, str]]:
    """What documents print of this arm and its change, a pair a figure.

    ``("published 295.00 MB/s", "-37.23 %")``; the base has no change.
    """
    if cell is row.base:
        first = [reference for other in row.others for reference in other.published]
        values = dict.fromkeys((reference.base, reference.unit) for reference in first)
        return [(f"published {value:.2f} {unit}", "") for value, unit in values]
    return [
        (f"published {reference.patched:.2f} {reference.unit}", wording.percent(reference.change))
        for reference in cell.published
    ]


def references(session: SessionComparison) -> tuple[tuple[str, Reference], ...]:
    """Every published figure with the arm it is of, once."""
    found = [
        (one.manifest.patched, reference)
        for one in session.comparisons
        if one.manifest.base == session.manifest.base
        for reference in one.published
    ]
    return tuple(dict.fromkeys(found))


def counts(one: Comparison) -> str:
    """``1 regression, 2 without change``: one pair's verdicts in few words."""
    said = []
    for verdict, plural in wording.PLURALS.items():
        number = one.count(verdict)
        if number:
            many = number > 1 or verdict is Verdict.NO_CHANGE
            said.append(f"{number} {plural if many else verdict}")
    return ", ".join(said) or "nothing judged"
