"""From ``--executor`` to an executor: this host, or guests over the workers of a dask scheduler."""

from __future__ import annotations

import ipaddress
import logging
import queue
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from errors import InfraError, UsageError
from experiment.architecture import X86_64
from experiment.frozen import Frozen
from experiment.spec import REAL_TIME, Experiment
from guests import channel
from guests.channel import Ending
from guests.exact import Machine, Outcome
from host import limited
from host.facts import QEMU_OVERHEAD_MIB
from results import door
from runs.boots import ATTEMPTS, Boot, Executor, Judge, Place, diverging
from runs.fleet.members import Flight, Member, Members
from runs.fleet.parcel import (
    HOST_ENDINGS,
    RESULT,
    Answer,
    ArtefactStore,
    Parcel,
    answer_of,
    files_of,
    write_raw,
)
from runs.fleet.worker import identity
from runs.local import LocalExecutor

DASK, TLS = "dask://", "tls://"
FORMS = "local, dask://HOST:PORT or tls://HOST:PORT"
CONNECT_S = 15.0
POLL_S = 0.1
# Behind the name of a repeat, in which nothing counts: the run once more, counted.
COUNTED = ".counted"


# Beside the records of a session: who made which run, for whoever goes on with it.
MADE = "fleet.jsonl"


class Made(Frozen):
    """A run that was made: by which worker on which host, digests of its bytes and its counts."""

    run_id: str
    worker: str
    host: str
    fingerprint: str = ""
    counted: str = ""


@dataclass
class Case:
    """One boot on its way: its attempt, workers to avoid and lost, and who answered or made it."""

    parcel: Parcel
    attempt: int = 1
    lost: int = 0
    avoid: set[str] = field(default_factory=set)
    member: Member | None = None
    answer: Answer | None = None
    made: Made | None = None
    is_recorded: bool = False

    @property
    def boot(self) -> Boot:
        """What is booted."""
        return self.parcel.boot

    @property
    def is_counted(self) -> bool:
        """Whether it is booted to be compared alone, and no run of the plan."""
        return self.boot.name.endswith(COUNTED)


