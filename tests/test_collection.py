"""Workers that run the tests side by side must all find the same tests."""

from __future__ import annotations

import sys
from pathlib import Path

from host.process import run

CHECKOUT = Path(__file__).parents[1]


def collected(hash_seed: int) -> list[str]:
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = run(argv, cwd=CHECKOUT, env={"PYTHONHASHSEED": str(hash_seed)}, timeout_s=300)
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_the_same_tests_are_found_at_any_time_and_in_any_order_of_hashing() -> None:
    # The two collections are seconds apart, so a name with the time of day in it differs.
    first, second = collected(1), collected(2)
    assert any(line.startswith("tests/test_collection.py::") for line in first)
    assert [line for line in first if line not in set(second)] == []
    assert first == second
