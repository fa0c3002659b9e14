"""A queue over real kernels: killed while a guest runs, and gone on with."""

from pathlib import Path

import pytest

from kernels.cache import Kernel
from queues.store import QueueStore
from tests.integration.lab_process import (
    CHECKOUT,
    kill_at_once,
    records_of,
    run_lab,
    start,
    written_ids,
)
from tests.waiting import wait_until

pytestmark = [pytest.mark.guest, pytest.mark.usefixtures("kept_runs")]
SERIES = CHECKOUT / "configs/series"


def test_two_series_are_measured_though_the_lab_is_killed(
    kernels: dict[str, Kernel], tmp_path: Path
) -> None:
    queue = tmp_path / "queue"
    arguments = ("--workloads", "filemap-4k", "--set", "guest=smoke", "--set", "blocks=1")
    at = ("--queue", str(queue))
    # Booted, and the same code, which is not: neither needs a kernel of its own.
    added = run_lab(
        "queue", "add", *map(str, (SERIES / "filemap-walks", SERIES / "noop")), *arguments, *at
    )
    assert added.returncode == 0, added.stderr
    walks, noop = QueueStore(queue).read().entries
    lab = start("queue", "run", *at, "--guests", "1")
    folder = queue / "sessions" / walks.id
    wait_until(lambda: (folder / "runs.jsonl").exists() or lab.poll() is not None, "run")
    assert kill_at_once(lab, folder)
    done = run_lab("queue", "run", *at, "--guests", "1")
    assert done.returncode == 0, done.stderr
    assert f"goes on  {walks.id}" in done.stderr
    assert f"begins  {noop.id}" in done.stderr
    assert sorted(written_ids(folder)) == sorted(records_of(folder))
    assert len(records_of(folder)) == 3
    assert records_of(queue / "sessions" / noop.id) == {}
    ended = {entry.id: entry for entry in QueueStore(queue).read().entries}
    assert {entry.state for entry in ended.values()} == {"done"}
    assert {primary.verdict for primary in ended[noop.id].results} == {"no change"}
    page = (queue / "index.html").read_text()
    for entry in ended.values():
        assert f'href="sessions/{entry.id}/report.html"' in page
        assert (queue / "sessions" / entry.id / "report.html").stat().st_size > 10_000
