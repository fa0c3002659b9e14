from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from errors import SeriesError, SpecError, WorkloadError
from experiment.load import known_experiments, load_experiment
from experiment.plan import Size, make_plan, scaled
from experiment.spec import Experiment
from guests import overlay
from kernels.cache import Kernel
from runs import prepare
from runs.arms import shapes
from runs.options import Options
from runs.prepare import Session, catalogue, require_job_fits, require_set_up
from tests.runs.test_check import identity
from tests.runs.test_measure import _session
from workloads.spec import Extras, Workload, extras_of, load_catalogue

CHECKOUT = Path(__file__).resolve().parents[2]


def filemap() -> Experiment:
    return load_experiment(Path("filemap-v4"), catalogue=catalogue(CHECKOUT))


def with_long_line(workload: Workload) -> Workload:
    first = workload.phases[0].model_copy(
        update={"fio": ("--name=cached", "--description=" + "x" * 4096)}
    )
    return workload.model_copy(update={"phases": (first, *workload.phases[1:])})


def sizes_of(experiment: Experiment) -> list[dict[str, Size]]:
    return [
        {arm: scaled(experiment.dataset, guest) for arm, guest in of_arms.items()}
        for of_arms in shapes(experiment).values()
    ]


def test_shipped_jobs_fit() -> None:
    experiment = filemap()
    require_job_fits(experiment, sizes_of(experiment), load_catalogue())


def test_a_job_too_long_is_refused_before_anything_is_built() -> None:
    experiment = filemap()
    workloads = load_catalogue()
    workloads["filemap-4k"] = with_long_line(workloads["filemap-4k"])
    with pytest.raises(SpecError, match=r"case filemap-4k: job of \d+ bytes, at most 4096 fit"):
        require_job_fits(experiment, sizes_of(experiment), workloads)


def test_everything_an_experiment_may_name_is_in_the_catalogue() -> None:
    known = catalogue(CHECKOUT)
    assert known.workloads["filemap-thp"] == {
        "default": ("thp", "switch"),
        "v1": ("thp", "switch"),
    }
    assert {"bw", "iops", "refaults_per_io"} <= set(known.metrics)
    assert "configs/series/noop" in known.series
    assert {"smoke", "laptop", "full", "wall", "smoke-numa", "laptop-numa"} == set(known.guests)


def test_shipped_set_ups_have_what_their_workloads_want() -> None:
    for name in known_experiments():
        experiment = load_experiment(Path(name), catalogue=catalogue(CHECKOUT))
        for size in sizes_of(experiment)[0].values():
            require_set_up(experiment, size, load_catalogue())


def test_set_ups_that_lack_something() -> None:
    experiment = filemap()
    (case,) = (case for case in experiment.cases if case.workload == "filemap-4k")
    dirty = case.model_copy(update={"workload": "iomap-dirty"})
    experiment = experiment.model_copy(update={"cases": (case, dirty)})
    with pytest.raises(SpecError) as caught:
        require_set_up(experiment, Size(0, 0, 30, 4), load_catalogue())
    assert caught.value.problems == [
        "case filemap-4k: wants a brd; dataset.brd_mib is not given",
        "case filemap-4k: checks charged, limit_hit, which want a limit; "
        "dataset.cgroup_limit_mib is not given",
        "case iomap-dirty: wants a brd; dataset.brd_mib is not given",
        "case iomap-dirty: 30 MiB of files in this guest cannot be shared by 4 jobs, each with a "
        "file of its own; see dataset.file_mib and the guest's jobs and scale",
    ]


def test_a_metric_is_of_phases_that_do_what_it_measures() -> None:
    """Known to the lab, and not measured of what this phase does."""
    for wrong in ("4k.write_bw", "4k.sync_p50_ns", "4k.read_bw"):
        with pytest.raises(SpecError, match=f"no metric is named '{wrong[3:]}'"):
            load_experiment(
                Path("filemap-v4"),
                overrides=(f"cases.0.primary=['{wrong}']",),
                catalogue=catalogue(CHECKOUT),
            )


