"""The workers of a scheduler as a session sees them: who may serve, who was refused or set aside.

A parcel is sent to one worker by name, so that a parcel of a worker that is gone is known and is
requeued: dask alone would let it wait for that address, or for any worker to join.
"""

from __future__ import annotations

import pickle
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from errors import InfraError
from runs.fleet import worker
from runs.fleet.parcel import Parcel

REFRESH_EVERY_S = 2.0
WAIT_S = 0.2
# A busy host takes its time over a result that is there.
RESULT_S = 30.0


@dataclass
class Member:
    """A worker that serves, its resources, and memory and number of this session's guests there."""

    address: str
    host: str
    resources: Mapping[str, float]
    guests: int = 0
    memory_mib: int = 0

    def capacity(self, memory_mib: int) -> int:
        """Guests of this memory that it runs at once."""
        by_memory = int(self.resources.get("memory", 0)) // max(1, memory_mib)
        return min(int(self.resources.get("cores", 0)), by_memory)

    def is_free(self, memory_mib: int) -> bool:
        """Whether one more guest of this memory fits beside those in flight."""
        room = self.resources.get("memory", 0) - self.memory_mib
        return self.guests < int(self.resources.get("cores", 0)) and memory_mib <= room


@dataclass
class Flight:
    """A parcel on one worker; ``member`` counts it."""

    future: Any
    member: Member
    memory_mib: int


def _by_name() -> Callable[[Mapping[str, str], bytes], bytes]:
    """A function that travels as code: by its module's name a scheduler would need the lab."""

    def call(identity: Mapping[str, str], payload: bytes) -> bytes:
        from runs.fleet import worker

        return worker.perform(identity, payload)

    return call


