"""How a session of many arms is said, in every form alike."""

from __future__ import annotations

from reports import headline, wording
from reports.across import Cell, Row
from reports.many import SessionComparison
from reports.model import Comparison, Reference
from reports.verdict import Verdict


def against(session: SessionComparison) -> str:
    """What is compared with what."""
    compare, base = session.manifest.experiment.compare, session.manifest.base
    many = len(session.comparisons)
    if many == 1:
        return f"{session.arms[1].name} against {base}"
    if compare == "pairs":
        return f"all {many} pairs of {len(session.arms)} arms"
    if compare == "steps":
        return f"each of {len(session.arms)} arms against the one before, and the last against base"
    return f"{len(session.arms) - 1} arms against {base}"


def family(session: Comparison | SessionComparison) -> str:
    """That all verdicts are one family, and how large it is."""
    many = len(session.primary)
    if many == 1:
        return "1 verdict in its family: Holm's correction leaves it as it is"
    return (
        f"{many} verdicts in one family: Holm's correction is over all of them, "
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


def change(row: Row, cell: Cell) -> str:
    """The arm's change from base in percent; in points where the metric is a percentage."""
    if row.is_share:
        return wording.points(difference(row, cell))
    return wording.percent(cell.change.estimate if cell.change else None)


def bounds(row: Row, cell: Cell) -> str:
    """The interval of the change, in the unit of :func:`change`; empty where there is none."""
    found = cell.change
    if found is None or found.low is None or found.high is None:
        return ""
    if row.is_share:
        base = row.base.summary.mean if row.base.summary else None
        return wording.points_between(base, found.low, found.high)
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
    most = wording.blocks(counts[-1]) if in_wall else wording.seeds(counts[-1])
    return most if len(counts) == 1 else f"{counts[0]} to {most}"


def published(row: Row, cell: Cell) -> list[tuple[str, str]]:
    """What documents print of this arm and its change, a pair a figure.

    ``("published 295.00 MB/s", "-37.23 %")``; the base has no change.
    """
    if cell is row.base:
        first = [reference for other in row.others for reference in other.published]
        values = dict.fromkeys((reference.base, reference.unit) for reference in first)
        return [(f"published {value:.2f} {unit}", "") for value, unit in values]
    return [
        (f"published {reference.patched:.2f} {reference.unit}", wording.reference_change(reference))
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
    if not measured(one) and one.count(Verdict.FAILED) == len(one.primary):
        return "not measured"
    verdicts = (metric.judgement.verdict for metric in one.primary)
    return headline.counted(verdicts) or "nothing judged"


def measured(one: Comparison) -> bool:
    """Whether any number of the pair may be shown, or its code is the same."""
    values = any(metric.base for case in one.cases for metric in case.metrics)
    return values or one.manifest.same_code
