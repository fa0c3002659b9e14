from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from experiment.architecture import ARCHITECTURES, Arch
from experiment.spec import Experiment, KernelSpec

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
    [
        ({"page_kib": 64}, "page_kib: 64 found; x86_64 has pages of 4"),
        ({"arch": "arm64", "page_kib": 8}, "page_kib: 8 found; arm64 has pages of 4, 16, 64"),
        (
            {"arch": "arm64", "source": "deb:linux-image-6.12.117+deb12-cloud-arm64"},
            "arch: arm64 found; a prebuilt kernel is one for x86_64",
        ),
        ({"arch": "riscv"}, "Input should be 'x86_64' or 'arm64'"),
    ],
    ids=["pages-of-x86", "pages-of-arm64", "prebuilt", "unknown"],
)
def test_what_no_kernel_can_be(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        KernelSpec.model_validate({"source": "deb:linux-source-6.12", **given})
    assert words in str(caught.value)


def test_arms_may_differ_in_their_pages() -> None:
    arms = (
        {"name": "4k", "kernel": KERNEL},
        {"name": "64k", "kernel": {**KERNEL, "page_kib": 64}},
    )
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
