"""A client in a process of its own, so that it can be killed: measures a stand-in session."""

import sys
from pathlib import Path

import pytest

from tests.runs.fleet.cluster import Cluster
from tests.runs.fleet.conftest import FleetBench, stand_in_here


def main(folder: str, port: str, blocks: str) -> None:
    """Measure the session ``fleet`` of the bench in ``folder``."""
    stand_in_here(pytest.MonkeyPatch())
    bench = FleetBench(Path(folder))
    with bench.executor(Cluster(Path(folder), port=int(port))) as executor:
        bench.measure("fleet", int(blocks), executor)


if __name__ == "__main__":
    main(*sys.argv[1:])
