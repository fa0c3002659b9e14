"""The workers of a fleet as a session sees them: who may serve, who was refused or set aside."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from errors import InfraError
from fleet import worker
from fleet.identity import token

REFRESH_EVERY_S = 2.0
WAIT_S = 0.2
# How long a session waits where nobody can serve it.
PATIENCE_S = 60.0
# Work under way beyond what runs at once, so that no worker waits for the next parcel.
AHEAD = 1.25
DISMISS_S = 5.0


@dataclass(frozen=True)
class Member:
    """A worker that serves: its address, host, resources, and trees it has objects of.

    ``since`` is when this session first knew of its resources, by the monotonic clock.
    """

    address: str
    host: str
    resources: Mapping[str, float]
    trees: tuple[str, ...]
    since: float

    def fits(self, memory_mib: int) -> int:
        """Guests of this memory that it runs at once."""
        by_memory = int(self.resources.get("memory", 0)) // max(1, memory_mib)
        return min(int(self.resources.get("cores", 0)), by_memory)


@dataclass
class Members:
    """Looks at the scheduler's workers now and then, and lets those that fit serve.

    ``log`` is told of workers that are refused or set aside.
    """

    client: Any
    identity: Mapping[str, str]
    log: Callable[[str], None]
    patience_s: float = PATIENCE_S
    serving: dict[str, Member] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    aside: dict[str, str] = field(default_factory=dict)
    _invited: set[str] = field(default_factory=set)
    _answers: list[Future[dict[str, Any]]] = field(default_factory=list)
    _refreshed: float = -REFRESH_EVERY_S
    _alone_since: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(4, thread_name_prefix="enlist")
    )

    @property
    def token(self) -> str:
        """The resource that every parcel asks for, which only members have."""
        return token(self.identity)

    def refresh(self, *, at_once: bool = False) -> None:
        """See who came and who left; with ``at_once`` wait until somebody serves.

        Raises:
            InfraError: nobody serves, and nobody has for a while.
        """
        self._invite(at_once)
        self._receive()
        self._require_somebody()
        while at_once and not self.serving:
            time.sleep(WAIT_S)
            self._invite(False)
            self._receive()
            self._require_somebody()

    def await_member(self, suits: Callable[[Member], bool]) -> bool:
        """Wait until a member of this kind serves; whether one does.

        Once anybody serves others are waited for as long as for whoever is left to answer:
        on a busy host the first to come may be of another kind.

        Raises:
            InfraError: nobody at all serves.
        """
        since = time.monotonic()
        self.refresh(at_once=True)
        while not any(map(suits, self.serving.values())):
            if time.monotonic() - since > self.lateness_s:
                return False
            time.sleep(WAIT_S)
            self.refresh()
        return True

    @property
    def lateness_s(self) -> float:
        """How long those that have not answered are waited for when others have."""
        return self.patience_s / 4

    def capacity(self, memory_mib: int) -> int:
        """Guests of this memory that the whole fleet runs at once."""
        return sum(member.fits(memory_mib) for member in self.serving.values())

    def window(self, memory_mib: int) -> int:
        """Units under way at most: with more, a lost worker would take others' parcels along.

        Dask counts the loss of a worker against every task it was given, run or not.

        Raises:
            InfraError: no worker that serves has so much memory.
        """
        if not self.capacity(memory_mib):
            most = max(int(member.resources.get("memory", 0)) for member in self.serving.values())
            raise InfraError(
                f"no worker has {memory_mib} MiB for a guest; the largest offers {most} MiB",
                where="fleet",
                next_step="dask worker --resources memory=MIB, or a smaller guest",
            )
        return int(self.capacity(memory_mib) * AHEAD) + 1

    def served_since(
        self, sent: float, suits: Callable[[Member], bool], among: Collection[str] = ()
    ) -> bool:
        """Whether a member that suits has served without a break since something was sent.

        ``among`` are the addresses it was sent to, all where it is empty.  Where none has, what was
        sent may wait for ever: with nobody to take it, it waits for a worker to join, and dask does
        not look again when one that has joined offers resources.
        """
        return any(
            member.since <= sent and suits(member) and (not among or member.address in among)
            for member in self.serving.values()
        )

    def others(self, than: set[str]) -> list[str]:
        """Addresses of members that are not among these."""
        return sorted(address for address in self.serving if address not in than)

    def with_tree(self, tree: str) -> list[str]:
        """Addresses of members that have the objects of a source and flavour."""
        return sorted(a for a, member in self.serving.items() if tree in member.trees)

    def built(self, address: str, tree: str) -> None:
        """A member has objects now that it did not have."""
        if address in self.serving:
            member = self.serving[address]
            self.serving[address] = replace(member, trees=(*member.trees, tree))

    def set_aside(self, address: str, reason: str) -> None:
        """No more work for a worker; its answers are not taken."""
        if address in self.aside:
            return
        member = self.serving.pop(address, None)
        self.aside[address] = reason
        host = f" on {member.host}" if member else ""
        self.log(f"worker {address}{host} is set aside: {reason}")
        # Waited for: what goes out next must not go there.
        with suppress(Exception):
            self._pool.submit(self._dismiss, address, reason).result(timeout=DISMISS_S)

    def close(self) -> None:
        """Forget the workers that were asked and have not answered."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _invite(self, at_once: bool) -> None:
        now = time.monotonic()
        if not at_once and now - self._refreshed < (REFRESH_EVERY_S if self.serving else WAIT_S):
            return
        self._refreshed = now
        try:
            there = set(self.client.scheduler_info(n_workers=-1)["workers"])
        except (OSError, TimeoutError, ValueError, KeyError):
            return  # The scheduler is away; whoever works with it will say so.
        for gone in set(self.serving) - there:
            del self.serving[gone]
        self._invited &= there
        new = sorted(there - self._invited)
        self._invited |= set(new)
        # One by one: a worker that does not answer must not hold up the others.
        self._answers += [self._pool.submit(self._enlist, address) for address in new]

    def _enlist(self, address: str) -> dict[str, Any]:
        answer = self.client.run(
            worker.enlist, dict(self.identity), workers=[address], on_error="return"
        )
        return dict(answer)

    def _dismiss(self, address: str, reason: str) -> None:
        self.client.run(worker.dismiss, self.token, reason, workers=[address], on_error="ignore")

    def _receive(self) -> None:
        done = [future for future in self._answers if future.done()]
        self._answers = [future for future in self._answers if future not in done]
        for future in done:
            if future.exception() is not None:
                continue  # It left, or will be seen again.
            for address, answer in future.result().items():
                self._admit(address, answer)

    def _admit(self, address: str, answer: Any) -> None:
        if isinstance(answer, ImportError):
            self._refuse(address, f"it does not find the lab's code ({answer}): docs/fleet.md")
        elif isinstance(answer, BaseException):
            self._refuse(address, f"{type(answer).__name__}: {answer}")
        elif answer["differs"]:
            self._refuse(address, f"another identity on {answer['host']}: "
                                  f"{'; '.join(answer['differs'])}")  # fmt: skip
        elif address not in self.aside:
            self.serving[address] = Member(
                address, answer["host"], answer["resources"], tuple(answer["trees"]),
                time.monotonic(),
            )  # fmt: skip

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
        if now - self._alone_since < (self.lateness_s if known else self.patience_s):
            return
        reasons = "; ".join(f"{address}: {reason}" for address, reason in known.items())
        raise InfraError(
            f"no worker can serve this session: {reasons or 'none is there'}",
            where="fleet",
            next_step="start workers as docs/fleet.md says",
        )