@dataclass
class Members:
    """A client of a scheduler; ``log`` hears of refused workers, ``resume`` is a next step."""

    client: Any
    identity: Mapping[str, str]
    log: Callable[[str], None]
    patience_s: float = 60.0
    resume: str = "./lab.py run --resume SESSION"
    serving: dict[str, Member] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    aside: dict[str, str] = field(default_factory=dict)
    _answers: dict[str, Future[dict[str, Any]] | None] = field(default_factory=dict)
    _refreshed: float = -REFRESH_EVERY_S
    _alone_since: float = 0.0
    _pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(4, thread_name_prefix="enlist")
    )

    def refresh(self, *, at_once: bool = False) -> None:
        """See who came and left, waiting for one ``at_once``; InfraError: nobody serves."""
        while True:
            self._require_scheduler()
            self._invite(at_once)
            self._admit()
            self._require_somebody()
            if self.serving or not at_once:
                return
            time.sleep(WAIT_S)

    def require_memory(self, memory_mib: int) -> None:
        """See that somebody has the memory for such a guest; InfraError: nobody has."""
        if self.serving and not any(m.capacity(memory_mib) for m in self.serving.values()):
            most = max(int(member.resources.get("memory", 0)) for member in self.serving.values())
            what = f"no worker has {memory_mib} MiB for a guest; the largest offers {most} MiB"
            step = "dask worker --resources memory=MIB, or a smaller guest"
            raise InfraError(what, where="fleet", next_step=step)

    def submit(self, parcel: Parcel, member: Member) -> Flight:
        """Have a worker boot a parcel's guest."""
        future = self.client.submit(
            _by_name(),
            dict(self.identity),
            pickle.dumps(parcel),
            key=f"twinboot-{uuid.uuid4().hex}",
            pure=False,
            workers=[member.address],
            resources={"cores": 1, "memory": parcel.memory_mib},
        )
        member.guests += 1
        member.memory_mib += parcel.memory_mib
        return Flight(future, member, parcel.memory_mib)

    def landed(self, flight: Flight) -> bool:
        """Whether a flight is over: its worker answered, or is gone."""
        return flight.future.status != "pending" or flight.member.address not in self._answers

    def result(self, flight: Flight) -> bytes | None:
        """What a worker answered; None: it was lost.  InfraError: it ran into a bug."""
        from distributed import KilledWorker

        member, future = flight.member, flight.future
        member.guests -= 1
        member.memory_mib -= flight.memory_mib
        if future.status not in ("finished", "error"):
            self.cancel([flight])
            return None
        try:
            return bytes(future.result(timeout=RESULT_S))
        except (KilledWorker, CancelledError, TimeoutError, OSError):
            return None
        except Exception as error:
            if future.status != "error":
                return None
            raise InfraError(
                f"{type(error).__name__}: {error}",
                where=f"worker {member.address} on {member.host}",
                next_step="its log has the place: a bug in the lab",
            ) from error

    def cancel(self, flights: Sequence[Flight]) -> None:
        """Stop what nobody waits for."""
        if flights and self.client.status == "running":
            with suppress(CancelledError, TimeoutError, OSError):
                self.client.cancel([flight.future for flight in flights], force=True)

    def set_aside(self, member: Member, reason: str) -> None:
        """Send a worker nothing more in this session."""
        if member.address not in self.aside:
            self.aside[member.address] = reason
            self.serving.pop(member.address, None)
            self.log(f"worker {member.address} on {member.host} is set aside: {reason}")

    def close(self) -> None:
        """Forget the workers that were asked and have not answered."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _require_scheduler(self) -> None:
        if self.client.status in ("closing", "closed"):
            raise InfraError(
                "the scheduler is gone; every run that came back is on record",
                where=str(self.client.scheduler.address if self.client.scheduler else "fleet"),
                next_step=f"start it again, then {self.resume}",
            )
        if self.client.status != "running":
            # It forgets its tasks, and its workers start anew.
            self.serving.clear()
            self._answers.clear()

    def _invite(self, at_once: bool) -> None:
        now = time.monotonic()
        if not at_once and now - self._refreshed < (REFRESH_EVERY_S if self.serving else WAIT_S):
            return
        self._refreshed = now
        try:
            workers = self.client.scheduler_info(n_workers=-1)["workers"]
        except (OSError, TimeoutError, ValueError, KeyError):
            return  # The scheduler is away, which is seen by its status.
        # One that has no resources any more is another process at the same address.
        there = {
            address
            for address, each in workers.items()
            if address not in self.serving or each.get("resources")
        }
        for gone in self._answers.keys() - there:
            del self._answers[gone]
            self.serving.pop(gone, None)
        # One by one: a worker that does not answer must not hold up the others.
        for address in sorted(there - self._answers.keys()):
            self._answers[address] = self._pool.submit(self._enlist, address)

    def _enlist(self, address: str) -> dict[str, Any]:
        answer = self.client.run(
            worker.enlist, dict(self.identity), workers=[address], on_error="return"
        )
        return dict(answer)

    def _admit(self) -> None:
        for address, future in list(self._answers.items()):
            if future is None or not future.done():
                continue
            self._answers[address] = None
            if future.exception() is not None:
                continue  # It left, or will be seen again.
            answer: Any = future.result().get(address)
            if isinstance(answer, ImportError):
                self._refuse(address, f"it does not find the lab's code ({answer}): docs/fleet.md")
            elif isinstance(answer, BaseException):
                self._refuse(address, f"{type(answer).__name__}: {answer}")
            elif answer["differs"]:
                differs = "; ".join(answer["differs"])
                self._refuse(address, f"another identity on {answer['host']}: {differs}")
            elif address not in self.aside:
                self.serving[address] = Member(address, answer["host"], answer["resources"])

    def _refuse(self, address: str, reason: str) -> None:
        self.refused[address] = reason
        self.log(f"worker {address} is refused: {reason}")

    def _require_somebody(self) -> None:
        if self.serving:
            self._alone_since = 0.0
            return
        now = time.monotonic()
        self._alone_since = self._alone_since or now
        known = self.refused | self.aside
        # Those that were asked have not all answered; more may be on their way.
        if now - self._alone_since < (self.patience_s / 4 if known else self.patience_s):
            return
        reasons = "; ".join(f"{address}: {reason}" for address, reason in known.items())
        what = f"no worker can serve this session: {reasons or 'none is there'}"
        raise InfraError(what, where="fleet", next_step="start workers as docs/fleet.md says")
