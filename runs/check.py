"""The gate before measuring: every arm is checked first, and one found broken is not measured."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from experiment.load import load_guest
from experiment.plan import Plan, memory_needed_mib, scaled
from experiment.spec import ArmSpec, CaseSpec, Guest
from guests import exact
from guests.console import Ending
from guests.exact import Machine, Outcome
from host import facts
from kernels.cache import hold
from results.checks import Check, CheckStatus
from results.record import RunCost
from results.store import SessionStore
from runs.measure import InterruptedRunError
from runs.options import Options
from runs.prepare import MIB, Session
from runs.progress import Reporter
from runs.workspace import workspace
from workloads import check
from workloads.job import prepare_text

# The smallest sizes, whatever is measured: what is looked for does not need more.
PROFILE = "smoke"
# Native spin locks, as on a machine of one's own.
CPU = "Nehalem,-hypervisor"
# Lockdep's tables, and slabs with red zones.
MORE_MEMORY_MIB = 192
# Short turns, so that several vCPUs meet within critical sections.
METRONOME_NS = 20_000
# Host seconds for what is several times slower than a measured guest, on a busy host.
BOOT_S, SILENCE_S, RUN_S = 600.0, 900.0, 1800.0
# A guest that ended so and whose console shows nothing says nothing of the kernel.
SILENT_ENDINGS = ("lost", "silent", "boot", "hung")
ATTEMPTS = 2
# A sound guest prints 20 KiB.  One that fails a self-test may do so a million times.
FLOOD_BYTES = 512 << 10


class FloodedError(Exception):
    """A guest whose console says the same for ever."""


@dataclass(frozen=True)
class PlannedCheck:
    """One guest of the gate: its arm, its kernel's flavour, vCPUs, and the cases in it."""

    run_id: str
    arm: ArmSpec
    flavour: str
    vcpus: int
    cases: tuple[CaseSpec, ...]
    selftests: tuple[str, ...]


def planned(session: Session) -> tuple[PlannedCheck, ...]:
    """Every guest of the gate, the base arm's first; none where no gate is asked.

    Cases that prepare their file system alike share a guest.
    """
    spec = session.experiment.check
    if spec is None:
        return ()
    shapes: list[tuple[str, int, tuple[str, ...]]]
    shapes = [(spec.flavour, vcpus, ()) for vcpus in spec.vcpus]
    if spec.selftests:
        shapes.append((spec.selftest_flavour, 1, spec.selftests))
    groups: dict[tuple[str, str], list[CaseSpec]] = {}
    for case in session.experiment.cases:
        if not spec.cases or case.name in spec.cases:
            workload = session.workloads[case.workload]
            groups.setdefault((workload.mkfs, workload.mount_options), []).append(case)
    return tuple(
        PlannedCheck(
            f"check.{arm.name}.{flavour}.v{vcpus}{f'.{number}' if number else ''}",
            arm, flavour, vcpus, tuple(cases), selftests,
        )
        for arm in session.experiment.all_arms
        for flavour, vcpus, selftests in shapes
        for number, cases in enumerate(groups.values())
    )  # fmt: skip


def run_gate(
    session: Session, options: Options, store: SessionStore, reporter: Reporter
) -> Session:
    """Make every check that is not on record, and return the session without broken arms.

    An arm is not measured when a check of it is red or was not run, unless the base arm is
    red in the same way: then it is not this arm's doing.  With nothing left to compare the
    plan is empty.

    Raises:
        InfraError: the disk is too small or QEMU does not start.
        KeyboardInterrupt: passed on after all guests are gone.
    """
    todo = planned(session)
    if not todo:
        return session
    kept = {check.run_id: check for check in store.checks() if check.status != "not run"}
    missing = [one for one in todo if not _is(kept.get(one.run_id), session, one)]
    if missing:
        _make(session, options, store, reporter, todo, missing)
    return without_broken(session, store.checks(), reporter)


def without_broken(
    session: Session, checks: list[Check], reporter: Reporter | None = None
) -> Session:
    """The session with only the runs of arms that may be measured, all or none of a pair."""
    arms = [arm.name for arm in session.experiment.all_arms]
    found = {arm: [check for check in checks if check.arm == arm] for arm in arms}
    sound = {arm for arm in arms if _may_be_measured(found[arm], found[arms[0]])}
    sound |= {run.arm for run in session.plan.runs} - set(arms)
    for arm in arms:
        if arm not in sound and reporter:
            first = next(
                (p.title for c in found[arm] for p in c.problems), "its checks did not run"
            )
            reporter.say(f"not measured: {arm}: {first}")
    paired = {arm for pair in session.experiment.compared if set(pair) <= sound for arm in pair} | (
        sound - set(arms)
    )
    if not any(arm in paired for arm in arms):
        paired = set()
    runs = tuple(run for run in session.plan.runs if run.arm in paired)
    return dataclasses.replace(session, plan=Plan(runs=runs, seeds=session.plan.seeds))


def _may_be_measured(checks: list[Check], of_base: list[Check]) -> bool:
    known = {problem.cause for check in of_base for problem in check.problems}
    return bool(checks) and all(
        check.status != "not run" and all(problem.cause in known for problem in check.problems)
        for check in checks
    )


def _is(found: Check | None, session: Session, one: PlannedCheck) -> bool:
    key = session.checked[one.flavour][one.arm.name].identity.key
    return found is not None and found.kernel_key == key


