"""One key for the kernels of an experiment: exact, and the same whoever asks."""

from __future__ import annotations

import pytest

from runs.arms import cache_key

KEYS = {("perf", "base"): "a" * 32, ("perf", "patched"): "b" * 32}


def test_the_same_kernels_have_the_same_key_under_any_name() -> None:
    renamed = {("perf", "one"): "b" * 32, ("perf", "two"): "a" * 32, ("x", "y"): "a" * 32}
    assert cache_key(renamed) == cache_key(KEYS)


@pytest.mark.parametrize("other", [{}, {("perf", "base"): "a" * 32}, {**KEYS, ("l", "b"): "c"}])
def test_any_other_kernel_is_another_key(other: dict[tuple[str, str], str]) -> None:
    assert cache_key(other) != cache_key(KEYS)