def test_kernels_of_the_checks_have_the_modules_of_a_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are built after the session is prepared, and share no module with the measured ones."""
    experiment = load_experiment(
        Path("filemap-v4"), catalogue=catalogue(CHECKOUT),
        overrides=['kernel.additions=["workloads"]', "check={}", "twins=[]"],
    )  # fmt: skip
    vmalloc = experiment.cases[0].model_copy(update={"workload": "vmalloc"})
    experiment = experiment.model_copy(update={"cases": (vmalloc,)})
    plain = _session(1)
    session = dataclasses.replace(plain, experiment=experiment, workloads=load_catalogue())

    def build(*named: object) -> dict[str, Kernel]:
        return {"base": Kernel(tmp_path / "kernel", identity(f"{named[3]}"))}

    monkeypatch.setattr(prepare, "build_arms", build)
    monkeypatch.setattr(prepare, "expect_arms", lambda *_: None)
    options = Options(checkout=CHECKOUT, cache=tmp_path / "cache")
    needed = extras_of(session.workloads["vmalloc"])
    assert needed.modules == ("test_vmalloc",)
    built = prepare.with_kernels(session, options, lambda *_: None, ["lockdep"])
    kernel = built.checked["lockdep"]["base"]
    root = built.root_of(kernel, needed)
    assert root != built.initramfs
    # Measured guests boot what they did, which is on record.
    assert built.roots_sha256 == session.roots_sha256 == plain.initramfs.sha256
    with pytest.raises(KeyError):
        session.root_of(kernel, needed)
    assert session.root_of(kernel, Extras()) == session.initramfs


def running(session: Session, workload: str) -> Session:
    """The session with another workload in its case, and a root with what that needs."""
    workloads = load_catalogue()
    lacks = overlay.lacks(session.measured.kernels["base"], extras_of(workloads[workload]))
    return dataclasses.replace(
        session,
        workloads={**session.workloads, "filemap-4k": workloads[workload]},
        overlaid={lacks: session.initramfs},
    )


def test_guests_that_run_the_hosts_programs_have_their_root_in_a_ramfs() -> None:
    fio = _session(1)
    run = fio.plan.runs[0]
    for plain in (fio, running(fio, "syscalls")):
        assert plain.machine(run).cmdline == ()
    session = running(fio, "sqlite")
    assert session.machine(run).cmdline == ("rootfstype=ramfs",)
    # An arm has the last word.
    arm = session.arm(run.arm).model_copy(update={"cmdline": ("rootfstype=tmpfs",)})
    arms = tuple(arm if each.name == arm.name else each for each in session.experiment.all_arms)
    session = dataclasses.replace(
        session, experiment=session.experiment.model_copy(update={"arms": arms})
    )
    assert session.machine(run).cmdline == ("rootfstype=ramfs", "rootfstype=tmpfs")


def with_kernels_of(folder: Path, modules: dict[str, tuple[str, ...]]) -> Session:
    """A session of two cases, the first of which needs a module; ``modules`` are built, by arm."""
    session = _session(2)
    kernels = {}
    for arm, names in modules.items():
        place = folder / arm
        place.mkdir()
        for name in (*names, "unasked"):
            (place / f"{name}.ko").touch()
        (place / "identity.json").touch()
        if not names:
            (place / "modules.failed").write_text("trees: Makefile:1: no")
        kernels[arm] = Kernel(place, identity(arm))
    workload = session.workloads["filemap-4k"]
    needy = workload.model_copy(update={"name": "needy", "modules": ("loops",)})
    first = session.experiment.cases[0]
    cases = (first.model_copy(update={"workload": "needy"}), first)
    experiment = session.experiment.model_copy(update={"cases": cases})
    return dataclasses.replace(
        session, experiment=experiment, plan=make_plan(experiment),
        workloads={**session.workloads, "needy": needy},
        measured=dataclasses.replace(session.measured, kernels=kernels), twins={},
    )  # fmt: skip


def test_what_does_not_build_with_one_kernel_is_of_that_arm_and_of_the_workload_that_needs_it(
    tmp_path: Path,
) -> None:
    session = with_kernels_of(tmp_path, {"base": ("loops",), "patched": ()})
    judged = [run for run in session.plan.runs if not run.twin and run.block == 0]
    obstacles = {(run.case, run.arm): session.obstacle(run) for run in judged}
    failure = obstacles.pop(("needy", "patched"))
    assert failure is not None
    assert (failure.kind, failure.blame) == ("not built", "series")
    assert failure.message == (
        "modules of needy do not build with this kernel: loops: trees: Makefile:1: no"
    )
    assert set(obstacles.values()) == {None}
    prepare._require_comparable(session)
    # With nothing else to measure that is the end.
    alone = session.experiment.model_copy(update={"cases": session.experiment.cases[:1]})
    with pytest.raises(SeriesError, match="modules of needy do not build"):
        prepare._require_comparable(
            dataclasses.replace(session, experiment=alone, plan=make_plan(alone))
        )


def test_what_the_base_lacks_too_is_not_the_series_doing(tmp_path: Path) -> None:
    session = with_kernels_of(tmp_path, {"base": (), "patched": ()})
    failures = [session.obstacle(run) for run in session.plan.runs if run.case == "needy"]
    assert {failure.blame for failure in failures if failure} == {"workload"}
    prepare._require_comparable(session)
    alone = session.experiment.model_copy(update={"cases": session.experiment.cases[:1]})
    with pytest.raises(WorkloadError, match="modules of needy do not build"):
        prepare._require_comparable(
            dataclasses.replace(session, experiment=alone, plan=make_plan(alone))
        )
