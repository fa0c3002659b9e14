"""What is done with an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiment.load import load_guest
from experiment.plan import Size
from fleet.artefacts import Artefact, ArtefactStore
from fleet.cases import BootCase
from fleet.parcel import Answer, MachineParcel, Parcel
from fleet.trust import Trust
from guests.console import Ending
from guests.exact import Machine, Outcome
from runs.boots import Boot

GUEST = load_guest(Path("smoke"))
SIZE = Size(32, 64, 52, 4)
FILE = Artefact("file", "0" * 64, 1)
NEVER = 10**9


def case(name: str, **votes: str) -> BootCase:
    machine = Machine(Path("k"), Path("i"), GUEST, SIZE, "", Path("p"))
    parcel = Parcel(
        name, ArtefactStore("memory://"), MachineParcel(FILE, FILE, FILE, GUEST, SIZE, "", ()),
        name, False, None, 0, "",
    )  # fmt: skip
    made = BootCase(Boot(name, "", machine, name, False), parcel)
    made.votes = dict(votes)
    return made


def test_the_first_answer_of_a_worker_is_checked_and_others_wait_for_it() -> None:
    trust = Trust(NEVER)
    first, second = case("1", a="x"), case("2", a="y")
    cases = {"1": first, "2": second}
    assert trust.decide(first, cases, ["b"]) == "check"
    first.checking = True
    assert trust.decide(second, cases, ["b"]) == "wait"
    first.votes["b"] = "x"
    assert trust.decide(first, cases, []) == "verified"
    trust.proven |= {"a", "b"}
    assert trust.decide(second, cases, ["b"]) == "deliver"


def test_a_trial_that_came_to_nothing_is_held_again() -> None:
    trust = Trust(NEVER)
    first, second = case("1", a="x"), case("2", a="y")
    cases = {"1": first, "2": second}
    trust.decide(first, cases, ["b"])
    first.votes.clear()
    assert trust.decide(second, cases, ["b"]) == "check"


def test_alone_an_answer_is_marked_unchecked() -> None:
    assert Trust(16).decide(case("1", a="x"), {}, []) == "deliver"


def test_the_share_is_checked_whoever_answered() -> None:
    assert Trust(1, proven={"a"}).decide(case("1", a="x"), {}, ["b"]) == "check"
    assert Trust(0).decide(case("1", a="x"), {}, ["b"]) == "deliver"


def test_what_may_be_blamed_on_a_series_is_run_twice() -> None:
    made = case("1", a="x")
    made.answers["a"] = Answer("a", "", Outcome(None, Ending("panic", "told"), 0.0, 0.0))
    assert Trust(NEVER, proven={"a"}).decide(made, {}, ["b"]) == "check"


@pytest.mark.parametrize(
    ("votes", "others", "expected"),
    [
        ("xy", ["c"], "check"),
        ("xy", [], "undecided"),
        ("xyx", ["d"], "verified"),
        ("xyz", ["d"], "check"),
        ("xyzvw", ["d"], "undecided"),
    ],
)
def test_answers_that_differ(votes: str, others: list[str], expected: str) -> None:
    made = case("1", **dict(zip("abcdefg", votes, strict=False)))
    assert Trust(16).decide(made, {}, others) == expected
