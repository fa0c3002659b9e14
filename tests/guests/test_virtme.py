"""A wall guest that KVM gives back, with QEMU's own word for it."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from errors import InfraError
from guests import virtme
from guests.channel import Follower

CONSOLE = "[    0.1] SLUB: HWalign=64\nKVM internal error. Suberror: 1\nextra data[0]: 0\nRAX=0\n"


class StatusMonitor:
    """What QEMU answers."""

    def __init__(self, status: str) -> None:
        self.status = status

    def command(self, name: str) -> dict[str, str]:
        assert name == "query-status"
        return {"status": self.status}

    def close(self) -> None:
        pass


def waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, text: str
) -> virtme._WallGuest:
    log = tmp_path / "console.log"
    log.write_text(text)
    monkeypatch.setattr(virtme, "ended", lambda process: False)
    monkeypatch.setattr(virtme, "cpu_s_of", lambda pid: 0.0)
    monkeypatch.setattr(virtme._WallGuest, "_monitor", lambda guest: StatusMonitor(status))
    shape = SimpleNamespace(boot_timeout_s=0.3, silence_timeout_s=1.0, run_timeout_s=1.0)
    return virtme._WallGuest(
        cast(Any, SimpleNamespace(guest=shape, patience=1)),
        cast(Any, SimpleNamespace(result=tmp_path / "result")),
        cast(Any, None), Follower(log), time.monotonic(),
    )  # fmt: skip


def test_a_guest_that_kvm_cannot_run_is_ended_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest = waiting(tmp_path, monkeypatch, "internal-error", CONSOLE)
    with pytest.raises(InfraError, match=r"KVM internal error. Suberror: 1\n"):
        guest.to_end(lambda word: None)


@pytest.mark.parametrize(
    ("status", "text"), [("running", CONSOLE), ("internal-error", "a KVM internal error\n")]
)
def test_a_console_alone_blames_no_kvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, text: str
) -> None:
    guest = waiting(tmp_path, monkeypatch, status, text)
    assert guest.to_end(lambda word: None).ending.kind == "boot"
