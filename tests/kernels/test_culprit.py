from __future__ import annotations

import itertools
import math

import pytest

from kernels.blame import first_failing


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16])
def test_the_first_failing_of_any_series_in_few_attempts(count: int) -> None:
    for culprit in range(count + 1):
        tried: list[int] = []

        def builds(number: int, culprit: int = culprit, tried: list[int] = tried) -> bool:
            tried.append(number)
            return number < culprit

        assert first_failing(count, builds) == culprit
        assert len(tried) == len(set(tried)) <= 2 * math.ceil(math.log2(count + 1))
        assert count not in tried, "that the whole series fails is known"


def test_the_answer_holds_for_every_order_of_good_and_bad() -> None:
    """Patches may break what earlier ones mended: n - 1 builds, n does not."""
    for states in itertools.product([True, False], repeat=6):
        builds = (*states, False)
        number = first_failing(6, builds.__getitem__)
        assert not builds[number]
        assert number == 0 or builds[number - 1]


def test_what_was_mended_is_not_blamed() -> None:
    builds = (True, True, False, True, True, False)
    assert first_failing(5, builds.__getitem__) == 5
