"""Correctness checks of every arm: one found broken has no speed, whatever was measured of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from experiment.plan import Plan, memory_needed_mib, scaled
from guests import channel
from guests.exact import Machine, Outcome
from host import limited
from kernels.cache import hold
from results.record import Check, CheckStatus, RunCost, gate_of
from results.store import SessionStore
from runs import keeping
from runs.boots import Boot, Place, Reporter
from runs.keeping import cost_of
from runs.local import CONSOLE, Options
from runs.prepare import Prepared
from runs.resolved import PlannedCheck
from workloads import check
from workloads.job import prepare_text
from workloads.spec import extras_of

# A guest that ended so and whose console shows nothing says nothing of the kernel.
SILENT_ENDINGS = ("lost", "silent", "boot", "hung")
# A sound guest prints 20 KiB.  One that fails a self-test may do so a million times.
FLOOD_BYTES = 512 << 10
# Native spin locks, as on a machine of one's own.
CPU = "Nehalem,-hypervisor"
# Lockdep's tables, and slabs with red zones.
MORE_MEMORY_MIB = 192
# Short turns, so that several vCPUs meet within critical sections.
METRONOME_NS = 20_000
# Seconds of QEMU's CPU time for what is several times slower than a measured guest.
BOOT_S, SILENCE_S, RUN_S = 1800.0, 3600.0, 7200.0


def run_gate(
    session: Prepared, options: Options, store: SessionStore, reporter: Reporter
) -> Prepared:
    """Make every check that is not on record, and return the session without broken arms.

    Raises InfraError: the disk is too small or QEMU does not start.
    """
    todo = session.checks
    if not todo:
        return session
    keys = {
        (flavour, arm): kernel.identity.key
        for flavour, of_arms in session.kernels.items()
        for arm, kernel in of_arms.items()
    }
    able = []
    for entry in unmade(session, store.checks(), keys):
        workloads = [session.resolved.workloads[case.workload] for case in entry.cases]
        lacks = [session.lacks(entry.flavour, entry.arm.name, each) for each in workloads]
        if reason := next(filter(None, lacks), ""):
            # What it needs does not build.
            reporter.log(f"not checked: {entry.run_id}: {reason}")
            unjudged = check.CheckResult((), ())
            result = _check(session, entry, "not run", unjudged, reason, console="")
            store.append(result, RunCost(run_id=entry.run_id, elapsed_s=0.0, guest_cpu_s=0.0))
        else:
            able.append(entry)
    if able:
        boots = [boot_of(session, entry) for entry in able]
        tasks = {boot.name: task for boot, task in boots}
        memory = max(boot.machine.guest.memory_mib for boot, _ in boots)
        slots = options.executor.slots(memory, options.guests_at_once)
        checks = {entry.run_id: entry for entry in able}
        judge = _Judge(session, store, reporter, checks, tasks)
        place = Place(options.cache, store.raw, reporter, slots)
        flavours = {entry.flavour for entry in todo}
        booted = (kernel for each in flavours for kernel in session.kernels[each].values())
        with hold(*booted), reporter.runs(len(todo), len(todo) - len(able), slots):
            # What takes longest first, so that no guest is alone at the end.
            boots.sort(key=lambda pair: not pair[1].selftests)
            batch = [boot for boot, _ in boots]
            keeping.boot(options.kept, options.executor, [batch], judge, place)
    return without_broken(session, store.checks(), reporter)


def _check(
    session: Prepared,
    entry: PlannedCheck,
    status: CheckStatus,
    judged: check.CheckResult,
    reason: str,
    *,
    console: str,
) -> Check:
    return Check(
        run_id=entry.run_id,
        arm=entry.arm.name,
        of=sum(other.arm == entry.arm for other in session.checks),
        flavour=entry.flavour,
        vcpus=entry.vcpus,
        cases=tuple(case.name for case in entry.cases),
        kernel_key=session.kernels[entry.flavour][entry.arm.name].identity.key,
        status=status,
        problems=judged.problems,
        checked=judged.checked,
        reason=reason,
        console=console,
    )


def unmade(
    session: Prepared, checks: Collection[Check], keys: Mapping[tuple[str, str], str]
) -> tuple[PlannedCheck, ...]:
    """The checks without an answer on record for the kernels of ``keys``, by flavour and arm."""
    kept = {check.run_id: check.kernel_key for check in checks if check.status != "not run"}
    return tuple(
        entry
        for entry in session.checks
        if kept.get(entry.run_id) != keys[entry.flavour, entry.arm.name]
    )


def without_broken(session: Prepared, checks: list[Check], reporter: Reporter) -> Prepared:
    """The session without the runs of arms that were found broken, all or none of a pair.

    An arm is broken when a check of it is red or was lost, unless the base arm is red in the
    same way: then it is not this arm's doing.  An arm whose checks are still to be made is
    not.  With nothing left to compare the plan is empty.
    """
    if session.experiment.check is None:
        return session
    arms = [arm.name for arm in session.experiment.all_arms]
    gates = [gate_of(arm, arms[0], checks) for arm in arms]
    sound = {gate.arm for gate in gates if not gate.withholds}
    sound |= {run.arm for run in session.plan.runs} - set(arms)
    for gate in gates:
        if gate.withholds:
            titles = (problem.title for check in gate.checks for problem in check.problems)
            first = next(titles, "its checks did not run")
            reporter.log(f"not judged: {gate.arm}: {first}")
    paired = {arm for pair in session.experiment.compared if set(pair) <= sound for arm in pair} | (
        sound - set(arms)
    )
    if not any(arm in paired for arm in arms):
        paired = set()
    runs = tuple(run for run in session.plan.runs if run.arm in paired)
    return replace(session, plan=Plan(runs=runs, seeds=session.plan.seeds))


def boot_of(session: Prepared, entry: PlannedCheck) -> tuple[Boot, check.CheckTask]:
    """One check as a guest to boot, and what it does.

    The guest is that of the smallest profile, with room for the kernel's own work, and with as many
    nodes as the measured one where they can share its vCPUs.  Raises SpecError: the dataset's sizes
    are no multiples of the smallest profile's scale.
    """
    resolved, experiment = session.resolved, session.experiment
    profile = resolved.check_profile
    assert profile is not None
    nodes = resolved.measured.guest.numa_nodes
    profile = profile.model_copy(update={"jobs": max(profile.jobs, entry.vcpus)})
    cases = [
        check.CheckCase(workload, workload.phases)
        for case in entry.cases
        for workload in [resolved.workload(case)]
    ]
    workload = cases[0].workload
    size = scaled(experiment.dataset, profile)
    rooms = check.room(size, workload)
    size = replace(size, brd_mib=rooms.brd)
    # What tmpfs holds is cached without a limit; elsewhere a limit, or what is left.
    cached = replace(size, cgroup_limit_mib=rooms.limit or rooms.left, memory_mib=0)
    needed = memory_needed_mib(cached, profile, session.initramfs.mib)
    nodes = nodes if entry.vcpus % nodes == 0 else 1
    memory_mib = max(profile.memory_mib, needed) + MORE_MEMORY_MIB
    guest = profile.model_copy(
        update={
            "vcpus": entry.vcpus,
            "numa_nodes": nodes,
            "cpu": CPU,
            "memory_mib": -(-memory_mib // nodes) * nodes,
            "metronome_ns": METRONOME_NS if entry.vcpus > 1 else 0,
            "boot_timeout_s": BOOT_S,
            "silence_timeout_s": SILENCE_S,
            "run_timeout_s": RUN_S,
        }
    )
    kernel = session.kernels[entry.flavour][entry.arm.name]
    machine = Machine(
        kernel=kernel.image,
        initramfs=session.root_of(kernel, extras_of(workload)).path,
        preload=session.preload,
        guest=guest,
        size=size,
        prepare_text=prepare_text(
            workload, file_mib=size.file_mib, jobs=size.jobs, mount_options=entry.arm.mount_options
        ),
        cmdline=(*check.command_line(entry.selftests), *entry.arm.cmdline),
    )
    job_text = check.job_text(
        cases,
        jobs=size.jobs,
        seed=experiment.seed,
        room=rooms,
        file_mib=size.file_mib,
        sysctl=entry.arm.sysctl,
        files=entry.arm.files,
    )
    group = entry.arm.name
    boot = Boot(entry.run_id, group, machine, job_text, cold=True, console_bytes=FLOOD_BYTES)
    tests = entry.selftests
    return boot, check.task_of(cases, tests, lockdep=not tests, vcpus=entry.vcpus)


@dataclass(frozen=True)
class _Judge:
    """Puts on record what each guest of the gate found."""

    session: Prepared
    store: SessionStore
    reporter: Reporter
    checks: Mapping[str, PlannedCheck]
    tasks: Mapping[str, check.CheckTask]
    good: set[str] = field(default_factory=set)

    def drawn_with(self, boot: Boot) -> str:
        """As ``runs.boots.KeepingJudge``: one of all; what has several vCPUs stands for a day."""
        return "checks" if boot.machine.guest.vcpus == 1 else keeping.INEXACT

    def before(self, boot: Boot, outcome: Outcome) -> tuple[str, ...]:
        """None: each speaks for itself."""
        return ()

    def receive(self, boot: Boot, outcome: Outcome, *, last: bool) -> bool:
        """A record, or once more for a guest that said nothing."""
        entry, task = self.checks[boot.name], self.tasks[boot.name]
        log = self.store.raw / entry.run_id / CONSOLE
        text = channel.read_console(log) if log.exists() else ""
        try:
            judged = limited.call(check.judge, text, outcome.files, task)
        except Exception as error:  # as in runs.measure: of what a guest sent
            # One whose words nobody can read is not sound.
            title = f"what it sent cannot be read: {type(error).__name__}: {error}"
            judged = check.CheckResult((check.problem("step", title),), ())
        status, reason = how_it_went(outcome, judged)
        if status == "not run" and not last:
            return True
        shown = judged if status == "red" else replace(judged, problems=())
        place = str(log.relative_to(self.store.folder))
        result = _check(self.session, entry, status, shown, reason, console=place)
        result = result.model_copy(update={"kept_at": outcome.kept_at})
        if status == "green":
            self.good.add(entry.run_id)
        self.store.append(result, cost_of(entry.run_id, outcome))
        first = result.reason or next((p.title for p in result.problems), "")
        self.reporter.finished(entry.run_id, problem=first)
        return False


def how_it_went(outcome: Outcome, result: check.CheckResult) -> tuple[CheckStatus, str]:
    """Status of a check, and why it was not run: one without files and splat was lost."""
    if outcome.files is not None:
        return ("red" if result.problems else "green"), ""
    evident = any(problem.evidence for problem in result.problems)
    if evident or outcome.ending.kind not in SILENT_ENDINGS:
        return "red", ""
    return "not run", outcome.ending.message
