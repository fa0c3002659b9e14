"""From an experiment to its runs: pure, so that a plan can be shown, resumed and tested.

A block is one seed on every arm of every case.  Blocks follow each other, so a
session that is interrupted holds whole blocks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from errors import SpecError
from experiment.frozen import Frozen
from experiment.spec import (
    MEMORY,
    REPEAT,
    ArmSpec,
    CaseSpec,
    Dataset,
    Experiment,
    Guest,
    ShapeSpec,
)

# brd starts at 64 MiB: an XFS log of 7 MiB, its reserve and a file of 13/16 of
# the device no longer fit below that.
MIN_BRD_MIB = 64
# A lean 6.12 with its slabs, page tables of the jobs and fio itself.
KERNEL_MIB = 200
# struct page: 64 bytes for each 4 KiB of guest memory, whatever uses it.
PAGES_PER_PAGE_OF_STRUCTS = 64


@dataclass(frozen=True)
class Size:
    """What a guest really gets, in MiB, and the number of fio jobs in it.

    A limit of 0 is none, a brd of 0 is none; ``file_mib`` is of all files together.
    ``memory_mib`` is to be left for the page cache where no limit says so, 0 is all.
    """

    cgroup_limit_mib: int
    brd_mib: int
    file_mib: int
    jobs: int
    memory_mib: int = 0


class PlannedRun(Frozen):
    """One boot to be made.

    ``run_id`` sorts by case, then block, and is safe as a file name.  ``repeat``
    marks the run that checks bit-exactness, ``twin`` names the twin a run belongs
    to; neither is ever a data point.
    """

    run_id: str
    case: str
    arm: str
    block: int
    seed: int
    repeat: bool = False
    twin: str = ""

    @property
    def original_id(self) -> str:
        """The id of the judged run of the same case, block and arm."""
        return self.run_id.removesuffix(f".{self.twin or REPEAT}")


class Plan(Frozen):
    """Runs in the order they are made, and the seed of each block."""

    runs: tuple[PlannedRun, ...]
    seeds: tuple[int, ...]


def make_plan(
    experiment: Experiment,
    blocks: int | None = None,
    case_blocks: Mapping[str, int] = MappingProxyType({}),
) -> Plan:
    """Return every run the experiment asks for; with ``blocks`` those of that many seeds.

    ``case_blocks`` are cases with fewer.
    Block ``b`` has the seed ``experiment.seed + b`` on all arms and cases, so that
    arms differ by their kernel only.  The repeats of exact mode, one a case (block 0, last arm
    built), follow the first block: a session that is not exact fails early.  In wall mode the arms
    of a case are in random order, the base among them twice.  Twins come last: what is judged is on
    record before what explains it.  Raises SpecError: as :func:`wall_arms`.
    """
    in_wall = experiment.mode == "wall"
    arms = [arm.name for arm in (wall_arms(experiment) if in_wall else experiment.all_arms)]
    many = experiment.blocks if blocks is None else blocks
    seeds = tuple(experiment.seed + block for block in range(many))
    # Ids stay as they are while seeds are added.
    digits = max(2, len(str(max(experiment.max_seeds or 0, many) - 1)))
    runs: list[PlannedRun] = []
    for block, seed in enumerate(seeds):
        runs += [
            planned_run(case, arm, block, seed, digits)
            for case in experiment.cases
            if block < case_blocks.get(case.name, many)
            for arm in (
                order(arms, seed=experiment.seed, block=block, case=case.name) if in_wall else arms
            )
        ]
        if block == 0 and not in_wall:
            *_, last = (arm for arm in arms if arm not in experiment.unbuilt)
            runs += [
                planned_run(case, last, 0, seed, digits, repeat=True) for case in experiment.cases
            ]
    return Plan(runs=(*runs, *twin_runs(experiment, digits)), seeds=seeds)


def twin_runs(experiment: Experiment, digits: int) -> list[PlannedRun]:
    """The runs of all twins; ``digits`` is the width of a block's number in an id."""
    runs = []
    for twin in experiment.twins:
        seeds = twin.blocks
        if twin.observe == MEMORY and twin.guest == ShapeSpec():
            # A modelled run is compared with the judged one.
            seeds = min(seeds, experiment.blocks)
        runs += [
            planned_run(case, arm.name, block, experiment.seed + block, digits, twin=twin.name)
            for block in range(seeds)
            for case in experiment.cases
            if case.name in twin.cases
            for arm in experiment.all_arms
        ]
    return runs


def remaining(plan: Plan, done_run_ids: Collection[str]) -> tuple[PlannedRun, ...]:
    """Return the runs of ``plan`` that are not done yet, in the plan's order."""
    done_ids = frozenset(done_run_ids)
    return tuple(run for run in plan.runs if run.run_id not in done_ids)


