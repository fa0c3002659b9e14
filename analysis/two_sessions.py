"""Two sessions of the same cases, arm by arm: what differs between them, and by how much.  Pure.

An arm of one session is paired with the arm of that name in the other, seed by seed.  That
pairing is sound where both were counted in the same guest with the same programs: then the
kernels and their settings are all that can have moved a number, and the rules of
``analysis.verdict`` judge it.  Where anything else differs, or time was real, figures stand
side by side and nothing is judged.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from analysis.comparison import complete_blocks, evidence_of, first_words, summarize
from analysis.findings import check_exactness
from analysis.many import compare_session
from analysis.model import Summary
from analysis.verdict import Evidence, Judgement, Verdict, judge_primary, judge_secondary
from experiment.plan import AGAIN
from experiment.spec import Direction
from results.profile import Locks, Profile
from results.record import ArmRecord, Manifest, PhaseRecord, Record, gate_of
from results.session import MeasuredSession
from results.units import shown_unit

DIGEST = 12
# Programs that build kernels are in each kernel's own row, and others move no number of a guest.
OF_GUESTS = ("qemu", "fio", "mkfs", "busybox", "libc")


# Numbers of a run that are named where they differ.
NAMED = 5


class _RunResult(NamedTuple):
    ended: str
    samples: dict[str, float]
    counted: list[Record]


class SessionDifference(Record):
    """One thing that is not the same; ``prevents`` a verdict where it moves numbers by itself."""

    name: str
    first: str
    second: str
    prevents: bool = False


class PairedMetric(Record):
    """One metric of an arm in both sessions, over ``seeds`` seeds that both have.

    Summaries and medians are None where there is no such seed, as of an arm that panics.
    Without a ``judgement`` nothing may be concluded from the figures.
    """

    arm: str
    case: str
    name: str
    unit: str
    direction: Direction
    primary: bool
    first: Summary | None
    second: Summary | None
    first_median: float | None
    second_median: float | None
    seeds: int
    judgement: Judgement | None


class SessionPair(Record):
    """Two sessions side by side; ``obstacles`` say why nothing is judged, and are then not empty.

    ``same_code`` names the arms that are the same machine code with the same settings.
    """

    first: Manifest
    second: Manifest
    differences: tuple[SessionDifference, ...]
    obstacles: tuple[str, ...]
    same_code: tuple[str, ...]
    metrics: tuple[PairedMetric, ...]
    notes: tuple[str, ...] = ()

    @property
    def primary(self) -> tuple[Judgement, ...]:
        """The judgements of primary metrics."""
        judged = [each.judgement for each in self.metrics if each.primary]
        return tuple(judgement for judgement in judged if judgement is not None)


def compare_two(first: MeasuredSession, second: MeasuredSession) -> SessionPair:
    """What two sessions show, the second against the first.

    The rules are the second session's thresholds; arms of the same machine code and settings
    are not among the tests that Holm corrects for, since nothing is asked of them.
    """
    both = (first.manifest, second.manifest)
    arms = [
        (arm, other)
        for arm in both[0].arms
        for other in both[1].arms
        if arm.name == other.name != AGAIN
    ]
    differences = _differences(*both)
    obstacles = [f"{d.name}: {d.first}, then {d.second}" for d in differences if d.prevents]
    obstacles += [*_unsound(first), *_unsound(second)]
    if "wall" in (both[0].experiment.mode, both[1].experiment.mode):
        obstacles.append("real time: the host may have changed between the two sessions")
    same = tuple(
        arm.name
        for arm, other in arms
        if (arm.kernel.code_key, arm.settings, arm.guest)
        == (other.kernel.code_key, other.settings, other.guest)
    )
    metrics = [
        each for pair in arms for each in _metrics(pair, first, second, pair[0].name in same)
    ]
    if not any(metric.seeds for metric, _ in metrics):
        obstacles.append("the sessions have no arm, case and seed in common")
    notes = [*_untested(first), *_untested(second)]
    if not differences and not obstacles:
        notes.append("nothing on record differs but the time: every number must be the same")
    moved = [
        metric.arm
        for metric, evidence in metrics
        if metric.arm in same and evidence.base != evidence.patched
    ]
    judged: dict[int, Judgement | None] = dict.fromkeys(range(len(metrics)))
    if moved and not obstacles:
        names = ", ".join(dict.fromkeys(moved))
        obstacles.append(f"{names}: the same machine code in the same guest gave other numbers")
    elif not obstacles:
        judged = _judged(metrics, same, both[1])
    return SessionPair(
        first=both[0],
        second=both[1],
        differences=differences,
        obstacles=tuple(obstacles),
        same_code=same,
        metrics=tuple(
            metric.model_copy(update={"judgement": judged[at]})
            for at, (metric, _) in enumerate(metrics)
        ),
        notes=tuple(notes),
    )


def unequal_runs(first: MeasuredSession, second: MeasuredSession) -> dict[str, str]:
    """What is not the same, to the last bit, of each run of the first that the second has not so.

    Compared are how a run ended, its samples, and everything that was counted in it.
    """
    before, after = _results(first), _results(second)
    return {
        run_id: _apart(result, after.get(run_id))
        for run_id, result in before.items()
        if result != after.get(run_id)
    }


def _results(session: MeasuredSession) -> dict[str, _RunResult]:
    counted: dict[str, list[Record]] = {}
    records: list[Profile | Locks] = [*session.profiles, *session.locks]
    for each in records:
        counted.setdefault(each.run_id, []).append(each)
    return {
        run.run_id: _RunResult(
            f"failed: {run.failure.kind}" if run.failure else run.fingerprint,
            dict(run.samples or {}),
            counted.get(run.run_id, []),
        )
        for run in session.records
    }


def _apart(before: _RunResult, after: _RunResult | None) -> str:
    if after is None:
        return "was not made"
    texts = [f"{before.ended} then {after.ended}"] * (before.ended != after.ended)
    names = dict.fromkeys([*before.samples, *after.samples])
    pairs = [(name, before.samples.get(name), after.samples.get(name)) for name in names]
    numbers = [f"{name} {was} then {now}" for name, was, now in pairs if was != now]
    texts += numbers[:NAMED]
    texts += [f"{len(numbers) - NAMED} more numbers"] * (len(numbers) > NAMED)
    return "; ".join([*texts, *["what was counted"] * (before.counted != after.counted)])


def _untested(session: MeasuredSession) -> Iterable[str]:
    """That a session says nothing of its own series, whatever the two of them show."""
    if session.manifest.experiment.mode == "wall":
        return  # what runs is not counted there
    judged = [each.judgement for each in compare_session(session, explains=False).primary]
    if judged and all(judgement.verdict is Verdict.NOT_TESTED for judgement in judged):
        yield f"{session.manifest.session}: Not tested: {judged[0].reason}"


def _names(manifest: Manifest) -> list[str]:
    return [arm.name for arm in manifest.arms if arm.name != AGAIN]


def _unsound(session: MeasuredSession) -> Iterable[str]:
    """Why a session's own numbers are not to be relied on."""
    name, manifest = session.manifest.session, session.manifest
    if manifest.experiment.mode == "wall":
        return
    exactness = check_exactness([record for record in session.records if not record.twin])
    if exactness.status == "inexact":
        yield f"{name}: {exactness.text}"
    for arm in _names(manifest) if manifest.experiment.check is not None else ():
        gate = gate_of(arm, manifest.base, session.checks)
        if gate.withholds:
            yield f"{name}: {arm}: {first_words(gate)}"


