"""What was known before anything was booted: the series as it came, and what it changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from analysis.execution import Execution, changed_functions
from analysis.model import Finding
from experiment.spec import PREBUILT
from results.record import FunctionRecord, Manifest, SeriesRecord, TriageRecord
from text import enumerated

NAMED = 5


def series_findings(manifest: Manifest) -> tuple[Finding, ...]:
    """Findings about the series and the two builds; warnings first.

    With more than two arms those of a build name its arm.  All texts are one line each,
    and come from mails and compilers: forms escape them.
    """
    findings = [
        Finding(level="warning", scope="series", kind="series", values={"text": text})
        for series in manifest.series
        for text in (*series.findings, *executed_on_host(series))
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
    findings += [
        Finding(level="warning", scope=f"kernel of {arm.name}", kind="build", values={"text": text})
        for arm in manifest.arms
        for text in arm.missing
    ]
    # A folder of the lab's own has nothing to tell that the heading does not.
    findings += [
        Finding(level="note", scope="series", kind="origin", values={"text": origin(series)})
        for series in manifest.series
        if series.kind != "folder"
    ]
    if triage is not None and not manifest.same_code:
        files = [file for s in manifest.series for patch in s.patches for file in patch.files]
        values = {"text": summary(triage, files)}
        findings.append(Finding(level="note", scope=build, kind="triage", values=values))
    return tuple(findings)


def of_executions(manifest: Manifest, executions: Sequence[Execution]) -> tuple[Finding, ...]:
    """Which of the changed functions the phases executed, and which none of them did.

    Where that is not known, why.  A function that the compiler inlined everywhere is executed
    under its caller's name, which has then changed, too.
    """
    if not executions:
        why = _not_known(manifest)
        unknown = Finding(level="note", scope="session", kind="not-known", values={"text": why})
        return (unknown,) if why else ()
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


def _not_known(manifest: Manifest) -> str:
    """Why verdicts do not go by which changed functions ran; empty where that needs no words."""
    triage, base, patched = manifest.triage, *manifest.arms[:2]
    if base.kernel.code_key == patched.kernel.code_key:
        settings = sorted({*base.settings.items()} ^ {*patched.settings.items()})
        names = enumerated(list(dict.fromkeys(name for name, _ in settings)))
        return f"the arms differ in settings alone: {names}" if names else ""
    if any(arm.kernel.flavour == PREBUILT for arm in (base, patched)):
        return "a kernel is prebuilt: which functions changed, and ran, is not known"
    if changed_functions(manifest):
        return "no functions were counted: which of the changed ones ran is not known"
    if triage is None:
        return "the builds were not compared: which functions changed, and ran, is not known"
    return ""


def executed_on_host(series: SeriesRecord) -> tuple[str, ...]:
    """What a build of the series ran on the host, for whoever builds it after this report."""
    names = ", ".join(series.host_code[:NAMED])
    more = f" and {len(series.host_code) - NAMED} more" if len(series.host_code) > NAMED else ""
    return (f"changes what a build executes on its host: {names}{more}",) if names else ()


def origin(series: SeriesRecord) -> str:
    """Title, version, author, message-id and base of a series in one line."""
    words = [f"{series.title!r}" if series.title else series.origin]
    words += [f"v{series.version}"] if series.version > 1 else []
    words += [f"by {series.author}"] if series.author else []
    words += [f"message-id {series.message_id}"] if series.message_id else []
    words += [f"base-commit {series.base_commit[:12]}"] if series.base_commit else []
    count = len(series.patches)
    return ", ".join([*words, f"{count} patch{'es'[: 2 * (count != 1)]}"])


# Kinds of files that are no C, by how their names end.
FILE_KINDS: Mapping[str, tuple[str, ...]] = {
    "Kconfig": ("Kconfig", "Kconfig.debug"),
    "headers": (".h",),
    "assembler": (".S",),
    "makefiles": ("Makefile", "Kbuild"),
    "linker scripts": (".lds", ".lds.S"),
}


def summary(record: TriageRecord, files: Sequence[str] = ()) -> str:
    """One sentence for people; ``files`` are the series', named where no function differs."""
    besides = _beside_functions(record)
    if record.verdict == "same code":
        return "; ".join(["all that is loaded is identical in both kernels", *_kinds_of(files)])
    if record.verdict == "data or layout":
        if record.data is None and not record.modules:
            besides = ["data or layout did (strings, tables, line numbers, alignment)", *besides]
        elif not record.data and not record.modules:
            besides = ["layout did (strings, line numbers, alignment)", *besides]
        return "; ".join(["no function changed", *besides, *_kinds_of(files)])
    ordered = sorted(
        record.functions, key=lambda each: -abs((each.after or 0) - (each.before or 0))
    )
    names = ", ".join(_size(function) for function in ordered[:NAMED])
    more = f", and {len(ordered) - NAMED} more" if len(ordered) > NAMED else ""
    count = len(ordered)
    text = f"only {count} function{'s'[: count > 1]} changed: {names}{more}"
    return "; ".join([text, *besides])


def _beside_functions(record: TriageRecord) -> list[str]:
    """What differs that is no function, by its kind: ``data changed: vm_swappiness (4 bytes)``."""
    data = [_size(each) for each in record.data or ()]
    kinds = {"data": data, "modules": record.modules}
    return [f"{kind} changed: {enumerated(names)}" for kind, names in kinds.items() if names]


def _kinds_of(files: Sequence[str]) -> list[str]:
    """``files of the series: Kconfig (mm/Kconfig), headers (include/linux/mm.h)``."""
    kinds = {
        kind: [file for file in dict.fromkeys(files) if file.endswith(ends)]
        for kind, ends in FILE_KINDS.items()
    }
    texts = [f"{kind} ({enumerated(names)})" for kind, names in kinds.items() if names]
    return [f"files of the series: {', '.join(texts)}"] if texts else []


def _size(function: FunctionRecord) -> str:
    if function.before is None:
        return f"{function.name} (new, {function.after} bytes)"
    if function.after is None:
        return f"{function.name} (gone, {function.before} bytes)"
    if function.before == function.after:
        return f"{function.name} ({function.after} bytes)"
    return f"{function.name} ({function.before} to {function.after} bytes)"
