"""Damaged inputs for everything that reads a mail, a guest or somebody's file: no traceback.

Nor more time and memory than an honest input takes.  ``TWINBOOT_FUZZ`` is the number of inputs of
a target that is worth a whole share.  300 take about 20 s of CPU time over all targets, so 10,000
would take ten minutes: `make test` has fewer, and the scheduled job of `ci.yml` more than a
million in all.
"""

import os
import resource
import signal
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fuzz import CHECKOUT, TARGETS, Target, damaged, failure_of
from tests.waiting import completed

INPUTS = int(os.environ.get("TWINBOOT_FUZZ") or 500)
# Of one input.
CPU_S = 5.0
MEMORY_BYTES = 1 << 30


class _TooLongError(BaseException):
    """Nothing that a reader catches."""


@contextmanager
def within_bounds() -> Iterator[None]:
    """End what takes more CPU time or memory than any honest input."""

    def too_long(*_: object) -> None:
        raise _TooLongError(f"more than {CPU_S} s of CPU time")

    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGPROF, too_long)
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY_BYTES, hard))
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGPROF, before)


def ending_of(target: Target, data: bytes, scratch: Path) -> str:
    with within_bounds():
        return failure_of(target, data, scratch)


@pytest.mark.parametrize(
    "most", [pytest.param(50, id="some"), pytest.param(INPUTS, marks=pytest.mark.slow, id="many")]
)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_damaged_inputs_give_an_error_of_the_labs(
    target: Target, most: int, tmp_path: Path
) -> None:
    inputs = target.inputs()
    failures: dict[str, int] = {}
    for each in inputs:
        if failure := ending_of(target, each, tmp_path):
            failures[f"as it is: {failure}"] = -1
    # Each target has numbers of its own, the same in every run.
    first = zlib.crc32(target.name.encode()) << 24
    for number in range(first, first + max(5, int(most * target.share))):
        if failure := ending_of(target, target.input(inputs, number), tmp_path):
            failures.setdefault(failure, number)
    assert failures == {}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), [("ELF", 20_938_492_053_816_886)])
def test_damage_once_a_traceback_is_an_error(name: str, number: int, tmp_path: Path) -> None:
    (target,) = (each for each in TARGETS if each.name == name)
    inputs = target.inputs()
    assert failure_of(target, damaged(inputs[number % len(inputs)], number), tmp_path) == ""


@pytest.mark.parametrize(
    ("read", "ending"),
    [
        (lambda data, scratch: bytes(4 << 30), "MemoryError"),
        (lambda data, scratch: data.index(b"b"), "ValueError"),
    ],
)
def test_a_reader_that_fails_is_noticed(read: object, ending: str, tmp_path: Path) -> None:
    target = Target("a reader", read, lambda: [b"a"])  # type: ignore[arg-type]
    assert ending_of(target, b"a", tmp_path).startswith(ending)


def test_a_reader_that_does_not_end_is_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def for_ever(data: bytes, scratch: Path) -> object:
        while True:
            pass

    monkeypatch.setattr("tests.test_fuzz.CPU_S", 0.05)
    with pytest.raises(_TooLongError, match=r"more than 0\.05 s"):
        ending_of(Target("a reader", for_ever, lambda: [b"a"]), b"a", tmp_path)


# The four with most code behind them, each for a minute of the clock.
LARGEST = ("a mailbox", "a diff", "a result", "an archive's headers")
GUIDED_S = int(os.environ.get("TWINBOOT_GUIDED_FUZZ_S") or 60)


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