@dataclass
class BootBatch:
    """One call of ``Executor.boot``: repeats on another worker, ``most`` guests at once.

    ``made`` are the runs of earlier calls for the session, of this process or another.
    """

    members: Members
    judge: Judge
    place: Place
    losses: int
    most: int | None
    cases: Mapping[str, Case]
    made: Mapping[str, Made]
    queued: deque[Case] = field(default_factory=deque)
    flights: dict[str, Flight] = field(default_factory=dict)
    cpu_s: float = 0.0
    # Of each machine, in the order of the plan, as a local session numbers its snapshots.
    _numbers: dict[Machine, int] = field(default_factory=dict)
    _alone: int = 0

    def _original(self, case: Case) -> Made | Member | None:
        """The run that a case repeats if a worker made it, else who makes it."""
        original = self.cases.get(case.boot.repeats)
        return (original.made or original.member) if original else self.made.get(case.boot.repeats)

    def run(self) -> float:
        """Boot everything; return the CPU seconds.  InfraError: nobody serves, or bytes differ."""
        for case in self.cases.values():
            self.queued.append(case)
            if not case.boot.cold:
                self._numbers.setdefault(case.boot.machine, len(self._numbers) + 1)
        kept_snapshots: set[Machine] = set()
        try:
            self.members.refresh(at_once=True)
            while not all(case.is_recorded for case in self.cases.values()):
                self.members.refresh()
                self._send()
                time.sleep(POLL_S)
                for name, flight in list(self.flights.items()):
                    if self.members.landed(flight):
                        self._receive(self.cases[name], flight, kept_snapshots)
                self._deliver()
        finally:
            self.members.cancel(list(self.flights.values()))
        if self._alone:
            self.place.reporter.log(
                f"{self._alone} repeats were made by the worker of the run: no other served"
            )
        return self.cpu_s

    def _send(self) -> None:
        if self.members.client.status != "running":
            return
        waiting: deque[Case] = deque()
        while self.queued and (not self.most or len(self.flights) < self.most):
            case = self.queued.popleft()
            self.members.require_memory(case.parcel.memory_mib)
            member = self._member_for(case)
            if member is None:
                waiting.append(case)
                continue
            if case.is_counted and member.address == _address(self._original(case)):
                case.is_recorded = True  # nobody else serves
                continue
            case.member = member
            flight = self.members.submit(case.parcel, member)
            self.flights[case.boot.name] = flight
            self.place.reporter.started(case.boot.name)
        self.queued.extendleft(reversed(waiting))

    def _member_for(self, case: Case) -> Member | None:
        """The least busy worker; of a repeat one that did not make the run, if any serves."""
        memory_mib = case.parcel.memory_mib
        able = [m for m in self.members.serving.values() if m.capacity(memory_mib)]
        original = self._original(case)
        if original is not None:
            others = [m for m in able if m.address != _address(original)]
            able = [m for m in others if m.host != original.host] or others or able
        elif case.boot.repeats in self.cases:
            return None
        able = [m for m in able if m.address not in case.avoid] or able
        free = [member for member in able if member.is_free(memory_mib)]
        return min(free, key=lambda member: (member.guests, member.address), default=None)

    def _receive(self, case: Case, flight: Flight, kept_snapshots: set[Machine]) -> None:
        del self.flights[case.boot.name]
        lost = flight.future.status in ("pending", "error")
        data = self.members.result(flight)
        if data is None:
            # A future that is cancelled was forgotten by a scheduler that was away.
            case.lost += lost
            if case.lost > self.losses:
                # A guest cannot kill a worker, so this is never a series' doing.
                message = (
                    f"{case.lost} workers died while they made it; last {flight.member.address}"
                )
                ending = Ending("lost", message, killed=True)
                case.attempt = ATTEMPTS
                case.answer = Answer(
                    flight.member.address, flight.member.host, Outcome(None, ending, 0.0, 0.0)
                )
            else:
                self.queued.appendleft(case)
            return
        try:
            answer = answer_of(data)
        except InfraError as error:
            answer = Answer(flight.member.address, flight.member.host, None, trouble=error.what)
        if answer.outcome is None:
            self.members.set_aside(flight.member, answer.trouble)
            self.queued.appendleft(case)
            return
        self.cpu_s += answer.outcome.cpu_s + answer.snapshot_cpu_s
        machine = case.boot.machine
        if answer.snapshot_raw and machine not in kept_snapshots and not case.is_counted:
            kept_snapshots.add(machine)
            name = f"snapshot-{self._numbers[machine]}-{case.boot.group}"
            write_raw(self.place.raw / name, answer.snapshot_raw)
        case.answer = answer

    def _deliver(self) -> None:
        """Give the judge every answer that it may have: some wait for that of another run."""
        waiting = [case for case in self.cases.values() if case.answer and not case.is_recorded]
        for case in waiting:
            answer = case.answer
            assert answer is not None
            assert answer.outcome is not None
            name = case.boot.name
            before = [] if case.is_counted else [*self.judge.before(case.boot, answer.outcome)]
            # Of a repeat the counted one, too, which says whether it may pass.
            before += [case.boot.repeats, f"{name}{COUNTED}"]
            if not all(self.cases[each].is_recorded for each in before if each in self.cases):
                continue
            files, counts = answer.outcome.files, answer.outcome.counts or b""
            case.made = Made(
                run_id=name,
                worker=answer.worker,
                host=answer.host,
                fingerprint=channel.fingerprint(files) if files is not None else "",
                counted=sha256(counts).hexdigest(),
            )
            if case.is_counted:
                case.is_recorded, case.answer = True, None
                self.place.reporter.finished(name, counts=False)
                if difference := self._difference(case, answer):
                    # On record, so that this session never passes.
                    ending = Ending("inexact", difference)
                    repeat = self.cases[name.removesuffix(COUNTED)].boot
                    self.judge.receive(repeat, Outcome(None, ending, 0.0, 0.0), last=True)
                    raise _broken(difference)
                continue
            write_raw(self.place.raw / name, answer.raw)
            outcome = replace(answer.outcome, host=answer.host)
            if self.judge.receive(case.boot, outcome, last=case.attempt == ATTEMPTS):
                case.attempt += 1
                case.avoid.add(answer.worker)
                case.answer = None
                self.queued.appendleft(case)
                continue
            if difference := self._difference(case, answer):
                raise _broken(difference)
            line = case.made.model_dump_json() + "\n"
            door.append(self.place.raw.parent, MADE, line.encode())
            case.is_recorded, case.answer = True, None

    def _difference(self, case: Case, answer: Answer) -> str:
        """How what another worker made of a run differs, with both hosts; empty where it is not."""
        original, made = self._original(case), case.made
        if not isinstance(original, Made) or made is None or answer.outcome is None:
            return ""
        if original.worker == made.worker:
            self._alone += not case.is_counted
            return ""
        files, ending = answer.outcome.files, answer.outcome.ending
        differs: tuple[str, ...] = ()
        if not original.fingerprint:
            return ""
        if files is None:
            # Of a repeat it is judged, as a run that failed.
            if case.is_counted and ending.kind not in HOST_ENDINGS:
                differs = (f"it ended: {ending.message}",)
        elif made.fingerprint != original.fingerprint:
            path = self.place.raw / original.run_id / RESULT
            differs = diverging(limited.call(channel.read_result, path), files)
        elif case.is_counted and made.counted != original.counted:
            differs = ("what the probe counted",)
        if not differs:
            return ""
        return (
            f"{case.boot.name} has other bytes on {made.host} ({made.worker}) than "
            f"{original.run_id} on {original.host} ({original.worker}): {differs[0]}"
        )


