"""Runs kept from session to session: an exact run is a function of its inputs, so it is made once.

A kept run is a file named by the digest of these (``guests.kept.run_key``) with what came out of
the guest.  In every session some are booted anew and have to have the same bytes.  What is not
exact, checks of several vCPUs, stands for the day on which it was found.  Failures are never kept,
nor what a clock measured.
"""

from __future__ import annotations

import datetime
import math
import os
import platform
import stat
import threading
import zlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256

from errors import InfraError, LabError, UsageError
from files import write_atomically
from guests.exact import Outcome
from host import folders, limited
from results.record import RunCost
from runs.boots import Boot, Executor, KeepingJudge, KeptRuns, Place, diverging
from runs.fleet.parcel import (
    HOST_ENDINGS,
    LARGEST,
    Answer,
    ArtefactStore,
    answer_of,
    read_raw,
    write_raw,
)
from text import clean

# Hosts whose runs are not used, one a line with its reason: removing the line clears the host.
ASIDE = "set-aside.txt"
WHY = " # "
# Kept runs of each kind that a call boots again.
SAMPLE = 1
# Of all kept runs: about 2,800, each nearly all what the probe counted.
MOST_BYTES = 2 << 30
DIGEST = 64
# A run that cost nothing, as far as was measured, is not drawn each time.
LEAST_CPU_S = 0.1
# Drawn with none: its bytes differ each time, and a later day finds it anew.
INEXACT = "inexact"


