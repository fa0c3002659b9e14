"""A session folder: one manifest, append-only records, raw results.

The folder may be a stranger's, so all of it is read and written through ``results.door``.  The
manifest is written beside and renamed; records are appended and fsynced, one JSON line each.
Killing the lab at any moment loses at most the runs under way: a torn last line is passed over by
whoever reads, and cut off by whoever appends next.
"""

from __future__ import annotations

import gzip
import itertools
import json
import threading
import time
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from experiment.frozen import first_of
from results import door
from results.door import StoreError
from results.native import IS_NATIVE, NATIVE
from results.profile import Annotation, Calls, Locks, Profile
from results.record import (
    SCHEMA_VERSION,
    Check,
    Manifest,
    Record,
    RunCost,
    RunRecord,
    StepTime,
)

MANIFEST = "manifest.json"
RUNS = "runs.jsonl"
COSTS = "costs.jsonl"
STEPS = "steps.jsonl"
PROFILES = "profiles.jsonl"
LOCKS = "locks.jsonl"
CHECKS = "checks.jsonl"
# What there is one of in a session.
CALLS, ANNOTATION = "calls.json.gz", "annotation.json.gz"
PACKED: dict[type[Record], str] = {Calls: CALLS, Annotation: ANNOTATION}
# Calls of two kernels have 2 MiB.
MOST_UNPACKED_BYTES = 256 * door.MIB
FILES: dict[type[Record], str] = {
    RunRecord: RUNS,
    RunCost: COSTS,
    StepTime: STEPS,
    Profile: PROFILES,
    Locks: LOCKS,
    Check: CHECKS,
}

# A session of hundreds of runs has some MiB of records; a profile, of one run, has a few.
MOST_BYTES = {RUNS: 128 * door.MIB, PROFILES: door.LINES, LOCKS: door.LINES}
LONGEST_LINE = 64 * door.MIB

R = TypeVar("R", bound=Record)
Packed = TypeVar("Packed", Calls, Annotation)
OfRun = TypeVar("OfRun", RunRecord, Profile, Locks, Check)


