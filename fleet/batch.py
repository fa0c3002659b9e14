"""Boots on a fleet: send them, hear of them, have them checked, and tell the judge.

One thread, whatever the number of workers: parcels are dask futures, a few more than run at once.
"""

from __future__ import annotations

import queue
import statistics
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from errors import InfraError
from fleet import worker
from fleet.artefacts import ArtefactStore
from fleet.cases import BootCase, Flight, differences, lost_answer, unpack, write_raw
from fleet.ledger import Ledger, unchecked
from fleet.link import Died, SchedulerLink
from fleet.parcel import Answer, files_of, parcel_of
from fleet.settings import Settings
from fleet.trust import Trust
from guests import channel
from guests.exact import Outcome
from runs.boots import ATTEMPTS, Boot, Judge, Place

TICK_S = 0.25
ENOUGH = 5
MOST_NAMED = 8


@dataclass
class BootBatch:
    """One call of ``Executor.boot``: everything is booted, checked and told, or it raises.

    ``most`` guests run at once where the user says so.
    """

    link: SchedulerLink
    store: ArtefactStore
    settings: Settings
    judge: Judge
    place: Place
    trust: Trust
    ledger: Ledger
    most: int | None = None
    cases: dict[str, BootCase] = field(default_factory=dict)
    open: dict[str, BootCase] = field(default_factory=dict)
    flights: dict[str, Flight] = field(default_factory=dict)
    todo: deque[tuple[BootCase, frozenset[str]]] = field(default_factory=deque)
    started: set[str] = field(default_factory=set)
    durations: list[float] = field(default_factory=list)
    # Workers with a straggler: dask takes one for free when that is cancelled, and it is not.
    overdue: set[str] = field(default_factory=set)
    cpu_s: float = 0.0
    _queue: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue)
    _topic: str = field(default_factory=lambda: f"twinboot-{uuid.uuid4().hex}")
    _serial: int = 0

    def run(self, boots: Sequence[Boot]) -> float:
        """Boot everything; return the CPU seconds of all guests."""
        kept = {path: self.store.put(path) for boot in boots for path in files_of(boot)
                if path.exists()}  # fmt: skip
        for boot in boots:
            case = BootCase(boot, parcel_of(boot, self.store, kept, self._topic))
            self.cases[boot.name] = self.open[boot.name] = case
            self.todo.append((case, frozenset()))
            self.ledger.expect(case)
        self.link.client.subscribe_topic(self._topic, self._queue.put)
        try:
            self.link.members.refresh(at_once=True)
            self.trust.proven |= self.link.proven()
            while self.open:
                self.link.require_scheduler()
                self._send()
                self._receive()
                self._refresh()
                self._settle()
        finally:
            self.link.cancel([flight.future for flight in self.flights.values()])
            self.flights.clear()
        message = unchecked(self.cases.values()) if self.settings.check_one_in else ""
        if message:
            self.place.reporter.log(message)
        return self.cpu_s

    # What goes out.

    def _send(self) -> None:
        members = self.link.members
        if not members.serving:
            return
        waiting: deque[tuple[BootCase, frozenset[str]]] = deque()
        while self.todo:
            case, avoid = self.todo[0]
            if len(self.flights) >= self._window(case.parcel.memory_mib):
                break
            self.todo.popleft()
            others = self._others(case, set(avoid)) if avoid else []
            if avoid and not others:
                # They left, were set aside, or have not the memory.
                case.checking = False
                if case.votes:
                    self._consider(case)
                else:
                    waiting.append((case, frozenset()))
                continue
            quick = self._others(case, set(avoid) | self.overdue) if self.overdue else []
            self._submit(case, quick or others)
        self.todo.extend(waiting)

    def _others(self, case: BootCase, than: set[str]) -> list[str]:
        """Addresses of members that are not among these and have the memory for it."""
        members, memory_mib = self.link.members, case.parcel.memory_mib
        return [each for each in members.others(than) if members.serving[each].fits(memory_mib)]

    def _window(self, memory_mib: int) -> int:
        return self.most or self.link.members.window(memory_mib)

    def _submit(self, case: BootCase, workers: Sequence[str]) -> None:
        self._serial += 1
        key = f"{self._topic}-{case.boot.name}-{self._serial}"
        # Many names are many bytes in each message, and one of a few is soon free.
        start = self._serial % len(workers) if workers else 0
        some = [*workers[start:], *workers[:start]][:MOST_NAMED]
        future = self.link.submit(
            worker.perform, case.parcel, key=key, workers=some,
            resources={"cores": 1, "memory": case.parcel.memory_mib},
        )  # fmt: skip
        self.flights[key] = Flight(case, case.attempt, future, time.monotonic(), frozenset(some))
        future.add_done_callback(self._queue.put)

    # What comes back.

    def _receive(self) -> None:
        try:
            event = self._queue.get(timeout=TICK_S)
        except queue.Empty:
            return
        while True:
            if isinstance(event, tuple):
                self._progress(event[1])
            else:
                self._landed(event.key)
            try:
                event = self._queue.get_nowait()
            except queue.Empty:
                return

    def _progress(self, event: Mapping[str, str]) -> None:
        flight = self.flights.get(event["key"])
        if flight is None:
            return
        if not event["word"]:
            # Told again by another worker when the first one was lost.
            flight.worker, flight.began = event["worker"], time.monotonic()
            self.overdue.discard(flight.worker)
            if event["name"] not in self.started:
                self.started.add(event["name"])
                self.place.reporter.started(event["name"])
        self.place.reporter.reached(event["name"], event["word"])

    def _landed(self, key: str) -> None:
        flight = self.flights.pop(key, None)
        if flight is None:
            return
        case = flight.case
        data = self.link.result(flight.future)
        current = flight.attempt == case.attempt
        if isinstance(data, Died):
            self._died(flight, data)
            return
        if data is None:
            self._again(case)
            return
        try:
            answer = replace(unpack(data), moved=len(data) + case.size)
        except InfraError as error:
            answer = Answer(flight.worker, "", None, trouble=error.what)
        if not current or answer.worker in self.link.members.aside:
            self._again(case)
        elif answer.outcome is None:
            self._set_aside(answer.worker, answer.trouble)
            self._again(case)
        else:
            self._answered(case, answer, answer.outcome)

    def _died(self, flight: Flight, died: Died) -> None:
        """Workers were lost with a parcel: ask again, or say that it kills them."""
        case = flight.case
        current = flight.attempt == case.attempt
        case.lost += died.count
        if current and case.lost > self.settings.losses and case.votes:
            case.checking, case.unchecked = False, True
            self._offer(case)
        elif current and case.lost > self.settings.losses:
            message = f"{case.lost} workers died while they made it; last {died.last}"
            self._deliver(case, lost_answer(died.last, message), last=True)
        elif current:
            self._again(case)

    def _again(self, case: BootCase) -> None:
        """Ask once more, unless somebody is asked, or there is nothing to ask any more."""
        if any(flight.case is case for flight in self.flights.values()):
            return
        if not case.delivered_by or case.checking:
            self.todo.appendleft((case, frozenset(case.votes)))

    def _answered(self, case: BootCase, answer: Answer, outcome: Outcome) -> None:
        self.cpu_s += outcome.cpu_s + answer.snapshot_cpu_s
        self.durations.append(answer.elapsed_s)
        self.ledger.snapshot(case, answer)
        if not answer.digest:
            # The host's trouble: nothing to compare; the judge may want it again.
            if not case.delivered_by and not case.votes:
                self._deliver(case, answer, last=case.attempt == ATTEMPTS)
            else:
                self._again(case)
            return
        case.votes[answer.worker] = answer.digest
        case.answers[answer.worker] = answer
        self._consider(case)

    # Who is believed.

    def _consider(self, case: BootCase) -> None:
        others = self._others(case, set(case.votes))
        match self.trust.decide(case, self.cases, others):
            case "verified":
                self._verified(case)
            case "check":
                self._check(case)
            case "deliver":
                case.checking, case.unchecked = False, not others
                self._offer(case)
            case "undecided":
                names = ", ".join(sorted(case.votes))
                message = (
                    f"{names} sent different results for the same run; nobody is left to decide"
                )
                if case.delivered_by:
                    self.judge.withdraw([case.boot.name])
                    case.delivered_by = ""
                case.checking = False
                self._deliver(case, lost_answer(next(iter(case.votes)), message), last=True)

    def _verified(self, case: BootCase) -> None:
        standing = case.standing
        believed = [w for w, digest in case.votes.items() if digest == standing.digest]
        if not case.verified:
            self.ledger.note(run=case.boot.name, agreed=believed)
        case.verified, case.checking = True, False
        self.link.note_proven(set(believed) - self.trust.proven)
        self.trust.proven |= set(believed)
        for liar in standing.liars:
            self._quarantine(liar, case, believed)
        self._stop_others(case)
        self._offer(case)

    def _check(self, case: BootCase) -> None:
        case.checking = True
        if not any(flight.case is case for flight in self.flights.values()):
            self.todo.appendleft((case, frozenset(case.votes)))

    def _quarantine(self, liar: str, case: BootCase, believed: Sequence[str]) -> None:
        """Name a worker that is wrong, and make again what nobody else has confirmed of it."""
        right, wrong = case.best(), case.answers.get(liar)
        differs = "; ".join(differences(right, wrong)[:1])
        self._set_aside(
            liar,
            f"quarantined: for {case.boot.name} it sent other bytes than "
            f"{' and '.join(sorted(believed))}{f' ({differs})' if differs else ''}",
        )
        doubtful = [c for c in self.cases.values() if liar in c.votes and not c.verified]
        delivered = [c.boot.name for c in (*doubtful, case) if c.delivered_by == liar]
        if delivered:
            self.judge.withdraw(delivered)
            self.ledger.note(withdrawn=delivered, worker=liar)
        for affected in (*doubtful, case):
            affected.forget(liar)
            if not affected.votes:
                self._again(affected)

    def _set_aside(self, address: str, reason: str) -> None:
        """No more of a worker; what it was given, or may have been, goes out again."""
        self.link.members.set_aside(address, reason)
        self.ledger.note(aside=address, reason=reason)
        for key, flight in list(self.flights.items()):
            if flight.worker == address or not flight.began:
                self._recall(key)

    # What the judge hears.

    def _offer(self, case: BootCase) -> None:
        if case.delivered_by:
            return
        answer = case.best()
        if answer is None or answer.outcome is None:
            return
        first = self.cases.get(self.judge.first(case.boot, answer.outcome))
        if first is not None and not first.delivered_by:
            return  # It is offered again when that one was told.
        if first is not None and self._differs_unchecked(case, first, answer.outcome):
            return
        self._deliver(case, answer, last=case.attempt == ATTEMPTS)

    def _differs_unchecked(self, case: BootCase, first: BootCase, outcome: Outcome) -> bool:
        """Whether a repeat differs from its run, and it is not certain yet who says so."""
        if outcome.files is None or channel.fingerprint(outcome.files) == first.fingerprint:
            return False
        waits = False
        for candidate in (case, first):
            if not candidate.verified and self._others(candidate, set(candidate.votes)):
                self._check(candidate)
                waits = True
        return waits

    def _deliver(self, case: BootCase, answer: Answer, *, last: bool) -> None:
        outcome = answer.outcome
        assert outcome is not None
        write_raw(self.place.raw / case.boot.name, answer.raw)
        if self.judge.receive(case.boot, outcome, last=last):
            case.attempt += 1
            case.again()
            self.todo.appendleft((case, frozenset()))
            return
        case.delivered_by = answer.worker
        case.fingerprint = channel.fingerprint(outcome.files) if outcome.files is not None else ""
        case.answers.clear()
        self.ledger.accept(case, answer)
        if not case.checking:
            self._stop_others(case)

    def _stop_others(self, case: BootCase) -> None:
        """Nobody waits for the other flights of a case that is decided."""
        doomed = [key for key, flight in self.flights.items() if flight.case is case]
        self.link.cancel([self.flights.pop(key).future for key in doomed])

    def _settle(self) -> None:
        """Whatever may be told now, is; then nothing is open that was told and checked."""
        for case in list(self.open.values()):
            if case.votes and not case.delivered_by and not case.checking:
                self._consider(case)
        self._catch_up()
        self.open = {
            name: case
            for name, case in self.cases.items()
            if not case.delivered_by or case.checking
        }

    def _catch_up(self) -> None:
        """Check workers that served alone at first, now that others are there."""
        for case in self.cases.values():
            if case.unchecked and case.delivered_by and not case.verified:
                alone = not self._others(case, set(case.votes))
                if not alone and self.trust.tries(case, self.cases):
                    case.unchecked = False
                    self._check(case)

    # What goes wrong without a word.

    def _refresh(self) -> None:
        members = self.link.members
        members.refresh()
        for key, flight in list(self.flights.items()):
            if flight.future.status in ("lost", "cancelled"):
                # The scheduler was away and has forgotten it.
                self._recall(key)
            elif self._has_somebody(flight):
                continue
            elif not flight.began:
                self._recall(key)
            elif flight.worker not in members.serving:
                self.link.cancel([self.flights.pop(key).future])
                self._died(flight, Died(1, flight.worker))
        if self.link.returned():
            self.link.client.subscribe_topic(self._topic, self._queue.put)
        self._double_stragglers()

    def _has_somebody(self, flight: Flight) -> bool:
        """Whether a worker that may take it has been there ever since it was sent."""
        memory_mib = flight.case.parcel.memory_mib
        return self.link.members.served_since(
            flight.sent, lambda member: member.fits(memory_mib) > 0, flight.allowed
        )

    def _recall(self, key: str) -> None:
        """Take a parcel back, wherever it is, and send it again."""
        flight = self.flights.pop(key)
        self.link.cancel([flight.future])
        self._again(flight.case)

    def _double_stragglers(self) -> None:
        """Begin elsewhere what takes too long; send again what nobody began."""
        usual = statistics.median(self.durations) if self.durations else 0.0
        limit = max(self.settings.straggler_s, self.settings.straggler * usual)
        now = time.monotonic()
        for key, flight in list(self.flights.items()):
            case = flight.case
            if not flight.began:
                if now - flight.sent > 2 * limit:
                    self._recall(key)
                continue
            late = now - flight.began > limit and len(self.durations) >= ENOUGH
            if not late or case.doubled:
                continue
            others = self._others(case, {flight.worker, *case.votes})
            if others:
                case.doubled = True
                self.overdue.add(flight.worker)
                self.place.reporter.log(
                    f"slow     {case.boot.name}: {now - flight.began:.0f} s on {flight.worker}, "
                    f"median {usual:.0f} s; sent to another worker too"
                )
                self._submit(case, others)
