"""The head of a session's record, from what the session was prepared to.

Numbers per function are by name, and a name that a release does not have counts nothing.  So each
name that the lab leans on is looked up in the kernel, and what is missing is on record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from experiment.architecture import Architecture
from experiment.load import load_machine
from experiment.machine import DEFAULT_MACHINE
from experiment.plan import AGAIN
from experiment.spec import CaseSpec, ShapeSpec
from guests import programs, virtme
from guests.argv import kernel_command_line, machine_argv
from guests.probe import plugin
from guests.virtme import vng_argv
from host import facts, fitness
from kernels import btf
from kernels.addresses import load, text_of
from kernels.cache import Kernel
from kernels.compare import compare, options_apart
from kernels.settle import series_records
from results.record import (
    ArmRecord,
    CaseRecord,
    CaseSize,
    Manifest,
    PhaseRecord,
    Provenance,
    RatioRecord,
    TwinRecord,
    UnitRecord,
)
from runs.building import same_as_before
from runs.local import Options
from runs.prepare import Prepared, wall_boot_of
from runs.resolved import ResolvedArm
from workloads.job import shown_command
from workloads.metrics import WORK, WORK_TITLE, metrics_of
from workloads.spec import Workload, load_catalogue

# What the compiler makes of a function's name: f.isra.0, f.cold.
PLAIN = re.compile(r"^[0-9a-f]+ [tTwW] ([^.\s]+)", re.M)


class NameUse(NamedTuple):
    """A name of a ``kind``, and who leans on it; with ``instead`` others of it do as well."""

    name: str
    kind: str
    place: str
    instead: bool = False


def of_workload(workload: Workload) -> Iterator[NameUse]:
    """What one workload counts by: its units, costs and ratios."""
    where = f"workload {workload.name}"
    variants = ("default", *workload.variants)
    for phase in (phase for each in variants for phase in workload.phases_of(each)):
        for unit in (*phase.units, *phase.costs):
            of_unit = f"{where}: {unit.title}"
            yield from (NameUse(name, "function", of_unit) for name in unit.calls)
            counters = filter(None, (unit.counter, unit.cgroup_counter))
            yield from (NameUse(name, "counter", of_unit) for name in counters)
        for ratio in phase.ratios:
            names = (*ratio.calls, *ratio.less)
            yield from (NameUse(name, "function", f"{where}: {ratio.title}") for name in names)


def of_lab() -> Iterator[NameUse]:
    """What the probe watches, and the files whose types are kept."""
    for kind, names in plugin.NAMES["waiting"].items():
        where = f"probe: vCPUs that are {kind}"
        yield from (NameUse(name, "function", where, instead=True) for name in names)
    for kind, names in plugin.NAMES["locks"].items():
        # That of another architecture does for the one of x86-64.
        instead = kind == "slow"
        yield from (NameUse(name, "function", f"probe: locks, {kind}", instead) for name in names)
    yield from (NameUse(f"{name}.c", "file", "types of structures") for name in btf.FILES)


def every_name() -> tuple[NameUse, ...]:
    """All of them, each once a place."""
    workloads = load_catalogue().values()
    of_all = (use for workload in workloads for use in of_workload(workload))
    return tuple(dict.fromkeys((*of_all, *of_lab())))


def missing(uses: Iterable[NameUse], kernel: Kernel, account: str = "") -> tuple[NameUse, ...]:
    """Those that a kernel does not have.

    Files are looked up where it is known which ones it is built from, counters in the ``account``
    that a guest gave of itself.
    """
    functions = set(PLAIN.findall(text_of(kernel.system_map)))
    files = {origin.file for origin in load(kernel.origins).values()}
    x86 = kernel.identity.arch == "x86_64"

    def is_there(use: NameUse) -> bool:
        if use.kind == "function":
            return use.name in functions
        if use.kind == "counter":
            return not account or re.search(rf"^{use.name} \d", account, re.M) is not None
        unknown = not files or (use.name.startswith("arch/x86/") and not x86)
        return unknown or any(file.startswith(use.name) for file in files)

    every = tuple(uses)
    served = {use.place for use in every if use.instead and is_there(use)}
    return tuple(use for use in every if not is_there(use) and use.place not in served)


def sentences(uses: Iterable[NameUse], kernel: Kernel) -> tuple[str, ...]:
    """One line a name: that a kernel does not have it, and everything that leans on it."""
    places: dict[tuple[str, str], list[str]] = {}
    for use in uses:
        places.setdefault((use.kind, use.name), []).append(use.place)
    return tuple(
        f"the {kind} {name} is not in {kernel.identity.release}: {'; '.join(dict.fromkeys(where))}"
        for (kind, name), where in places.items()
    )


# Each run has a folder of its own.
FILES = virtme.WallFiles(Path("RUN"))


def manifest_of(
    session: Prepared, options: Options, *, name: str, created: str, overrides: tuple[str, ...]
) -> Manifest:
    """The head of the session's record."""
    resolved = session.resolved
    arms = tuple(_arm_record(session, arm) for arm in resolved.arms)
    many = len(session.experiment.all_arms) > 2
    modelled = next((bench.machine for bench in session.benches if bench.machine), None)
    data_points = [run for run in session.plan.runs if not run.repeat and not run.twin]
    return Manifest(
        session=name,
        created=created,
        experiment=session.experiment,
        guest=resolved.measured.guest,
        overrides=overrides,
        # What two arms differ by is said once, of the whole session.
        arms=arms if many else tuple(a.model_copy(update={"triage": None}) for a in arms),
        cases=tuple(_case_record(session, case) for case in session.experiment.cases),
        seeds=session.plan.seeds,
        runs_planned=0 if session.same_code else len(data_points),
        same_code=session.same_code,
        twins=tuple(
            TwinRecord(
                name=bench.name,
                observe=spec.observe,
                guest=bench.guest,
                cases=spec.cases,
                blocks=spec.blocks,
                machine=bench.machine,
            )
            for bench in session.benches[1:]
            for spec in [session.experiment.twin(bench.name)]
        ),
        series=series_records(
            resolved.experiment, resolved.common_records, checkout=options.checkout
        ),
        triage=arms[1].triage,
        # Whose many CPUs are estimated: the one that is modelled, else the default.
        machine=None if session.wall else modelled or load_machine(Path(DEFAULT_MACHINE)),
        provenance=_provenance(session, options),
    )


