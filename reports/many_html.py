"""The page of a session of many arms: arms beside each other first, each pair folded below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from reports import across, charts, differences, html, many_wording, matrix, steps, wording
from reports.across import Row
from reports.charts import arms as arm_charts
from reports.charts import course, heat
from reports.many import SessionComparison
from results.record import ArmRecord

# As many columns of verdicts as a table of arms may have before it is turned around.
MOST_COLUMNS = 4
# Beyond these pairs the page would grow by tens of megabytes.
MOST_PAIRS = 15


class ArmRow(NamedTuple):
    """One arm in the facts above: what it is made of."""

    arm: ArmRecord
    settings: str


def _arms(session: SessionComparison) -> list[ArmRow]:
    return [
        ArmRow(arm, "; ".join(f"{name} = {value}" for name, value in sorted(arm.settings.items())))
        for arm in session.arms
    ]


def _by_case(found: tuple[Row, ...], session: SessionComparison) -> list[tuple[str, list[Row]]]:
    """For each case the columns of its table with a row an arm."""
    shown = []
    for case in session.comparisons[0].cases:
        columns = across.columns(across.of_case(found, case.name))
        shown.append((f"{case.name}: {case.title}", [row for row in columns if row.measured]))
    return [(title, columns) for title, columns in shown if columns]


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
        **{
            **html.context(first, "whole", kinds=()),
            "bottom_line": wording.bottom_line(session),
            "manifest": session.manifest,
            "gates": session.gates,
            "provenance": html.provenance_of(session.manifest),
            "qemu": html.wrapped_command(session.manifest.provenance.qemu_argv),
        },
        session=session,
        arms=_arms(session),
        names=[arm.name for arm in session.arms],
        found=found,
        judged=judged,
        turned=len(judged) > MOST_COLUMNS,
        by_case=_by_case(found, session),
        matrix=matrix.matrix(found) if len(first.cases) >= across.MANY_CASES else (),
        differences=differences.differences(session.arms),
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
