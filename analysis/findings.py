"""Facts that weaken trust, in the records and known before anything was booted: pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from analysis.execution import Execution, changed_files, changed_functions
from analysis.explain.locks import LockComparison
from analysis.model import Exactness, FailedRun, FailureCount, Finding, Reference, WallFacts
from experiment.plan import AGAIN
from experiment.spec import PREBUILT
from results.record import (
    QUICK,
    FunctionRecord,
    Manifest,
    RunCost,
    RunRecord,
    SeriesRecord,
    TriageRecord,
)
from text import counted, enumerated

# A phase with fewer I/Os shows the luck of the draw: 002 compared two arms by 16 reads each.
FEWEST_IOS = 1000
# Functions that are named.
NAMED = 5
NO_REPEATS = Exactness(
    status="not asked", text="wall mode measures real time, which is not bit-exact"
)


def _warning(scope: str, kind: str, **values: Any) -> Finding:
    return Finding(level="warning", scope=scope, kind=kind, values=values)


def _note(scope: str, kind: str, **values: Any) -> Finding:
    return Finding(level="note", scope=scope, kind=kind, values=values)


def data_points(records: Iterable[RunRecord]) -> list[RunRecord]:
    """The runs that hold samples and are no repeats, in the order given."""
    return [record for record in records if record.samples is not None and not record.repeat]


def too_few_ios(manifest: Manifest, records: Sequence[RunRecord]) -> dict[tuple[str, str], int]:
    """Fewest I/Os of any run by (case, phase), only where below :data:`FEWEST_IOS`."""
    fewest: dict[tuple[str, str], int] = {}
    for record in data_points(records):
        case = next((case for case in manifest.cases if case.name == record.case), None)
        for phase in case.phases if case else ():
            ios = (record.samples or {}).get(f"{phase.name}.ios")
            if ios is not None and ios < FEWEST_IOS:
                key = (record.case, phase.name)
                fewest[key] = min(int(ios), fewest.get(key, int(ios)))
    return fewest


def check_exactness(records: Sequence[RunRecord]) -> Exactness:
    """Compare each repeated run with the run of the same case, arm and block.

    Anything but the same fingerprint fails the session; the metrics that differ
    are named.
    """
    first = {(r.case, r.arm, r.block): r for r in records if not r.repeat}
    equal, unusable = 0, ""
    for repeat in (record for record in records if record.repeat):
        original, failure = first.get((repeat.case, repeat.arm, repeat.block)), repeat.failure
        if failure is not None and failure.kind == "inexact":
            return Exactness(status="inexact", text=failure.message, fields=failure.evidence)
        if original is None or original.samples is None or repeat.samples is None:
            reason = failure.message if failure else "the run it repeats failed"
            unusable = f"{repeat.run_id}: {reason}"
        elif original.fingerprint and original.fingerprint == repeat.fingerprint:
            equal += 1
        else:
            before, after = original.samples, repeat.samples
            # What the probe alone measures is in no repeat: nobody counts there.
            common = sorted(before.keys() & after.keys())
            fields = tuple(
                f"{name}: {before[name]} then {after[name]}"
                for name in common
                if before[name] != after[name]
            )
            differ = f"{len(fields)} metrics differ"
            what = differ if fields else "the metrics agree, the raw bytes differ"
            repeats = f"is not bit-identical to {original.run_id}, which it repeats"
            text = f"{repeat.run_id} {repeats}: {what}"
            return Exactness(status="inexact", text=text, fields=fields)
    if unusable:
        text = f"the repeated run cannot be compared: {unusable}"
        return Exactness(status="not checked", text=text)
    if not equal:
        return Exactness(status="pending", text="no run was repeated yet")
    several = f"{equal} runs were repeated, all bit-identical"
    text = "one run was repeated, bit-identical" if equal == 1 else several
    return Exactness(status="bit-exact", text=text)


def seeds_without_effect(manifest: Manifest, records: Sequence[RunRecord]) -> list[Finding]:
    """Different seeds that gave the same bits: fio did not honour the seed."""
    findings = []
    for case in manifest.cases:
        for arm in manifest.arms:
            runs = [r for r in data_points(records) if (r.case, r.arm) == (case.name, arm.name)]
            seeds = {
                seed
                for first, other in combinations(runs, 2)
                if first.seed != other.seed
                and (
                    (first.fingerprint and first.fingerprint == other.fingerprint)
                    or (first.samples == other.samples and len(first.samples or {}) > 1)
                )
                for seed in (first.seed, other.seed)
            }
            if seeds:
                values = {"arm": arm.name, "seeds": sorted(seeds)}
                findings.append(_warning(case.name, "seeds-without-effect", **values))
    return findings


def kept_runs(
    manifest: Manifest, records: Sequence[RunRecord], costs: Sequence[RunCost]
) -> list[Finding]:
    """Of which arms runs were kept from earlier sessions, of which days and hosts."""
    made = {cost.run_id: cost for cost in costs}
    arms = []
    for arm in manifest.arms:
        of_arm = [made[r.run_id] for r in records if r.arm == arm.name and r.run_id in made]
        kept = [cost for cost in of_arm if cost.kept_at]
        days = sorted(cost.kept_at for cost in kept)
        hosts = ", ".join(sorted({cost.host for cost in kept}))
        between = " to ".join(dict.fromkeys([*days[:1], *days[-1:]]))
        arms.append((arm.name, len(kept), len(of_arm), between, hosts))
    return [_note("session", "kept-runs", arms=arms)] if any(arm[1] for arm in arms) else []


def gather(
    manifest: Manifest,
    records: Sequence[RunRecord],
    *,
    exactness: Exactness,
    counts: Sequence[FailureCount],
    failed: Sequence[FailedRun],
    references: Sequence[Reference],
    costs: Sequence[RunCost] = (),
) -> tuple[Finding, ...]:
    """All findings of a session: warnings first, then notes, each in a fixed order.

    Those of a wall session's host are apart (:func:`of_host`).
    """
    findings = [_warning("session", "quick")] if QUICK in manifest.overrides else []
    checked = exactness.status in ("not asked", "inexact")
    if checked or not manifest.same_code or data_points(records):
        make = _note if exactness.status in ("not asked", "bit-exact") else _warning
        values: dict[str, Any] = {"status": exactness.status, "detail": exactness.text}
        findings.append(make("session", "exactness", **values))
    findings += kept_runs(manifest, records, costs)
    if manifest.provenance.qemu_untried:
        findings.append(_warning("session", "qemu-untried", why=manifest.provenance.qemu_untried))
    for (case, phase), ios in sorted(too_few_ios(manifest, records).items()):
        findings.append(_warning(case, "few-ios", phase=phase, ios=ios))
    findings += seeds_without_effect(manifest, records)
    for count in counts:
        if count.any_failed:
            arms = [
                [manifest.base, count.base_failed, count.base_runs],
                [manifest.patched, count.patched_failed, count.patched_runs],
            ]
            # In wall mode guests end in more ways.
            kinds: Counter[str] = Counter()
            if count.again is not None:
                arms.append([AGAIN, *count.again])
                kinds.update(
                    f"{run.failure.kind}, blame {run.failure.blame}"
                    for run in failed
                    if run.case == count.case and not run.repeat
                )
            values = {"arms": arms, "kinds": dict(sorted(kinds.items()))}
            repeated = manifest.experiment.repeated
            findings.append(_warning(count.case, "failed-runs", **values, repeated=repeated))
    recorded = len({(r.case, r.arm, r.block) for r in records if not r.repeat})
    needless = manifest.same_code and not recorded
    if recorded < manifest.runs_planned and not needless:
        findings.append(not_finished(recorded, manifest.runs_planned))
    if manifest.same_code:
        findings.append(_note("session", "same-code"))
        # Equal code must give equal numbers in exact mode.
        points = {(r.arm, r.case, r.block): r.samples for r in data_points(records)}
        blocks = [
            (points[manifest.base, case, block], samples)
            for (arm, case, block), samples in points.items()
            if arm == manifest.patched and (manifest.base, case, block) in points
        ]
        if differ := sum(base != patched for base, patched in blocks):
            repeated = manifest.experiment.repeated
            values = {"differ": differ, "of": len(blocks), "repeated": repeated}
            findings.append(_warning("session", "same-code-differs", **values))
    findings += series_findings(manifest)
    # Inside run records: each text once a case, with how many runs say it.
    texts = Counter((record.case, text) for record in records for text in record.findings)
    for (case, text), runs in sorted(texts.items()):
        findings.append(_warning(case, "of-runs", text=text, runs=runs))
    findings += [
        _note(reference.case, "published", metric=reference.metric, note=reference.note)
        for reference in references
        if reference.note
    ]
    return tuple(sorted(findings, key=lambda finding: finding.level != "warning"))


def not_finished(recorded: int, planned: int) -> Finding:
    """That runs are missing which a resumed session would make."""
    return _warning("session", "not-finished", recorded=recorded, planned=planned)


def of_twins(records: Sequence[RunRecord], locks: Sequence[LockComparison]) -> tuple[Finding, ...]:
    """Notes on the twins: they explain, so what they lack costs no verdict."""
    failed: dict[tuple[str, str], list[str]] = {}
    for record in records:
        if record.twin and record.failure is not None:
            failure = record.failure
            why = f"{failure.kind}, blame {failure.blame}: {failure.message}"
            failed.setdefault((record.twin, why), []).append(record.run_id)
    findings = [
        _note(f"twin {twin}", "diagnostic-failed", runs=sorted(run_ids), why=why)
        for (twin, why), run_ids in sorted(failed.items())
    ]
    for each in locks:
        if any(each.dropped):
            values = {"case": each.case, "phase": each.phase, "events": sum(each.dropped)}
            findings.append(_note(f"twin {each.twin}", "events-dropped", **values))
    return tuple(findings)


def of_host(facts: WallFacts, manifest: Manifest) -> tuple[Finding, ...]:
    """What to know of the host before a session's verdicts: warnings first."""
    real_time = facts.real_time
    make = _note if real_time else _warning
    findings = [make("host", "accelerator", accelerator=facts.accelerator, real_time=real_time)]
    for check in facts.checks:
        make = _warning if check.status == "fail" else _note
        values: dict[str, Any] = {"name": check.name, "found": check.found, "status": check.status}
        findings.append(make("host", "host-check", **values))
    if real_time and facts.images > 1:
        findings.append(_note("host", "one-build"))
    for kept in (False, True):
        spoilt = [block for block in facts.dropped if block.kept == kept and not block.failed]
        for case in dict.fromkeys(block.case for block in spoilt):
            blocks = [[block.block, block.reason] for block in spoilt if block.case == case]
            of = len(manifest.seeds_of(case))
            values = {"case": case, "blocks": blocks, "of": of, "kept": kept}
            findings.append(_warning("host", "dropped-blocks", **values))
    return tuple(sorted(findings, key=lambda finding: finding.level != "warning"))


