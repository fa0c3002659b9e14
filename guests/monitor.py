"""QMP over a socket pair, for the moments when the guest stands still.

The guest must not be disturbed while it runs: QEMU's main loop looks at the
virtual clock each time it is woken, so events are awaited and never polled for.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from qemu.qmp import QMPError
from qemu.qmp.legacy import QEMUMonitorProtocol

from errors import InfraError

logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)
EVENT_WAIT_S = 0.5
MIGRATION_POLL_S = 0.02


class Monitor:
    """One QMP connection, used by one thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._qmp = QEMUMonitorProtocol(sock)

    def connect(self) -> None:
        """Negotiate capabilities.

        Raises:
            InfraError: QEMU ended before it answered.
        """
        try:
            self._qmp.connect()
        except (TimeoutError, QMPError, OSError, EOFError) as error:
            raise InfraError(f"QEMU did not start: {error}", where="QMP") from None

    def command(self, name: str, **arguments: object) -> Any:
        """Send one command; only while the guest is stopped.

        Raises:
            InfraError: refused, or QEMU is gone.
        """
        try:
            return self._qmp.cmd(name, **arguments)
        except (TimeoutError, QMPError, OSError, EOFError) as error:
            raise InfraError(f"{name}: {error}", where="QMP") from None

    def give_file(self, name: str, fd: int) -> None:
        """Let QEMU have a copy of an open file, by name.

        Raises:
            InfraError: refused, or QEMU is gone.
        """
        try:
            self._qmp.send_fd_scm(fd)
        except (QMPError, OSError, EOFError) as error:
            raise InfraError(f"getfd: {error}", where="QMP") from None
        self.command("getfd", fdname=name)

    def await_stop(self, give_up: Callable[[], bool]) -> bool:
        """Wait for the guest's own stop; False when ``give_up`` says so or QEMU is gone."""
        while not give_up():
            try:
                event = self._qmp.pull_event(wait=EVENT_WAIT_S)
            except TimeoutError:
                continue
            except (QMPError, OSError, EOFError):
                return False
            if event is not None and event["event"] == "STOP":
                return True
        return False

    def await_migration(self, timeout_s: float) -> None:
        """Wait for a migration in either direction to complete.

        Raises:
            InfraError: it failed, or took longer than ``timeout_s``.
        """
        deadline = time.monotonic() + timeout_s
        status = ""
        while time.monotonic() < deadline:
            status = self.command("query-migrate").get("status", "")
            if status == "completed":
                return
            if status in ("failed", "cancelled"):
                break
            time.sleep(MIGRATION_POLL_S)
        raise InfraError(f"migration {status or 'did not start'}", where="QMP")

    def close(self) -> None:
        """Let go of the connection; QEMU may be gone already."""
        with suppress(Exception):
            self._qmp.close()
