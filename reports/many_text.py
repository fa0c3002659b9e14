"""A session of many arms as plain text: verdicts by arm, the documents' tables, each pair."""

from __future__ import annotations

from reports import across, differences, many_wording, matrix, steps, text, wording
from reports.many import SessionComparison


def render(session: SessionComparison) -> str:
    """Return the whole report, ending in a newline."""
    manifest = session.manifest
    experiment = manifest.experiment
    lines = [wording.clean(experiment.title)]
    lines += text.wrapped(wording.clean(experiment.question), "") if experiment.question else []
    lines += text.wrapped(wording.clean(
        f"{experiment.name}: {wording.subject(experiment)}, "
        f"guest {manifest.guest.name}, {experiment.mode} mode; {many_wording.against(session)}"
    ), "")  # fmt: skip
    lines += ["", f"{wording.bottom_line(session)}.", *text.verdict_lines(session), ""]
    lines += text.wrapped(f"{many_wording.family(session)}.", "")
    lines += ["", *text.host_lines(session.comparisons[0]), *text.gate(session.gates)]
    lines += text.section("Patch by patch", steps.answers(session))
    lines += text.section(differences.LEAD, differences.sentences(session.arms))
    found = across.rows(session)
    lines += matrix.by_arm(session, found)
    if len(session.comparisons[0].cases) >= across.MANY_CASES:
        lines += matrix.by_case(session, found)
    for one in session.comparisons:
        lines += [wording.clean(f"--- {many_wording.name(one)}: {many_wording.counts(one)}"), ""]
        lines += text.tables(one)
        lines += text.origins(one)
    lines += text.section("Failures", matrix.failures(session))
    lines += text.section("Findings", [
        f"{'!' if f.level == 'warning' else '-'} {f.scope}: {f.text}" for f in session.findings
    ])  # fmt: skip
    lines += text.section("Failed runs", [text.failed_run(run) for run in session.failed_runs])
    lines += text.meaning(session.comparisons[0])
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"
