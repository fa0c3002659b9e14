"""A heat map of changes: cases by arms, or cases by metrics where there are two arms."""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from analysis.many import MANY_CASES, ArmCell, MetricRow, SessionComparison
from analysis.verdict import CALLED
from reports import wording
from reports.charts import canvas
from reports.charts.canvas import BASE, INK, MUTED, PATCHED, RULE, Chart
from text import typeset

ROW_IN, HEAD_IN = 0.27, 0.75
COLUMN_IN = 0.72
# A letter of a row's name is hardly ever wider; between name and squares is a gap.
LETTER_IN, GAP_IN = 0.085, 0.15
# Colour is for the eye, the number for reading: never so deep that ink is lost on it.
DEEPEST = 0.62
# From here on the second decimal is no news.
TENTH = 0.1
# A tenfold change is as deep as it gets.
FULL = 9.0
MOST_COLUMNS, MOST_ROWS = 9, 60
LONGEST_LABEL, LONGEST_HEAD = 26, 12


class Square(NamedTuple):
    """One cell of the map: the number printed, and how deep and which of two colours."""

    text: str
    depth: float
    better: bool
    sure: bool


def depth(change: float, threshold: float) -> float:
    """0 below half the threshold, then by the logarithm of the change up to :data:`DEEPEST`."""
    floor = threshold / 2
    size = abs(math.log1p(change)) if change > -1 else math.log1p(FULL)
    if size <= floor:
        return 0.0
    reach = math.log(math.log1p(FULL) / floor)
    return DEEPEST * min(1.0, (0.15 + 0.85 * math.log(size / floor) / reach))


def square(row: MetricRow, cell: ArmCell, threshold: float) -> Square | None:
    """The cell as drawn; None where nothing was measured."""
    if cell.change is None:
        return None
    estimate = cell.change.estimate
    better = (estimate > 0) == (row.direction == "higher")
    judgement = cell.against.judgement if cell.against else None
    sure = judgement is not None and (judgement.verdict in CALLED or judgement.differs)
    decimals = 2 if abs(estimate) < TENTH else 1
    text = wording.percent(estimate, decimals=decimals).replace(" %", "")
    if row.is_share:
        text = f"{wording.cell_difference(row, cell) or 0.0:+.1f} pt"
    text = typeset(text)
    mark = ("▲" if better else "▼") if sure else ""
    return Square(f"{text}{mark}", depth(estimate, threshold), better, sure)


def _grid(
    session: SessionComparison, metrics: tuple[MetricRow, ...]
) -> tuple[list[str], list[str], list[list[Square | None]]]:
    """Names of rows and columns, and the squares; cases that lack a metric have None."""
    thresholds = session.manifest.experiment.thresholds
    if len(session.arms) > 2:
        judged = [row for row in metrics if row.primary]
        names = _row_names(judged)
        heads = [arm.name for arm in session.arms[1:]]
        squares = [
            [square(row, cell, thresholds.of(row.case, row.name).change) for cell in row.others]
            for row in judged
        ]
        return names, heads, squares
    by_case: dict[str, dict[str, MetricRow]] = {}
    for row in metrics:
        if row.measured:
            by_case.setdefault(f"{row.case} {row.phase}", {}).setdefault(row.short, row)
    shorts = [row.short for row in metrics if row.primary]
    # A metric that moves nowhere is no news.
    shorts += [row.short for row in metrics if (change := row.others[0].change) and change.estimate]
    heads = list(dict.fromkeys(shorts))[:MOST_COLUMNS]
    squares = [
        [square(each, each.others[0], thresholds.of(each.case, each.name).change)
         if (each := rows.get(short)) else None
         for short in heads]
        for rows in by_case.values()
    ]  # fmt: skip
    return _without_common(list(by_case)), heads, squares


def _row_names(judged: list[MetricRow]) -> list[str]:
    cases = [row.case for row in judged]
    if len(set(cases)) == 1:
        return [row.name for row in judged]
    return _without_common(
        [row.case if cases.count(row.case) == 1 else f"{row.case} {row.name}" for row in judged]
    )