def _build(manifest: Manifest) -> str:
    """What findings of the builds are of: with more than two arms, the build of one."""
    return f"build of {manifest.patched}" if len(manifest.experiment.all_arms) > 2 else "build"


def series_findings(manifest: Manifest) -> tuple[Finding, ...]:
    """Findings about the series and the two builds; warnings first.

    With more than two arms those of a build name its arm.  All texts are one line each,
    and come from mails and compilers: forms escape them.
    """
    triage, build = manifest.triage, _build(manifest)
    findings = [
        _warning("series", "series", text=text)
        for series in manifest.series
        for text in (*series.findings, *executed_on_host(series))
    ]
    if triage is not None:
        texts = (*triage.findings, *(f"new in the patched arm: {each}" for each in triage.warnings))
        findings += [_warning(build, "build", text=text) for text in texts]
    notes = {text for arm in manifest.arms for text in arm.kernel.options}
    findings += [_note("configuration", "build", text=text) for text in sorted(notes)]
    findings += [
        _warning(f"kernel of {arm.name}", "build", text=text)
        for arm in manifest.arms
        for text in arm.missing
    ]
    # A folder of the lab's own has nothing to tell that the heading does not.
    findings += [
        _note("series", "origin", text=_origin(series))
        for series in manifest.series
        if series.kind != "folder"
    ]
    if triage is not None and not manifest.same_code:
        findings.append(_note(build, "triage", text=summary(triage, changed_files(manifest))))
    return tuple(findings)


