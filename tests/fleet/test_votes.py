"""Who is believed."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.votes import Standing, sampled, standing


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ("", Standing("unverified")),
        ("a", Standing("unverified", "a")),
        ("aa", Standing("verified", "a")),
        ("ab", Standing("open")),
        ("aba", Standing("verified", "a", ("w1",))),
        ("abb", Standing("verified", "b", ("w0",))),
        ("abc", Standing("undecided")),
        ("aabb", Standing("open")),
        ("aabba", Standing("verified", "a", ("w2", "w3"))),
        ("abcc", Standing("verified", "c", ("w0", "w1"))),
    ],
)
def test_a_majority_of_two_or_more_is_believed(votes: str, expected: Standing) -> None:
    assert standing({f"w{number}": word for number, word in enumerate(votes)}) == expected


@given(st.dictionaries(st.integers(0, 9).map(str), st.sampled_from("abc"), max_size=8))
def test_nobody_of_the_majority_is_called_a_liar(votes: dict[str, str]) -> None:
    decision = standing(votes)
    if decision.state == "verified":
        assert {votes[liar] for liar in decision.liars}.isdisjoint({decision.digest})
        assert len(decision.liars) < len(votes) - 1 or not decision.liars
        agreed = [worker for worker, vote in votes.items() if vote == decision.digest]
        assert len(agreed) >= 2
    else:
        assert not decision.liars


def test_about_one_in_so_many_is_drawn_and_always_the_same_ones() -> None:
    questions = [f"question {number}" for number in range(4096)]
    drawn = [question for question in questions if sampled(question, 16)]
    assert 190 < len(drawn) < 330
    assert drawn == [question for question in questions if sampled(question, 16)]
    assert not any(sampled(question, 0) for question in questions)
    assert all(sampled(question, 1) for question in questions)
    assert list(itertools.chain(drawn)) != questions
