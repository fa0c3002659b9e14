"""Facts that weaken trust, found in the records: pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from experiment.design import AGAIN
from reports.lock_model import LockComparison
from reports.model import Exactness, FailedRun, FailureCount, Finding, Reference
from reports.taken_in import taken_in
from reports.wall_model import WallFacts
from reports.wording import repeated
from results.record import QUICK, Manifest, RunRecord

# A phase with fewer I/Os shows the luck of the draw: 002 compared two arms by 16 reads each.
FEWEST_IOS = 1000
DISAGREEMENT_NAMED = 5
NOT_ASKED = Exactness(status="not asked", text="bit-exactness is not asked of wall mode")

OF_QUICK = (
    "made with --quick: the experiment's first case alone, no correctness check, no diagnostic run"
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
        return Exactness(status="not checked", text=f"the repeat says nothing: {unusable}")
    if not equal:
        return Exactness(status="not checked", text="no run was repeated")
    runs = "one run was" if equal == 1 else f"{equal} runs were"
    return Exactness(status="bit-exact", text=f"{runs} repeated and gave the same bits")


def _inexact(original: RunRecord, repeat: RunRecord) -> Exactness:
    before, after = original.samples or {}, repeat.samples or {}
    fields = tuple(
        f"{name}: {before.get(name)} then {after.get(name)}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    )
    what = f"{len(fields)} metrics differ" if fields else "the metrics agree, the raw bytes differ"
    text = f"{repeat.run_id} repeats {original.run_id} and is not the same: {what}"
    return Exactness(status="inexact", text=text, fields=fields)


def seeds_without_effect(manifest: Manifest, records: Sequence[RunRecord]) -> list[Finding]:
    """Different seeds that gave the same bits: fio did not honour the seed."""
    found = []
    for case in manifest.cases:
        for arm in manifest.arms:
            runs = [r for r in data_points(records) if (r.case, r.arm) == (case.name, arm.name)]
            same = [
                (one.seed, other.seed)
                for one, other in combinations(runs, 2)
                if one.seed != other.seed and _same_bits(one, other)
            ]
            if same:
                seeds = sorted({seed for pair in same for seed in pair})
                named = ", ".join(map(str, seeds[:DISAGREEMENT_NAMED]))
                rest = ", ..." if len(seeds) > DISAGREEMENT_NAMED else ""
                text = (
                    f"arm {arm.name}: different seeds gave bit-identical values ({named}{rest}); "
                    "they count as one sample, not as several"
                )
                found.append(Finding(level="warning", scope=case.name, text=text))
    return found


def _same_bits(one: RunRecord, other: RunRecord) -> bool:
    return (bool(one.fingerprint) and one.fingerprint == other.fingerprint) or (
        one.samples == other.samples and len(one.samples or {}) > 1
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

    Those of a wall session's host are apart (``reports.wall.host_findings``).
    """
    found = []
    if QUICK in manifest.overrides:
        found.append(Finding(level="warning", scope="session", text=OF_QUICK))
    if exactness.status == "not asked":
        found.append(Finding(level="note", scope="session", text=exactness.text))
    elif exactness.status == "inexact":
        found.append(Finding(level="warning", scope="session", text=exactness.text))
    elif not manifest.same_code or data_points(records):
        level = "note" if exactness.status == "bit-exact" else "warning"
        found.append(Finding.model_validate(
            {"level": level, "scope": "session", "text": f"{exactness.status}: {exactness.text}"}
        ))  # fmt: skip
    if manifest.provenance.qemu_untried:
        text = f"{manifest.provenance.qemu_untried}; ./lab.py doctor --exact tries it"
        found.append(Finding(level="warning", scope="session", text=text))
    for (case, phase), ios in sorted(too_few_ios(manifest, records).items()):
        text = f"phase {phase}: {ios} I/Os in a run, too few I/Os to be evidence"
        found.append(Finding(level="warning", scope=case, text=text))
    found += seeds_without_effect(manifest, records)
    found += [
        Finding(
            level="warning",
            scope=count.case,
            text=f"fail:runs {count.base_failed}:{count.base_runs} in {manifest.base}, "
            f"{count.patched_failed}:{count.patched_runs} in {manifest.patched}"
            + (f", {count.again[0]}:{count.again[1]} in {AGAIN}" if count.again else "")
            + f"{_kinds(count, failed)}; their {repeated(manifest.experiment)} are left out whole",
        )
        for count in counts
        if count.any_failed
    ]
    recorded = len({(r.case, r.arm, r.block) for r in records if not r.repeat})
    ended = course is not None and course.early
    if recorded < manifest.runs_planned and not ended and not (
        manifest.same_code and not recorded
    ):  # fmt: skip
        found.append(not_finished(recorded, manifest.runs_planned))
    if manifest.same_code:
        text = "the built machine code of both arms is equal"
        found.append(Finding(level="note", scope="session", text=text))
        found += _contradiction(manifest, records)
    found += taken_in(manifest)
    found += _of_the_runs(records)
    found += [
        Finding(level="note", scope=reference.case, text=f"{reference.metric}: {reference.note}")
        for reference in references
        if reference.note
    ]
    return tuple(sorted(found, key=lambda finding: finding.level != "warning"))


