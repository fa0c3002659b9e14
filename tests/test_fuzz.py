"""Damaged inputs for everything that reads a mail, a guest or somebody's file: no traceback.

``TWINBOOT_FUZZ`` is the number of inputs of a target that is worth a whole share.  300 take about
20 s of CPU time over all targets, so 10,000 would take ten minutes: `make test` has fewer, and
the scheduled job of `ci.yml` more than a million in all.
"""

import os
import sys
import zlib
from pathlib import Path

import pytest

from tests.fuzz import CHECKOUT, TARGETS, Target, damaged, failure_of
from tests.waiting import completed

pytestmark = pytest.mark.slow

GUIDED_S = int(os.environ.get("TWINBOOT_GUIDED_FUZZ_S") or 60)
INPUTS = int(os.environ.get("TWINBOOT_FUZZ") or 500)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_damaged_inputs_give_an_error_of_the_labs(target: Target, tmp_path: Path) -> None:
    inputs = target.inputs()
    failures: dict[str, int] = {}
    for each in inputs:
        if failure := failure_of(target, each, tmp_path):
            failures[f"as it is: {failure}"] = -1
    # Each target has numbers of its own, the same in every run.
    first = zlib.crc32(target.name.encode()) << 24
    for number in range(first, first + max(20, int(INPUTS * target.share))):
        if failure := failure_of(target, target.input(inputs, number), tmp_path):
            failures.setdefault(failure, number)
    assert failures == {}


@pytest.mark.parametrize(("name", "number"), [("ELF", 20_938_492_053_816_886)])
def test_damage_once_a_traceback_is_an_error(name: str, number: int, tmp_path: Path) -> None:
    (target,) = (each for each in TARGETS if each.name == name)
    inputs = target.inputs()
    assert failure_of(target, damaged(inputs[number % len(inputs)], number), tmp_path) == ""


def test_a_reader_that_fails_is_noticed(tmp_path: Path) -> None:
    def fails(data: bytes, scratch: Path) -> object:
        return data.index(b"b")

    target = Target("a reader", fails, lambda: [b"aaabaaa"])
    failures = [failure_of(target, damaged(b"aaabaaa", number), tmp_path) for number in range(50)]
    assert any(failure.startswith("ValueError: ") for failure in failures)
    assert "" in failures


# The four with most code behind them, each for a minute of the clock.
LARGEST = ("a mailbox", "a diff", "a result", "an archive's headers")


@pytest.mark.long
@pytest.mark.parametrize("name", LARGEST)
def test_fuzzing_by_what_is_reached_finds_nothing(name: str, tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="there is no build of it for this machine")
    argv = [sys.executable, "-m", "tests.guided", name, str(GUIDED_S), str(tmp_path)]
    ended = completed(argv, check=False, cwd=CHECKOUT)
    inputs = [path.name for path in tmp_path.glob("found-*")]
    assert (ended.returncode, inputs) == (0, []), ended.stderr[-2000:]
    # It did run: the inputs that reached new code are beside the real ones.
    assert "Done " in ended.stderr