def of_executions(manifest: Manifest, executions: Sequence[Execution]) -> tuple[Finding, ...]:
    """Which of the changed functions the phases executed, and which none of them did.

    Where that is not known, why.  A function that the compiler inlined everywhere is executed
    under its caller's name, which has then changed, too.
    """
    names = changed_functions(manifest)
    triage, base, patched = manifest.triage, *manifest.arms[:2]
    if executions:
        by_phases: dict[tuple[str, ...], list[str]] = {}
        for name in names:
            phases = dict.fromkeys(each.phase for each in executions if name in each.ran)
            by_phases.setdefault(tuple(phases), []).append(name)
        idle = by_phases.pop((), [])
        ran = [{"functions": of, "phases": [*phases]} for phases, of in by_phases.items()]
        make = _note if ran else _warning
        return (make(_build(manifest), "executed", executed=ran, not_executed=idle),)
    why = ""
    if base.kernel.code_key == patched.kernel.code_key:
        settings = sorted({*base.settings.items()} ^ {*patched.settings.items()})
        apart = enumerated(list(dict.fromkeys(name for name, _ in settings)))
        why = f"the arms differ in settings alone: {apart}" if apart else ""
    elif any(arm.kernel.flavour == PREBUILT for arm in (base, patched)):
        why = "a kernel is prebuilt: which functions changed, and ran, is not known"
    elif names:
        why = "no functions were counted: which of the changed ones ran is not known"
    elif triage is None:
        why = "the builds were not compared: which functions changed, and ran, is not known"
    return (_note("session", "not-known", text=why),) if why else ()


