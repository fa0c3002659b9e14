"""Measure a session of native mode: kernels as processes of the host, on its real CPU.

A round boots every arm once and the base twice, in random order, each from a fresh copy of its
executable.  Rounds go through all orders of the objects; the arms of a round have the same one.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Event

from errors import InfraError, SeriesError, SpecError, UsageError
from experiment.plan import Conditions
from experiment.spec import Experiment, Guest, looks_of
from files import sha256_of
from guests import programs, uml
from guests.channel import Ending
from guests.exact import Outcome
from host import sandbox
from host.facts import host_facts, text_of
from host.fitness import host_cpus, side_by_side
from kernels import make
from kernels.cache import Kernel, hold, load
from kernels.config import UM
from results import door, native
from results.native import NativeArm, NativeBoot, NativeHead
from runs.boots import MIB, Reporter
from runs.building import build_arms
from runs.local import InterruptedRunError, Options, workspace
from runs.resolved import Resolved
from runs.session import require_budget, require_new
from runs.wall import lab_kept_off, watched
from text import clean, duration

RAW = "raw"
# The phases that more rounds may decide, by what is on record.
Undecided = Callable[[], Sequence[str]]
# What of the host has to be the same for all rounds of a session.
OF_HOST = ("cpu", "model", "cores", "threads", "governor", "hypervisor", "kernel")
# The folder of the lab's own loops in the kernel, among additions.
LOOPS = "loops"
# Guests at once: two cores make twice as many boots in a minute as one.
LANES = 2


def without_phases(cases: Sequence[str]) -> dict[str, str]:
    """Which of these workloads or cases cannot be measured, and why."""
    missing = [case for case in cases if case.partition(":")[0] not in uml.PHASES_OF]
    lacks = {case: uml.LACKS.get(case.partition(":")[0], "") for case in missing}
    return {
        case: f"needs {what}, which User-Mode Linux lacks"
        if what
        else "has no phase that stays in the kernel"
        for case, what in lacks.items()
    }


def in_native_form(experiment: Experiment, guest: Guest, named: Sequence[str]) -> Experiment:
    """The experiment as native mode has it; SpecError: what is asked for cannot be measured."""
    missing = without_phases([case.name for case in experiment.cases])
    refused = [name for name in without_phases(named) if name in missing]
    lines = [f"workloads: {name}: {missing[name]}" for name in refused]
    left = tuple(case for case in experiment.cases if case.name not in missing)
    if not left and not lines:
        lines += [f"cases: {name}: {why}" for name, why in missing.items()]
    if lines:
        lines.append(f"native mode measures {', '.join(uml.PHASES_OF)}; --mode exact the others")
    for arm in experiment.all_arms:
        shape = arm.guest.of(guest)
        for key, number in (("vcpus", shape.vcpus), ("numa_nodes", shape.numa_nodes)):
            if number > 1:
                lines.append(f"guest.{key} = {number}: User-Mode Linux has one CPU and one node")
        if arm.settings:
            names = ", ".join(name for name, _ in arm.settings)
            lines.append(f"arms: {arm.name}: {names}: native guests have no settings of their own")
    if lines:
        raise SpecError(list(dict.fromkeys(lines)))
    plain = {"flavour": UM, "additions": (LOOPS,)}
    arms = tuple(
        arm.model_copy(update={"kernel": arm.kernel.model_copy(update=plain)})
        if arm.kernel
        else arm
        for arm in experiment.arms
    )
    kernel = experiment.kernel.model_copy(update=plain)
    return experiment.model_copy(
        update={"cases": left, "kernel": kernel, "arms": arms, "twins": (), "check": None}
    )


def measure_native(
    resolved: Resolved,
    options: Options,
    folder: Path,
    reporter: Reporter,
    undecided: Undecided,
    *,
    created: str,
) -> None:
    """Build every arm's kernel, and make the rounds of a new session in ``folder``.

    Rounds are added while phases are ``undecided``, if the experiment has ``max_seeds``.

    Raises UsageError: a session is there, or other hosts are asked for; SeriesError: an arm does
    not build or boot; InfraError: the base does not, or there is no box.
    """
    options.executor.require(resolved.experiment)
    require_new(folder)
    # Refused before builds of minutes, and not by the first boot.
    sandbox.box()
    kernels = build_arms(resolved, options, reporter.building, resolved.flavours[0])
    experiment = resolved.experiment
    arms = experiment.all_arms
    contents = {
        arm.spec.name: tuple(sha256_of(patch) for patch in arm.patches) for arm in resolved.built
    }
    codes = {kernels[arm.name].identity.code_key for arm in arms}
    head = NativeHead(
        name=experiment.name,
        title=experiment.title,
        created=created,
        source=kernels[arms[0].name].identity.source,
        release=kernels[arms[0].name].identity.release,
        arms=tuple(
            NativeArm(
                name=arm.name,
                label=arm.label,
                patches=kernels[arm.name].identity.patches,
                contents=contents[arm.name],
                kernel=kernels[arm.name].identity.key,
            )
            for arm in arms
        ),
        orders=make.ORDERS,
        phases={case.name: uml.PHASES_OF[case.name.partition(":")[0]] for case in experiment.cases},
        left_out=resolved.left_out,
        rounds=experiment.max_seeds or experiment.blocks,
        first=experiment.blocks if experiment.max_seeds else None,
        seed=experiment.seed,
        change=experiment.thresholds.change,
        alpha=experiment.thresholds.alpha,
        equivalence_alpha=experiment.thresholds.equivalence_alpha,
        same_code=len(codes) == 1 and not options.measure_anyway,
        program=programs.digest(uml.PHASES),
        host=on_this_cpu(),
    )
    native.begin(folder, head)
    reporter.log(f"session {folder}")
    attempts = experiment.wall.attempts
    make_rounds(head, kernels, options.cache, folder, reporter, undecided, attempts=attempts)


def resume_native(
    folder: Path,
    options: Options,
    reporter: Reporter,
    undecided: Undecided,
    max_rounds: int | None = None,
) -> None:
    """Make the rounds of a session that are missing, one that was interrupted as a whole.

    A round is compared within itself, so that rounds of another hour are as good as those on
    record; those of another CPU, program or kernel are not.  ``max_rounds`` is another budget of a
    session that adds rounds.  Raises StoreError: no session, or damaged; UsageError: not by this
    host, or no such budget; InfraError: what is measured would not be the same.
    """
    head, boots = native.read(folder)
    if max_rounds is not None:
        measured = len(native.whole_rounds(head, boots))
        require_budget(head.first, measured, max_rounds, "rounds")
        head = head.model_copy(update={"rounds": max_rounds})
    if options.executor.name != "local":
        what = "a session of native mode is measured on the host it was started on"
        raise UsageError(what, where=options.executor.name, next_step="--executor local there")
    today, phases = on_this_cpu(), {phase for of in uml.PHASES_OF.values() for phase in of}
    pairs = [(f"the host's {name}", head.host.get(name, ""), today[name]) for name in OF_HOST]
    pairs += [("the program that times phases", head.program, programs.digest(uml.PHASES))]
    differing = [
        f"{what}: now {now}, then {then or 'unknown'}" for what, then, now in pairs if now != then
    ]
    loaded = {arm.name: load(options.cache, arm.kernel, used=True) for arm in head.arms}
    kernels = {name: kernel for name, kernel in loaded.items() if kernel}
    gone = [arm.name for arm in head.arms if arm.name not in kernels]
    differing += [f"the kernel of {name} is not in the cache any more" for name in gone]
    short = [name for name, kernel in kernels.items() if len(kernel.orders) < head.orders]
    differing += [f"the kernel of {name} is not linked in {head.orders} orders" for name in short]
    planned = {phase for of in head.phases.values() for phase in of}
    differing += [f"this lab has no phase {name}" for name in sorted(planned - phases)]
    if differing:
        what = f"cannot go on with it: {'; '.join(differing)}"
        step = f"begin a new session; ./lab.py report {folder} shows what is on record"
        raise InfraError(clean(what), where=clean(str(folder)), next_step=step)
    if max_rounds is not None:
        native.begin(folder, head)
    make_rounds(head, kernels, options.cache, folder, reporter, undecided)


def on_this_cpu(
    proc: Path = Path("/proc"), system: Path = Path("/sys/devices/system")
) -> dict[str, str]:
    """What a number in nanoseconds is of: the CPU, and what may change its speed."""
    info = text_of(proc / "cpuinfo")
    words = {
        name: match[1]
        for name in ("cpu family", "model", "stepping", "microcode")
        if (match := re.search(rf"^{name}\s*:\s*(.+)$", info, re.M))
    }
    governor = text_of(system / "cpu/cpu0/cpufreq/scaling_governor").strip()
    threads = text_of(system / "cpu/smt/active").strip()
    return {
        **host_facts(proc=proc),
        "model": " ".join(f"{name} {value}" for name, value in words.items()),
        "hypervisor": "yes" if re.search(r"^flags\s*:.*\bhypervisor\b", info, re.M) else "none",
        "governor": governor or "not shown by this host",
        "threads": {"1": "two a core", "0": "one a core"}.get(threads, "not shown by this host"),
        "load": " ".join(text_of(proc / "loadavg").split()[:3]),
    }


@dataclass(frozen=True)
class NativeStage:
    """What the boots of a session share; ``cpus`` are those that no guest is on."""

    head: NativeHead
    kernels: Mapping[str, Kernel]
    archives: Mapping[str, Path]
    scratch: Path
    folder: Path
    reporter: Reporter
    attempts: int
    cpus: SimpleQueue[int | None]
    stop: Event

    def boot(self, number: int, arm: str, again: bool) -> NativeBoot:
        """One boot of a round; SeriesError, InfraError: it does not measure (:func:`make_rounds`).

        InterruptedRunError: another boot failed meanwhile.
        """
        run_id = f"{number + 1}.{arm}{'.again' if again else ''}"
        order, base = number % self.head.orders, self.head.arms[0].name
        self._watch()
        self.reporter.started(run_id)
        for _ in range(self.attempts):
            result, ending, (seconds, conditions) = self._once(run_id, arm, order)
            if result is not None:
                break
        if result is None:
            if arm != base:
                # What the base does not do here either is not the series' failure.
                beside = f"{number + 1}.{base}.instead"
                instead, failed, _ = self._once(beside, base, order)
                if instead is None:
                    run_id, arm, ending = beside, base, failed
            self.stop.set()
            kind = InfraError if arm == base else SeriesError
            log = self.folder / RAW / f"{run_id}.txt"
            what = f"does not boot and measure: {ending.message}"
            raise kind(what, where=arm, next_step=f"see {log}")
        self.reporter.finished(run_id)
        return NativeBoot(
            round=number,
            arm=arm,
            order=order,
            again=again,
            hertz=result.hertz,
            phases=result.phases,
            seconds=round(seconds, 3),
            stolen=conditions.stolen,
            foreign=conditions.foreign,
        )

    def make(self, rounds: Sequence[int], pool: Executor) -> None:
        """Boot every arm of these rounds, and record boots in the order of the plan."""
        base, others = self.head.arms[0].name, [arm.name for arm in self.head.arms[1:]]
        planned = []
        for number in rounds:
            boots = [(base, False), (base, True), *((name, False) for name in others)]
            random.Random(f"{self.head.seed} {number}").shuffle(boots)  # noqa: S311
            planned += [(number, *boot) for boot in boots]
        try:
            for ended in [pool.submit(self.boot, *boot) for boot in planned]:
                # If it was interrupted, another failed, which is yet to come.
                with suppress(InterruptedRunError):
                    native.append(self.folder, ended.result())
        except BaseException:
            self.stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise

    def _watch(self) -> None:
        if self.stop.is_set():
            raise InterruptedRunError

    def _once(
        self, run_id: str, arm: str, order: int
    ) -> tuple[uml.NativeResult | None, Ending, tuple[float, Conditions]]:
        """One attempt: what it measured, how it ended, and what it cost."""
        results: list[uml.NativeResult | None] = []
        phases = tuple(sorted({phase for of in self.head.phases.values() for phase in of}))

        def made() -> Outcome:
            cpu = self.cpus.get()
            began, image = time.monotonic(), self.kernels[arm].orders[order]
            try:
                result, ending, text = uml.boot(
                    image, self.archives[arm], self.scratch / run_id, phases, cpu, self._watch
                )
            finally:
                self.cpus.put(cpu)
            results.append(result)
            if result is None:
                door.write(self.folder, f"{RAW}/{run_id}.txt", text)
            return Outcome(None, ending, 0.0, time.monotonic() - began)

        outcome, conditions = watched(made)
        return results[0], outcome.ending, (outcome.elapsed_s, conditions)


def make_rounds(
    head: NativeHead,
    kernels: Mapping[str, Kernel],
    cache: Path,
    folder: Path,
    reporter: Reporter,
    undecided: Undecided,
    *,
    attempts: int = 2,
) -> None:
    """Make every round that is not on record, look by look until none is ``undecided``.

    Raises SeriesError: an arm never gets to its end; InfraError: the base.
    """
    if head.same_code:
        reporter.log("the arms' machine code is the same: nothing to boot (--measure-anyway does)")
        return
    cpus, placement = side_by_side(host_cpus(), LANES)
    free: SimpleQueue[int | None] = SimpleQueue()
    for cpu in cpus:
        free.put(cpu)
    began, stop = time.monotonic(), Event()
    per_round = 1 + len(head.arms)
    with (
        workspace(cache, 4 * len(cpus) * uml.MEMORY_MIB * MIB) as scratch,
        lab_kept_off(placement),
        ExitStack() as held,
        ThreadPoolExecutor(len(cpus), thread_name_prefix="guest") as pool,
    ):
        for kernel in kernels.values():
            held.enter_context(hold(kernel))
        archives = {
            name: uml.root(door.make_folder(scratch, f"root-{name}"), cache, kernel.modules)
            for name, kernel in kernels.items()
        }
        stage = NativeStage(
            head, kernels, archives, scratch, folder, reporter, attempts, free, stop
        )
        ready = native.whole_rounds(*native.read(folder))
        before = len(ready)
        looks = looks_of(head.first or head.rounds, head.first and head.rounds).seeds
        for rounds in [each for each in looks if each >= len(ready)]:
            missing = [number for number in range(rounds) if number not in ready]
            done = per_round * (rounds - len(missing))
            with reporter.runs(per_round * rounds, done, len(cpus)):
                stage.make(missing, pool)
            ready += missing
            if rounds < head.rounds:
                open_ = undecided()
                left = f"undecided: {', '.join(open_)}" if open_ else "every phase is decided"
                reporter.log(f"after {rounds} rounds: {left}")
                if not open_:
                    break
    made = f"measured in {duration(time.monotonic() - began)}"
    reporter.log(made if len(ready) > before else "every planned round is on record")
