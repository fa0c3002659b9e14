"""Open a measured session for reading: the only way to its records for whoever judges or shows.

Everything on record is read together, so that nobody can judge a session and leave out its
correctness checks, or show it without what was counted.  Reading writes nothing: the session
may be under measurement by another process.  Sessions in a folder are listed newest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from results import door, native
from results.door import StoreError
from results.native import NativeHead
from results.profile import Annotation, Calls, Locks, Profile
from results.record import Check, Manifest, RunCost, RunRecord
from results.store import MANIFEST, RUNS, SessionStore
from text import clean


@dataclass(frozen=True)
class MeasuredSession:
    """All that is on record of one session, each kind in the order of its run ids.

    No field has a default: a session without checks is not one whose checks were not read.
    """

    manifest: Manifest
    records: tuple[RunRecord, ...]
    checks: tuple[Check, ...]
    profiles: tuple[Profile, ...]
    locks: tuple[Locks, ...]
    costs: tuple[RunCost, ...]
    calls: Calls | None
    annotation: Annotation | None

    @property
    def recorded(self) -> frozenset[tuple[str, str, int]]:
        """Case, arm and block of every planned run on record, with samples or with a failure."""
        return frozenset(
            (r.case, r.arm, r.block) for r in self.records if not r.repeat and not r.twin
        )


def open_session(folder: Path, *, counted: bool = True) -> MeasuredSession:
    """Read the session in ``folder``; nothing in it is changed.

    Without ``counted`` all that reaches no verdict is left out, which is nearly all of a large
    session: for who shows verdicts and nothing that explains them.  Which functions the judged runs
    executed does reach one.  Raises StoreError: the folder is no session, or cannot be read.
    """
    store = SessionStore(folder)
    manifest, records = store.manifest(), tuple(store.records())
    _require_planned(manifest, records, folder / RUNS)
    judged = {record.run_id for record in records if not record.twin and not record.repeat}
    return MeasuredSession(
        manifest=manifest,
        records=records,
        checks=tuple(store.checks()),
        profiles=tuple(store.profiles(None if counted else judged)),
        locks=tuple(store.locks()) if counted else (),
        costs=tuple(store.costs()),
        calls=store.calls(),
        annotation=store.annotation(),
    )


def _require_planned(manifest: Manifest, records: Sequence[RunRecord], where: Path) -> None:
    if manifest.same_code and len({arm.kernel.code_key for arm in manifest.arms}) > 1:
        what = "says that its arms are the same code, and their code keys differ"
        step = "ask whoever measured it for the session as it was"
        raise StoreError(what, where=str(where.with_name(MANIFEST)), next_step=step)
    cases, arms = ({each.name for each in of} for of in (manifest.cases, manifest.arms))
    blocks = {"": len(manifest.seeds)} | {twin.name: twin.blocks for twin in manifest.twins}
    taken = set()
    for run in records:
        key = (run.case, run.arm, run.block, run.twin, run.repeat)
        planned = run.case in cases and run.arm in arms and 0 <= run.block < blocks.get(run.twin, 0)
        if not planned or key in taken:
            words = f"{run.twin} {run.case}, arm {run.arm}, block {run.block}".strip()
            fault = "is recorded twice" if planned else "is none of its manifest's"
            what = f"run {run.run_id} ({words}) {fault}"
            step = "ask whoever measured it for the session as it was"
            raise StoreError(clean(what), where=str(where), next_step=step)
        taken.add(key)


LATEST = "latest"


class SessionHead(NamedTuple):
    """A session's folder with its manifest, or why that cannot be read.

    A session of native mode has a head of its own beside what others are told of it.
    """

    folder: Path
    manifest: Manifest | None
    problem: str = ""
    native: NativeHead | None = None

    @property
    def created(self) -> str:
        """When it was begun, in UTC; empty where that cannot be read."""
        head = self.manifest or self.native
        return head.created if head else ""


def heads_in(folder: Path) -> tuple[SessionHead, ...]:
    """Every session below ``folder``, newest first; those that cannot be read come last.

    A link to a session is none of the folder's, and is shown as what cannot be read.
    """
    heads = [head_of(folder, name) for name in door.names(folder)]
    read = [head for head in heads if head is not None]
    return tuple(sorted(read, key=lambda head: (head.created, head.folder.name), reverse=True))


def native_beside(folder: Path) -> list[tuple[Path, NativeHead]]:
    """Heads of the sessions of native mode beside a session's folder, the newest first.

    One that is damaged is passed over: nothing is decided by them.
    """
    sessions, heads = folder.resolve().parent, []
    for name in door.names(sessions):
        # Beside a session there may be files of any kind.
        with suppress(StoreError, OSError):
            if door.exists(sessions, f"{name}/{native.NATIVE}"):
                heads.append((sessions / name, native.head_of(sessions / name)))
    return sorted(heads, key=lambda each: (each[1].created, each[0].name), reverse=True)


def named_session(name: Path, sessions: Path) -> Path | None:
    """The folder of a session: a path, a name in ``sessions``, or ``latest``, the newest there.

    None where ``latest`` is asked for and there is none.  A path that is there comes first.
    """
    if name.exists() or len(name.parts) != 1:
        return name
    if str(name) == LATEST:
        return next((head.folder for head in heads_in(sessions) if head.created), None)
    return sessions / name if (sessions / name).is_dir() else name


def head_of(sessions: Path, name: str) -> SessionHead | None:
    """The session ``name`` in a folder; None where there is none of that name."""
    folder = sessions / name
    try:
        if door.exists(sessions, f"{name}/{native.NATIVE}"):
            return SessionHead(folder, None, native.IS_NATIVE, native.read(folder)[0])
        if not door.exists(sessions, f"{name}/{MANIFEST}"):
            return None
        return SessionHead(folder, SessionStore(folder).manifest())
    except (StoreError, OSError) as error:
        # Beside sessions there may be files of any kind.
        is_one = folder.is_dir()
        return SessionHead(folder, None, str(error).splitlines()[0]) if is_one else None