def not_finished(recorded: int, planned: int) -> Finding:
    """That runs are missing which a resumed session would make."""
    text = f"{recorded} of {planned} runs recorded; --resume finishes the session"
    return Finding(level="warning", scope="session", text=text)


def _kinds(count: FailureCount, failed: Sequence[FailedRun]) -> str:
    """`` (hung 1, panic 2)`` in wall mode, where guests end in more ways; else nothing."""
    if count.again is None:
        return ""
    kinds: dict[str, int] = {}
    for run in failed:
        if run.case == count.case and not run.repeat:
            said = f"{run.failure.kind}, blame {run.failure.blame}"
            kinds[said] = kinds.get(said, 0) + 1
    return f" ({'; '.join(f'{number} {kind}' for kind, number in sorted(kinds.items()))})"


def of_twins(records: Sequence[RunRecord], locks: Sequence[LockComparison]) -> tuple[Finding, ...]:
    """Notes on the twins: they explain, so what they lack costs no verdict."""
    failed: dict[tuple[str, str], list[str]] = {}
    for record in records:
        if record.twin and record.failure is not None:
            failure = record.failure
            why = f"{failure.kind}, blame {failure.blame}: {failure.message}"
            failed.setdefault((record.twin, why), []).append(record.run_id)
    found = [
        Finding(
            level="note",
            scope=f"twin {twin}",
            text=f"{', '.join(sorted(run_ids))} failed and explain{'s' * (len(run_ids) == 1)} "
            f"nothing: {why}",
        )
        for (twin, why), run_ids in sorted(failed.items())
    ]
    found += [
        Finding(
            level="note",
            scope=f"twin {seen.twin}",
            text=f"{seen.case}, phase {seen.phase}: {sum(seen.dropped)} events were dropped, "
            "waits are not complete",
        )
        for seen in locks
        if any(seen.dropped)
    ]
    return tuple(found)


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
    many = f"{differ} of {len(blocks)} {repeated(manifest.experiment)}"
    text = f"the code is the same and {many} differ"
    return [Finding(level="warning", scope="session", text=text)]


def _of_the_runs(records: Sequence[RunRecord]) -> list[Finding]:
    """Findings inside run records, each text once a case with how many runs say it."""
    seen: dict[tuple[str, str], int] = {}
    for record in records:
        for text in record.findings:
            seen[record.case, text] = seen.get((record.case, text), 0) + 1
    return [
        Finding(
            level="warning",
            scope=case,
            text=f"{text} ({count} {'run' if count == 1 else 'runs'})",
        )
        for (case, text), count in sorted(seen.items())
    ]
