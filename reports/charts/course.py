"""Patch by patch: the cumulative change over the steps, and what each step adds."""

from __future__ import annotations

import heapq

from reports import steps, wording
from reports.by_arm import MetricRow
from reports.charts import canvas
from reports.charts.canvas import BASE, INK, PATCHED, Chart
from reports.many import SessionComparison
from reports.steps import Step
from reports.verdict import CALLED

HEIGHT_IN = 3.1
MOST_CHARTS = 8
LONGEST = 34


def _label(number: int, step: Step) -> str:
    title = step.title if len(step.title) <= LONGEST else f"{step.title[: LONGEST - 1]}…"
    return f"{number}  {title}"


def _draw_one(session: SessionComparison, row: MetricRow, rest: str) -> Chart:
    points = steps.course(session, row)
    name = canvas.identifier("course", row.case, row.name)
    alt = f"{row.case}, {row.name}, change by step: " + "; ".join(
        f"{step.title}: {wording.change(step.own)} {wording.bounds(step.own)}, in all "
        f"{wording.cell_change(row, step.cell)}"
        for step in points
    )
    at = list(range(1, len(points) + 1))
    totals = [100 * step.cell.change.estimate if step.cell.change else 0.0 for step in points]
    with canvas.figure(HEIGHT_IN + 0.12 * len(points)) as fig:
        axes = fig.subplots()
        canvas.clear(axes)
        for number, step in zip(at, points, strict=True):
            own = step.own.judgement.change
            if own is not None:
                axes.bar(number, 100 * own.estimate, width=0.5, color=BASE, alpha=0.55)
                if own.low is not None and own.high is not None:
                    axes.vlines(number, 100 * own.low, 100 * own.high, color=BASE, linewidth=2)
            total = step.cell.change
            if total is not None and total.low is not None and total.high is not None:
                axes.vlines(number + 0.32, 100 * total.low, 100 * total.high, color=PATCHED,
                            linewidth=2)  # fmt: skip
        axes.plot([0.32, *(number + 0.32 for number in at)], [0.0, *totals], "-o", color=PATCHED,
                  linewidth=1.4, markersize=5)  # fmt: skip
        axes.axhline(0, color=INK, linewidth=0.8)
        labels = [_label(number, step) for number, step in zip(at, points, strict=True)]
        axes.set_xticks(at, labels, rotation=24, ha="right", rotation_mode="anchor")
        axes.tick_params(axis="x", length=0, labelcolor=INK, labelsize=9)
        axes.set_xlim(0.1, len(points) + 0.65)
        axes.set_ylabel("change, % of base")
        canvas.legend(
            fig,
            ("all up to here", {"marker": "o", "color": PATCHED, "markersize": 5}),
            ("this step", {"marker": "s", "color": BASE, "markersize": 7, "alpha": 0.6}),
        )
        svg = canvas.to_svg(fig, name, alt)
    return Chart(
        name=name,
        kind="course",
        title=f"{row.case}, {row.name}: patch by patch",
        caption="Bars are what each step adds to the one before, the line is the change from the "
        "first arm; vertical lines are intervals. Steps are judged, sums in between are not."
        f"{rest}",
        alt=alt,
        svg=svg,
    )


def most_changed(session: SessionComparison, rows: list[MetricRow]) -> list[MetricRow]:
    """The metrics that have a chart, in order: all, or those with a step that is called first."""

    def importance(number: int) -> tuple[bool, float]:
        judged = [step.own.judgement for step in steps.course(session, rows[number])]
        sizes = (abs(each.change.estimate) for each in judged if each.change)
        return any(each.verdict in CALLED for each in judged), max(sizes, default=0.0)

    chosen = heapq.nlargest(MOST_CHARTS, range(len(rows)), key=importance)
    return [rows[number] for number in sorted(chosen)]


def draw(session: SessionComparison) -> list[Chart]:
    """One chart a metric that is judged, where the session goes step by step."""
    if not steps.is_by_steps(session):
        return []
    judged = [row for row in session.rows if row.primary and row.measured]
    shown = most_changed(session, judged)
    rest = ""
    if len(shown) < len(judged):
        rest = f" Of {len(judged)} judged metrics the {len(shown)} that changed most have a chart."
    return [_draw_one(session, row, rest) for row in shown]
