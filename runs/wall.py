"""One run of a wall session: its machine, its samples, and what the host did meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from experiment.design import AGAIN, Conditions
from experiment.plan import PlannedRun
from guests import virtme
from guests.console import Ending
from guests.exact import Outcome
from guests.virtme import WallMachine
from host.accelerator import Accelerator
from host.fitness import meanwhile, read_counters
from host.topology import Placement
from runs.prepare import Session
from workloads import parse, validity
from workloads.parse import GuestResult


@dataclass(frozen=True)
class Wall:
    """What a wall session stands on: found out once, and part of its provenance."""

    accelerator: Accelerator
    placement: Placement | None


@dataclass(frozen=True)
class Observed:
    """How a run ended and on what host; ``result`` is None unless the run is valid."""

    outcome: Outcome
    conditions: Conditions
    result: GuestResult | None
    ending: Ending


def kernel_arm(session: Session, arm: str) -> str:
    """The arm whose kernel is booted: the A/A arm has none of its own."""
    return session.experiment.both_arms[0].name if arm == AGAIN else arm


def wall_machine(session: Session, run: PlannedRun, wall: Wall) -> WallMachine:
    """The machine of a run: kernel, root, shape and texts are those of an exact one."""
    arm = kernel_arm(session, run.arm)
    exact = session.machine(run.model_copy(update={"arm": arm}))
    return WallMachine(
        kernel=exact.kernel,
        initramfs=exact.initramfs,
        guest=exact.guest,
        size=exact.size,
        prepare_text=exact.prepare_text,
        accelerator=wall.accelerator,
        placement=wall.placement,
    )


@contextmanager
def lab_kept_off(placement: Placement | None) -> Iterator[None]:
    """Keep this process, and all it starts, on the lab's own CPUs while a session runs."""
    before = os.sched_getaffinity(0)
    if placement is not None:
        os.sched_setaffinity(0, placement.lab)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def observe_run(
    session: Session,
    run: PlannedRun,
    wall: Wall,
    folder: Path,
    logs: Path,
    watch: Callable[[str], None],
) -> Observed:
    """Boot one run and say what came of it; a run that failed is an answer too.

    Raises:
        InfraError: virtme-ng or QEMU did not start.
    """
    before, own = read_counters(), _own_cpu_s()
    outcome = virtme.run(wall_machine(session, run, wall), session.job(run), folder, logs, watch)
    # The guest is among the children that were waited for, unless it had to be killed.
    own = max(_own_cpu_s() - own, outcome.cpu_s)
    seen = meanwhile(before, read_counters(), own_cpu_s=own)
    conditions = Conditions(seen.stolen, seen.foreign, seen.swapped_pages, seen.throttled)
    result, ending = _checked(session, run, outcome)
    return Observed(outcome, conditions, result, ending)


def _own_cpu_s() -> float:
    """CPU seconds that this process and the children it waited for have used."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _checked(
    session: Session, run: PlannedRun, outcome: Outcome
) -> tuple[GuestResult | None, Ending]:
    """The result if the run is valid, and how it ended if not."""
    if outcome.files is None:
        return None, outcome.ending
    phases = session.phases(session.case(run.case))
    try:
        result = parse.guest_result(outcome.files, tuple(phase.name for phase in phases))
    except parse.ParseError as error:
        return None, Ending("lost", f"result not readable: {error}")
    arm = kernel_arm(session, run.arm)
    claim = validity.Claim(
        phases,
        session.measured.limit_bytes,
        run.seed,
        session.measured.kernels[arm].identity.build_id,
        validity.LEFT_PAGES_WALL,
    )
    problems = validity.problems(result, claim)
    if outcome.ending.kind != "done":
        problems = (f"{outcome.ending.kind}: {outcome.ending.message}", *problems)
    if problems:
        return None, Ending("failed", "; ".join(problems), outcome.ending.evidence)
    return result, outcome.ending