def _without_common(names: list[str]) -> list[str]:
    """The names without the workload that all of them begin with, where that is one."""
    begins = {name.partition(":")[0] for name in names}
    if len(names) > 1 and len(begins) == 1 and all(":" in name for name in names):
        return [name.partition(":")[2] for name in names]
    return names


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def draw(session: SessionComparison) -> list[Chart]:
    """One map; none where there are too few cells to need one, or none has a change."""
    rows = session.rows
    names, heads, squares = _grid(session, rows)
    many = len(session.arms) > 2 or len(session.comparisons[0].cases) >= MANY_CASES
    filled = [cell for line in squares for cell in line if cell is not None]
    if not many or len(filled) < MANY_CASES:
        return []
    shown = most_changed(squares)
    names, visible = [names[number] for number in shown], [squares[number] for number in shown]
    alt = "Change from base in percent: " + "; ".join(
        f"{name}: " + ", ".join(
            f"{head} {cell.text}" for head, cell in zip(heads, line, strict=True) if cell
        )
        for name, line in zip(names, visible, strict=True)
    )  # fmt: skip
    # Room at the right for the last head, which leans over.
    labels = [_cut(name, LONGEST_LABEL) for name in names]
    left = GAP_IN + LETTER_IN * max(map(len, labels))
    width, height = left + COLUMN_IN * (len(heads) + 1), HEAD_IN + ROW_IN * len(visible)
    with canvas.figure(height, width) as fig:
        fig.set_layout_engine("none")
        axes = fig.add_axes((
            left / width, 0.01, COLUMN_IN * len(heads) / width,
            ROW_IN * len(visible) / height - 0.01,
        ))  # fmt: skip
        axes.patch.set_alpha(0)
        for y, line in enumerate(visible):
            axes.text(-0.12, y + 0.5, labels[y], ha="right", va="center",
                      fontsize=9.5, color=INK)  # fmt: skip
            for x, cell in enumerate(line):
                _draw_square(axes, x, y, cell)
        for x, head in enumerate(heads):
            axes.text(x + 0.08, -0.25, _cut(head, LONGEST_HEAD + 8), rotation=28, ha="left",
                      va="bottom", fontsize=9, color=MUTED)  # fmt: skip
        axes.set_xlim(0, len(heads))
        axes.set_ylim(len(visible), 0)
        axes.set_axis_off()
        svg = canvas.to_svg(fig, "heat", alt)
    return [
        Chart(
            name="heat", kind="heat", title="Every change at a glance",
            caption=_caption(session, len(shown), len(squares)), alt=alt, svg=svg,
        )
    ]  # fmt: skip


def most_changed(squares: list[list[Square | None]]) -> list[int]:
    """Numbers of the rows that are drawn, in order: all, or those that are surest and deepest."""

    def importance(number: int) -> tuple[bool, float]:
        return max(
            ((cell.sure, cell.depth) for cell in squares[number] if cell), default=(False, 0)
        )

    return sorted(heapq.nlargest(MOST_ROWS, range(len(squares)), key=importance))


def _draw_square(axes: Axes, x: int, y: int, cell: Square | None) -> None:
    axes.add_patch(Rectangle((x + 0.02, y + 0.04), 0.96, 0.92, facecolor="none", edgecolor=RULE,
                             linewidth=0.7))  # fmt: skip
    if cell is None:
        axes.text(x + 0.5, y + 0.5, wording.NOTHING, ha="center", va="center", color=MUTED)
        return
    if cell.depth:
        axes.add_patch(Rectangle((x + 0.02, y + 0.04), 0.96, 0.92, linewidth=0, alpha=cell.depth,
                                 facecolor=BASE if cell.better else PATCHED))  # fmt: skip
    axes.text(x + 0.5, y + 0.52, cell.text, ha="center", va="center", fontsize=9,
              color=INK if cell.sure else MUTED)  # fmt: skip


def _caption(session: SessionComparison, shown: int, there: int) -> str:
    rest = ""
    if len(session.arms) == 2:
        rest = " Columns are metrics; what is judged comes first."
    if shown < there:
        rest += f" Of {there} rows the {shown} that changed most; the table has all."
    rows = session.rows
    points = ", pt: points" if any(row.is_share for row in rows) else ""
    return (
        f"Change from {session.manifest.base} in percent{points}. Blue is better, orange is worse, "
        "the deeper the larger, on a logarithmic scale from half the threshold; ▲ and ▼ mark what "
        f"is significant.{rest} {wording.row_samples(rows[0]).capitalize()}."
    )
