"""Workers that run the tests side by side must all find the same tests."""

import sys
from pathlib import Path

import pytest

from host.process import run

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).parents[1]


def test_the_same_tests_are_collected_at_any_time_and_in_any_order_of_hashing(
    request: pytest.FixtureRequest,
) -> None:
    """What this process collected is what another one collects, later and hashing otherwise."""
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    argv += [argument for argument in request.config.args if Path(argument.split("::")[0]).exists()]
    mark = request.config.getoption("markexpr")
    argv += ["-m", mark] if mark else []
    done = run(argv, cwd=CHECKOUT, env={"PYTHONHASHSEED": "1"}, timeout_s=300)
    other = [line for line in done.stdout.splitlines() if "::" in line]
    mine = [item.nodeid for item in request.session.items]
    assert request.node.nodeid in other
    assert [line for line in other if line not in set(mine)] == []
    assert mine == other


def test_make_gives_pytest_no_file_for_a_folder_of_tests() -> None:
    """The table of the last run would be taken for one, and with it no conftest be read."""
    done = run(["make", "--no-print-directory", "-n", "check"], cwd=CHECKOUT, timeout_s=300)
    (command,) = [line for line in done.stdout.splitlines() if " -m pytest -n " in line]
    assert "--durations-table=.make/durations.csv" in command.split()
