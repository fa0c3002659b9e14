"""Runs that are no data point: each refused for its own reason, and blamed on who has to act."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from experiment.load import load_experiment
from experiment.spec import PhaseTimes, ShapeSpec
from guests import exact, kept
from guests.argv import qemu_argv
from guests.exact import Machine
from kernels.cache import Kernel
from reports.forms import write_all
from reports.headline import outcome
from runs import prepare
from runs.local import Options
from runs.resolved import catalogue, resolve
from tests.conftest import Terminal
from tests.integration.lab_process import CHECKOUT, SMALL, guests_of, records_of
from tests.integration.machines import machine_of, measure_judged
from tests.values import but, silent, there
from tests.waiting import wait_until
from workloads.job import job_text, prepare_text
from workloads.spec import Phase, load_catalogue

pytestmark = pytest.mark.guest


def test_the_mistake_of_the_first_posting_is_refused(
    kernels: dict[str, Kernel], options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Caches not dropped and THP not disabled between the THP test and the 4K test."""
    shipped = load_catalogue()
    claimed = but(shipped["filemap-4k"].phases[0], name="switch")
    workload = shipped["filemap-thp"]
    workload = but(workload, phases=(workload.phases[0], claimed))
    assert claimed.drop_caches
    assert claimed.thp == "never"

    def mistaken(phases: Sequence[Phase], times: Mapping[str, PhaseTimes], **rest: Any) -> str:
        first, second = phases
        second = but(second, drop_caches=False, thp="always")
        return job_text((first, second), times, **rest)

    monkeypatch.setattr(prepare, "job_text", mistaken)
    experiment = load_experiment(
        Path("filemap-v4"),
        overrides=["guest=smoke", "blocks=1", "cases.1.times.smoke.thp.ios=400"],
        catalogue=catalogue(CHECKOUT),
    )
    experiment = but(experiment, cases=experiment.cases[1:], twins=(), check=None)
    made = dataclasses.replace(
        resolve(experiment, checkout=options.checkout, cache=options.cache),
        workloads={"filemap-thp": workload},
    )
    measure_judged(made, options, tmp_path)
    failed = records_of(tmp_path)
    assert len(failed) == 2
    for record in failed.values():
        assert record.samples is None
        failure = there(record.failure)
        assert (failure.kind, failure.blame) == ("invalid", "workload")
        problems = failure.message.split("; ")
        assert "switch: THP state 'always', expected 'never'" in problems
        assert any(s.startswith("switch: caches not dropped: ") for s in problems)
        assert any(s.startswith("switch: huge pages present: ") for s in problems)
        # The phase before is what it says; only the mistake is told.
        assert not any(s.startswith("thp: ") for s in problems)
    comparison = write_all(tmp_path)
    assert outcome(comparison) == 3
    assert all(metric.base is None for metric in comparison.primary)
    listed = (tmp_path / "report.md").read_text()
    assert all(run_id in listed for run_id in failed)
    assert "caches not dropped" in listed


def test_a_patched_kernel_that_panics_is_the_series_fault(
    kernels: dict[str, Kernel], main: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_init(monkeypatch, kernels["patched"])
    folder = tmp_path / "session"
    assert main("run", SMALL, "--session", folder) == 4
    records = records_of(folder)
    assert records["filemap-4k.b00.base"].samples is not None
    for name in ("filemap-4k.b00.patched", "filemap-4k.b00.patched.repeat"):
        failure = there(records[name].failure)
        assert (failure.kind, failure.blame) == ("panic", "series")
        assert "Kernel panic - not syncing" in failure.message
        assert failure.evidence
    shown = " ".join(main.out.split())
    assert "blame series" in shown
    assert "Kernel panic - not syncing" in shown
    wait_until(lambda: not guests_of(folder), "end of the guests")


@pytest.mark.parametrize(
    ("of_guest", "file_mib", "kind", "message"),
    [
        ({"boot_timeout_s": 0.5}, None, "boot", "boot clock"),
        # 63 of 64 MiB: no room for the file beside XFS's log.
        ({}, 63, "failed", "layout: "),
    ],
)
def test_a_guest_that_does_not_come_to_its_job_says_why(
    of_guest: dict[str, float],
    file_mib: int | None,
    kind: str,
    message: str,
    kernels: dict[str, Kernel],
    options: Options,
    tmp_path: Path,
) -> None:
    """Whom such an ending is blamed on is in tests/runs/test_measure.py."""
    workload = load_catalogue()["filemap-4k"]
    machine = machine_of(ShapeSpec(), workload, kernels["patched"], options)
    machine = but(
        machine,
        guest=but(machine.guest, **of_guest),
        prepare_text=prepare_text(workload, file_mib=file_mib or machine.size.file_mib),
    )
    ended = exact.run(machine, "PHASES=0\n", tmp_path / "run", tmp_path / "logs", silent)
    assert ended.files is None
    assert ended.ending.kind == kind
    assert message in ended.ending.message
    # What its box kills takes a moment to end.
    wait_until(lambda: not guests_of(tmp_path), "end of the guest")


def break_init(monkeypatch: pytest.MonkeyPatch, *broken: Kernel) -> None:
    """Let these kernels find no init; they panic as a kernel does that is broken."""
    images = {kernel.image for kernel in broken}

    def argv(*arguments: Any, **rest: Any) -> list[str]:
        made = qemu_argv(*arguments, **rest)
        if arguments[2].kernel in images:
            made[made.index("-append") + 1] += " rdinit=/nonexistent init=/nonexistent"
        return made

    monkeypatch.setattr(exact, "qemu_argv", argv)
    # The machine is the same for whoever keeps boots.
    monkeypatch.setattr(
        kept, "provide", lambda machine, cache, *more: exact.take_snapshot(machine, *more)
    )
    # Nor is what they give held against a kept run of the whole kernel: it has a key of its own.
    run_key = kept.run_key

    def key(machine: Machine, *of: Any, **rest: Any) -> str:
        made = run_key(machine, *of, **rest)
        return f"{'0' * 8}{made[8:]}" if machine.kernel in images else made

    monkeypatch.setattr(kept, "run_key", key)
