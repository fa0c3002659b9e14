"""What was known before anything was booted: the series as it came, and what it changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from reports.execution import Execution, changed_functions
from reports.model import Finding
from results.record import FunctionRecord, Manifest, SeriesRecord, TriageRecord

NAMED = 5


def series_findings(manifest: Manifest) -> tuple[Finding, ...]:
    """Findings about the series and the two builds; warnings first.

    With more than two arms those of a build name its arm.  All texts are one line each,
    and come from mails and compilers: forms escape them.
    """
    findings = [
        Finding(level="warning", scope="series", kind="series", values={"text": text})
        for series in manifest.series
        for text in series.findings
    ]
    triage = manifest.triage
    many = len(manifest.experiment.all_arms) > 2
    build = f"build of {manifest.patched}" if many else "build"
    if triage is not None:
        texts = (*triage.findings, *(f"new in the patched arm: {each}" for each in triage.warnings))
        findings += [
            Finding(level="warning", scope=build, kind="build", values={"text": text})
            for text in texts
        ]
    notes = {text for arm in manifest.arms for text in arm.kernel.options}
    findings += [
        Finding(level="note", scope="configuration", kind="build", values={"text": text})
        for text in sorted(notes)
    ]
    # A folder of the lab's own has nothing to tell that the heading does not.
    findings += [
        Finding(level="note", scope="series", kind="origin", values={"text": origin(series)})
        for series in manifest.series
        if series.kind != "folder"
    ]
    if triage is not None and not manifest.same_code:
        values = {"text": summary(triage)}
        findings.append(Finding(level="note", scope=build, kind="triage", values=values))
    return tuple(findings)


def of_executions(manifest: Manifest, executions: Sequence[Execution]) -> tuple[Finding, ...]:
    """Which of the changed functions the phases executed, and which none of them did.

    Nothing where functions were not compared or not counted.  A function that the compiler
    inlined everywhere is executed under its caller's name, which has then changed, too.
    """
    if not executions:
        return ()
    names = changed_functions(manifest)
    phases = {
        name: list(dict.fromkeys(each.phase for each in executions if name in each.ran))
        for name in names
    }
    idle = [name for name in names if not phases[name]]
    many = len(manifest.experiment.all_arms) > 2
    scope = f"build of {manifest.patched}" if many else "build"
    each = [f"{name} in {', '.join(phases[name])}" for name in names if phases[name]]
    values = {"executed": each, "not_executed": idle, "changed": len(names)}
    level: Literal["note", "warning"] = "note" if each else "warning"
    return (Finding(level=level, scope=scope, kind="executed", values=values),)


def origin(series: SeriesRecord) -> str:
    """Title, version, author, message-id and base of a series in one line."""
    words = [f"{series.title!r}" if series.title else series.origin]
    words += [f"v{series.version}"] if series.version > 1 else []
    words += [f"by {series.author}"] if series.author else []
    words += [f"message-id {series.message_id}"] if series.message_id else []
    words += [f"base-commit {series.base_commit[:12]}"] if series.base_commit else []
    count = len(series.patches)
    return ", ".join([*words, f"{count} patch{'es'[: 2 * (count != 1)]}"])


def summary(record: TriageRecord) -> str:
    """One sentence for people."""
    if record.verdict == "same code":
        return "same code: all that is loaded is identical in both kernels"
    if record.verdict == "data or layout":
        return "no function changed; data or layout did (strings, tables, line numbers, alignment)"
    ordered = sorted(
        record.functions, key=lambda each: -abs((each.after or 0) - (each.before or 0))
    )
    names = ", ".join(_size(function) for function in ordered[:NAMED])
    more = f", and {len(ordered) - NAMED} more" if len(ordered) > NAMED else ""
    count = len(ordered)
    return f"only {count} function{'s'[: count > 1]} changed: {names}{more}"


def _size(function: FunctionRecord) -> str:
    if function.before is None:
        return f"{function.name} (new, {function.after} bytes)"
    if function.after is None:
        return f"{function.name} (gone, {function.before} bytes)"
    if function.before == function.after:
        return f"{function.name} ({function.after} bytes)"
    return f"{function.name} ({function.before} to {function.after} bytes)"