def today() -> str:
    """The date, as kept runs have it."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def cost_of(run_id: str, outcome: Outcome) -> RunCost:
    """What a run cost, where, and whether it was made for this session."""
    return RunCost(
        run_id=run_id,
        elapsed_s=outcome.elapsed_s,
        guest_cpu_s=outcome.cpu_s,
        inputs=outcome.inputs,
        host=clean(outcome.host or platform.node()),
        kept_at=outcome.kept_at,
    )


def set_aside(kept: KeptRuns) -> frozenset[str]:
    """The hosts whose runs are neither used nor kept."""
    with suppress(FileNotFoundError):
        lines = (kept.folder / ASIDE).read_text().splitlines()
        return frozenset(line.partition(WHY)[0] for line in lines)
    return frozenset()


def shared_at(where: str) -> str:
    """A second place of kept runs, which is trusted: a folder, or a URL that fsspec opens.

    Raises UsageError: no such folder, one to which everybody can write, or no such kind of URL;
    InfraError: it cannot be reached.
    """
    store = ArtefactStore(where)
    folder = store.folder()
    if folder is None:
        with suppress(FileNotFoundError):
            store.read(ASIDE, LARGEST)
    elif not folder.is_dir():
        raise UsageError("no such folder", where=f"--kept-at {where}", next_step="make it first")
    elif folder.stat().st_mode & stat.S_IWOTH:
        what = "everybody can write to it, and what is in it is taken for measured"
        raise UsageError(what, where=f"--kept-at {where}", next_step=f"chmod o-w {folder}")
    return where


def load(kept: KeptRuns, key: str, place: Place) -> Answer | None:
    """The kept run of a key; not used, which is said, if it was altered."""
    for folder in filter(None, (str(kept.folder), kept.shared)):
        try:
            data = ArtefactStore(folder).read(key, LARGEST)
            packed = data[DIGEST:]
            if sha256(key.encode() + packed).hexdigest().encode() != data[:DIGEST]:
                raise ValueError("its bytes are not those that were put there")
            answer = answer_of(packed)
            outcome = answer.outcome
            if outcome is None or outcome.files is None or outcome.inputs != key:
                raise ValueError("it is no run of these inputs")
            if outcome.counts is not None:
                counts = zlib.decompressobj().decompress(outcome.counts, LARGEST)
                answer = replace(answer, outcome=replace(outcome, counts=counts))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, zlib.error, LabError) as error:
            # It is booted, and what is kept then takes its place.
            place.reporter.log(f"kept run {folder}/{key} is discarded and booted again: {error}")
            continue
        if clean(answer.host) not in set_aside(kept):
            with suppress(OSError):
                os.utime(kept.folder / key)
            return answer
    return None


def keep(kept: KeptRuns, answer: Answer) -> None:
    """Keep a run; a disk that refuses it costs the kept run and no more."""
    assert answer.outcome is not None
    if clean(answer.host) in set_aside(kept):
        return
    # Packed on its own: as text it would take twice as much.
    counts = answer.outcome.counts and zlib.compress(answer.outcome.counts)
    key = answer.outcome.inputs
    packed = replace(answer, outcome=replace(answer.outcome, counts=counts)).packed()
    data = sha256(key.encode() + packed).hexdigest().encode() + packed
    for folder in filter(None, (str(kept.folder), kept.shared)):
        with suppress(OSError, LabError):
            ArtefactStore(folder).write(key, data)


def bound(kept: KeptRuns) -> None:
    """Remove the kept runs that were not used for longest, beyond the bytes that are kept."""
    for path in folders.beyond(kept.folder.glob("[0-9a-f]*"), MOST_BYTES):
        path.unlink(missing_ok=True)


@dataclass
class _Keeper:
    """Tells the judge of runs as they are booted, keeps them, and compares those that are kept."""

    kept: KeptRuns
    judge: KeepingJudge
    place: Place
    keys: Mapping[str, str]
    known: Mapping[str, Answer]
    boots: Sequence[Boot]
    drawn: Collection[str]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _same: set[str] = field(default_factory=set)

    def before(self, boot: Boot, outcome: Outcome) -> Collection[str]:
        """As ``runs.boots.Judge``: what is drawn, and what the judge of runs says."""
        before = self.judge.before(boot, outcome)
        if boot.name in self.drawn:
            # Others wait for it: the base of its block, too, where that is not kept.
            return [name for name in before if name in self.drawn]
        return [*self.drawn, *before]

    def tell_of_kept(self) -> None:
        """Tell of the kept runs that are not drawn, as though they had just been booted."""
        reused = [each for each in self.boots if each.name in self.known.keys() - set(self.drawn)]
        for each in reused:
            answer = self.known[each.name]
            assert answer.outcome is not None
            write_raw(self.place.raw / each.name, answer.raw)
            self.judge.receive(each, answer.outcome, last=True)
        if self.known:
            self.place.reporter.log(
                f"{len(reused)} of {len(self.boots)} runs are kept ones, {len(self.drawn)} kept "
                "ones were booted anew and have the same bytes"
            )

    def receive(self, boot: Boot, outcome: Outcome, *, last: bool) -> bool:
        """As ``Judge.receive``; InfraError: a kept run has other bytes, its host is set aside."""
        name = boot.name
        outcome = replace(outcome, inputs=self.keys.get(name, ""))
        host = outcome.host or platform.node()
        if name in self.known and outcome.ending.kind not in HOST_ENDINGS:
            self._compare(name, outcome, host)
        again = self.judge.receive(boot, outcome, last=last)
        if not again and name in self.judge.good and outcome.inputs and name not in self.known:
            of_kept = replace(outcome, host=host, kept_at=today())
            keep(self.kept, Answer("", host, of_kept, raw=read_raw(self.place.raw / name)))
        if name in self.drawn and not again:
            with self._lock:
                self._same.add(name)
                is_last = len(self._same) == len(self.drawn)
            if is_last:
                self.tell_of_kept()
        return again

    def _compare(self, name: str, outcome: Outcome, host: str) -> None:
        known = self.known[name]
        then = known.outcome
        assert then is not None
        assert then.files is not None
        differs: tuple[str, ...] = ()
        if outcome.files is None:
            differs = (f"it ended: {outcome.ending.message}",)
        elif outcome.files != then.files:
            differs = limited.call(diverging, then.files, outcome.files)
        elif outcome.counts != then.counts:
            differs = ("what the probe counted",)
        if not differs:
            return
        self.kept.folder.mkdir(parents=True, exist_ok=True)
        aside = self.kept.folder / ASIDE
        lines = aside.read_text().splitlines() if aside.exists() else []
        if clean(known.host) not in set_aside(self.kept):
            session = self.place.raw.parent.name
            why = (
                f"{name}, kept on {then.kept_at} ({then.inputs}), had other bytes on {host} on "
                f"{today()}, in session {session}: {differs[0]}"
            )
            lines.append(f"{clean(known.host)}{WHY}{clean(why)}")
            write_atomically(aside, "".join(f"{line}\n" for line in lines))
        raise InfraError(
            f"{name} has other bytes on {host} than when it was kept, on {clean(known.host)} on "
            f"{then.kept_at}: {differs[0]}; no run kept from {clean(known.host)} is used any more",
            where=str(self.kept.folder / then.inputs),
            next_step="./lab.py doctor --kernel TREE on both; a line of "
            f"{aside} that is removed clears its host",
        )


def boot(
    kept: KeptRuns | None,
    executor: Executor,
    batches: Sequence[Sequence[Boot]],
    judge: KeepingJudge,
    place: Place,
) -> float:
    """Boot what is not kept, and tell the judge of all; as ``runs.boots.Executor.boot``.

    Kept runs that are drawn are booted first: before they have shown themselves to be the same,
    no other is told of.  Of several that may be drawn a cheap one is drawn more often, in
    proportion.  Raises InfraError: also where a kept run has other bytes now.
    """
    if kept is None:
        return executor.boot(batches, judge, place)
    boots = [each for batch in batches for each in batch]
    kinds = {each.name: kind for each in boots if (kind := judge.drawn_with(each))}
    keys = {each.name: each.inputs for each in boots if each.name in kinds}
    known = {name: answer for name, key in keys.items() if (answer := load(kept, key, place))}
    by_kind: dict[str, list[str]] = {}
    for name, answer in list(known.items()):
        if kinds[name] != INEXACT:
            by_kind.setdefault(kinds[name], []).append(name)
        elif kept.again or answer.outcome is None or answer.outcome.kept_at != today():
            del known[name]

    def turn(name: str) -> float:
        """Exponential with the run's cost as its mean: the least of several is a fair draw."""
        # Another session draws others.
        digest = sha256(f"{place.raw.parent.name} {name}".encode()).digest()
        outcome = known[name].outcome
        assert outcome is not None
        uniform = (int.from_bytes(digest[:8]) + 0.5) / (1 << 64)
        return -math.log(uniform) * max(outcome.cpu_s, LEAST_CPU_S)

    drawn = {
        name
        for kind, names in by_kind.items()
        for name in sorted(names, key=turn)[
            : len(names) if kept.again else SAMPLE * (kind not in kept.drawn)
        ]
    }
    kept.drawn.update(by_kind)
    keeper = _Keeper(kept, judge, place, keys, known, boots, drawn)
    if not drawn:
        keeper.tell_of_kept()
    left = {each.name for each in boots} - known.keys()
    todo = [
        of_batch
        for names in (drawn, left)
        for batch in batches
        if (of_batch := [each for each in batch if each.name in names])
    ]
    used = executor.boot(todo, keeper, place) if todo else 0.0
    bound(kept)
    return used
