"""Tests of forms use the comparisons that tests of the analysis use."""

from tests.analysis.conftest import (
    counted,
    failed_five,
    five,
    hostile,
    hostile_counts,
    hostile_five,
    matrix,
    normal,
    stepwise,
    words_alone,
)

__all__ = [
    "counted",
    "failed_five",
    "five",
    "hostile",
    "hostile_counts",
    "hostile_five",
    "matrix",
    "normal",
    "stepwise",
    "words_alone",
]