def executed_on_host(series: SeriesRecord) -> tuple[str, ...]:
    """What a build of the series ran on the host, for whoever builds it after this report."""
    names = enumerated(series.host_code)
    return (f"changes what a build executes on its host: {names}",) if names else ()


def _origin(series: SeriesRecord) -> str:
    """Title, version, author, message-id and base of a series in one line."""
    words = [f"{series.title!r}" if series.title else series.origin]
    words += [f"v{series.version}"] if series.version > 1 else []
    words += [f"by {series.author}"] if series.author else []
    words += [f"message-id {series.message_id}"] if series.message_id else []
    words += [f"base-commit {series.base_commit[:12]}"] if series.base_commit else []
    return ", ".join([*words, counted(len(series.patches), "patch")])


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
    # What differs that is no function, by its kind: ``data changed: vm_swappiness (4 bytes)``.
    others = {"data": [_size(each) for each in record.data or ()], "modules": record.modules}
    besides = [f"{kind} changed: {enumerated(names)}" for kind, names in others.items() if names]
    renamed = [f"{old} -> {new}" for old, new in record.renamed]
    besides += [f"renamed: {enumerated(renamed)}"] * bool(renamed)
    if record.verdict == "functions":
        ordered = sorted(
            record.functions, key=lambda each: -abs((each.after or 0) - (each.before or 0))
        )
        names = ", ".join(_size(function) for function in ordered[:NAMED])
        more = f", and {len(ordered) - NAMED} more" if len(ordered) > NAMED else ""
        count = len(ordered)
        text = f"only {count} function{'s'[: count > 1]} changed: {names}{more}"
        return "; ".join([text, *besides])
    # ``files of the series: Kconfig (mm/Kconfig), headers (include/linux/mm.h)``.
    kinds = {
        kind: [file for file in dict.fromkeys(files) if file.endswith(ends)]
        for kind, ends in FILE_KINDS.items()
    }
    texts = [f"{kind} ({enumerated(of_kind)})" for kind, of_kind in kinds.items() if of_kind]
    named = [f"files of the series: {', '.join(texts)}"] if texts else []
    if record.verdict == "same code":
        return "; ".join(["all that is loaded is identical in both kernels", *named])
    if record.data is None and not record.modules:
        besides = ["data or layout did (strings, tables, line numbers, alignment)", *besides]
    elif not record.data and not record.modules:
        besides = ["layout did (strings, line numbers, alignment)", *besides]
    return "; ".join(["no function changed", *besides, *named])


def _size(function: FunctionRecord) -> str:
    if function.before is None:
        return f"{function.name} (new, {function.after} bytes)"
    if function.after is None:
        return f"{function.name} (gone, {function.before} bytes)"
    if function.before == function.after:
        return f"{function.name} ({function.after} bytes)"
    return f"{function.name} ({function.before} to {function.after} bytes)"
