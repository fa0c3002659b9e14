"""Killed, stopped, and started twice: nothing is lost but the runs under way."""

import os
import random
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.conftest import EndedSession
from tests.integration.lab_process import (
    SMALL_SESSION,
    bytes_of,
    guests_of,
    kill,
    kill_at_once,
    records_of,
    run_lab,
    start,
    written_ids,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.guest
KILLS = int(os.environ.get("TWINBOOT_TEST_KILLS", "2"))
SEED = int(os.environ.get("TWINBOOT_TEST_SEED", "1"))


def test_interrupted_killed_at_random_moments_and_resumed(
    small: EndedSession, tmp_path: Path
) -> None:
    assert small.status == 0, small.err
    folder = tmp_path / "session"
    anew = (*SMALL_SESSION, "--session", str(folder))
    moments = random.Random(SEED)
    lab = start("run", *anew)
    with suppress(subprocess.TimeoutExpired):
        lab.wait(moments.uniform(0.2, small.elapsed_s / 4))
    assert kill_at_once(lab, folder)
    begun = (folder / "manifest.json").exists()
    lab = start("run", *(("--resume", str(folder)) if begun else anew))
    wait_until(lambda: guests_of(folder), "guest")
    done = kill(lab, signal.SIGINT)
    assert done.returncode == 130
    assert "--resume" in done.stderr
    assert "Traceback" not in done.stderr
    assert guests_of(folder) == []
    for _ in range(KILLS - 1):
        lab = start("run", "--resume", str(folder))
        with suppress(subprocess.TimeoutExpired):
            lab.wait(moments.uniform(0.2, small.elapsed_s))
        kill_at_once(lab, folder)
    done = run_lab("run", "--resume", str(folder))
    assert done.returncode == 0, done.stderr
    assert sorted(written_ids(folder)) == sorted(records_of(small.folder))
    assert records_of(folder) == records_of(small.folder)
    assert bytes_of(folder) == bytes_of(small.folder)
    # The text for people names the folder, whose length moves the ends of lines.
    texts = (done.stdout.replace(str(folder), "S"), small.out.replace(str(small.folder), "S"))
    first, second = (text.replace("\\\n", " ").split() for text in texts)
    assert first == second
