"""Call stacks: a line a phase, and behind it the graph and the paths that changed."""

from __future__ import annotations

from reports import wording
from reports.charts import stacks as charts
from reports.document import Block, Cell, Column, Fold, Row, Table, row
from reports.model import Comparison
from reports.sections.view import OfPhase, View, by_phase, figure, titled
from reports.stacks_model import StackComparison, StackRow

COUNTED = (
    "Virtual, and counted, not sampled: in diagnostic runs of the judged guests a QEMU plugin "
    "follows every call, jump and return of the kernel. A function's instructions are its own on "
    "this path, without what it called. A function that the compiler put into its caller is part "
    "of that, and a module's code of what called the module. stacks.csv beside this report has "
    "every path. Counts explain a verdict and never make one."
)
MOST_SHOWN, MOST_CALLERS = 12, 3


def _path(path: tuple[str, ...], most: int) -> str:
    """``a < b < c``: from the nearest caller out."""
    nearest = path[::-1][:most]
    return " < ".join([*nearest, *(["…"] if len(path) > most else [])])


def sentence(stacks: StackComparison) -> str:
    """``1204 -> 1196 ... per folio (-0.7 %); 93 % of what changed is in or below ...``."""
    total = stacks.total
    parts = [
        f"{wording.few(total)} virtual instructions of the kernel per {stacks.unit_title} "
        f"({wording.moved_if_at_all(total).strip('()')}"
        f"{', not significant' if total.is_uncertain else ''})"
    ]
    if stacks.focus:
        where = " < ".join(stacks.focus[::-1][:MOST_CALLERS])
        parts.append(f"{stacks.focus_share * 100:.0f} % of what changed is in or below {where}")
    elif not stacks.listed:
        parts.append("no path changed")
    else:
        parts.append("no single path has most of what changed")
    return "; ".join(parts)


def blocks(view: View, comparison: Comparison) -> list[Block]:
    """The section: a line for each phase, the graph and the tables of all in a fold."""
    phases = [
        OfPhase(
            each.case, each.phase, sentence(each), tuple(_behind(view, comparison, each)),
            len(each.seeds),
        )
        for each in comparison.stacks
    ]  # fmt: skip
    body = by_phase(comparison, "Call paths, and the paths that changed", phases, (COUNTED,))
    return titled("Call stacks", "stacks", body)


def _behind(view: View, comparison: Comparison, stacks: StackComparison) -> list[Block]:
    judged = {(metric.case, metric.phase) for metric in comparison.primary}
    drawn: list[Block] = []
    if stacks.listed and (stacks.case, stacks.phase) in judged:
        draws = view.charts(lambda pair: charts.draw(pair, stacks), comparison=comparison)
        drawn = [figure(chart, 4, wide=True) for chart in draws]
    arms = Column(comparison.manifest.base), Column(comparison.manifest.patched)
    columns = (
        Column("function, and its callers", left=True), *arms, Column("change"),
        Column("calls", drop=1),
    )  # fmt: skip
    where = f"per {stacks.unit_title}, virtual, {stacks.case}, phase {stacks.phase}"
    rows = tuple(_row(stacks.rows[number]) for number in stacks.listed)
    if rows:
        drawn.append(Table(f"Instructions by call path {where}", columns, rows[:MOST_SHOWN]))
    if rows[MOST_SHOWN:]:
        rest = Table(f"More call paths {where}", columns, rows[MOST_SHOWN:])
        drawn.append(Fold(f"{len(rows) - MOST_SHOWN} more paths", (rest,), page_only=True))
    return drawn


def _row(each: StackRow) -> Row:
    own = each.instructions
    # The nearest caller stands everywhere, the next ones where there is room.
    farther = _path(each.callers[:-1], MOST_CALLERS - 1)
    return row(
        Cell(_path(each.path[-2:], 2), under=f"< {farther}" if farther else "", mono=True),
        wording.short(own.base), wording.short(own.patched), wording.signed(own.difference),
        wording.few(each.calls) if not each.calls.equal else wording.short(each.calls.base),
    )  # fmt: skip
