"""The design of a wall session: randomised complete blocks, looks, and when to drop a block.

Pure, and fixed before the first boot: orders come from the recorded seed alone, looks
and rules from this file.  Measuring one arm after the other is the largest error there
is: a host that drifts by as little as it is noisy makes every such comparison differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from pydantic import Field

from errors import SpecError
from experiment.plan import Plan, PlannedRun, planned_run, twin_runs
from experiment.spec import ArmSpec, Experiment, Thresholds

# Of a record that may be a stranger's: with an end, and little enough to calculate with.
Share = Annotated[float, Field(ge=-1e30, le=1e30)]
Count = Annotated[int, Field(ge=0, le=1 << 63)]
# The base again, under another name: whatever it differs by is noise.
AGAIN = "base-again"


class Look(NamedTuple):
    """A moment to judge: after ``blocks`` complete blocks, with ``share`` of the error rates."""

    blocks: int
    share: float


# The shares add up to 1, so that the error rates of all looks add up to those asked for
# (Bonferroni); most is kept for the last, which has the most to see with.
LOOKS = (Look(12, 0.1), Look(20, 0.2), Look(32, 0.3), Look(48, 0.4))


def at_look(thresholds: Thresholds, look: Look) -> Thresholds:
    """The thresholds that hold at one look: the same change, its share of the error rates."""
    return thresholds.model_copy(
        update={
            "alpha": thresholds.alpha * look.share,
            "equivalence_alpha": thresholds.equivalence_alpha * look.share,
        }
    )


def look_after(blocks: int, looks: Sequence[Look] = LOOKS) -> Look | None:
    """The look that is due after exactly ``blocks`` complete blocks, if any."""
    return next((look for look in looks if look.blocks == blocks), None)


def wall_arms(experiment: Experiment) -> tuple[ArmSpec, ...]:
    """The arms of a wall session: those asked for, and the base again.

    Raises:
        SpecError: an arm of the experiment has the name of the A/A arm.
    """
    arms = experiment.all_arms
    if any(arm.name == AGAIN for arm in arms):
        raise SpecError([f"arms: {AGAIN!r} is the name of the A/A arm; choose another"])
    base = arms[0]
    label = f"{base.label or base.name}, again"
    return (*arms, base.model_copy(update={"name": AGAIN, "label": label}))


def order(names: Sequence[str], *, seed: int, block: int, case: str) -> tuple[str, ...]:
    """The order of the arms in one block of one case; all orders are equally likely.

    Drawn by SHA-256 over seed, block and case: more blocks leave the earlier ones as
    they are, on any Python.
    """
    digest = hashlib.sha256(f"{seed} {block} {case}".encode()).digest()
    number = int.from_bytes(digest, "big")
    left, ordered = list(names), []
    # 256 bits over at most a few dozen orders: the remainder's bias is beyond notice.
    while left:
        number, at = divmod(number, len(left))
        ordered.append(left.pop(at))
    return tuple(ordered)


def wall_plan(experiment: Experiment) -> Plan:
    """Every run of a wall session, in the order they are made.

    A block is every arm of every case once, the arms of one case back to back; block
    ``b`` gives fio the seed ``experiment.seed + b`` on all of them.  Twins come last.

    Raises:
        SpecError: as :func:`wall_arms`.
    """
    arms = [arm.name for arm in wall_arms(experiment)]
    seeds = tuple(experiment.seed + block for block in range(experiment.blocks))
    digits = max(2, len(str(experiment.blocks - 1)))
    runs = tuple(
        planned_run(case, arm, block, seed, digits)
        for block, seed in enumerate(seeds)
        for case in experiment.cases
        for arm in order(arms, seed=experiment.seed, block=block, case=case.name)
    )
    return Plan(runs=(*runs, *twin_runs(experiment, digits)), seeds=seeds)


def remaining_whole(plan: Plan, done_run_ids: Collection[str]) -> tuple[PlannedRun, ...]:
    """The runs still to be made, in the plan's order, whole blocks of a case at a time.

    Of a block that was interrupted every run is made again: runs of one block are close
    in time, or it is none.
    """
    done_ids = frozenset(done_run_ids)
    broken = {(run.twin, run.case, run.block) for run in plan.runs if run.run_id not in done_ids}
    return tuple(run for run in plan.runs if (run.twin, run.case, run.block) in broken)


@dataclass(frozen=True)
class Conditions:
    """What else the host did while a run was measured; shares are of its CPU time.

    ``stolen`` was taken by a hypervisor below this host, ``foreign`` used by others than
    the guest; ``swapped_pages`` went in or out, ``throttled`` counts thermal events.
    """

    stolen: Share
    foreign: Share
    swapped_pages: Count
    throttled: Count


@dataclass(frozen=True)
class DropRules:
    """From where on a run's conditions spoil its block; set before the session."""

    stolen: float = 0.01
    foreign: float = 0.05
    swapped_pages: int = 0
    throttled: int = 0

    def broken_by(self, conditions: Conditions) -> str:
        """What broke a rule, with both numbers; empty when nothing did."""
        if conditions.stolen > self.stolen:
            return f"{conditions.stolen:.1%} of CPU time stolen, {self.stolen:.1%} allowed"
        if conditions.foreign > self.foreign:
            return f"{conditions.foreign:.1%} of CPU time foreign, {self.foreign:.1%} allowed"
        if conditions.swapped_pages > self.swapped_pages:
            return f"{conditions.swapped_pages} pages swapped"
        if conditions.throttled > self.throttled:
            return f"{conditions.throttled} thermal throttling events"
        return ""


def dropped_blocks(
    blocks: Mapping[int, Sequence[Conditions | None]], rules: DropRules = DropRules()
) -> dict[int, str]:
    """Blocks to leave out whole, each with its reason.

    ``blocks`` has the conditions of each block's runs, None for a run that failed.  Which
    arm a run was of, and what it measured, is not told: it must not decide.
    """
    dropped = {}
    for block, runs in blocks.items():
        broken = [rules.broken_by(run) for run in runs if run is not None]
        reasons = ["a run failed"] if None in runs else []
        reasons += [reason for reason in broken if reason]
        if reasons:
            dropped[block] = reasons[0]
    return dropped
