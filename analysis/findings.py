"""Facts that weaken trust, found in the records: pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from analysis.explain.locks import LockComparison
from analysis.model import Exactness, FailedRun, FailureCount, Finding, Reference, WallFacts
from analysis.series_findings import series_findings
from experiment.plan import AGAIN
from results.record import QUICK, Manifest, RunRecord

# A phase with fewer I/Os shows the luck of the draw: 002 compared two arms by 16 reads each.
FEWEST_IOS = 1000
NO_REPEATS = Exactness(
    status="not asked", text="wall mode measures real time, which is not bit-exact"
)


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
    repeats = [record for record in records if record.repeat]
    equal, unusable = 0, ""
    for repeat in repeats:
        original = first.get((repeat.case, repeat.arm, repeat.block))
        if repeat.failure is not None and repeat.failure.kind == "inexact":
            return Exactness(
                status="inexact", text=repeat.failure.message, fields=repeat.failure.evidence
            )
        if original is None or original.samples is None or repeat.samples is None:
            reason = repeat.failure.message if repeat.failure else "the run it repeats failed"
            unusable = f"{repeat.run_id}: {reason}"
            continue
        if not original.fingerprint or original.fingerprint != repeat.fingerprint:
            return _inexact(original, repeat)
        equal += 1
    if unusable:
        return Exactness(
            status="not checked", text=f"the repeated run cannot be compared: {unusable}"
        )
    if not equal:
        return Exactness(status="pending", text="no run was repeated yet")
    runs = (
        "one run was repeated, bit-identical"
        if equal == 1
        else f"{equal} runs were repeated, all bit-identical"
    )
    return Exactness(status="bit-exact", text=runs)


def _inexact(original: RunRecord, repeat: RunRecord) -> Exactness:
    before, after = original.samples or {}, repeat.samples or {}
    fields = tuple(
        f"{name}: {before[name]} then {after[name]}"
        # What the probe alone measures is in no repeat: nobody counts there.
        for name in sorted(before.keys() & after.keys())
        if before[name] != after[name]
    )
    what = f"{len(fields)} metrics differ" if fields else "the metrics agree, the raw bytes differ"
    text = f"{repeat.run_id} is not bit-identical to {original.run_id}, which it repeats: {what}"
    return Exactness(status="inexact", text=text, fields=fields)


def seeds_without_effect(manifest: Manifest, records: Sequence[RunRecord]) -> list[Finding]:
    """Different seeds that gave the same bits: fio did not honour the seed."""
    findings = []
    for case in manifest.cases:
        for arm in manifest.arms:
            runs = [r for r in data_points(records) if (r.case, r.arm) == (case.name, arm.name)]
            same = [
                (first.seed, second.seed)
                for first, second in combinations(runs, 2)
                if first.seed != second.seed and _same_bits(first, second)
            ]
            if same:
                seeds = sorted({seed for pair in same for seed in pair})
                findings.append(
                    Finding(
                        level="warning", scope=case.name, kind="seeds-without-effect",
                        values={"arm": arm.name, "seeds": seeds},
                    )
                )  # fmt: skip
    return findings


def _same_bits(first: RunRecord, second: RunRecord) -> bool:
    return (bool(first.fingerprint) and first.fingerprint == second.fingerprint) or (
        first.samples == second.samples and len(first.samples or {}) > 1
    )


def gather(
    manifest: Manifest,
    records: Sequence[RunRecord],
    *,
    exactness: Exactness,
    counts: Sequence[FailureCount],
    failed: Sequence[FailedRun],
    references: Sequence[Reference],
    course: WallFacts | None = None,
) -> tuple[Finding, ...]:
    """All findings of a session: warnings first, then notes, each in a fixed order.

    Those of a wall session's host are apart (:func:`of_host`).
    """
    findings = []
    if QUICK in manifest.overrides:
        findings.append(Finding(level="warning", scope="session", kind="quick"))
    if (
        exactness.status in ("not asked", "inexact")
        or not manifest.same_code
        or data_points(records)
    ):
        conclusive = exactness.status in ("not asked", "bit-exact")
        findings.append(
            Finding(
                level="note" if conclusive else "warning", scope="session", kind="exactness",
                values={"status": exactness.status, "detail": exactness.text},
            )
        )  # fmt: skip
    if manifest.provenance.qemu_untried:
        untried = {"why": manifest.provenance.qemu_untried}
        findings.append(
            Finding(level="warning", scope="session", kind="qemu-untried", values=untried)
        )
    for (case, phase), ios in sorted(too_few_ios(manifest, records).items()):
        values = {"phase": phase, "ios": ios}
        findings.append(Finding(level="warning", scope=case, kind="few-ios", values=values))
    findings += seeds_without_effect(manifest, records)
    findings += [
        Finding(
            level="warning",
            scope=count.case,
            kind="failed-runs",
            values={
                "arms": [
                    [manifest.base, count.base_failed, count.base_runs],
                    [manifest.patched, count.patched_failed, count.patched_runs],
                    *([[AGAIN, *count.again]] if count.again else []),
                ],
                "kinds": _kinds(count, failed),
                "repeated": manifest.experiment.repeated,
            },
        )
        for count in counts
        if count.any_failed
    ]
    recorded = len({(r.case, r.arm, r.block) for r in records if not r.repeat})
    ended = course is not None and course.early
    if recorded < manifest.runs_planned and not ended and not (
        manifest.same_code and not recorded
    ):  # fmt: skip
        findings.append(not_finished(recorded, manifest.runs_planned))
    if manifest.same_code:
        findings.append(Finding(level="note", scope="session", kind="same-code"))
        findings += _contradiction(manifest, records)
    findings += series_findings(manifest)
    findings += _of_the_runs(records)
    findings += [
        Finding(
            level="note", scope=reference.case, kind="published",
            values={"metric": reference.metric, "note": reference.note},
        )
        for reference in references
        if reference.note
    ]  # fmt: skip
    return tuple(sorted(findings, key=lambda finding: finding.level != "warning"))


def not_finished(recorded: int, planned: int) -> Finding:
    """That runs are missing which a resumed session would make."""
    values = {"recorded": recorded, "planned": planned}
    return Finding(level="warning", scope="session", kind="not-finished", values=values)


def _kinds(count: FailureCount, failed: Sequence[FailedRun]) -> dict[str, int]:
    """How many runs ended in which way, in wall mode, where guests end in more ways; else none."""
    if count.again is None:
        return {}
    kinds: dict[str, int] = {}
    for run in failed:
        if run.case == count.case and not run.repeat:
            text = f"{run.failure.kind}, blame {run.failure.blame}"
            kinds[text] = kinds.get(text, 0) + 1
    return dict(sorted(kinds.items()))


def of_twins(records: Sequence[RunRecord], locks: Sequence[LockComparison]) -> tuple[Finding, ...]:
    """Notes on the twins: they explain, so what they lack costs no verdict."""
    failed: dict[tuple[str, str], list[str]] = {}
    for record in records:
        if record.twin and record.failure is not None:
            failure = record.failure
            why = f"{failure.kind}, blame {failure.blame}: {failure.message}"
            failed.setdefault((record.twin, why), []).append(record.run_id)
    findings = [
        Finding(
            level="note",
            scope=f"twin {twin}",
            kind="diagnostic-failed",
            values={"runs": sorted(run_ids), "why": why},
        )
        for (twin, why), run_ids in sorted(failed.items())
    ]
    findings += [
        Finding(
            level="note",
            scope=f"twin {locks_of_run.twin}",
            kind="events-dropped",
            values={
                "case": locks_of_run.case,
                "phase": locks_of_run.phase,
                "events": sum(locks_of_run.dropped),
            },
        )
        for locks_of_run in locks
        if any(locks_of_run.dropped)
    ]
    return tuple(findings)


def _contradiction(manifest: Manifest, records: Sequence[RunRecord]) -> list[Finding]:
    """Equal code must give equal numbers in exact mode; where it does not, say it."""
    points = {(r.arm, r.case, r.block): r.samples for r in data_points(records)}
    blocks = [
        (points[manifest.base, case, block], samples)
        for (arm, case, block), samples in points.items()
        if arm == manifest.patched and (manifest.base, case, block) in points
    ]
    differ = sum(base != patched for base, patched in blocks)
    if not differ:
        return []
    values = {"differ": differ, "of": len(blocks), "repeated": manifest.experiment.repeated}
    return [Finding(level="warning", scope="session", kind="same-code-differs", values=values)]


def _of_the_runs(records: Sequence[RunRecord]) -> list[Finding]:
    """Findings inside run records, each text once a case with how many runs say it."""
    counts: dict[tuple[str, str], int] = {}
    for record in records:
        for text in record.findings:
            counts[record.case, text] = counts.get((record.case, text), 0) + 1
    return [
        Finding(level="warning", scope=case, kind="of-runs", values={"text": text, "runs": count})
        for (case, text), count in sorted(counts.items())
    ]


def of_host(facts: WallFacts) -> tuple[Finding, ...]:
    """What to know of the host and the session's course before its verdicts: warnings first."""
    findings = [
        Finding(
            level="note" if facts.real_time else "warning", scope="host", kind="accelerator",
            values={"accelerator": facts.accelerator, "real_time": facts.real_time},
        )
    ]  # fmt: skip
    findings += [
        Finding(
            level="warning" if check.status == "fail" else "note", scope="host", kind="host-check",
            values={"name": check.name, "found": check.found, "status": check.status},
        )
        for check in facts.checks
    ]  # fmt: skip
    if facts.real_time and facts.images > 1:
        findings.append(Finding(level="note", scope="host", kind="one-build"))
    for in_result in (False, True):
        spoilt = [block for block in facts.dropped if block.kept == in_result and not block.failed]
        for case in dict.fromkeys(block.case for block in spoilt):
            blocks = [[block.block, block.reason] for block in spoilt if block.case == case]
            values = {"case": case, "blocks": blocks, "of": facts.blocks, "kept": in_result}
            findings.append(
                Finding(level="warning", scope="host", kind="dropped-blocks", values=values)
            )
    if facts.early:
        values = {
            "blocks": facts.blocks,
            "planned": facts.planned,
            "share": facts.look_share or 0.0,
        }
        findings.append(Finding(level="note", scope="host", kind="early", values=values))
    return tuple(sorted(findings, key=lambda finding: finding.level != "warning"))
