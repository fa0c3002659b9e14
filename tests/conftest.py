"""What every test run has: an order of files, and a table of how long each took."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import pytest

SLOWEST = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--durations-table", metavar="CSV", help="write the seconds of each file of tests here"
    )


def seconds_by_file(reports: list[pytest.TestReport]) -> list[tuple[str, int, float]]:
    """File, number of tests, and seconds of set-up, call and teardown together; slowest first."""
    seconds: dict[str, float] = defaultdict(float)
    tests: dict[str, set[str]] = defaultdict(set)
    for report in reports:
        file = report.nodeid.partition("::")[0]
        seconds[file] += report.duration
        tests[file].add(report.nodeid)
    return sorted(
        ((file, len(tests[file]), seconds[file]) for file in seconds), key=lambda row: -row[2]
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that boot guests come first, so that quick ones fill the workers' last minutes."""
    guests = {item.path for item in items if item.get_closest_marker("guest")}
    items.sort(key=lambda item: item.path not in guests)


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
        table.writerow(("file", "tests", "seconds"))
        table.writerows((file, tests, f"{seconds:.1f}") for file, tests, seconds in rows)
    terminalreporter.section(f"slowest {SLOWEST} files, of {place}")
    for file, tests, seconds in rows[:SLOWEST]:
        terminalreporter.write_line(f"{seconds:8.1f} s  {tests:4} tests  {file}")
