"""Two sessions of the same cases, arm by arm: what differs between them, and by how much.  Pure.

An arm of one session is paired with the arm of that name in the other, seed by seed.  That
pairing is sound where both were counted in the same guest with the same programs: then the
kernels and their settings are all that can have moved a number, and the rules of
``analysis.verdict`` judge it.  Where anything else differs, or time was real, figures stand
side by side and nothing is judged.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from analysis.comparison import summarize
from analysis.findings import check_exactness, too_few_ios
from analysis.gate import first_words, gate_of
from analysis.many import compare_session
from analysis.model import Summary
from analysis.verdict import Evidence, Judgement, Verdict, judge_primary, judge_secondary
from experiment.plan import AGAIN
from experiment.spec import Direction, Mode
from results.record import (
    ArmRecord,
    CaseRecord,
    KernelIdentity,
    Manifest,
    Metric,
    PhaseRecord,
    Record,
    RunRecord,
)
from results.session import MeasuredSession
from results.units import shown_unit

DIGEST = 12
# Programs that build kernels are in each kernel's own row, and others move no number of a guest.
OF_GUESTS = ("qemu", "fio", "mkfs", "busybox", "libc")
Point = tuple[str, str, int]


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


class _Row(NamedTuple):
    """A metric with its values by seed, before it is judged."""

    arm: str
    case: CaseRecord
    metric: Metric
    primary: bool
    evidence: Evidence


def compare_two(first: MeasuredSession, second: MeasuredSession) -> SessionPair:
    """What two sessions show, the second against the first.

    The rules are the second session's thresholds; arms of the same machine code and settings
    are not among the tests that Holm corrects for, since nothing is asked of them.
    """
    both = (first.manifest, second.manifest)
    arms = [name for name in _names(both[0]) if name in _names(both[1])]
    differences = _differences(*both)
    obstacles = [
        *(f"{d.name}: {d.first}, then {d.second}" for d in differences if d.prevents),
        *_unsound(first), *_unsound(second),
    ]  # fmt: skip
    if "wall" in (both[0].experiment.mode, both[1].experiment.mode):
        obstacles.append("real time: the host may have changed between the two sessions")
    same = tuple(name for name in arms if _same_code(_arm(both[0], name), _arm(both[1], name)))
    rows = [row for name in arms for row in _rows(name, first, second, name in same)]
    if not any(row.evidence.base for row in rows):
        obstacles.append("the sessions have no arm, case and seed in common")
    judged = {} if obstacles else _judged(rows, same, both[1])
    mode = both[1].experiment.mode
    metrics = tuple(_paired(row, judged.get((row.arm, row.case.name, row.metric.name)), mode)
                    for row in rows)  # fmt: skip
    notes = [*_untested(first), *_untested(second)]
    if not differences and not obstacles:
        notes.append("nothing on record differs but the time: every number must be the same")
    moved = [
        row.arm for row in rows if row.arm in same and row.evidence.base != row.evidence.patched
    ]
    if moved and not obstacles:
        names = ", ".join(dict.fromkeys(moved))
        obstacles.append(f"{names}: the same machine code in the same guest gave other numbers")
        metrics = tuple(each.model_copy(update={"judgement": None}) for each in metrics)
    return SessionPair(
        first=both[0], second=both[1], differences=differences, obstacles=tuple(obstacles),
        same_code=same, metrics=metrics, notes=tuple(notes),
    )  # fmt: skip


def _untested(session: MeasuredSession) -> Iterable[str]:
    """That a session says nothing of its own series, whatever the two of them show."""
    if session.manifest.experiment.mode == "wall":
        return  # what runs is not counted there
    judged = [each.judgement for each in compare_session(session, explains=False).primary]
    if judged and all(judgement.verdict is Verdict.NOT_TESTED for judgement in judged):
        yield f"{session.manifest.session}: Not tested: {judged[0].reason}"


def _names(manifest: Manifest) -> list[str]:
    return [arm.name for arm in manifest.arms if arm.name != AGAIN]


def _arm(manifest: Manifest, name: str) -> ArmRecord:
    return next(arm for arm in manifest.arms if arm.name == name)


def _same_code(first: ArmRecord, second: ArmRecord) -> bool:
    alike = first.kernel.code_key == second.kernel.code_key and first.settings == second.settings
    return alike and first.guest == second.guest


def _unsound(session: MeasuredSession) -> Iterable[str]:
    """Why a session's own numbers are not to be relied on."""
    name, manifest = session.manifest.session, session.manifest
    if manifest.experiment.mode == "wall":
        return
    exactness = check_exactness([record for record in session.records if not record.twin])
    if exactness.status == "inexact":
        yield f"{name}: {exactness.text}"
    if manifest.experiment.check is None:
        return
    for arm in _names(manifest):
        gate = gate_of(arm, manifest.base, session.checks)
        if gate.withholds:
            yield f"{name}: {arm}: {first_words(gate)}"


