import io
import threading
from itertools import count

import pytest
from rich.console import Console

from kernels.make import MakeProgress
from runs import boots
from runs.boots import PLAIN_INTERVAL_S, Reporter
from text import duration


class Clock:
    """Time that moves when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(boots, "time", made)
    return made


@pytest.fixture
def plain() -> tuple[Reporter, io.StringIO]:
    """A reporter that does not write to a terminal, and what it wrote."""
    stream = io.StringIO()
    return Reporter(Console(file=stream, force_terminal=False, highlight=False)), stream


Plain = tuple[Reporter, io.StringIO]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0s"), (0, "0s"), (59.4, "59s"), (59.6, "1m00s"), (75, "1m15s"), (3600, "60m00s")],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_plain_lines_say_done_total_and_left(plain: Plain, clock: Clock) -> None:
    reporter, stream = plain
    with reporter.runs(total=4, done=1, slots=1):
        reporter.started("filemap-4k.b00.base")
        reporter.reached("filemap-4k.b00.base", "phase 4k")
        clock.now += 30
        reporter.finished("filemap-4k.b00.base")
        reporter.started("filemap-4k.b00.patched")
        clock.now += 50
        reporter.finished("filemap-4k.b00.patched")
    assert stream.getvalue().splitlines() == [
        "started  filemap-4k.b00.base",
        "finished filemap-4k.b00.base in 30s; 2 of 4 runs, about 1m00s left",
        "started  filemap-4k.b00.patched",
        "finished filemap-4k.b00.patched in 50s; 3 of 4 runs, about 40s left",
    ]


def test_guests_side_by_side_share_the_time_left(plain: Plain, clock: Clock) -> None:
    reporter, _ = plain
    with reporter.runs(total=9, done=0, slots=4):
        assert reporter.left() == "unknown time"
        reporter.started("a")
        clock.now += 10
        reporter.finished("a")
        assert reporter.left() == "about 20s"


def test_the_time_left_of_a_stage_is_of_its_own_runs(plain: Plain, clock: Clock) -> None:
    reporter, _ = plain
    with reporter.runs(total=1, done=0, slots=1):
        reporter.started("measured")
        clock.now += 5
        reporter.finished("measured")
    with reporter.runs(total=3, done=0, slots=2):
        assert reporter.left() == "unknown time"
        reporter.started("check")
        clock.now += 100
        reporter.finished("check")
        assert reporter.left() == "about 1m40s"


def test_snapshots_are_no_runs(plain: Plain, clock: Clock) -> None:
    reporter, stream = plain
    with reporter.runs(total=2, done=0, slots=1):
        reporter.started("snapshot 1 (base)")
        clock.now += 7
        reporter.finished("snapshot 1 (base)", counts=False)
    assert stream.getvalue().splitlines()[-1] == (
        "finished snapshot 1 (base) in 7s; 0 of 2 runs, unknown time left"
    )


def test_failure_is_one_line_however_long(plain: Plain) -> None:
    """Rich wraps at 80 columns where there is no terminal; a line that is searched for is one."""
    reporter, stream = plain
    problem = "4k: limit not hit: " + "peak 48.0 MiB of 64 MiB; " * 10
    with reporter.runs(total=2, done=0, slots=1):
        reporter.started("a")
        reporter.finished("a", problem=problem.strip())
    assert stream.getvalue().splitlines()[1] == (
        f"failed   a: {problem.strip()} (1 of 2 runs, about 0s left)"
    )


def test_markup_and_paths_come_out_as_they_are(plain: Plain) -> None:
    reporter, stream = plain
    reporter.log("[bold]log[/bold]: /cache/[x]/console.log 100%")
    assert stream.getvalue() == "[bold]log[/bold]: /cache/[x]/console.log 100%\n"


def test_building_says_something_now_and_then(plain: Plain, clock: Clock) -> None:
    reporter, stream = plain
    reporter.building("base", MakeProgress(100, 400, 60))
    clock.now += PLAIN_INTERVAL_S - 1
    reporter.building("base", MakeProgress(200, 400, 120))
    clock.now += 2
    reporter.building("base", MakeProgress(300, 400, 180))
    reporter.clear()
    assert stream.getvalue().splitlines() == [
        "building base: 100 of about 400 objects, 1m00s, about 3m00s left",
        "building base: 300 of about 400 objects, 3m00s, about 1m00s left",
    ]


def test_threads_do_not_tear_lines_or_lose_runs(plain: Plain) -> None:
    reporter, stream = plain
    numbers = count()
    with reporter.runs(total=200, done=0, slots=4):

        def work() -> None:
            for _ in range(50):
                name = f"run-{next(numbers)}"
                reporter.started(name)
                reporter.reached(name, "phase 4k")
                reporter.finished(name)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 400
    assert all(line.startswith(("started  run-", "finished run-")) for line in lines)
    assert sorted(
        int(line.split("; ")[1].split(" ")[0]) for line in lines if line.startswith("finished")
    ) == list(range(1, 201))


def test_terminal_shows_what_runs_and_keeps_failures() -> None:
    stream = io.StringIO()
    reporter = Reporter(Console(file=stream, force_terminal=True, width=100, highlight=False))
    with reporter.runs(total=3, done=1, slots=2):
        reporter.started("filemap-4k.b00.base")
        reporter.reached("filemap-4k.b00.base", "phase 4k")
        reporter.started("filemap-4k.b00.patched")
        reporter.finished("filemap-4k.b00.patched", problem="no refaults")
    text = stream.getvalue()
    assert "failed   filemap-4k.b00.patched: no refaults" in text
    assert "2 of 3 runs" in text
    assert "phase 4k" in text
    assert "1 failed" in text
