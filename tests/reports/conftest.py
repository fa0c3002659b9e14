"""Tests of forms use the comparisons that tests of the analysis use."""

from tests.values import spaced

__all__ = [
    *spaced(
        "counted failed_five five hostile hostile_counts hostile_five matrix normal stepwise "
        "words_alone"
    )
]
