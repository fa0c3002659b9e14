"""This host as a machine: what is timed is ordered as hardware is, and the file is of use."""

import subprocess
from pathlib import Path

import pytest

from analysis.counts import Recorded
from analysis.explain.locks import EXPLANATION as MEASURED_LOCKS
from analysis.explain.scaling import EXPLANATION as SCALING
from benchmarks.calibrate.__main__ import calibrate, file_of
from benchmarks.calibrate.machine import KEPT, SOURCE
from errors import InfraError, UsageError
from experiment.load import load_machine
from experiment.machine import MACHINES, MachineSpec
from guests.probe import plugin
from guests.probe.models import machine_words
from host.fitness import host_cpus
from tests.analysis import counts_factory as counts
from tests.analysis.factory import ExactSession
from tests.guests.probe import test_memory as probed
from tests.values import but
from tests.waiting import completed

# A host that is busy at every moment of a try says so.
TRIES = 4


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> MachineSpec:
    folder = tmp_path_factory.mktemp("machines")
    file = file_of("this-host", folder / "this-host.toml", force=False)
    for left in range(TRIES, 0, -1):
        try:
            calibrate("this-host", file, like="ice-lake-sp", cache=folder)
            break
        except InfraError as error:
            if left == 1 or "quiet host" not in str(error):
                raise
    return load_machine(file)


def test_what_is_farther_takes_longer(machine: MachineSpec) -> None:
    cycles, many = machine.cycles, machine.many
    assert many is not None
    assert 0.5 < many.ghz < 8
    # No second level gives its data within two cycles, and no memory within 20 ns.
    assert 2 < cycles.l2 <= cycles.llc <= cycles.memory
    assert cycles.memory / many.ghz > 20
    assert cycles.walk >= 1
    least, most = many.transfer_ns
    assert least <= most
    if len({(cpu.package, cpu.core) for cpu in host_cpus()}) > 1:
        assert least * many.ghz > cycles.l2
        assert "transfers, measured by calibrate" in many.source
    else:
        assert KEPT in many.source


def test_every_number_says_where_it_is_from(machine: MachineSpec) -> None:
    assert "measured by calibrate" in machine.cycles.source
    for cache in (machine.l1d, machine.l1i, machine.l2, machine.llc):
        assert cache.source.startswith(("/sys of ", KEPT))
    assert all(tlb.source.startswith(("CPUID of ", KEPT)) for tlb in machine.tlbs)
    assert machine.prefetch_source.startswith(KEPT)


def test_its_caches_are_modelled(machine: MachineSpec, tmp_path: Path) -> None:
    image = tmp_path / "caches"
    flags = ["-m32", "-nostdlib", "-static", "-Wl,-Ttext=0x100000", "-Wl,--build-id=none"]
    source = Path(probed.__file__).with_name("caches.S")
    subprocess.run(["gcc", *flags, "-o", str(image), str(source)], check=True, timeout=300)
    words = ",".join(machine_words(machine))
    counted = probed.run(image, plugin.provide(tmp_path), tmp_path, words)
    # 96 lines fit any first level.
    assert probed.data(counted, 1)[0] == 96


def test_its_range_is_estimated(machine: MachineSpec) -> None:
    session = ExactSession()
    manifest = but(counts.counted(session.manifest()), machine=machine)
    recorded = Recorded(manifest, session.records(), counts.profiles(session))
    recorded.explained["measured_locks"] = MEASURED_LOCKS.made(recorded)
    scaling = SCALING.made(recorded)
    assert [each.machine for each in scaling] == ["this-host"] * len(scaling)
    assert scaling


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is there already"):
        file_of("ice-lake-sp", None, force=False)
    assert file_of("ice-lake-sp", None, force=True) == MACHINES / "ice-lake-sp.toml"
    assert file_of("mine", None, force=False) == MACHINES / "mine.toml"
    with pytest.raises(UsageError, match=r"a machine's file has its name, mine\.toml"):
        file_of("mine", tmp_path / "other.toml", force=False)
    with pytest.raises(UsageError, match="no such folder"):
        file_of("mine", tmp_path / "none" / "mine.toml", force=False)
    with pytest.raises(UsageError, match="is no name"):
        file_of("My Host", None, force=False)


def test_the_program_compiles_without_a_warning_and_refuses_what_it_does_not_know(
    tmp_path: Path,
) -> None:
    program = tmp_path / "calibrate"
    flags = ["-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-pthread"]
    subprocess.run(["gcc", *flags, "-o", str(program), str(SOURCE)], check=True, timeout=300)
    for words in ([], ["cycle"], ["cycles", "0", "1"], ["pair", "0"]):
        done = completed([program, *words], check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert "no such measurement" in done.stderr
    done = completed([program, "cycle", "99999", "1"], check=False)
    assert "calibrate: CPU: Invalid argument" in done.stderr
