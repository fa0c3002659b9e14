"""A kernel that is a process of this host: built, and booted in its box."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiment.spec import KernelSpec
from guests import uml
from host.topology import host_cpus, place
from kernels import build
from runs.local import Options
from tests.integration.conftest import SOURCE

pytestmark = [pytest.mark.guest, pytest.mark.long]


def test_every_phase_is_timed_and_a_boot_repeats_it(options: Options, tmp_path: Path) -> None:
    spec = KernelSpec(source=SOURCE, flavour="um", mode="native")
    kernel = build.provide(options.kernel(spec, ()))
    archive = uml.root(tmp_path, options.cache)
    placement = place(host_cpus(), vcpus=1)
    phases = sorted({phase for of in uml.PHASES_OF.values() for phase in of})
    results = []
    for number in range(2):
        result, ending, text = uml.boot(
            kernel.image,
            archive,
            tmp_path / str(number),
            phases,
            placement.vcpus[0] if placement else None,
        )
        assert result is not None, f"{ending}\n{text}"
        assert set(result.phases) == {uml.CROSSING, *phases}
        results.append(result)
    for name in set(phases) - {"refault"}:
        first, second = (sorted(each.phases[name].ticks)[100] for each in results)
        assert first == pytest.approx(second, rel=0.2), name
    assert results[0].hertz == pytest.approx(results[1].hertz, rel=0.001)
