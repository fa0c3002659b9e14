"""The gate as an experiment asks for it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from experiment.spec import CheckSpec


def test_a_gate_asks_for_both_kernels_by_default() -> None:
    spec = CheckSpec()
    assert spec.flavours == ("lockdep", "selftest")
    assert spec.vcpus == (1, 4)
    assert spec.selftests == ("xarray",)


def test_without_self_tests_their_kernel_is_not_built() -> None:
    assert CheckSpec(selftests=()).flavours == ("lockdep",)


def test_one_flavour_for_both_is_built_once() -> None:
    assert CheckSpec(selftest_flavour="lockdep").flavours == ("lockdep",)


@pytest.mark.parametrize("vcpus", [(0,), (65,)])
def test_vcpus_that_no_guest_has_are_refused(vcpus: tuple[int, ...]) -> None:
    with pytest.raises(ValidationError):
        CheckSpec(vcpus=vcpus)


def test_an_unknown_self_test_is_refused() -> None:
    with pytest.raises(ValidationError, match="xarray"):
        CheckSpec(selftests=("xaray",))  # type: ignore[arg-type]


def test_a_gate_that_would_check_nothing_is_refused() -> None:
    assert CheckSpec(vcpus=()).flavours == ("selftest",)
    with pytest.raises(ValidationError, match="nothing would be checked"):
        CheckSpec(vcpus=(), selftests=())