class SessionStore:
    """One session folder, open for appending by one lab process (threads are fine)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()

    @property
    def raw(self) -> Path:
        """Folder of the raw logs, one sub-folder a run."""
        return self.folder / "raw"

    def create(self, manifest: Manifest) -> None:
        """Make the folder and write its manifest."""
        door.make_folder(self.folder, self.raw.name)
        door.write(self.folder, MANIFEST, manifest.model_dump_json(indent=2) + "\n")

    def manifest(self) -> Manifest:
        """Read the manifest.

        Raises StoreError: no manifest, not readable, or of a newer schema.
        """
        path = self.folder / MANIFEST
        try:
            text = door.read(self.folder, MANIFEST).decode()
        except FileNotFoundError:
            if door.exists(self.folder, NATIVE):
                raise StoreError(
                    IS_NATIVE, where=str(self.folder), next_step=f"./lab.py report {self.folder}"
                ) from None
            raise StoreError(f"{path}: no such file; a session folder holds one") from None
        except UnicodeDecodeError as error:
            raise StoreError(f"{path}: not a manifest: {error}") from None
        try:
            version = json.loads(text).get("schema_version", 0)
            if version != SCHEMA_VERSION:
                raise StoreError(
                    f"{path}: schema_version {version}; this lab reads {SCHEMA_VERSION}"
                )
            return Manifest.model_validate_json(text)
        except ValidationError as error:
            raise StoreError(f"{path}: not a manifest: {first_of(error)}") from None
        except (ValueError, AttributeError, RecursionError) as error:
            raise StoreError(f"{path}: not a manifest: {error}") from None

    def keep(self, record: Calls | Annotation) -> None:
        """Write what there is one of in a session; equal records are equal bytes."""
        packed = gzip.compress(record.model_dump_json().encode(), mtime=0)
        door.write(self.folder, PACKED[type(record)], packed)

    def calls(self) -> Calls | None:
        """Who calls whom in the arms' kernels; None where that is not on record.

        Raises StoreError: the file is damaged.
        """
        return self._unpacked(Calls)

    def annotation(self) -> Annotation | None:
        """How often the lines that the series changes ran; raises as :meth:`calls`."""
        return self._unpacked(Annotation)

    def _unpacked(self, kind: type[Packed]) -> Packed | None:
        path = self.folder / PACKED[kind]
        try:
            packed = door.read(self.folder, path.name)
            unpacked = zlib.decompressobj(wbits=31).decompress(packed, MOST_UNPACKED_BYTES)
            return kind.model_validate_json(unpacked)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, zlib.error) as error:
            raise StoreError(f"{path}: not {kind.__name__}: {error}") from None

    def append(
        self, record: RunRecord | Check | StepTime, *beside: RunCost | Profile | Locks
    ) -> None:
        """Append one record durably; what belongs to it first, so that none lacks it."""
        with self._lock:
            for each in (*beside, record):
                line = (each.model_dump_json() + "\n").encode()
                door.append(self.folder, FILES[type(each)], line)

    def records(self) -> list[RunRecord]:
        """All run records, in the order of their run ids; a torn last line is passed over.

        Of several records with one run id (a failure retried) the last one counts.
        """
        return _latest(self._read(RunRecord))

    def profiles(self, of: Collection[str] | None = None) -> list[Profile]:
        """What the probe counted, in the order of the run ids; the last of each.

        ``of`` names the runs whose functions alone are wanted; None is everything of all runs.
        """
        if of is None:
            return _latest(self._read(Profile))
        heads = tuple(f'{{"run_id":"{run_id}",'.encode() for run_id in of)
        profiles = self._read(Profile, heads) if heads else ()
        return _latest(profile.of_functions for profile in profiles)

    def locks(self) -> list[Locks]:
        """What the twins saw of locks, in the order of the run ids; the last of each."""
        return _latest(self._read(Locks))

    def checks(self) -> list[Check]:
        """What the gate found, in the order of the run ids; the last of each."""
        return _latest(self._read(Check))

    def costs(self) -> list[RunCost]:
        """What the runs cost the host, in the order they ended."""
        return list(self._read(RunCost))

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Put on record how long the block takes, whatever ends it."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.append_step(step, time.monotonic() - began)

    def append_step(self, step: str, elapsed_s: float) -> None:
        """Put on record how long a step took."""
        self.append(StepTime(step=step, elapsed_s=round(elapsed_s, 1)))

    def steps(self) -> dict[str, float]:
        """Elapsed seconds of each step, of all calls of the lab, in the order they first ended."""
        seconds: dict[str, float] = {}
        for each in self._read(StepTime):
            seconds[each.step] = seconds.get(each.step, 0.0) + each.elapsed_s
        return seconds

    def _read(self, kind: type[R], heads: tuple[bytes, ...] = (b"",)) -> Iterator[R]:
        name = FILES[kind]
        path = self.folder / name
        try:
            with door.opened(self.folder, name, MOST_BYTES.get(name, 256 * door.MIB)) as lines:
                for number in itertools.count(1):
                    line = lines.readline(LONGEST_LINE)
                    # A torn last line is a run that another process is recording at this moment, or
                    # one whose process was killed: not a record, and not the reader's to cut off.
                    if not line.endswith(b"\n") and len(line) < LONGEST_LINE:
                        break
                    if not line.startswith(heads):
                        continue
                    try:
                        yield kind.model_validate_json(line)
                    except ValidationError as error:
                        what = f"not a {kind.__name__}: {first_of(error)}"
                        raise StoreError(f"{path}:{number}: {what}") from None
        except FileNotFoundError:
            return


def _latest(results: Iterable[OfRun]) -> list[OfRun]:
    latest = {record.run_id: record for record in results}
    return [latest[run_id] for run_id in sorted(latest)]
