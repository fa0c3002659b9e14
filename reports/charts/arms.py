"""Many arms in one chart: the change of each from base, and every run of each."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.transforms import blended_transform_factory

from experiment.spec import Thresholds
from reports import wording
from reports.by_arm import ArmCell, MetricRow
from reports.charts import canvas
from reports.charts.canvas import BAND, BASE, INK, MUTED, PATCHED, Chart
from reports.charts.forest import limits_of
from reports.many import SessionComparison
from text import typeset

ROW_IN, GROUP_IN, EDGES_IN = 0.3, 0.42, 1.0
# Beyond these a chart is a wall; the tables have them all.
MOST_ROWS, MOST_CHARTS = 48, 8
LONGEST = 24


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def forest(session: SessionComparison) -> list[Chart]:
    """The change of every arm in each metric that is judged, with its interval."""
    judged = [
        row for row in session.rows
        if row.primary and any(cell.change for cell in row.others)
    ]  # fmt: skip
    total = sum(len(row.others) for row in judged)
    if not judged or total > MOST_ROWS:
        return []
    thresholds = session.manifest.experiment.thresholds
    delta = thresholds.change
    band = "threshold" if thresholds.metrics else wording.threshold(thresholds)
    cells = [cell for row in judged for cell in row.others]
    changes = [cell.change for cell in cells if cell.change]
    published = [reference.change for cell in cells for reference in cell.published]
    limits = limits_of(changes, published, delta)
    alt = "Change of each arm from base with its interval: " + "; ".join(
        f"{row.case} {row.name} {cell.arm} {wording.cell_change(row, cell)} "
        f"{wording.cell_bounds(row, cell)} {wording.cell_verdict(cell)}".strip()
        for row in judged for cell in row.others
    )  # fmt: skip
    with canvas.figure(EDGES_IN + ROW_IN * total + GROUP_IN * len(judged)) as fig:
        axes = fig.subplots()
        axes.patch.set_alpha(0)
        position = _forest_rows(axes, judged, limits, thresholds)
        axes.set_xlim(*limits)
        axes.set_ylim(position - 0.4, -0.4)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("change, % of base")
        extra: list[tuple[str, dict[str, object]]] = [
            (f"change, {100 * changes[0].level:g} % interval",
             {"marker": "o", "color": PATCHED, "markersize": 6}),
            (band, {"marker": "s", "color": BAND, "markersize": 8}),
        ]  # fmt: skip
        if published:
            extra.append(("published", {
                "marker": "D", "markerfacecolor": "none", "markeredgecolor": INK, "markersize": 6,
            }))  # fmt: skip
        canvas.legend(fig, *extra)
        svg = canvas.to_svg(fig, "arms", alt)
    return [Chart(
        name="arms", kind="arms", title="The change, arm by arm",
        caption=f"The band is the threshold of {wording.threshold(thresholds)}. Published changes "
        "were measured on other machines, in real time; an arrow means further out.",
        alt=alt, svg=svg,
    )]  # fmt: skip


def _forest_rows(
    axes: Axes, judged: Sequence[MetricRow], limits: tuple[float, float], thresholds: Thresholds
) -> float:
    """Draw every row; return the position below the last."""
    across_page = blended_transform_factory(axes.transAxes, axes.transData)
    position, gap = 0.0, GROUP_IN / ROW_IN
    for row in judged:
        axes.text(0, position, f"{row.case}  {row.name}", transform=across_page, va="center",
                  fontweight="bold")  # fmt: skip
        position += gap * 0.75
        top = position - 0.5
        for cell in row.others:
            _forest_row(axes, position, row, cell, limits)
            position += 1
        own = thresholds.of(row.case, row.name).change
        axes.add_patch(Rectangle((-100 * own, top), 200 * own, position - 0.5 - top,
                                 color=BAND, linewidth=0, zorder=0.5))  # fmt: skip
        axes.vlines(0, top, position - 0.5, color=INK, linewidth=0.9)
        position += gap * 0.4
    return position


def _forest_row(
    axes: Axes, position: float, row: MetricRow, cell: ArmCell, limits: tuple[float, float]
) -> None:
    across_page = blended_transform_factory(axes.transAxes, axes.transData)
    axes.text(-0.05, position, _cut(cell.arm), transform=across_page, va="center", ha="right",
              fontsize=9.5)  # fmt: skip
    text = typeset(f"{wording.cell_change(row, cell)}  {wording.cell_verdict(cell)}")
    axes.text(1.01, position, text.strip(), transform=across_page, va="center", ha="left",
              color=MUTED, fontsize=9.5)  # fmt: skip
    change = cell.change
    if change is not None:
        if change.low is not None and change.high is not None:
            axes.hlines(position, 100 * change.low, 100 * change.high, color=PATCHED, linewidth=2)
        axes.plot(100 * change.estimate, position, "o", color=PATCHED, markersize=5.5)
    for reference in cell.published:
        value = 100 * reference.change
        if limits[0] <= value <= limits[1]:
            axes.plot(value, position, "D", color=INK, markersize=6, markerfacecolor="none",
                      markeredgecolor=INK, markeredgewidth=1.1)  # fmt: skip
            continue
        right = value > limits[1]
        out = typeset(wording.percent(reference.change, decimals=1))
        axes.text(1 if right else 0, position, f"◇ {out} →" if right else f"← {out} ◇",
                  transform=across_page, va="center", ha="right" if right else "left",
                  fontsize=9)  # fmt: skip


def runs(session: SessionComparison) -> list[Chart]:
    """Every run of every arm in each metric that is judged: a row an arm, a dot a seed."""
    judged = [row for row in session.rows if row.primary and row.base.summary]
    if len(session.arms) < 3 or len(judged) > MOST_CHARTS:
        return []
    return [_runs(row) for row in judged]


def _runs(row: MetricRow) -> Chart:
    name = canvas.identifier("runs", row.case, row.name)
    text = ", ".join(f"{cell.arm} {wording.cell_figure(cell)}" for cell in row.cells)
    alt = f"{row.case}, {row.name} in {row.unit}, means: {text}; {wording.row_samples(row)}"
    with canvas.figure(EDGES_IN - 0.2 + ROW_IN * len(row.cells)) as fig:
        axes = fig.subplots()
        canvas.clear(axes, "x")
        for position, cell in enumerate(row.cells):
            colour = BASE if cell is row.base else PATCHED
            axes.plot(cell.numbers, [position] * len(cell.numbers), "o", color=colour,
                      markersize=4.5, alpha=0.6)  # fmt: skip
            if cell.summary:
                axes.plot(cell.summary.mean, position + 0.3, marker="^", color=colour,
                          markersize=5)  # fmt: skip
        if row.base.summary:
            axes.axvline(row.base.summary.mean, color=INK, linewidth=0.7,
                         linestyle=(0, (3, 3)), alpha=0.6)  # fmt: skip
        axes.set_yticks(range(len(row.cells)), [_cut(cell.arm) for cell in row.cells])
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.set_ylim(len(row.cells) - 0.4, -0.6)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(row.unit)
        axes.locator_params(axis="x", nbins=6)
        svg = canvas.to_svg(fig, name, alt)
    return Chart(
        name=name, kind="runs", title=f"{row.case}, {row.name}",
        caption="Each dot is one run, the triangle below is the arm's mean, the dashed line that "
        "of the base. The axis does not begin at zero.",
        alt=alt, svg=svg,
    )  # fmt: skip
