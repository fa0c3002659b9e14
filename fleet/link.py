"""The connection to a scheduler: submit, hear, and say plainly when it is gone."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from errors import InfraError
from fleet.members import Members

# A busy host takes its time over a result that is there.
RESULT_S = 30.0
PROVEN = "twinboot-proven"
# A worker that was right goes on to be checked by the share; each day begins anew.
PROVEN_S = 24 * 3600.0


@dataclass(frozen=True)
class Died:
    """So many workers died under a task; ``last`` is the address of the last one."""

    count: int
    last: str


def _by_name() -> Callable[[str, Mapping[str, str], bytes], bytes]:
    """A function that travels as its own code, and finds the lab's where it is run.

    A scheduler unpickles what it is sent, and need not have the lab: one that stands in a
    module, and not in a function as this does, would be sent by the module's name.
    """

    def call(name: str, identity: Mapping[str, str], payload: bytes) -> bytes:
        import importlib

        module, _, function = name.partition(":")
        answer: bytes = getattr(importlib.import_module(module), function)(identity, payload)
        return answer

    return call


@dataclass
class SchedulerLink:
    """A client of a scheduler and the workers that serve it; ``resume`` is the next step."""

    client: Any
    members: Members
    grace_s: float
    resume: str = "./lab.py run --resume SESSION"
    _away_since: float = 0.0
    _returned: bool = field(default=False)

    def submit(
        self,
        function: Any,
        parcel: object,
        *,
        key: str,
        resources: Mapping[str, float],
        workers: Sequence[str] = (),
        loosely: bool = False,
    ) -> Any:
        """A future of ``function(identity, pickled parcel)`` on a member of the fleet.

        With ``loosely`` others than ``workers`` may do it where none of these is there.
        """
        return self.client.submit(
            _by_name(),
            f"{function.__module__}:{function.__name__}",
            dict(self.members.identity),
            pickle.dumps(parcel),
            key=key,
            pure=False,
            workers=list(workers) or None,
            allow_other_workers=bool(workers) and loosely,
            resources={**resources, self.members.token: 1},
        )

    def result(self, future: Any) -> bytes | Died | None:
        """What a future that has landed holds; None where it was lost on the way.

        Dask gives up where several workers died under it.

        Raises:
            InfraError: the worker ran into a bug.
        """
        from distributed import KilledWorker

        try:
            data = future.result(timeout=RESULT_S)
        except KilledWorker as error:
            return Died(int(error.allowed_failures) + 1, str(error.last_worker.address))
        except (CancelledError, TimeoutError, OSError):
            return None
        except Exception as error:
            if future.status != "error":
                return None
            raise InfraError(
                f"{type(error).__name__}: {error}",
                where=f"a worker, parcel {future.key}",
                next_step="its log has the place: a bug in the lab",
            ) from error
        return bytes(data) if isinstance(data, bytes) else None

    def proven(self) -> set[str]:
        """Workers that a session of the last day confirmed, as the scheduler remembers them."""
        with suppress(OSError, TimeoutError):
            known = self.client.get_metadata([PROVEN, self.members.token], default={})
            since = time.time() - PROVEN_S
            return {address for address, when in dict(known).items() if when > since}
        return set()

    def note_proven(self, addresses: Iterable[str]) -> None:
        """Tell the sessions to come that these workers were confirmed now."""
        with suppress(OSError, TimeoutError):
            for address in addresses:
                self.client.set_metadata([PROVEN, self.members.token, address], time.time())

    def cancel(self, futures: Sequence[Any]) -> None:
        """Stop what nobody waits for."""
        if futures and self.client.status == "running":
            with suppress(CancelledError, TimeoutError, OSError):
                self.client.cancel(list(futures), force=True)

    def require_scheduler(self) -> None:
        """Go on while the scheduler is there, or may come back.

        Raises:
            InfraError: it is gone for longer than the grace.
        """
        if self.client.status == "running":
            if self._away_since:
                self._away_since, self._returned = 0.0, True
            return
        now = time.monotonic()
        self._away_since = self._away_since or now
        if self.client.status == "closed" or now - self._away_since > self.grace_s:
            raise InfraError(
                "the scheduler is gone; every run that came back is on record",
                where=str(self.client.scheduler.address if self.client.scheduler else "fleet"),
                next_step=f"start it again, then {self.resume}",
            )

    def returned(self) -> bool:
        """Whether the scheduler was away and is back, since this was last asked."""
        returned, self._returned = self._returned, False
        return returned
