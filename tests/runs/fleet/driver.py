"""A client in a process of its own, so that it can be killed: measures a stand-in session."""

import sys
from pathlib import Path
from types import SimpleNamespace

from guests import exact
from host import limited
from runs import local
from tests.runs.fleet import stand_in
from tests.runs.fleet.cluster import Cluster
from tests.runs.fleet.conftest import FleetBench
from workloads import parse, validity


def main(folder: str, port: str, blocks: str) -> None:
    """Measure the session ``fleet`` of the bench in ``folder``."""
    stand_in.dask_setup(None)
    local.RESERVE_BYTES = 0
    # What stands in for the reader is a function of this process.
    limited.call = lambda function, *given, **named: function(*given, **named)
    parse.guest_result = lambda files, names: SimpleNamespace(phases=(), build_id="")  # type: ignore[assignment,return-value]
    validity.problems = lambda result, claim: ()
    assert exact.run is stand_in.run_guest
    bench = FleetBench(Path(folder))
    with bench.executor(Cluster(Path(folder), port=int(port))) as executor:
        bench.measure("fleet", int(blocks), executor)


if __name__ == "__main__":
    main(*sys.argv[1:])
