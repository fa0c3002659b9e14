"""Exact guests: what a stop leaves behind, and time-outs by the CPU time that QEMU gets."""

import os
import time
from pathlib import Path
from typing import cast

import pytest

from experiment.load import load_guest
from experiment.plan import Size
from guests import exact, programs
from guests.argv import ExactFiles
from guests.channel import Follower, Monitor
from guests.exact import Machine
from host.process import Process, spawn


def guest_of(process: Process, place: Path) -> exact._ExactGuest:
    """A guest as far as its clocks go; neither its machine nor its monitor is looked at."""
    console = place / "console"
    console.touch()
    return exact._ExactGuest(
        cast(Machine, None),
        cast(ExactFiles, None),
        process,
        cast(Monitor, None),
        time.monotonic(),
        None,
        Follower(console),
    )


def test_a_guest_that_the_host_gives_no_cpu_is_waited_for(tmp_path: Path) -> None:
    with spawn(["sleep", "60"], log=tmp_path / "log", env=dict(os.environ)) as process:
        guest = guest_of(process, tmp_path)
        before_s = time.monotonic()
        began = guest.moment()
        time.sleep(0.5)
        waited_s = guest.waited_s(began)
        passed_s = time.monotonic() - before_s
    assert 0.5 / exact.BUSIEST_HOST <= waited_s < passed_s


def test_a_guest_that_computes_is_waited_for_by_what_it_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However long that takes here.
    monkeypatch.setattr(exact, "BUSIEST_HOST", 1e9)
    loop = ["sh", "-c", "while :; do :; done"]
    with spawn(loop, log=tmp_path / "log", env=dict(os.environ)) as process:
        guest = guest_of(process, tmp_path)
        began = guest.moment()
        while (waited_s := guest.waited_s(began)) < 0.2:
            time.sleep(0.02)
        used_s = guest.cpu_s()
    assert 0.2 <= waited_s <= used_s


@pytest.mark.parametrize("restored", [False, True])
def test_a_guest_forgets_pages_after_its_stop_as_a_restored_one_does(
    restored: bool, images: Path, tmp_path: Path
) -> None:
    """A boot makes the software TLB larger, and a larger one never forgot this page."""
    initramfs = tmp_path / "initramfs"
    initramfs.touch()
    guest = load_guest(Path("configs/guests/smoke.toml"))
    machine = Machine(
        images / "forgets",
        initramfs,
        guest,
        Size(jobs=1, brd_mib=1, file_mib=1, cgroup_limit_mib=1),
        "",
        programs.build(programs.PRELOAD, programs.SHARED_LIBRARY, tmp_path),
    )
    logs, quiet = tmp_path / "logs", lambda _: None
    booted = exact.take_snapshot(machine, tmp_path / "kept", logs, quiet) if restored else machine
    exact.run(booted, "", tmp_path / "run", logs / "run", quiet)
    assert (logs / "run" / "result").read_bytes() == b"\1"