def _address(maker: Made | Member | None) -> str:
    """Of the worker that made, or makes, a run."""
    if isinstance(maker, Made):
        return maker.worker
    return maker.address if maker else ""


def _made_in(folder: Path) -> dict[str, Made]:
    """The runs of a session's folder that workers made, by name; the last of a name counts."""
    if not door.exists(folder, MADE):
        return {}
    lines = door.read(folder, MADE).splitlines()
    try:
        made = [Made.model_validate_json(line) for line in lines if line.endswith(b"}")]
    except ValidationError:
        step = "begin a new session"
        raise door.StoreError("is damaged", where=str(folder / MADE), next_step=step) from None
    return {each.run_id: each for each in made}


def _broken(difference: str) -> InfraError:
    return InfraError(
        difference,
        where="fleet",
        next_step="one of these hosts is broken: measure on each of them alone to see which "
        "repeats itself, then in a new session without the other",
    )


@dataclass
class DaskExecutor:
    """Guests as dask futures on the workers of a scheduler.

    ``connect`` gives a dask client; what it opens is closed with the executor.  ``losses`` are the
    workers that may die under one parcel, ``patience_s`` is how long a session waits for a first.
    """

    name: str
    connect: Callable[[ExitStack], Any]
    store: ArtefactStore
    log: Callable[[str], None]
    losses: int = 10
    patience_s: float = 60.0
    _stack: ExitStack = field(default_factory=ExitStack)
    _members: Members | None = None
    _most: int | None = None

    def __enter__(self) -> DaskExecutor:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def members(self) -> Members:
        """The connection, made when it is first needed; InfraError: no scheduler answers."""
        if self._members is None:
            client = self.connect(self._stack)
            if client.dashboard_link:
                self.log(f"dashboard {client.dashboard_link}")
            self._members = Members(client, identity(), self.log, self.patience_s)
            self._stack.callback(self._members.close)
        return self._members

    def slots(self, memory_mib: int, limit: int | None) -> int:
        """What all workers that are there run at once, or less if the user says so."""
        self.members.refresh(at_once=True)
        self._most = limit
        needed = memory_mib + QEMU_OVERHEAD_MIB
        most = sum(member.capacity(needed) for member in self.members.serving.values())
        return min(limit, most) if limit and most else max(1, limit or most)

    def boot(self, batches: Sequence[Sequence[Boot]], judge: Judge, place: Place) -> float:
        """As ``runs.boots.Executor.boot``; batches are one, since each worker keeps its own."""
        from distributed.comm import CommClosedError

        members = self.members
        members.resume = f"./lab.py run --resume {place.raw.parent}"
        topic = f"twinboot-{uuid.uuid4().hex}"
        boots = with_counted([boot for batch in batches for boot in batch])
        kept = {path: self.store.put(path) for boot in boots for path in files_of(boot)}
        cases = {
            boot.name: Case(
                Parcel(
                    boot,
                    {path: kept[path] for path in files_of(boot)},
                    self.store,
                    topic,
                    boot.inputs,
                )
            )
            for boot in boots
        }
        try:
            members.client.subscribe_topic(
                topic, lambda event: place.reporter.reached(event[1]["name"], event[1]["word"])
            )
            made = _made_in(place.raw.parent)
            batch = BootBatch(members, judge, place, self.losses, self._most, cases, made)
            return batch.run()
        except CommClosedError as error:
            what = f"the connection to the scheduler broke: {error}"
            raise InfraError(what, where=self.name, next_step=members.resume) from error

    def keeping(self) -> AbstractContextManager[DaskExecutor]:
        """As ``runs.boots.Executor.keeping``: workers keep snapshots of their own anyway."""
        return nullcontext(self)

    def require(self, experiment: Experiment) -> None:
        """Exact guests of x86-64; others need a host to themselves, or programs that none has."""
        where, step, arch = self.name, "--executor local", experiment.kernel.arch
        if experiment.mode in REAL_TIME:
            what = f"a session of {experiment.mode} mode is measured on the host it is started on"
            step += ' there, or an experiment with mode = "exact"'
            raise UsageError(what, where=where, next_step=step)
        if arch != X86_64.name:
            what = f"workers boot guests of {X86_64.name} only, and this kernel is for {arch}"
            raise UsageError(what, where=where, next_step=step)


