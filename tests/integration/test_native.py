"""A kernel that is a process of this host: built, and booted in its box."""

import shutil
from pathlib import Path

import pytest

from analysis import statistics
from analysis.native import value
from experiment.spec import KernelSpec
from guests import uml
from host.fitness import host_cpus, place
from kernels import build
from results.native import CROSSING
from runs.local import Options
from runs.native import LOOPS
from tests.integration.conftest import SOURCE

PAIRS = 10

pytestmark = [pytest.mark.guest, pytest.mark.long]


def test_the_same_bytes_in_two_files_agree(options: Options, tmp_path: Path) -> None:
    """A file that stays cached keeps its luck with sets of the cache; each boot has a new one."""
    spec = KernelSpec(source=SOURCE, flavour="um", mode="native", additions=(LOOPS,))
    kernel = build.provide(options.kernel(spec, ()))
    archive = uml.root(tmp_path, options.cache, kernel.modules)
    placement = place(host_cpus(), vcpus=1)
    cpu = placement.vcpus[0] if placement else None
    files = [tmp_path / "first", tmp_path / "second"]
    for file in files:
        shutil.copyfile(kernel.orders[0], file)
    values: list[list[float]] = [[], []]
    for number in range(PAIRS):
        for at in (0, 1) if number % 2 else (1, 0):
            folder = tmp_path / f"{number}-{at}"
            result, ending, text = uml.boot(files[at], archive, folder, ["readahead"], cpu)
            assert result is not None, f"{ending}\n{text}"
            values[at].append(value(result.phases["readahead"].ticks))
    differences = statistics.log_ratios(*values)
    assert statistics.hodges_lehmann(differences) == pytest.approx(0, abs=0.01)


def test_every_phase_is_timed_and_a_boot_repeats_it(options: Options, tmp_path: Path) -> None:
    spec = KernelSpec(source=SOURCE, flavour="um", mode="native", additions=(LOOPS,))
    kernel = build.provide(options.kernel(spec, ()))
    archive = uml.root(tmp_path, options.cache, kernel.modules)
    placement = place(host_cpus(), vcpus=1)
    phases = sorted({phase for of in uml.PHASES_OF.values() for phase in of})
    results = []
    # Where a boot's memory lies makes some of them slow: the two quickest of a phase agree.
    for number in range(5):
        result, ending, text = uml.boot(
            kernel.orders[number],
            archive,
            tmp_path / str(number),
            phases,
            placement.vcpus[0] if placement else None,
        )
        assert result is not None, f"{ending}\n{text}"
        assert set(result.phases) == {CROSSING, *phases}
        results.append(result)
    for name in set(phases) - {"refault"}:
        first, second, *_ = sorted(value(each.phases[name].ticks) for each in results)
        assert first == pytest.approx(second, rel=0.2), name
    assert results[0].hertz == pytest.approx(results[1].hertz, rel=0.001)
