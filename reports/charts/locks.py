"""Waits of diagnostic runs by caller, base against patched.

What is drawn is each quantity against its own mean on the base arm: on an axis from zero, with a
lock of 9 ns beside one of 900, nobody sees a change of 1 %.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter

from reports import wording
from reports.charts import canvas
from reports.charts.canvas import BASE, INK, MUTED, PATCHED, RULE, Chart
from reports.explain.contention import EXPLANATION, LockComparison
from reports.model import Comparison
from reports.paired import Paired
from text import plural, typeset

ROW_IN = 0.56
EDGES_IN = 1.0
MOST_ROWS = 6
# Changes (%) up to here are to scale; beyond it the axis is logarithmic, so that a lock whose
# contention became tenfold does not hide the others.
LINEAR = 10.0
TICKS = (-100, -50, -10, -5, 0, 5, 10, 50, 100, 1_000, 10_000, 100_000)


def kind(locks: LockComparison) -> str:
    """Kind of the charts of one twin, case and phase."""
    return canvas.identifier("locks", locks.twin, locks.case, locks.phase)


def _row(axes: Axes, position: int, label: str, pair: Paired) -> None:
    across = axes.get_yaxis_transform()
    text = typeset(f"{wording.few(pair)}  {wording.moved(pair)}")
    axes.text(0, position - 0.38, label, transform=across, va="center", fontsize=9.5)
    axes.text(1, position - 0.38, text, transform=across, va="center", ha="right", fontsize=9.5,
              color=MUTED)  # fmt: skip
    axes.axhline(position, color=RULE, linewidth=0.7, zorder=0.6)
    patched = percent(pair, pair.patched)
    axes.plot([0, patched], [position, position], color=INK, linewidth=1.4, alpha=0.5)
    for value, ends, colour, shift in (
        (0.0, pair.base_range, BASE, -0.06),
        (patched, pair.patched_range, PATCHED, 0.06),
    ):
        low, high = (percent(pair, end) for end in ends)
        axes.hlines(position + shift, low, high, color=colour, linewidth=3.4, alpha=0.35)
        axes.plot(value, position + shift, "o", color=colour, markersize=6.5)


def percent(pair: Paired, value: float) -> float:
    """A value of either arm against the base arm's mean, as a change in %."""
    return 100 * (value / pair.base - 1)


def _set_axis(axes: Axes, rows: list[tuple[str, Paired]]) -> bool:
    """From the lowest to the highest change, 1 % at least; whether it is logarithmic outside."""
    ends = [percent(pair, end) for _, pair in rows
            for end in (*pair.base_range, *pair.patched_range)]  # fmt: skip
    low, high = min(*ends, -1.0), max(*ends, 1.0)
    wide = max(high, -low) > LINEAR
    if wide:
        axes.set_xscale("symlog", linthresh=LINEAR)
        axes.xaxis.set_major_locator(
            FixedLocator([t for t in TICKS if 1.1 * low <= t <= 1.1 * high])
        )
        axes.set_xlim(1.3 * low, 1.3 * high)
    else:
        axes.set_xlim(low - 0.06 * (high - low), high + 0.06 * (high - low))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: typeset(f"{value:+g} %" if value else "0"))
    )
    axes.axvline(0, color=RULE, linewidth=1.0, zorder=0.7)
    return wide


def draw(comparison: Comparison) -> list[Chart]:
    """A chart for every twin, case and phase, in the order of the record."""
    arms = (comparison.manifest.base, comparison.manifest.patched)
    drawn = []
    for locks in EXPLANATION.of(comparison):
        rows = [
            (f"{row.caller} ({row.flags})", row.count) for row in locks.waits if row.count.base
        ][:MOST_ROWS]
        if not rows:
            continue
        name, label = (
            f"{kind(locks)}-callers",
            f"waits per 1,000 {plural(locks.unit_title)}",
        )
        title = "Waits by caller"
        alt = f"{title}, {label}, {arms[0]} then {arms[1]}: " + "; ".join(
            f"{caller} {wording.short(pair.base)} then {wording.short(pair.patched)}"
            for caller, pair in rows
        )
        with canvas.figure(EDGES_IN + ROW_IN * len(rows)) as fig:
            axes = fig.subplots()
            canvas.clear(axes, grid="x")
            for position, (caller, pair) in enumerate(rows):
                _row(axes, position, caller, pair)
            wide = _set_axis(axes, rows)
            axes.set_ylim(len(rows) - 0.6, -0.68)
            axes.set_yticks([])
            axes.spines["left"].set_visible(False)
            axes.set_xlabel(f"change of {label}")
            canvas.legend(fig, arms=arms)
            svg = canvas.to_svg(fig, name, alt)
        many = "blocks" if locks.in_wall else "seeds"
        caption = (
            f"Dots are means over the {many}, the bars behind them their range, both against "
            f"the mean of {arms[0]}; fewer is better."
            + (f" Beyond {LINEAR:g} % the axis is logarithmic." if wide else "")
        )
        drawn.append(
            Chart(name=name, kind=kind(locks), title=title, caption=caption, alt=alt, svg=svg)
        )
    return drawn
