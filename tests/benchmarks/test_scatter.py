"""The tables of how far paths scatter, of values whose spread is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks.scatter import between_seeds, in_pairs


def values(*columns: list[float]) -> pd.DataFrame:
    return pd.DataFrame(dict(zip(("base", "patched"), columns, strict=False)))


def test_the_base_arm_between_its_seeds() -> None:
    base = [1990.0, 2000.0, 2010.0]
    assert between_seeds(values(base, [1.0, 2.0, 3.0])) == "2,000 ± 0.50"


@pytest.mark.parametrize(
    ("apart", "spread"), [([1.5] * 3, "0.00"), (list(np.exp([0.0, 0.01, 0.02])), "1.00")]
)
def test_what_seeds_have_in_common_is_not_in_pairs(apart: list[float], spread: str) -> None:
    base = [1000.0, 5000.0, 300.0]
    assert in_pairs(values(base, list(np.multiply(base, apart)))) == spread