def scaled(dataset: Dataset, guest: Guest) -> Size:
    """Divide the original sizes by the guest's scale; the jobs are the guest's own.

    Raises SpecError: a size is no multiple of the scale (the ratios would not be those of the
    original), or the brd gets smaller than 64 MiB.
    """
    original = dataset.model_dump(exclude={"jobs"})
    problems = [
        f"dataset.{key}: found {value} (MiB); {_file(guest)} divides sizes by its scale of "
        f"{guest.scale}, and wants a multiple: "
        f"{max(guest.scale, round(value / guest.scale) * guest.scale)}"
        for key, value in original.items()
        if value % guest.scale
    ]
    size = Size(jobs=guest.jobs, **{key: mib // guest.scale for key, mib in original.items()})
    if size.brd_mib < MIN_BRD_MIB and dataset.brd_mib:
        problems.append(
            f"{_file(guest)}: scale: found {guest.scale}; dataset.brd_mib = {dataset.brd_mib} MiB "
            f"gives a brd of {size.brd_mib} MiB, at least {MIN_BRD_MIB} MiB are needed"
        )
    if problems:
        raise SpecError(problems)
    return size


def memory_needed_mib(size: Size, guest: Guest, initramfs_mib: int) -> int:
    """Return the least guest memory, in MiB, that holds everything at once."""
    return sum(mib for _, mib in _memory_parts(size, guest, initramfs_mib))


def _memory_parts(size: Size, guest: Guest, initramfs_mib: int) -> tuple[tuple[str, int], ...]:
    """What takes memory, as it is said, and how many MiB.

    The initramfs counts twice: the archive stays until it is unpacked.  brd pages
    are charged to nobody, so they come on top of the cgroup's limit; without a limit the
    whole file is cached.  A guest that is to have ``memory_mib`` left is made to measure,
    and each run checks what was left; here only what it could never hold is refused.
    """
    structs = ("its page structures", -(-guest.memory_mib // PAGES_PER_PAGE_OF_STRUCTS))
    if size.memory_mib and not size.cgroup_limit_mib:
        return (
            (f"files on brd {size.file_mib}", size.file_mib),
            (f"page cache {size.memory_mib}", size.memory_mib),
            (f"initramfs {initramfs_mib}", initramfs_mib),
            structs,
        )
    limit, file = size.cgroup_limit_mib, size.file_mib
    return (
        (f"brd {size.brd_mib}", size.brd_mib),
        (f"cgroup {limit}", limit) if limit else (f"files, cached without a limit, {file}", file),
        (f"initramfs twice {initramfs_mib}", 2 * initramfs_mib),
        (f"kernel {KERNEL_MIB}", KERNEL_MIB),
        structs,
    )


def require_memory(size: Size, guest: Guest, initramfs_mib: int) -> None:
    """Raise SpecError where a guest would run out of memory outside the measured cgroup."""
    parts = _memory_parts(size, guest, initramfs_mib)
    needed = sum(mib for _, mib in parts)
    if needed > guest.memory_mib:
        *first, last = (words for words, _ in parts)
        raise SpecError(
            [
                f"{_file(guest)}: memory_mib: found {guest.memory_mib}; at least {needed} MiB are "
                f"needed: {', '.join(first)}, and {last}"
            ]
        )


def planned_run(
    case: CaseSpec,
    arm: str,
    block: int,
    seed: int,
    digits: int,
    *,
    repeat: bool = False,
    twin: str = "",
) -> PlannedRun:
    """One run with the id that its case, block and arm give it."""
    # "+" occurs in no name, so that no other case can have the same id.
    words = [case.name.replace(":", "+"), f"b{block:0{digits}}", arm]
    if repeat or twin:
        words.append(twin or REPEAT)
    return PlannedRun(
        run_id=".".join(words),
        case=case.name,
        arm=arm,
        block=block,
        seed=seed,
        repeat=repeat,
        twin=twin,
    )


def _file(guest: Guest) -> str:
    return f"configs/guests/{guest.name}.toml"


# Of a record that may be a stranger's: with an end, and little enough to calculate with.
Share = Annotated[float, Field(ge=-1e30, le=1e30)]
Count = Annotated[int, Field(ge=0, le=1 << 63)]
# The base again, under another name: whatever it differs by is noise.
AGAIN = "base-again"


def wall_arms(experiment: Experiment) -> tuple[ArmSpec, ...]:
    """The arms of a wall session, and the base again; SpecError: one has that name."""
    arms = experiment.all_arms
    if any(arm.name == AGAIN for arm in arms):
        raise SpecError([f"arms: {AGAIN!r} is the name of the A/A arm; choose another"])
    base = arms[0]
    label = f"{base.label or base.name}, again"
    return (*arms, base.model_copy(update={"name": AGAIN, "label": label}))


def order(names: Sequence[str], *, seed: int, block: int, case: str) -> tuple[str, ...]:
    """The order of arms in one block, by SHA-256: even, and the same with more blocks."""
    digest = hashlib.sha256(f"{seed} {block} {case}".encode()).digest()
    number = int.from_bytes(digest, "big")
    left, ordered = list(names), []
    # 256 bits over at most a few dozen orders: the remainder's bias is beyond notice.
    while left:
        number, at = divmod(number, len(left))
        ordered.append(left.pop(at))
    return tuple(ordered)


def remaining_whole(plan: Plan, done_run_ids: Collection[str]) -> tuple[PlannedRun, ...]:
    """The runs still to be made; of a block that was interrupted all: they are close in time."""
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


# From where on a run's conditions spoil its block; set before the session.
MOST_STOLEN, MOST_FOREIGN = 0.01, 0.05


def broken_rule(of: Conditions) -> str:
    """What broke a rule, with both numbers; empty when nothing did."""
    for share, most, how in (
        (of.stolen, MOST_STOLEN, "stolen"),
        (of.foreign, MOST_FOREIGN, "foreign"),
    ):
        if share > most:
            return f"{share:.1%} of CPU time {how}, {most:.1%} allowed"
    if of.swapped_pages:
        return f"{of.swapped_pages} pages swapped"
    return f"{of.throttled} thermal throttling events" if of.throttled else ""


def dropped_blocks(blocks: Mapping[int, Sequence[Conditions | None]]) -> dict[int, str]:
    """Blocks to leave out, each with its reason; arm and value must not decide."""
    dropped = {}
    for block, runs in blocks.items():
        broken = (broken_rule(run) for run in runs if run is not None)
        if reason := "a run failed" if None in runs else next(filter(None, broken), ""):
            dropped[block] = reason
    return dropped
