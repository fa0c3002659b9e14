"""A session of many arms as Markdown."""

from __future__ import annotations

from reports import across, differences, many_wording, markdown, matrix, steps, wording
from reports.across import Row
from reports.many import SessionComparison
from reports.markdown import escape, table


def _bullets(title: str, said: list[str]) -> list[str]:
    return [f"## {title}", "", *(f"- {escape(text)}" for text in said), ""] if said else []


def verdicts(session: SessionComparison, found: tuple[Row, ...]) -> list[str]:
    """One row an arm, one column a metric that is judged: change and verdict."""
    judged = [row for row in found if row.primary]
    heads = ("arm", *(f"{row.case} {row.name}" for row in judged))
    rows = [
        (arm.name, *(
            f"{many_wording.change(row, cell)} {many_wording.bounds(row, cell)} "
            f"{many_wording.verdict(cell)}"
            for row in judged for cell in [row.cell(arm.name)]
        ))
        for arm in session.arms[1:]
    ]  # fmt: skip
    return table([escape(head) for head in heads], rows)


def by_arm(session: SessionComparison, found: tuple[Row, ...]) -> list[str]:
    """Each case's table with a row an arm, as documents have it."""
    lines: list[str] = []
    for case in session.comparisons[0].cases:
        shown = [row for row in across.columns(across.of_case(found, case.name)) if row.measured]
        heads = ["arm", *(part for row in shown for part in (f"{row.name}, {row.unit}", "change"))]
        rows = []
        for arm in session.arms:
            cells = [arm.name]
            for row in shown:
                cell = row.cell(arm.name)
                said = "" if cell is row.base else matrix.change(row, cell)
                cells += [matrix.values(cell)[0], said]
            rows.append(cells)
        lines += [f"### {escape(case.name)}: {escape(case.title)}", ""]
        lines += table([escape(head) for head in heads], rows)
    return lines


def render(session: SessionComparison) -> str:
    """Return the report as Markdown, ending in a newline."""
    manifest = session.manifest
    experiment = manifest.experiment
    found = across.rows(session)
    lines = [f"# {escape(experiment.title)}", ""]
    lines += [escape(experiment.question), ""] if experiment.question else []
    lines += [f"**{wording.bottom_line(session)}.** {escape(many_wording.against(session))}.", ""]
    lines += verdicts(session, found)
    lines += [f"{escape(many_wording.family(session))}.", ""]
    lines += [*markdown.host(session.comparisons[0]), *markdown.gate(session.gates)]
    lines += _bullets("Patch by patch", steps.answers(session))
    lines += _bullets(differences.LEAD, differences.sentences(session.arms))
    lines += ["## Arm by arm", "", *by_arm(session, found)]
    published = [
        (arm, f"{r.case} {r.metric}", r.unit, f"{r.base:.2f}", f"{r.patched:.2f}",
         wording.percent(r.change), r.document)
        for arm, r in many_wording.references(session)
    ]  # fmt: skip
    if published:
        lines += ["## Published", ""]
        lines += table(
            ("arm", "metric", "unit", "base", "this arm", "change", "document"), published
        )
    for one in session.comparisons:
        lines += [f"## {escape(many_wording.name(one))}", ""]
        lines += [f"- {escape(wording.sentence(metric))}" for metric in one.primary]
        lines += ["", *(line for case in one.cases for line in markdown.metrics(case))]
        lines += markdown.counted(one)
    lines += ["## What was run", ""]
    for case in session.comparisons[0].cases:
        lines += [f"### {escape(case.name)}", "", *markdown.commands(case)]
    lines += _bullets("Failures", matrix.failures(session))
    if session.findings:
        lines += ["## Findings", ""]
        lines += [markdown.finding(f.level, f"{f.scope}: {f.text}") for f in session.findings]
        lines += [""]
    lines += markdown.failed(session.failed_runs)
    lines += markdown.repeat(manifest)
    lines += markdown.meaning(session.comparisons[0])
    return "\n".join(lines).rstrip() + "\n"
