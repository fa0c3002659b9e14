"""Verbs killed at random moments: what was on the disk stays, and the next call goes on.

Sessions and their guests are killed in tests/integration/test_interrupted.py.
"""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from errors import Exit
from history.store import HistoryStore
from queues.store import QueueStore
from tests.integration.lab_process import finish, kill, run_lab, start
from tests.verbs.test_history import night

pytestmark = pytest.mark.long
KILLS = int(os.environ.get("TWINBOOT_TEST_KILLS", "10"))
SEED = int(os.environ.get("TWINBOOT_TEST_SEED", "1"))
PATCH = "From: a <a@b>\nSubject: [PATCH] mm: {0}\n\n--- a/mm/{0}.c\n+++ b/mm/{0}.c\n@@ -1 +1 @@\n-x\n+y\n"  # noqa: E501


def killed_often(arguments: tuple[str, ...], intact: Callable[[], None]) -> None:
    """Kill ``lab.py ARGUMENTS`` ``KILLS`` times; look at what it left after each."""
    began = time.monotonic()
    run_lab("--version")
    started_s = time.monotonic() - began
    moments = random.Random(SEED)
    kills = 0
    for _ in range(KILLS):
        lab = start(*arguments)
        # Most of the time goes by before a verb begins.
        with suppress(subprocess.TimeoutExpired):
            lab.wait(moments.uniform(0.5 * started_s, 4 * started_s))
        kills += kill(lab, signal.SIGKILL).returncode == -signal.SIGKILL
        intact()
    assert kills > KILLS / 4


def test_nights_are_added_once_and_whole(tmp_path: Path) -> None:
    sessions = [str(night(tmp_path, number)) for number in range(1, 9)]
    calm, history = tmp_path / "calm", tmp_path / "history"
    assert run_lab("history", "add", *sessions, "--history", str(calm)).returncode == 0
    files = {path.relative_to(calm): path.read_bytes() for path in calm.rglob("*.json")}

    def intact() -> None:
        for path in history.rglob("*.json"):
            assert path.read_bytes() == files[path.relative_to(history)], path
        if (history / "history.json").exists():
            assert HistoryStore(history).read().problems == ()

    killed_often(("history", "add", *sessions, "--history", str(history)), intact)
    done = run_lab("history", "add", *sessions, "--history", str(history))
    assert done.returncode == 0, done.stderr
    assert {
        path.relative_to(history): path.read_bytes() for path in history.rglob("*.json")
    } == files


def test_entries_of_a_queue_are_kept_and_end_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where a source is at hand, a series that does not apply to it is not queued.
    monkeypatch.setenv("TWINBOOT_CACHE", str(tmp_path / "cache"))
    queue = tmp_path / "queue"
    patches = []
    for number in range(6):
        path = tmp_path / f"change-{number}.patch"
        path.write_text(PATCH.format(f"file{number}"))
        patches.append(str(path))
    added = run_lab("queue", "add", *patches, "--workloads", "filemap-4k", "--queue", str(queue))
    assert added.returncode == 0, added.stderr
    ids = {line.split()[0] for line in added.stdout.splitlines()}
    assert len(ids) == len(patches)
    # So that each ends without a kernel.
    for name in patches:
        Path(name).unlink()

    def intact() -> None:
        read = QueueStore(queue).read()
        assert {entry.id for entry in read.entries} == ids
        assert read.problems == ()

    killed_often(("queue", "run", "--queue", str(queue), "--trust-authors"), intact)
    done = finish(start("queue", "run", "--queue", str(queue), "--trust-authors"))
    assert done.returncode == 0, done.stderr
    # Each ends so, whoever was killed over it.
    ends = {(entry.state, entry.code) for entry in QueueStore(queue).read().entries}
    assert ends == {("failed", Exit.USAGE)}
    page = (queue / "index.html").read_text()
    assert all(Path(name).stem in page for name in patches)
