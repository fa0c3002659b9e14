"""Recorded consoles, each file named after its condition.

Those of ``done``, ``agent-failed``, ``panic``, ``oops``, ``memcg-oom-kill``,
``hung-task``, ``silent`` and ``lost`` are from guests that were made to end so; the
others follow the formats that Linux 6.12 prints.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guests.console import EVIDENCE_LINES, Ending, Kind, agent_done, classify, progress

RECORDED = Path(__file__).parent / "recorded"
Deadline = Literal["", "boot", "silence", "run"]


def recorded(name: str) -> str:
    return (RECORDED / f"{name}.log").read_bytes().decode()


# name, QEMU ended with the agent's status, clock that ended it, kind, part of the message
ENDINGS: tuple[tuple[str, bool, Deadline, Kind, str], ...] = (
    ("done", True, "", "done", "the agent finished"),
    ("agent-failed", False, "", "failed",
     "the agent stopped: twinboot: failed: mkfs: Invalid value 7q for -l size option."),
    ("panic", False, "", "panic",
     "Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000300"),
    # The kernel panics after an oops: the oops is what happened.
    ("oops", False, "", "oops", "BUG: unable to handle page fault for address: ffff888001000000"),
    ("kernel-bug", False, "", "oops", "kernel BUG at mm/filemap.c:871!"),
    ("lockdep", True, "", "oops", "WARNING: possible circular locking dependency detected"),
    ("memcg-oom-kill", True, "", "oom", "Memory cgroup out of memory: Killed process 71 (fio)"),
    ("hung-task", True, "", "hung", "INFO: task touch:72 blocked for more than 1 seconds."),
    ("soft-lockup", False, "silence", "hung", "soft lockup - CPU#0 stuck for 26s! [fio:93]"),
    ("rcu-stall", False, "run", "hung", "rcu: INFO: rcu_preempt self-detected stall on CPU"),
    ("smp-bring-up-hang", False, "boot", "boot", "hung while bringing up vCPUs"),
    ("silent-from-the-start", False, "boot", "boot", "use 1 vCPU"),
    ("silent", False, "silence", "silent", "timed out: no output for too long"),
    ("silent", False, "run", "hung", "timed out: the run did not finish in time"),
    ("lost", False, "", "lost", "QEMU ended before the agent reported anything"),
    # A program of the guest that crashes is no oops; what it broke shows elsewhere.
    ("user-segfault", True, "", "done", "the agent finished"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "agent_done", "deadline", "kind", "message"),
    ENDINGS,
    ids=[f"{name}-{deadline or 'ended'}" for name, _, deadline, _, _ in ENDINGS],
)
def test_recorded(
    name: str, agent_done: bool, deadline: Deadline, kind: Kind, message: str
) -> None:
    ending = classify(recorded(name), agent_done=agent_done, deadline=deadline)
    assert ending.kind == kind
    assert message in ending.message


def test_every_recorded_console_is_classified() -> None:
    assert {path.stem for path in RECORDED.iterdir()} == {name for name, *_ in ENDINGS}


def test_evidence_begins_before_the_line_and_is_short() -> None:
    ending = classify(recorded("oops"), agent_done=False)
    assert ending.evidence[:2] == (
        "twinboot: prepare: mkfs.xfs -q -f --unsupported -m reflink=0,rmapbt=0,"
        "uuid=5477696e-626f-6f74-0000-000000000001 -l size=7m",
        "twinboot: layout: 52 MiB",
    )
    assert "BUG: unable to handle page fault" in ending.evidence[2]
    assert len(ending.evidence) == 2 + EVIDENCE_LINES


def test_hung_boot_shows_the_last_lines() -> None:
    ending = classify(recorded("smp-bring-up-hang"), agent_done=False, deadline="boot")
    assert ending.evidence[-2:] == (
        "[    0.498797] smpboot: x86: Booting SMP configuration:",
        "[    0.498805] .... node  #0, CPUs:      #1",
    )


def test_slow_preparation_is_not_put_down_to_the_vcpus() -> None:
    said = "twinboot: prepare: mkfs.xfs\ntwinboot: layout: 13312 MiB\n"
    ending = classify(said, agent_done=False, deadline="boot")
    assert ending == Ending(
        "boot",
        "timed out: the guest was not ready in time",
        tuple(said.splitlines()),
        by_clock=True,
    )


def test_failure_of_the_agent_is_told_by_the_result_when_one_came() -> None:
    assert classify(recorded("agent-failed"), agent_done=True).kind == "done"


@pytest.mark.parametrize(
    ("name", "word"),
    [("silent", "phase 4k"), ("done", "done"), ("silent-from-the-start", ""),
     ("smp-bring-up-hang", "")],
)  # fmt: skip
def test_progress_is_the_agents_last_word(name: str, word: str) -> None:
    assert progress(recorded(name)) == word


@settings(deadline=None)
@given(st.text(), st.booleans(), st.sampled_from(("", "boot", "silence", "run")))
def test_any_console_has_an_ending(text: str, agent_done: bool, deadline: Deadline) -> None:
    ending = classify(text, agent_done=agent_done, deadline=deadline)
    assert ending.message
    assert set(ending.evidence) <= set(text.splitlines())


def test_a_status_of_its_own_says_that_the_agent_is_done() -> None:
    assert agent_done(33, 33, recorded("done"))
    assert not agent_done(0, 33, recorded("done"))
    assert not agent_done(None, 33, recorded("silent"))


@pytest.mark.parametrize("name", ["panic", "oops", "lost", "silent"])
def test_where_switching_off_is_the_status_the_last_word_decides(name: str) -> None:
    # An agent that failed has said so in what it sent.
    assert agent_done(0, 0, recorded("done"))
    assert agent_done(0, 0, recorded("agent-failed"))
    assert not agent_done(0, 0, recorded(name))
    assert not agent_done(1, 0, recorded("done"))
