"""Whoever reads what others write says what is wrong with it, in bounded time and memory.

Hypothesis looks for an input, and shrinks it; ``test_fuzz.py`` tries more of them.
"""

import resource
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz import ODD_PIECES, TARGETS, Target, altered, failure_of

# An honest input takes milliseconds; a host that is busy does not use the reader's CPU time.
CPU_S = 5.0
MEMORY_BYTES = 1 << 30

Change = tuple[float, int, bytes]
CHANGES = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.sampled_from((0, 1, 4, 16, 256)),
        st.one_of(st.sampled_from(ODD_PIECES), st.binary(max_size=32)),
    ),
    min_size=1,
    max_size=4,
)


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


def changed(data: bytes, changes: list[Change]) -> bytes:
    for place, length, piece in changes:
        start = int(place * (len(data) + 1))
        data = data[:start] + piece + data[start + length :]
    return data


def ending_of(target: Target, data: bytes) -> str:
    with tempfile.TemporaryDirectory() as scratch, within_bounds():
        return failure_of(target, data, Path(scratch))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_any_input_is_read_or_refused(target: Target) -> None:
    inputs = target.inputs()
    assert ending_of(target, inputs[0]) == ""

    @settings(
        max_examples=max(4, min(25, int(100 * target.share))),
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(st.sampled_from(inputs), CHANGES, st.integers(0, 1 << 32))
    def holds(data: bytes, changes: list[Change], number: int) -> None:
        # Of what has a form, every other input keeps it.
        keeps = target.is_json and number % 2
        assert ending_of(target, altered(data, number) if keeps else changed(data, changes)) == ""

    holds()


def _for_ever(data: bytes, scratch: Path) -> object:
    while True:
        pass


@pytest.mark.parametrize(
    ("read", "ending"),
    [
        (lambda data, scratch: bytes(4 << 30), "MemoryError"),
        (lambda data, scratch: data.index(b"b"), "ValueError"),
    ],
)
def test_a_reader_that_fails_is_noticed(read: object, ending: str) -> None:
    target = Target("a reader", read, lambda: [b"a"])  # type: ignore[arg-type]
    assert ending_of(target, b"a").startswith(ending)


def test_a_reader_that_does_not_end_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.test_readers.CPU_S", 0.05)
    with pytest.raises(_TooLongError, match=r"more than 0\.05 s"):
        ending_of(Target("a reader", _for_ever, lambda: [b"a"]), b"a")
