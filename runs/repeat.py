"""Whether two sessions came out the same: every number of every run.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from results.locks import Locks
from results.profile import Profile
from results.record import Record, RunRecord

Value = float | str | None


@dataclass(frozen=True)
class Number:
    """One value of one run, then and now; None where there is none."""

    name: str
    then: Value
    now: Value

    @property
    def same(self) -> bool:
        """Whether it is the same to the last digit."""
        return self.then == self.now


@dataclass(frozen=True)
class RunAgain:
    """One run that was made again: its samples, and what was counted in it.

    ``result`` compares a digest of all that the guest sent, or how the run failed.
    """

    run_id: str
    result: Number
    numbers: tuple[Number, ...]
    counts: tuple[Number, ...]

    @property
    def same(self) -> bool:
        """Whether everything is the same."""
        return self.result.same and all(each.same for each in (*self.numbers, *self.counts))


@dataclass(frozen=True)
class Kept:
    """What a session has on record."""

    records: Sequence[RunRecord]
    profiles: Sequence[Profile] = ()
    locks: Sequence[Locks] = ()


def compare_sessions(then: Kept, now: Kept) -> tuple[RunAgain, ...]:
    """Each run that was on record then, compared with the same run now."""
    runs = {record.run_id: record for record in now.records}
    before, after = _beside(then), _beside(now)
    return tuple(_run(record, runs.get(record.run_id), before, after) for record in then.records)


def _run(
    then: RunRecord,
    now: RunRecord | None,
    before: dict[str, dict[str, Value]],
    after: dict[str, dict[str, Value]],
) -> RunAgain:
    run_id = then.run_id
    samples: tuple[dict[str, Value], dict[str, Value]] = (
        dict(then.samples or {}),
        dict((now.samples if now else None) or {}),
    )
    return RunAgain(
        run_id,
        Number("result", _ended(then), _ended(now) if now else None),
        _numbers(*samples),
        _numbers(before.get(run_id, {}), after.get(run_id, {})),
    )


def _ended(record: RunRecord) -> str:
    return record.fingerprint if record.failure is None else f"failed: {record.failure.kind}"


def _numbers(then: dict[str, Value], now: dict[str, Value]) -> tuple[Number, ...]:
    names = dict.fromkeys([*then, *now])
    return tuple(Number(name, then.get(name), now.get(name)) for name in names)


def _beside(kept: Kept) -> dict[str, dict[str, Value]]:
    """Everything counted, by run and by place in its record."""
    by_run: dict[str, dict[str, Value]] = {}
    of_runs: list[tuple[str, Record]] = [
        *((profile.run_id, profile) for profile in kept.profiles),
        *((locks.run_id, locks) for locks in kept.locks),
    ]
    for run_id, record in of_runs:
        by_run.setdefault(run_id, {}).update(_leaves(record.model_dump(mode="json")))
    return by_run


def _leaves(value: object, place: str = "") -> Iterator[tuple[str, Value]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key != "run_id":
                yield from _leaves(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            named = inner.get("name") or inner.get("phase") if isinstance(inner, dict) else None
            yield from _leaves(inner, f"{place}[{number}{f' {named}' if named else ''}]")
    elif isinstance(value, float | int | str) or value is None:
        yield place, value