def with_counted(boots: Sequence[Boot]) -> list[Boot]:
    """The boots, and before each repeat in which nothing counts its run as it was, once more."""
    result = []
    for boot in boots:
        run = boot.original
        if run is not None and run.probe and not boot.probe:
            result.append(replace(run, name=f"{boot.name}{COUNTED}", original=run))
        result.append(boot)
    return result


def executor_of(
    text: str, store: str, *, cache: Path, log: Callable[[str], None], insecure: bool = False
) -> AbstractContextManager[Executor]:
    """The executor that the command line names; connects when it is needed.

    Raises UsageError: no such form, a scheduler (unless ``insecure``) that is open to all, or what
    is of a fleet where guests run on this host.
    """
    if text == "local":
        of_fleet = {f"--store {store} ($TWINBOOT_STORE)": store, "--insecure": insecure}
        if given := [option for option, value in of_fleet.items() if value]:
            what, step = "guests run on this host", "name --executor WHERE, or leave it out"
            raise UsageError(what, where=", ".join(given), next_step=step)
        return nullcontext(LocalExecutor())
    address = text.removeprefix(DASK).removeprefix(TLS)
    host, _, port = address.rpartition(":")
    if address != text and host and port.isdigit():
        open_to_all = text.startswith(DASK) and not insecure
        if open_to_all and not is_loopback(host):
            raise _open_to_all(text, host)
        scheme = TLS if text.startswith(TLS) else "tcp://"
        return DaskExecutor(
            text,
            lambda stack: _client(stack, f"{scheme}{address}", loopback_only=open_to_all),
            ArtefactStore(store or str(cache / "store")),
            log,
        )
    raise UsageError(f"unknown executor {text!r}", where="--executor", next_step=FORMS)


def is_loopback(host: str) -> bool:
    """Whether only this host reaches an address."""
    bare = host.strip("[]").partition("%")[0]
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return bare == "localhost"


def _open_to_all(text: str, host: str) -> UsageError:
    return UsageError(
        f"a scheduler without TLS that listens on {host} is a shell on every worker, and in this "
        "process, for whoever reaches it",
        where=text,
        next_step="give it certificates and write tls://HOST:PORT (docs/fleet.md); or have it "
        "listen on 127.0.0.1 alone, reached by ssh -L; or add --insecure in a network of your own",
    )


def _client(stack: ExitStack, address: str, *, loopback_only: bool = False) -> Any:
    """A client of a scheduler that answers in time; ``loopback_only``: that none reaches."""
    from distributed import Client

    # What breaks is said once, by who notices; after dask's import, which sets loggers up.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    made: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def connect() -> None:
        try:
            # Of tls:// with the certificates of dask's own configuration.
            made.put(Client(address, timeout=CONNECT_S, set_as_default=False))
        except Exception as error:
            made.put(error)

    threading.Thread(target=connect, daemon=True).start()
    try:
        answer = made.get(timeout=2 * CONNECT_S)
    except queue.Empty:
        answer = TimeoutError(f"no answer within {2 * CONNECT_S:.0f} s")
    if isinstance(answer, Exception):
        raise InfraError(
            f"no scheduler answers: {answer}",
            where=address,
            next_step="set distributed.comm.tls in dask's configuration; see docs/fleet.md"
            if address.startswith(TLS)
            else "dask scheduler; see docs/fleet.md",
        )
    client = stack.enter_context(answer)
    if loopback_only:
        # One that listens everywhere answers here, too; it says where others find it.
        contact = urlsplit(str(client.scheduler_info(n_workers=0)["address"])).hostname or ""
        if not is_loopback(contact):
            raise _open_to_all(address, contact)
    return client