def _arm_record(session: Prepared, resolved: ResolvedArm) -> ArmRecord:
    """The arm as it was booted; every arm but the base is compared with the base's build."""
    arm, base = resolved.spec, session.resolved.arms[0].spec
    kernel, first = (session.measured[each.name] for each in (arm, base))
    common = session.resolved.common_records if base.patches or arm.patches else ()
    patches = [patch for record in (*common, *resolved.records) for patch in record.patches]
    apart = arm.name not in (base.name, AGAIN) and kernel.is_built
    experiment = session.experiment
    before = [
        session.measured[name]
        for name, other in experiment.compared
        if experiment.compare == "steps" and other == arm.name and name != base.name
    ]
    # What the cases of a session are counted by and a kernel does not have, one line a name.
    lacking: tuple[str, ...] = ()
    if session.probe is not None and kernel.system_map.exists():
        cases = sorted({case.workload for case in experiment.cases})
        workloads = (session.resolved.workloads[name] for name in cases)
        uses = (use for workload in workloads for use in of_workload(workload))
        lacking = sentences(missing(uses, kernel), kernel)
    label = arm.label or arm.name
    if experiment.compare == "steps" and arm.name in same_as_before(
        session.resolved, session.measured
    ):
        label = f"{label}: same code as the step before"
    return ArmRecord(
        name=arm.name,
        label=label,
        kernel=kernel.identity,
        settings=dict(arm.settings),
        guest=session.resolved.measured.guests[arm.name] if arm.guest != ShapeSpec() else None,
        series=resolved.records,
        options=options_apart(first, kernel) if apart else (),
        missing=lacking,
        triage=compare(first, kernel, patches) if apart else None,
        step=compare(before[0], kernel, patches) if apart and before else None,
    )


def _provenance(session: Prepared, options: Options) -> Provenance:
    first = session.plan.runs[0]
    if session.wall:
        machine, _ = wall_boot_of(session, first)
        argv = vng_argv(machine.guest, machine.size, FILES, machine.accelerator, machine.placement)
        command_line = virtme.kernel_command_line(machine.size)
    else:
        bench = session.resolved.measured
        argv = machine_argv(bench.guest)
        command_line = kernel_command_line(bench.guest, next(iter(bench.sizes.values())))
    return Provenance(
        lab_version=facts.lab_version(),
        lab_commit=facts.lab_commit(options.checkout),
        host=facts.host_facts(),
        tools=tools_of(session.experiment.kernel.architecture, options),
        initramfs_sha256=session.roots_sha256,
        qemu_argv=tuple(argv),
        kernel_command_line=command_line,
        snapshot=options.snapshot,
        probe=session.probe.sha256 if session.probe else "",
        qemu_sha256=session.qemu.binary_sha256 if session.qemu else "",
        qemu_untried=session.qemu.text if session.qemu and not session.qemu.known else "",
        accelerator=session.wall.accelerator.name if session.wall else "",
        fitness=fitness.fitness_facts(session.wall.checks) if session.wall else {},
    )


def tools_of(architecture: Architecture, options: Options) -> dict[str, str]:
    """Versions of the tools that make guests of an architecture and run them here."""
    debian = architecture.root.debian
    foreign_ones = programs.versions(debian, options.cache) if debian else {}
    return facts.tool_versions(architecture.programs) | foreign_ones


def _case_record(session: Prepared, case: CaseSpec) -> CaseRecord:
    resolved, counted = session.resolved, session.probe is not None
    guest, size = resolved.measured.guest, next(iter(resolved.measured.sizes.values()))
    times = case.times.get(guest.name, {})
    phases = resolved.workloads[case.workload].phases_of(case.variant)
    # What counts are given per; the first is the one of the path, where there is one.
    path = (UnitRecord(name=WORK, title=WORK_TITLE),) if counted else ()
    has_fio = any(phase.fio for phase in phases)
    return CaseRecord(
        name=case.name,
        size=CaseSize(
            jobs=size.jobs if has_fio else 0,
            limit_mib=size.cgroup_limit_mib,
            file_mib=size.file_mib if has_fio else 0,
            brd_mib=size.brd_mib if any(phase.on_device for phase in phases) else 0,
        ),
        title=resolved.workload(case).title,
        phases=tuple(
            PhaseRecord(
                name=phase.name,
                command=shown_command(phase, times, jobs=size.jobs, seed=session.experiment.seed),
                caches="dropped" if phase.drop_caches else "kept",
                thp=phase.thp,
                prepares=phase.prepares,
                units=(
                    *(path if phase.costs else ()),
                    *(UnitRecord(name=unit.name, title=unit.title) for unit in phase.units),
                ),
                ratios=tuple(
                    RatioRecord(
                        name=ratio.name,
                        title=ratio.title,
                        functions=ratio.calls,
                        less=ratio.less,
                        unit=ratio.unit,
                    )
                    for ratio in phase.ratios
                ),
            )
            for phase in phases
        ),
        metrics=metrics_of(phases, counted=counted, waits=counted and guest.vcpus > 1),
        primary=case.judged(session.experiment.mode),
    )
