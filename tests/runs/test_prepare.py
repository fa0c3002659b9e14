"""What a session is measured with: its kernels, its guests' roots, and what does not build."""

import dataclasses
from pathlib import Path

import pytest

from errors import InfraError, SeriesError, WorkloadError
from experiment.spec import Experiment
from guests import initramfs, programs
from kernels.cache import Kernel
from runs import prepare
from runs.local import Options
from runs.prepare import Prepared, boot_of, obstacle
from tests.runs.made_up import CHECKOUT, SMALL, prepared, resolved, shipped
from tests.values import but, identity
from workloads.spec import Extras, extras_of


def of_workload(workload: str, experiment: Experiment | None = None) -> Experiment:
    experiment = experiment or shipped(SMALL)
    case = but(experiment.cases[0], workload=workload)
    return but(experiment, cases=(case,))


def test_kernels_of_the_checks_have_the_modules_of_a_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are built after the session is prepared, and share no module with the measured ones."""
    file = shipped("filemap-v4", 'kernel.additions=["workloads"]', "check={}", "twins=[]")
    session = prepared(of_workload("vmalloc", file))

    def build(*named: object) -> dict[str, Kernel]:
        return {"base": Kernel(tmp_path / "kernel", identity(f"{named[3]}"))}

    monkeypatch.setattr(prepare, "build_arms", build)
    options = Options(checkout=CHECKOUT, cache=tmp_path / "cache")
    needed = extras_of(session.resolved.workloads["vmalloc"])
    assert needed.modules == ("test_vmalloc",)
    built = prepare.with_kernels(session, options, lambda *_: None, ["lockdep"])
    kernel = built.kernels["lockdep"]["base"]
    root = built.root_of(kernel, needed)
    assert root != built.initramfs
    # Measured guests boot what they did, which is on record.
    assert built.roots_sha256 == session.roots_sha256 == session.initramfs.sha256
    with pytest.raises(KeyError):
        session.root_of(kernel, needed)
    assert session.root_of(kernel, Extras()) == session.initramfs


def test_all_missing_programs_of_a_session_are_named_at_once_and_before_a_kernel_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def built(*_: object) -> None:
        raise AssertionError("nothing is to be built")

    monkeypatch.setattr(prepare, "build_arms", built)
    monkeypatch.setattr(programs, "locate", lambda name: None)
    root = tmp_path / "root.cpio"
    root.write_bytes(b"")
    session = of_workload("sqlite", shipped(SMALL, "twins=[]"))
    cases = [but(session.cases[0], workload=name, name=name) for name in ("compile", "sqlite")]
    several = resolved(but(session, cases=tuple(cases)))
    options = Options(CHECKOUT, tmp_path / "cache", root=root)
    with pytest.raises(InfraError, match="not installed: tcc, sqlite3") as failure:
        prepare.prepare(several, options, lambda *_: None)
    assert failure.value.next_step.endswith(" sqlite3 tcc, or leave out the workload")


def running(workload: str, *words: str) -> Prepared:
    """A session of a workload, with a root that has what it needs; an arm has own ``words``."""
    experiment = of_workload(workload)
    arms = tuple(but(arm, cmdline=words) for arm in experiment.all_arms)
    session = prepared(but(experiment, arms=arms))
    extras = extras_of(session.resolved.workloads[workload])
    lacks = initramfs.lacks(session.measured["base"], extras)
    return dataclasses.replace(session, overlaid={lacks: session.initramfs})


@pytest.mark.parametrize(
    ("workload", "of_arms", "words"),
    [
        ("filemap-4k", (), ()),
        ("syscalls", (), ()),
        ("sqlite", (), ("rootfstype=ramfs",)),
        # An arm has the last word.
        ("sqlite", ("rootfstype=tmpfs",), ("rootfstype=ramfs", "rootfstype=tmpfs")),
    ],
)
def test_guests_that_run_the_hosts_programs_have_their_root_in_a_ramfs(
    workload: str, of_arms: tuple[str, ...], words: tuple[str, ...]
) -> None:
    session = running(workload, *of_arms)
    assert boot_of(session, session.plan.runs[0], cold=False).machine.cmdline == words


def with_kernels_of(folder: Path, modules: dict[str, tuple[str, ...]], cases: int = 2) -> Prepared:
    """A session of two cases, the first of which needs a module; ``modules`` are built, by arm."""
    kernels = {}
    for arm, names in modules.items():
        place = folder / arm
        place.mkdir(exist_ok=True)
        for name in (*names, "unasked"):
            (place / f"{name}.ko").touch()
        (place / "identity.json").touch()
        if not names:
            (place / "modules.failed").write_text("trees: Makefile:1: no")
        kernels[arm] = Kernel(place, identity(arm))
    experiment = shipped(SMALL, "blocks=2")
    (case,) = experiment.cases
    both = (but(case, workload="trees"), case)[:cases]
    made = resolved(but(experiment, cases=both))
    needy = but(made.workloads["trees"], modules=("loops",))
    made = dataclasses.replace(made, workloads={**made.workloads, "trees": needy})
    return prepared(made.experiment, resolved=made, kernels_by_flavour={"perf": kernels})


def test_what_does_not_build_with_one_kernel_is_of_that_arm_and_of_the_workload_that_needs_it(
    tmp_path: Path,
) -> None:
    modules: dict[str, tuple[str, ...]] = {"base": ("loops",), "patched": ()}
    session = with_kernels_of(tmp_path, modules)
    judged = [run for run in session.plan.runs if not run.twin and run.block == 0]
    obstacles = {(run.case, run.arm): obstacle(session, run) for run in judged}
    failure = obstacles.pop(("trees", "patched"))
    assert failure is not None
    assert (failure.kind, failure.blame) == ("not built", "series")
    assert failure.message == (
        "modules of trees do not build with this kernel: loops: trees: Makefile:1: no"
    )
    assert set(obstacles.values()) == {None}
    prepare._require_comparable(session)
    # With nothing else to measure that is the end.
    with pytest.raises(SeriesError, match="modules of trees do not build"):
        prepare._require_comparable(with_kernels_of(tmp_path, modules, cases=1))


def test_what_the_base_lacks_too_is_not_the_series_doing(tmp_path: Path) -> None:
    modules: dict[str, tuple[str, ...]] = {"base": (), "patched": ()}
    session = with_kernels_of(tmp_path, modules)
    failures = [obstacle(session, run) for run in session.plan.runs if run.case == "trees"]
    assert {failure.blame for failure in failures if failure} == {"workload"}
    prepare._require_comparable(session)
    with pytest.raises(WorkloadError, match="modules of trees do not build"):
        prepare._require_comparable(with_kernels_of(tmp_path, modules, cases=1))
