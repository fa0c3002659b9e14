"""The page of a session of many arms: arms beside each other first, each pair folded below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from reports import across, charts, html, many_wording, matrix, steps
from reports.across import Row
from reports.charts import arms as arm_charts
from reports.charts import course, heat
from reports.many import SessionComparison

# As many columns of verdicts as a table of arms may have before it is turned around.
MOST_COLUMNS = 4
# Beyond these pairs the page would grow by tens of megabytes.
MOST_PAIRS = 15


class CaseTable(NamedTuple):
    """One case with a row an arm that was measured, and a column a metric."""

    title: str
    columns: list[Row]
    arms: list[str]


def _by_case(found: tuple[Row, ...], session: SessionComparison) -> list[CaseTable]:
    shown = []
    for case in session.comparisons[0].cases:
        columns = [row for row in across.columns(across.of_case(found, case.name)) if row.measured]
        arms = [arm.name for arm in session.arms
                if any(row.cell(arm.name).values for row in columns)]  # fmt: skip
        if columns:
            shown.append(CaseTable(f"{case.name}: {case.title}", columns, arms))
    return shown


def _failed(session: SessionComparison) -> Mapping[tuple[str, str], tuple[int, int]]:
    counts = across.failures(session)
    bad = {case for (case, _), (failed, _) in counts.items() if failed}
    return {key: count for key, count in counts.items() if key[0] in bad}


def render(session: SessionComparison) -> str:
    """Return the page, ending in a newline."""
    found = across.rows(session)
    judged = [row for row in found if row.primary]
    first = session.comparisons[0]
    failed = _failed(session)
    environment = html.environment()
    page = environment.get_template("session.html.j2").render(
        **{**html.context(first, "whole", kinds=()), **html.head_of(session)},
        found=found,
        judged=judged,
        turned=len(judged) > MOST_COLUMNS,
        by_case=_by_case(found, session),
        matrix=matrix.measured(found) if len(first.cases) >= across.MANY_CASES else (),
        answers=steps.answers(session),
        courses_of=[(row, steps.course(session, row)) for row in judged],
        courses=course.draw(session),
        heat=heat.draw(session),
        arm_forest=arm_charts.forest(session),
        run_charts=arm_charts.runs(session),
        failed=failed,
        failed_cases=sorted({case for case, _ in failed}),
        pairs=[
            html.context(one, f"pair{number}", charts.OF_A_PAIR)
            for number, one in enumerate(session.comparisons[:MOST_PAIRS], 1)
        ],
        left_out=len(session.comparisons) - MOST_PAIRS,
        label=many_wording.name,
    )
    return page.rstrip() + "\n"
