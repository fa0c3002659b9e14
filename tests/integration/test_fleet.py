"""Real guests over workers on this machine: the report is that of a local session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runs.fleet.executor import MADE
from tests.integration.conftest import EndedSession
from tests.integration.lab_process import SMALL_SESSION, bytes_of, records_of, run_lab, written_ids
from tests.runs.fleet.cluster import Cluster

pytestmark = pytest.mark.guest


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A scheduler and two workers, each with an empty cache of its own."""
    made = Cluster(tmp_path, preload="")
    try:
        made.start_scheduler()
        for name in ("one", "two"):
            made.start_worker(name)
        yield made
    finally:
        made.stop()


def require_same(folder: Path, small: EndedSession) -> None:
    """No run twice, the same records, and the same reports byte for byte."""
    assert sorted(written_ids(folder)) == sorted(records_of(small.folder))
    assert records_of(folder) == records_of(small.folder)
    assert bytes_of(folder) == bytes_of(small.folder)


def run_on(cluster: Cluster, folder: Path, tmp_path: Path) -> str:
    """Measure the small experiment over the fleet; return what was said."""
    done = run_lab(
        "run",
        *SMALL_SESSION,
        "--session",
        str(folder),
        "--executor",
        cluster.address,
        "--store",
        str(tmp_path / "store"),
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_workers_give_the_report_of_this_host(
    small: EndedSession, cluster: Cluster, tmp_path: Path
) -> None:
    folder = tmp_path / "fleet" / "session"
    output = run_on(cluster, folder, tmp_path)
    require_same(folder, small)
    assert "set aside" not in output
    assert "refused" not in output
    names = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    local = {path.relative_to(small.folder) for path in small.folder.rglob("*") if path.is_file()}
    # Which worker made what, for a resumed session to compare with.
    assert names == {*local, Path(MADE)}