def _differences(first: Manifest, second: Manifest) -> tuple[SessionDifference, ...]:
    was, now = first.provenance, second.provenance
    shapes = [each.guest.model_dump(exclude={"title"}) for each in (first, second)]
    real_time = "wall" in (first.experiment.mode, second.experiment.mode)
    arms = {arm.name: arm for arm in second.arms if arm.name != AGAIN}
    cases = {case.name: case for case in second.cases}
    # What it is, on both sides, and whether it prevents a verdict.
    rows: list[tuple[Any, ...]] = [
        (
            "lab",
            f"{was.lab_version} {was.lab_commit}",
            f"{now.lab_version} {now.lab_commit}",
            False,
        ),
        ("mode", first.experiment.mode, second.experiment.mode, True),
        *((f"guest: {name}", shapes[0][name], shapes[1][name], True) for name in shapes[0]),
        ("dataset", first.experiment.dataset, second.experiment.dataset, True),
        (
            "userland of guests, SHA-256",
            was.initramfs_sha256[:DIGEST],
            now.initramfs_sha256[:DIGEST],
            True,
        ),
        *(
            (name, was.tools.get(name), now.tools.get(name), name.startswith(OF_GUESTS))
            for name in sorted({*was.tools, *now.tools})
        ),
    ]
    if was.qemu_sha256 and now.qemu_sha256:
        digests = was.qemu_sha256[:DIGEST], now.qemu_sha256[:DIGEST]
        rows.append(("QEMU's binary, SHA-256", *digests, False))
    rows += [
        ("QEMU's arguments", " ".join(was.qemu_argv), " ".join(now.qemu_argv), True),
        ("kernel command line", was.kernel_command_line, now.kernel_command_line, True),
        *(
            (f"host: {name}", was.host.get(name), now.host.get(name), real_time)
            for name in sorted({*was.host, *now.host})
        ),
        ("arms", ", ".join(_names(first)), ", ".join(_names(second)), False),
        *(
            (f"{arm.name}: {what}", *values, what == "guest")
            for arm in first.arms
            if arm.name in arms
            for what, *values in _of_arm(arm, arms[arm.name])
        ),
        ("cases", ", ".join(c.name for c in first.cases), ", ".join(cases), False),
        *(
            (f"{case.name}: phases", _commands(case.phases), _commands(other.phases), True)
            for case in first.cases
            if (other := cases.get(case.name))
        ),
        ("seeds", *(", ".join(map(str, each.seeds)) for each in (first, second)), False),
        ("thresholds", first.experiment.thresholds, second.experiment.thresholds, False),
    ]
    return tuple(
        SessionDifference(
            name=name,
            first="none" if before in ("", None) else str(before),
            second="none" if after in ("", None) else str(after),
            prevents=prevents,
        )
        for name, before, after, prevents in rows
        if before != after
    )


