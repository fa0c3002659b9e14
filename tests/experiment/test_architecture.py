from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from errors import SpecError
from experiment.architecture import ARCHITECTURES, Arch
from experiment.load import load_machine
from experiment.machine import MACHINES, names_in
from experiment.spec import Experiment, KernelSpec
from guests.probe.plugin import machine_words
from tests.values import data, spaced

CHECKOUT = Path(__file__).parents[2]
KERNEL: dict[str, Any] = {"source": "deb:linux-source-6.12", "arch": "arm64"}
EXPERIMENT: dict[str, Any] = {
    "name": "asked",
    "title": "",
    "kernel": KERNEL,
    "series": {"path": "configs/series/noop"},
    "dataset": {"cgroup_limit_mib": 64, "brd_mib": 128, "file_mib": 104, "jobs": 4},
    "cases": [{"workload": "filemap-4k", "times": {}}],
}


def experiment_with(**changes: object) -> Experiment:
    return Experiment.model_validate({**EXPERIMENT, **changes}, strict=False)


def test_every_name_has_an_entry_and_what_it_refers_to_is_there() -> None:
    assert set(ARCHITECTURES) == set(get_args(Arch))
    for name, known in ARCHITECTURES.items():
        assert known.name == name
        folder = CHECKOUT / "configs" / "kconfig" / known.build.fragments
        if known.build.fragments:
            fragments = {"arch.config", *(f"pages-{size}k.config" for size in known.build.page_kib)}
            assert {path.name for path in folder.iterdir()} == fragments
        assert (CHECKOUT / "workloads" / (known.root.agent or "agent.sh")).is_file()


def test_a_kernel_is_for_x86_64_unless_it_says_so() -> None:
    kernel = KernelSpec(source="deb:linux-source-6.12")
    assert (kernel.arch, kernel.page_kib, kernel.built_for) == ("x86_64", 4, "")
    large = KernelSpec(source="deb:linux-source-6.12", arch="arm64", page_kib=64)
    assert large.built_for == "arm64 with pages of 64 KiB"


@pytest.mark.parametrize(
    ("given", "words"),
    data(__file__, "what_no_kernel_can_be"),
    ids=["pages-of-x86", "pages-of-arm64", "prebuilt", "unknown"],
)
def test_what_no_kernel_can_be(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        KernelSpec.model_validate({"source": "deb:linux-source-6.12", **given})
    assert words in str(caught.value)


def test_arms_may_differ_in_their_pages() -> None:
    arms = ({"name": "4k", "kernel": KERNEL}, {"name": "64k", "kernel": {**KERNEL, "page_kib": 64}})
    kernels = [arm.kernel for arm in experiment_with(series=None, arms=arms).all_arms]
    assert [kernel.page_kib for kernel in kernels if kernel] == [4, 64]


OTHER = ({"name": "one"}, {"name": "two", "kernel": {"source": "deb:linux-source-6.12"}})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"series": None, "arms": OTHER}, "arms: two: its kernel is for x86_64, the experiment's"),
        ({"mode": "wall"}, "mode: wall has guests of x86_64 only"),
    ],
    ids=["two-architectures", "wall"],
)
def test_what_arm64_does_not_have_is_refused_and_fine_without_it(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        experiment_with(**changes)
    assert words in str(caught.value)
    fine = {**changes, "kernel": {"source": "deb:linux-source-6.12"}}
    assert experiment_with(**fine).kernel.arch == "x86_64"


def changed(tmp_path: Path, before: str, after: str) -> Path:
    text = (MACHINES / "ice-lake-sp.toml").read_text()
    assert before in text
    file = tmp_path / "ice-lake-sp.toml"
    file.write_text(text.replace(before, after, 1))
    return file


# Not what somebody wrote beside them.
SHIPPED = ("ice-lake-sp", "neoverse-n1", "zen3-epyc")


@pytest.mark.parametrize("name", SHIPPED)
def test_each_that_ships_is_whole_and_has_its_sources(name: str) -> None:
    assert name in names_in(MACHINES)
    machine = load_machine(Path(name))
    assert machine.name == name
    caches = (machine.l1d, machine.l1i, machine.l2, machine.llc)
    assert all(cache.source for cache in caches)
    assert all(tlb.source for tlb in machine.tlbs)
    assert machine.cycles.source
    assert machine.l1d.kib < machine.l2.kib < machine.llc.kib
    assert machine.llc.cores > 1
    assert machine.prefetch_source
    assert machine.many is not None
    assert machine.many.source
    # Without waits for memory no cycle has fewer instructions than with them.
    with_waits, without = (
        machine.many.instructions_per_cycle,
        machine.many.instructions_per_cycle_in_caches,
    )
    assert without is not None
    assert with_waits[0] < without[0] <= without[1] == with_waits[1]


def test_a_core_has_its_share_of_a_shared_cache() -> None:
    machine = load_machine(Path("ice-lake-sp"))
    assert machine.llc.sets * machine.llc.ways * 64 == 1536 * 1024
    assert machine_words(machine) == spaced(
        "cache=l1d:64:12 cache=l1i:64:8 cache=l2:1024:20 cache=llc:2048:12 tlb=d1:1:16:4 "
        "tlb=d1:2:8:4 tlb=d1:4:1:8 tlb=i1:1:16:8 tlb=i1:2:1:16 tlb=s2:7:128:16 "
        "prefetch=20"
    )


@pytest.mark.parametrize(("before", "after", "message"), data(__file__, "mistakes_are_named"))
def test_mistakes_are_named(tmp_path: Path, before: str, after: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_machine(changed(tmp_path, before, after))
    assert message in str(caught.value)
    assert "ice-lake-sp.toml" in str(caught.value)
