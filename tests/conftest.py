"""What every test run has: an order of files, and a table of how long each took."""

import csv
import gc
import logging
import os
import signal
import subprocess
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import lab
from host.process import collect_seldom
from kernels import worktree
from tests.waiting import completed

SLOWEST = 10


class Terminal:
    """The program called in this process, and what its last call printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *words: object) -> int:
        self._capsys.readouterr()
        try:
            return lab.main([str(word) for word in words])
        finally:
            self.out, self.err = self._capsys.readouterr()


@pytest.fixture(scope="session", autouse=True)
def unsynced() -> Iterator[None]:
    """Nothing is written for a power cut, but in processes of its own; thousands wait for a disk.

    That the door does so is a test of its own: tests/results/test_door.py.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        patch.setattr(worktree, "SYNC", ("true",))
        yield


@pytest.fixture
def main(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Terminal]:
    """The program with a cache of its own, and the test's folder for sessions."""
    monkeypatch.setenv("TWINBOOT_CACHE", str(tmp_path / "cache"))
    for module in ("verbs.options", "runs.request"):
        monkeypatch.setattr(f"{module}.SESSIONS", tmp_path)
    # It would bind to the stream that pytest captures in this test only.
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    before = signal.getsignal(signal.SIGTERM)
    yield Terminal(capsys)
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder with 40 MiB, of which a guest of 16 MiB finds enough at first."""
    if os.geteuid():
        pytest.skip("mounting a small disk needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(folder)]
    done = completed(mount, check=False)
    if done.returncode:
        pytest.skip(f"no file systems can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--durations-table", metavar="CSV", help="write the seconds of each file of tests here"
    )


def cpu_s() -> float:
    """CPU seconds so far of this process and the children that it has waited for."""
    return sum(os.times()[:4])


class CpuClock:
    """CPU time of a process between one report of a test and the next."""

    def __init__(self) -> None:
        self.last_s = cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now_s = cpu_s()
        # On a copy: properties go from a worker to the process that writes the table.
        report.user_properties = [*report.user_properties, ("cpu_s", now_s - self.last_s)]
        self.last_s = now_s
        return report


def pytest_configure(config: pytest.Config) -> None:
    collect_seldom()
    # What tests guests boots them, whatever is kept of earlier sessions.
    os.environ.setdefault("TWINBOOT_MEASURE_AGAIN", "1")
    # How long an example takes is the host's doing.  Each run draws others.
    settings.register_profile("any host", deadline=None, max_examples=40)
    settings.load_profile("any host")
    config.pluginmanager.register(CpuClock())


def seconds_by_file(reports: list[pytest.TestReport]) -> list[tuple[str, int, float, float]]:
    """File, number of tests, seconds and CPU seconds of set-up, call and teardown together.

    The slowest is first.  CPU seconds are what a busy machine does not change.
    """
    seconds: dict[str, float] = defaultdict(float)
    cpu_seconds: dict[str, float] = defaultdict(float)
    tests: dict[str, set[str]] = defaultdict(set)
    for report in reports:
        file = report.nodeid.partition("::")[0]
        seconds[file] += report.duration
        cpu_seconds[file] += sum(
            float(str(v)) for name, v in report.user_properties if name == "cpu_s"
        )
        tests[file].add(report.nodeid)
    return sorted(
        ((file, len(tests[file]), seconds[file], cpu_seconds[file]) for file in seconds),
        key=lambda row: -row[2],
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that boot guests come first, then slow ones: quick ones fill the last minutes."""
    first = [
        {item.path for item in items if item.get_closest_marker(mark)} for mark in ("guest", "slow")
    ]
    items.sort(key=lambda item: [item.path not in paths for paths in first])


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end, and is not looked through for garbage."""
    gc.freeze()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    place = config.getoption("durations_table")
    if not place:
        return
    reports = [
        report
        for of_one_kind in terminalreporter.stats.values()
        for report in of_one_kind
        if isinstance(report, pytest.TestReport)
    ]
    rows = seconds_by_file(reports)
    path = Path(place)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as sink:
        table = csv.writer(sink)
        table.writerow(("file", "tests", "seconds", "cpu_seconds"))
        table.writerows(
            (file, tests, f"{seconds:.1f}", f"{cpu:.1f}") for file, tests, seconds, cpu in rows
        )
    terminalreporter.section(f"slowest {SLOWEST} files, of {place}")
    for file, tests, seconds, cpu in rows[:SLOWEST]:
        terminalreporter.write_line(f"{seconds:8.1f} s  {cpu:8.1f} CPU s  {tests:4} tests  {file}")