def _of_arm(first: ArmRecord, second: ArmRecord) -> list[tuple[str, object, object]]:
    """What an arm is, in both sessions."""
    sides = []
    for arm in (first, second):
        kernel = arm.kernel
        of_kernel = {
            "guest": arm.guest,
            "kernel": f"{kernel.release} ({kernel.key[:DIGEST]})",
            "source": kernel.source,
            "patches": ", ".join(kernel.patches),
            "flavour": kernel.flavour,
            "configuration, SHA-256": kernel.config_sha256[:DIGEST],
            "compiler": kernel.compiler,
            "machine code": kernel.code_key[:DIGEST],
        }
        settings = dict.fromkeys(sorted({*first.settings, *second.settings}), "not set")
        sides.append({**of_kernel, **settings, **arm.settings})
    return [(name, sides[0][name], sides[1][name]) for name in sides[0]]


def _commands(phases: Iterable[PhaseRecord]) -> str:
    return "; ".join(f"{p.name}: {p.command}, caches {p.caches}" for p in phases)


def _metrics(
    arms: tuple[ArmRecord, ArmRecord], first: MeasuredSession, second: MeasuredSession, same: bool
) -> Iterable[tuple[PairedMetric, Evidence]]:
    """Each metric of an arm that both sessions have; only seeds that both planned are paired.

    They are compared as two arms of one session are.
    """
    cases = {case.name: case for case in second.manifest.cases}
    sides = tuple(
        arm.model_copy(update={"name": name})
        for arm, name in zip(arms, ("first", "second"), strict=True)
    )
    for case in first.manifest.cases:
        other = cases.get(case.name)
        if other is None:
            continue
        of_other = second.manifest.seeds_of(case.name)
        planned = [seed for seed in first.manifest.seeds_of(case.name) if seed in of_other]
        manifest = second.manifest.model_copy(
            update={"arms": sides, "seeds": tuple(planned), "case_seeds": {}, "same_code": same}
        )
        runs = [
            run.model_copy(update={"arm": side.name, "block": planned.index(run.seed)})
            for side, session in zip(sides, (first, second), strict=True)
            for run in session.records
            if (run.case, run.arm) == (case.name, arms[0].name)
            and run.seed in planned
            and not (run.repeat or run.twin)
        ]
        metrics = tuple(metric for metric in case.metrics if metric in other.metrics)
        names = {metric.name for metric in metrics}
        primary = tuple(n for n in case.primary if n in names and n in other.primary)
        shared = case.model_copy(update={"metrics": metrics, "primary": primary})
        blocks = complete_blocks(manifest, runs, case.name)
        for each in evidence_of(manifest, runs, shared, blocks):
            evidence = replace(each.evidence, looks=None)
            values = evidence.base, evidence.patched
            medians = [statistics.median(side) if side else None for side in values]
            yield (
                PairedMetric(
                    arm=arms[0].name,
                    case=case.name,
                    name=each.metric.name,
                    unit=shown_unit(each.metric.unit, manifest.experiment.mode),
                    direction=each.metric.direction,
                    primary=each.primary,
                    first=summarize(evidence.base),
                    second=summarize(evidence.patched),
                    first_median=medians[0],
                    second_median=medians[1],
                    seeds=len(evidence.base),
                    judgement=None,
                ),
                evidence,
            )


def _judged(
    metrics: list[tuple[PairedMetric, Evidence]], same: Iterable[str], rules: Manifest
) -> dict[int, Judgement | None]:
    """The judgement of each, by its number."""
    families: dict[tuple[bool, bool], list[int]] = {}
    for at, (metric, _) in enumerate(metrics):
        key = metric.primary, metric.primary and metric.arm in same
        families.setdefault(key, []).append(at)
    judged: dict[int, Judgement | None] = {}
    for (primary, _), family in families.items():
        judge = judge_primary if primary else judge_secondary
        judgements = judge([metrics[at][1] for at in family], rules.experiment.thresholds)
        judged |= dict(zip(family, judgements, strict=True))
    return judged
