"""A session of kept runs has the bytes of one that was measured, killed or not."""

import os
import random
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from results.store import SessionStore
from tests.integration.conftest import EndedSession
from tests.integration.lab_process import (
    SMALL_SESSION,
    Lab,
    bytes_of,
    finish,
    kill_at_once,
    records_of,
    run_lab,
    start,
)

pytestmark = pytest.mark.guest
KILLS = max(1, int(os.environ.get("TWINBOOT_TEST_KILLS", "2")) // 2)
FINDING = "runs reused from"


@pytest.fixture(autouse=True)
def kept_and_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As users have it."""
    monkeypatch.setenv("TWINBOOT_MEASURE_AGAIN", "")


def test_a_second_session_boots_a_sample_and_has_the_same_bytes(
    small: EndedSession, tmp_path: Path
) -> None:
    assert small.status == 0, small.err
    folder = tmp_path / "session"
    done = run_lab("run", *SMALL_SESSION, "--session", str(folder))
    assert done.returncode == 0, done.stderr
    costs = SessionStore(folder).costs()
    assert len([cost for cost in costs if not cost.kept_at]) == 2
    measured = {cost.run_id: cost for cost in SessionStore(small.folder).costs()}
    for cost in costs:
        assert cost.inputs == measured[cost.run_id].inputs
    assert records_of(folder) == records_of(small.folder)
    was, now = bytes_of(small.folder), bytes_of(folder)
    differ = [name for name in was if was[name] != now[name]]
    assert differ == ["report.html", "report.md"]
    lines = (now["report.md"].decode().splitlines(), was["report.md"].decode().splitlines())
    # The answer's line, and the finding.
    in_answer, in_findings = [line for line in lines[0] if line not in lines[1]]
    assert in_answer.startswith("| Kept | ")
    assert FINDING in in_answer
    assert FINDING in in_findings
    assert [line for line in lines[0] if line not in (in_answer, in_findings)] == lines[1]


def test_a_killed_session_is_resumed_with_kept_runs(small: EndedSession, tmp_path: Path) -> None:
    folder = tmp_path / "session"
    anew = ("run", *SMALL_SESSION, "--session", str(folder))
    moments = random.Random(7)

    def begun_or_resumed() -> Lab:
        begun = (folder / "manifest.json").exists()
        return start(*(("run", "--resume", str(folder)) if begun else anew))

    for _ in range(KILLS):
        lab = begun_or_resumed()
        with suppress(subprocess.TimeoutExpired):
            lab.wait(moments.uniform(0.2, small.elapsed_s / 2))
        kill_at_once(lab, folder)
    done = finish(begun_or_resumed())
    assert done.returncode == 0, done.stderr
    assert records_of(folder) == records_of(small.folder)
    assert bytes_of(folder, ("samples.csv", "samples.parquet")) == bytes_of(
        small.folder, ("samples.csv", "samples.parquet")
    )
