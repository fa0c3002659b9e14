"""Boots that are kept: by all that they depend on, as they were, or not at all."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiment.load import load_guest
from experiment.plan import Size
from guests import exact, kept
from guests.exact import Machine, Snapshot
from guests.probe.plugin import Probe
from tests.values import but, silent

CHECKOUT = Path(__file__).parents[2]
MIB = 1 << 20
GUEST = but(load_guest(CHECKOUT / "configs/guests/smoke.toml"), memory_mib=8)
SIZE = Size(file_mib=2, brd_mib=4, cgroup_limit_mib=1, jobs=1)
# Bytes, zeros between them that begin and end within a chunk, and a page at the end.
PARTS = (b"kernel" * 5000, bytes(3 * MIB), os.urandom(70_000))
MEMORY = b"".join(PARTS).ljust(8 * MIB - 4096, b"\0") + b"\xff" * 4096


class KeptBoots:
    """Stands in for QEMU: each boot leaves MEMORY, and is counted."""

    def __init__(self) -> None:
        self.count = 0

    def take_snapshot(
        self, machine: Machine, folder: Path, logs: Path, watch: Callable[[str], None]
    ) -> Snapshot:
        self.count += 1
        place = folder / "boot-1"
        place.mkdir(parents=True)
        logs.mkdir(parents=True)
        (logs / "console.log").write_text(f"boot {self.count}\n")
        (place / "state").write_bytes(b"devices")
        handle = os.memfd_create("test")
        os.pwrite(handle, MEMORY, 0)
        held = os.fdopen(handle, "rb")
        return Snapshot(machine, place / "memory", place / "state", 4.0, (held,))


@pytest.fixture
def boots(monkeypatch: pytest.MonkeyPatch) -> KeptBoots:
    boots = KeptBoots()
    monkeypatch.setattr(exact, "take_snapshot", boots.take_snapshot)
    monkeypatch.setattr(exact, "memory_available_mib", lambda: 1 << 20)
    return boots


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    for name in ("kernel", "initramfs", "preload"):
        (tmp_path / name).write_text(name)
    return Machine(
        tmp_path / "kernel", tmp_path / "initramfs", GUEST, SIZE, "prepare", tmp_path / "preload"
    )


def provide(machine: Machine, tmp_path: Path, name: str) -> Snapshot:
    return kept.provide(
        machine, tmp_path / "cache", tmp_path / name, tmp_path / f"{name}-l", silent
    )


def test_a_machine_is_booted_once(machine: Machine, tmp_path: Path, boots: KeptBoots) -> None:
    first, second = (provide(machine, tmp_path, name) for name in ("first", "second"))
    assert boots.count == 1
    assert (first.cpu_s, second.cpu_s) == (4.0, 0.0)
    (memory,) = second.held
    assert os.pread(memory.fileno(), 9 * MIB, 0) == MEMORY
    # What was zero takes no room of the host's memory.
    assert os.fstat(memory.fileno()).st_blocks * 512 < len(MEMORY) / 4
    assert second.state.read_bytes() == b"devices"
    assert (tmp_path / "second-l/console.log").read_text() == "boot 1\n"
    second.drop()
    assert not (tmp_path / "second").exists()


@pytest.fixture
def others(machine: Machine, tmp_path: Path) -> list[Machine]:
    """Machines that each differ from this one in one thing."""
    (other := tmp_path / "other").write_text("other")
    changes: tuple[dict[str, Any], ...] = (
        *({name: other} for name in ("kernel", "initramfs", "preload")),
        {"guest": but(GUEST, vcpus=2)},
        {"guest": but(GUEST, metronome_ns=20_000)},
        {"guest": but(GUEST, boot_timeout_s=0.5)},
        {"guest": but(GUEST, run_timeout_s=0.5)},
        {"size": replace(SIZE, brd_mib=5)},
        {"prepare_text": "another"},
        {"cmdline": ("word",)},
    )
    return [replace(machine, **change) for change in changes]


def test_all_that_a_boot_depends_on_is_in_its_name(
    machine: Machine, others: list[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [kept.key_of(each) for each in (machine, *others)]
    monkeypatch.setattr(kept, "emulator", lambda path: {"QEMU binary": "another"})
    known.append(kept.key_of(machine))
    assert len(set(known)) == len(known)


@pytest.mark.parametrize("damage", ["memory-0", "state", "sha256.json", "short"])
def test_an_entry_that_was_changed_is_booted_again(
    machine: Machine, tmp_path: Path, boots: KeptBoots, damage: str
) -> None:
    provide(machine, tmp_path, "first")
    (entry,) = kept.kept_folder(tmp_path / "cache").iterdir()
    path = entry / ("memory-0" if damage == "short" else damage)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if damage == "short" else whole + b"x")
    provide(machine, tmp_path, "second")
    assert boots.count == 2
    # The second boot has mended it.
    provide(machine, tmp_path, "third")
    assert boots.count == 2


def test_a_large_machine_is_not_kept(machine: Machine, tmp_path: Path, boots: KeptBoots) -> None:
    memory_mib = kept.MOST_MEMORY_MIB + 1
    large = replace(machine, guest=but(GUEST, memory_mib=memory_mib))
    provide(large, tmp_path, "first")
    assert not kept.kept_folder(tmp_path / "cache").exists()


def test_a_host_without_room_in_memory_boots(
    machine: Machine, tmp_path: Path, boots: KeptBoots, monkeypatch: pytest.MonkeyPatch
) -> None:
    provide(machine, tmp_path, "first")
    monkeypatch.setattr(exact, "memory_available_mib", lambda: 0)
    provide(machine, tmp_path, "second")
    assert boots.count == 2


def test_the_entries_used_last_stay(
    machine: Machine, tmp_path: Path, boots: KeptBoots, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = [replace(machine, cmdline=(word,)) for word in ("one", "two", "three")]
    folder = kept.kept_folder(tmp_path / "cache")
    for number, each in enumerate(machines[:2]):
        provide(each, tmp_path, f"boot-{number}")
        os.utime(folder / kept.key_of(each), (number, number))
    provide(machines[0], tmp_path, "used")
    size = sum(
        path.stat().st_size
        for path in (folder / kept.key_of(machine)).parent.rglob("*")
        if path.is_file()
    )
    monkeypatch.setattr(kept, "MOST_BYTES", size + 100)
    provide(machines[2], tmp_path, "third")
    left = {path.name for path in folder.iterdir()}
    assert left == {kept.key_of(each) for each in (machines[0], machines[2])}


def test_a_full_disk_costs_the_entry_alone(
    machine: Machine, tmp_path: Path, boots: KeptBoots, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(memory: object, path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept, "_pack", full)
    assert provide(machine, tmp_path, "first").cpu_s == 4.0
    assert list(kept.kept_folder(tmp_path / "cache").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_no_failure(
    machine: Machine, tmp_path: Path, boots: KeptBoots
) -> None:
    (tmp_path / "cache").write_text("no folder")
    assert provide(machine, tmp_path, "first").cpu_s == 4.0


def test_all_that_an_exact_run_depends_on_is_in_its_name(
    machine: Machine, others: list[Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("plugin", "map"):
        (tmp_path / name).write_text(name)
    probe = Probe(tmp_path / "plugin", "0", 2, "10.0", functions=tmp_path / "map")
    run: dict[str, Any] = {"machine": machine, "job_text": "job 7", "probe": probe}
    run |= {"cold": False, "console_bytes": 100}
    other = tmp_path / "other"
    known = [kept.run_key(**run)]
    assert kept.run_key(**run) == known[0]
    probes: tuple[dict[str, Any], ...] = (
        {"path": other},
        {"functions": other},
        {"functions": None},
        {"window": 5},
        {"spans": ((1, 2),)},
        {"locks": (("take", 1, 2),)},
        {"model": ("l1=32",)},
        {"stacks": ("stack=1",)},
    )
    changes: tuple[dict[str, Any], ...] = (
        *({"machine": each} for each in others),
        *({"probe": replace(probe, **each)} for each in probes),
        {"probe": None},
        {"job_text": "job 8"},
        {"cold": True},
        {"console_bytes": 101},
    )
    known += [kept.run_key(**{**run, **change}) for change in changes]
    mine = dict(kept.emulator(kept._program(GUEST)))
    for part in mine:
        with monkeypatch.context() as changed:
            changed.setattr(kept, "emulator", lambda path, part=part: {**mine, part: "another"})
            known.append(kept.run_key(**run))
    # Whatever word is added to the command line or the environment of QEMU.
    for name, made in (("qemu_argv", ["qemu", "-new"]), ("environment", {"NEW": "1"})):
        with monkeypatch.context() as changed:
            changed.setattr(kept, name, lambda *_, made=made, **__: made)
            known.append(kept.run_key(**run))
    with monkeypatch.context() as changed:
        changed.setattr("platform.machine", lambda: "another")
        known.append(kept.run_key(**run))
    assert len(set(known)) == len(known)


def test_where_files_lie_is_not_in_a_name(machine: Machine, tmp_path: Path) -> None:
    names = []
    for place in ("here", "there"):
        folder = tmp_path / place
        folder.mkdir()
        files = {name: folder / name for name in ("kernel", "plugin", "map")}
        for name, path in files.items():
            path.write_text(name)
        probe = Probe(files["plugin"], "0", 2, "10.0", functions=files["map"])
        there = replace(machine, kernel=files["kernel"])
        assert kept.key_of(there) == kept.key_of(machine)
        names.append(kept.run_key(there, "job", probe, cold=True, console_bytes=1))
    assert len(set(names)) == 1
