"""What functions are part of."""

import pytest

from analysis.explain.functions import (
    OTHER,
    catalogue,
    programs,
    subsystem,
)
from tests.values import data


@pytest.mark.parametrize(("function", "file", "expected"), data(__file__, "where_functions_belong"))
def test_where_functions_belong(function: str, file: str, expected: str) -> None:
    assert subsystem(function, file) == expected


def test_no_prefix_is_in_two_subsystems() -> None:
    for kind in ("files", "functions"):
        prefixes = [prefix for entry in catalogue() for prefix in getattr(entry, kind)]
        assert len(prefixes) == len(set(prefixes))
    titles = [entry.title for entry in catalogue()]
    assert len(titles) == len(set(titles))
    assert OTHER not in titles


def test_the_spinning_agent_is_explained() -> None:
    assert "idle" in programs()["busybox"]