def _differences(first: Manifest, second: Manifest) -> tuple[SessionDifference, ...]:
    rows: list[SessionDifference] = []

    def row(
        name: str, first_value: object, second_value: object, *, prevents: bool = False
    ) -> None:
        if first_value != second_value:
            texts = [
                str(value) if value not in ("", None) else "none"
                for value in (first_value, second_value)
            ]
            rows.append(
                SessionDifference(name=name, first=texts[0], second=texts[1], prevents=prevents)
            )

    was, now = first.provenance, second.provenance
    row("lab", f"{was.lab_version} {was.lab_commit}", f"{now.lab_version} {now.lab_commit}")
    row("mode", first.experiment.mode, second.experiment.mode, prevents=True)
    shapes = [each.guest.model_dump(exclude={"title"}) for each in (first, second)]
    for name in shapes[0]:
        row(f"guest: {name}", *(shape[name] for shape in shapes), prevents=True)
    row("dataset", first.experiment.dataset, second.experiment.dataset, prevents=True)
    row("userland of guests, SHA-256", was.initramfs_sha256[:DIGEST], now.initramfs_sha256[:DIGEST],
        prevents=True)  # fmt: skip
    for name in sorted({*was.tools, *now.tools}):
        row(name, was.tools.get(name, ""), now.tools.get(name, ""),
            prevents=name.startswith(OF_GUESTS))  # fmt: skip
    if was.qemu_sha256 and now.qemu_sha256:
        row("QEMU's binary, SHA-256", was.qemu_sha256[:DIGEST], now.qemu_sha256[:DIGEST])
    row("QEMU's arguments", " ".join(was.qemu_argv), " ".join(now.qemu_argv), prevents=True)
    row("kernel command line", was.kernel_command_line, now.kernel_command_line, prevents=True)
    real_time = "wall" in (first.experiment.mode, second.experiment.mode)
    for name in sorted({*was.host, *now.host}):
        row(f"host: {name}", was.host.get(name, ""), now.host.get(name, ""), prevents=real_time)
    row("arms", ", ".join(_names(first)), ", ".join(_names(second)))
    for name in _names(first):
        if name in _names(second):
            for what, first_value, second_value in _of_arm(_arm(first, name), _arm(second, name)):
                row(f"{name}: {what}", first_value, second_value, prevents=what == "guest")
    row("cases", ", ".join(c.name for c in first.cases), ", ".join(c.name for c in second.cases))
    phases = {case.name: case.phases for case in second.cases}
    for case in first.cases:
        if case.name in phases:
            row(f"{case.name}: phases", _commands(case.phases), _commands(phases[case.name]),
                prevents=True)  # fmt: skip
    row("seeds", _seeds(first), _seeds(second))
    row("thresholds", first.experiment.thresholds, second.experiment.thresholds)
    return tuple(rows)


def _of_arm(first: ArmRecord, second: ArmRecord) -> list[tuple[str, object, object]]:
    """What an arm is, in both sessions."""
    first_kernel, second_kernel = first.kernel, second.kernel
    settings = sorted({*first.settings, *second.settings})
    return [
        ("guest", first.guest, second.guest),
        ("kernel", _kernel(first_kernel), _kernel(second_kernel)),
        ("source", first_kernel.source, second_kernel.source),
        ("patches", ", ".join(first_kernel.patches), ", ".join(second_kernel.patches)),
        ("flavour", first_kernel.flavour, second_kernel.flavour),
        (
            "configuration, SHA-256",
            first_kernel.config_sha256[:DIGEST],
            second_kernel.config_sha256[:DIGEST],
        ),
        ("compiler", first_kernel.compiler, second_kernel.compiler),
        ("machine code", first_kernel.code_key[:DIGEST], second_kernel.code_key[:DIGEST]),
        *(
            (s, first.settings.get(s, "not set"), second.settings.get(s, "not set"))
            for s in settings
        ),
    ]


