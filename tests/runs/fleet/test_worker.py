"""Snapshots that a worker keeps: booted once, shared, bounded, gone at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from experiment.load import load_guest
from experiment.plan import Size
from guests import exact
from guests.channel import Ending
from guests.exact import BootError, Machine, Snapshot
from runs import local
from runs.fleet.worker import Site
from runs.local import InterruptedRunError

GUEST = load_guest(Path("smoke")).model_copy(update={"memory_mib": 1})
MACHINE = Machine(Path("k"), Path("i"), GUEST, Size(32, 64, 52, 4), "", Path("p"))


class Boots:
    """Stands in for ``exact.take_snapshot``; ``errors`` are raised first."""

    def __init__(self) -> None:
        self.taken = 0
        self.errors: list[Exception] = []
        self.hold = threading.Event()
        self.hold.set()

    def take_snapshot(
        self, machine: Machine, folder: Path, logs: Path, watch: Callable[[str], None]
    ) -> Snapshot:
        self.hold.wait(10)
        self.taken += 1
        if self.errors:
            raise self.errors.pop(0)
        boot = folder / "boot-1"
        boot.mkdir(parents=True)
        logs.mkdir()
        (boot / "memory").write_bytes(b"x")
        return Snapshot(machine, boot / "memory", boot / "state", 1.0)


@pytest.fixture
def boots(monkeypatch: pytest.MonkeyPatch) -> Boots:
    made = Boots()
    monkeypatch.setattr(exact, "take_snapshot", made.take_snapshot)
    monkeypatch.setattr(local, "RESERVE_BYTES", 0)
    return made


def ready(word: str) -> None:
    pass


def test_a_machine_is_booted_once_for_all_that_need_it(boots: Boots, tmp_path: Path) -> None:
    site = Site(tmp_path)
    boots.hold.clear()
    memories: list[Path] = []
    logs: list[Path | None] = []

    def use() -> None:
        with site.snapshot(MACHINE, ready) as (snapshot, made):
            memories.append(snapshot.memory)
            logs.append(made)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    boots.hold.set()
    for thread in threads:
        thread.join()
    assert boots.taken == 1
    assert len(set(memories)) == 1
    assert len(memories) == 4
    # One of them has its logs to hand on.
    assert len([each for each in logs if each is not None]) == 1


def test_what_was_not_used_for_longest_goes_first_and_nothing_in_use(
    boots: Boots, tmp_path: Path
) -> None:
    site = Site(tmp_path, most=2)

    def memory_of(key: str) -> Path:
        with site.snapshot(replace(MACHINE, prepare_text=key), ready) as (snapshot, _):
            return snapshot.memory

    with site.snapshot(MACHINE, ready) as (held, _):
        first, second = memory_of("one"), memory_of("two")
        assert held.memory.exists()
        assert not first.exists()
        assert second.exists()
    assert boots.taken == 3
    memory_of("one")
    assert boots.taken == 4
    site.close()
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_kernel_that_does_not_boot_is_not_booted_again_but_a_lost_guest_is(
    boots: Boots, tmp_path: Path
) -> None:
    site = Site(tmp_path)
    boots.errors = [BootError(Ending("lost", "told")), BootError(Ending("panic", "told"))]
    for _ in range(3):
        with pytest.raises(BootError), site.snapshot(MACHINE, ready):
            pass
    assert boots.taken == 2


def test_one_that_is_not_waited_for_leaves_the_boot_to_the_next(
    boots: Boots, tmp_path: Path
) -> None:
    site = Site(tmp_path)
    boots.errors = [InterruptedRunError()]
    boots.hold.clear()
    ended: list[str] = []

    def use(name: str) -> None:
        try:
            with site.snapshot(MACHINE, ready):
                ended.append(f"{name} ran")
        except InterruptedRunError:
            ended.append(f"{name} stopped")

    first = threading.Thread(target=use, args=("first",))
    first.start()
    second = threading.Thread(target=use, args=("second",))
    second.start()
    boots.hold.set()
    first.join()
    second.join()
    assert sorted(word.split()[1] for word in ended) == ["ran", "stopped"]