def shape(session: Session, one: PlannedCheck) -> Guest:
    """The guest of one check: the smallest profile with room for the kernel's own work."""
    guest = load_guest(Path(PROFILE))
    size = scaled(session.experiment.dataset, guest)
    needed = memory_needed_mib(size, guest, session.initramfs.mib)
    return guest.model_copy(
        update={
            "vcpus": one.vcpus,
            "jobs": max(guest.jobs, one.vcpus),
            "cpu": CPU,
            "memory_mib": max(guest.memory_mib, needed) + MORE_MEMORY_MIB,
            "metronome_ns": METRONOME_NS if one.vcpus > 1 else 0,
            "boot_timeout_s": BOOT_S,
            "silence_timeout_s": SILENCE_S,
            "run_timeout_s": RUN_S,
        }
    )


def machine(session: Session, one: PlannedCheck) -> Machine:
    """What is booted for one check."""
    guest = shape(session, one)
    size = scaled(session.experiment.dataset, guest)
    workload = session.workloads[one.cases[0].workload]
    return Machine(
        kernel=session.checked[one.flavour][one.arm.name].image,
        initramfs=session.initramfs.path,
        guest=guest,
        size=size,
        prepare_text=prepare_text(
            workload, file_mib=size.file_mib, mount_options=one.arm.mount_options
        ),
        preload=session.preload,
        cmdline=(
            *check.command_line(one.selftests),
            *one.arm.cmdline,
        ),
    )


def _make(
    session: Session,
    options: Options,
    store: SessionStore,
    reporter: Reporter,
    todo: tuple[PlannedCheck, ...],
    missing: list[PlannedCheck],
) -> None:
    memory = max(shape(session, one).memory_mib for one in missing)
    slots = options.guests_at_once or facts.guests_at_once(memory)
    stop = Event()
    with (
        workspace(options.cache, slots * memory * MIB) as scratch,
        ExitStack() as held,
        reporter.runs(len(todo), len(todo) - len(missing), slots),
    ):
        for kernels in session.checked.values():
            for kernel in kernels.values():
                held.enter_context(hold(kernel))

        def make(one: PlannedCheck) -> None:
            reporter.started(one.run_id)
            of = sum(other.arm == one.arm for other in todo)
            watch = _watch(reporter, one, store.raw / one.run_id / "console.log", stop)
            found, cost = _checked(session, one, of, scratch, store, watch)
            store.append_check(found, cost)
            first = found.reason or next((p.title for p in found.problems), "")
            reporter.finished(one.run_id, problem=first)

        pool = ThreadPoolExecutor(max_workers=slots, thread_name_prefix="check")
        try:
            for done in [pool.submit(make, one) for one in missing]:
                done.result()
        except BaseException:
            stop.set()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


class _watch:  # noqa: N801
    """Tells the reporter what the agent says, and ends a guest that has to end."""

    def __init__(self, reporter: Reporter, one: PlannedCheck, console: Path, stop: Event) -> None:
        self._reporter, self._name, self._stop = reporter, one.run_id, stop
        self._console = console

    def __call__(self, word: str) -> None:
        if self._stop.is_set():
            raise InterruptedRunError
        if self._console.exists() and self._console.stat().st_size > FLOOD_BYTES:
            raise FloodedError
        self._reporter.said(self._name, word)


def _checked(
    session: Session,
    one: PlannedCheck,
    of: int,
    scratch: Path,
    store: SessionStore,
    watch: _watch,
) -> tuple[Check, RunCost]:
    booted = machine(session, one)
    cases = [(case.name, session.phases(case)) for case in one.cases]
    text = check.job_text(
        cases,
        jobs=booted.guest.jobs,
        seed=session.experiment.seed,
        limit_bytes=booted.size.cgroup_limit_mib * MIB,
        sysctl=one.arm.sysctl,
    )
    steps = (*(name for name, _ in check.steps_of(cases)), *check.OWN_STEPS)
    asked = check.Asked(one.selftests, steps, lockdep=not one.selftests)
    logs = store.raw / one.run_id
    for outcome in _tries(booted, text, scratch / one.run_id, logs, watch):
        console = (logs / "console.log").read_text(errors="replace")
        found = check.judge(console, outcome.files, asked)
        status, reason = standing(outcome, found)
        if status != "not run":
            break
    result = Check(
        run_id=one.run_id,
        arm=one.arm.name,
        of=of,
        flavour=one.flavour,
        vcpus=one.vcpus,
        cases=tuple(case.name for case in one.cases),
        kernel_key=session.checked[one.flavour][one.arm.name].identity.key,
        status=status,
        problems=found.problems if status == "red" else (),
        checked=found.checked,
        reason=reason,
        console=str((logs / "console.log").relative_to(store.folder)),
    )
    cost = RunCost(run_id=one.run_id, elapsed_s=outcome.elapsed_s, guest_cpu_s=outcome.cpu_s)
    return result, cost


def _tries(
    booted: Machine, text: str, folder: Path, logs: Path, watch: _watch
) -> Iterator[Outcome]:
    for _ in range(ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        began = time.monotonic()
        try:
            yield exact.run_cold(booted, text, folder, logs, watch)
        except FloodedError:
            said = f"ended when its console had {FLOOD_BYTES >> 10} KiB"
            yield Outcome(None, Ending("hung", said), 0.0, time.monotonic() - began)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def standing(outcome: Outcome, found: check.Found) -> tuple[CheckStatus, str]:
    """Status of a check, and why it was not run: pure.

    A guest without files whose console shows no splat was lost, and says nothing; that a
    self-test did not report is then no finding either.
    """
    if outcome.files is not None:
        return ("red" if found.problems else "green"), ""
    told = any(problem.evidence for problem in found.problems)
    if told or outcome.ending.kind not in SILENT_ENDINGS:
        return "red", ""
    return "not run", outcome.ending.message