def _kernel(kernel: KernelIdentity) -> str:
    return f"{kernel.release} ({kernel.key[:DIGEST]})"


def _commands(phases: Iterable[PhaseRecord]) -> str:
    return "; ".join(f"{p.name}: {p.command}, caches {p.caches}" for p in phases)


def _seeds(manifest: Manifest) -> str:
    return ", ".join(map(str, manifest.seeds))


def _points(session: MeasuredSession) -> Mapping[tuple[str, str], dict[int, RunRecord]]:
    """Every planned run by case and arm, then by seed."""
    points: dict[tuple[str, str], dict[int, RunRecord]] = {}
    for run in session.records:
        if not run.repeat and not run.twin:
            points.setdefault((run.case, run.arm), {})[run.seed] = run
    return points


def _rows(
    arm: str, first: MeasuredSession, second: MeasuredSession, same_code: bool
) -> Iterable[_Row]:
    """Each metric of an arm that both sessions have; only seeds that both planned are paired."""
    cases = {case.name: case for case in second.manifest.cases}
    both = (_points(first), _points(second))
    scarce = {*too_few_ios(first.manifest, first.records),
              *too_few_ios(second.manifest, second.records)}  # fmt: skip
    for case in first.manifest.cases:
        other = cases.get(case.name)
        if other is None:
            continue
        of_other = second.manifest.seeds_of(case.name)
        planned = [seed for seed in first.manifest.seeds_of(case.name) if seed in of_other]
        runs = [points.get((case.name, arm), {}) for points in both]
        failures = tuple(
            by_seed[seed].failure
            for by_seed in runs for seed in planned
            if seed in by_seed and by_seed[seed].failure
        )  # fmt: skip
        for metric in case.metrics:
            if metric not in other.metrics:
                continue
            pairs = [
                tuple((by_seed[seed].samples or {}).get(metric.name) for by_seed in runs)
                for seed in planned if all(seed in by_seed for by_seed in runs)
            ]  # fmt: skip
            whole = [(a, b) for a, b in pairs if a is not None and b is not None]
            few = (case.name, metric.name.partition(".")[0]) in scarce
            yield _Row(
                arm, case, metric, metric.name in case.primary and metric.name in other.primary,
                Evidence(
                    direction=metric.direction,
                    base=tuple(a for a, _ in whole),
                    patched=tuple(b for _, b in whole),
                    blocks_planned=len(planned),
                    failures=tuple(f for f in failures if f is not None),
                    same_code=same_code,
                    unusable="too few I/Os for a verdict" if few else "",
                    case=case.name,
                    metric=metric.name,
                ),
            )  # fmt: skip


def _judged(
    rows: list[_Row], same_code: Iterable[str], rules: Manifest
) -> dict[tuple[str, str, str], Judgement]:
    thresholds = rules.experiment.thresholds
    judged = {}
    families = [
        [row for row in rows if row.primary and row.arm not in same_code],
        [row for row in rows if row.primary and row.arm in same_code],
        [row for row in rows if not row.primary],
    ]
    for number, family in enumerate(families):
        judge = judge_secondary if number == 2 else judge_primary
        judgements = judge([row.evidence for row in family], thresholds)
        for row, judgement in zip(family, judgements, strict=True):
            judged[row.arm, row.case.name, row.metric.name] = judgement
    return judged


def _paired(row: _Row, judgement: Judgement | None, mode: Mode) -> PairedMetric:
    values = (row.evidence.base, row.evidence.patched)
    first, second = (summarize(each) for each in values)
    medians = [statistics.median(each) if each else None for each in values]
    return PairedMetric(
        arm=row.arm,
        case=row.case.name,
        name=row.metric.name,
        unit=shown_unit(row.metric.unit, mode),
        direction=row.metric.direction,
        primary=row.primary,
        first=first,
        second=second,
        first_median=medians[0],
        second_median=medians[1],
        seeds=len(values[0]),
        judgement=judgement,
    )
