"""The numbers of a track as arrays: one row a night, one column a seed; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from history.entry import Entry
from reports.statistics import Floats

UNFIT = ("inexact",)


class Followed(NamedTuple):
    """One metric of one arm over the nights of a track.

    ``logs`` are natural logarithms of shape (nights, seeds), NaN where there is no valid
    run; ``control`` those of the pinned arm, NaN where the night had none.  ``seeds`` are
    those of the columns, in ascending order.
    """

    case: str
    metric: str
    logs: Floats
    control: Floats
    seeds: tuple[int, ...] = ()

    def relative(self) -> Floats:
        """Logarithms relative to the pinned arm."""
        return np.asarray(self.logs - self.control)

    def names(self, row: Floats) -> str:
        """The seeds that a row has values of: ``1..8``, or ``1, 3, 5`` where some are left out."""
        seeds = [seed for seed, value in zip(self.seeds, row, strict=True) if np.isfinite(value)]
        if len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1:
            return f"{seeds[0]}..{seeds[-1]}"
        return ", ".join(map(str, seeds)) or "none"


def fit(entry: Entry) -> bool:
    """Whether a night's numbers are evidence: an inexact session's are none."""
    return entry.exactness not in UNFIT


def courses_of(entries: Sequence[Entry]) -> list[tuple[str, str, str]]:
    """(case, metric, arm) of every primary metric of a followed arm, in order of appearance."""
    courses: dict[tuple[str, str, str], None] = {}
    for entry in entries:
        for case in entry.cases:
            for metric in case.primary:
                for arm in entry.followed:
                    courses[case.name, metric, arm.name] = None
    return list(courses)


def followed(entries: Sequence[Entry], case: str, metric: str, arm: str) -> Followed:
    """The values of one metric of one arm, night by night, and those of the pinned arm."""
    seeds = sorted({s for e in entries if (case_entry := e.case(case)) for s in case_entry.seeds})
    column = {seed: at for at, seed in enumerate(seeds)}
    logs = np.full((len(entries), len(seeds)), np.nan)
    control = logs.copy()
    for row, entry in enumerate(entries):
        if not fit(entry):
            continue
        _fill(logs[row], entry, case, metric, arm, column)
        if entry.pinned:
            _fill(control[row], entry, case, metric, entry.pinned.name, column)
    return Followed(case, metric, logs, control, tuple(seeds))


def _fill(
    row: Floats, entry: Entry, case: str, metric: str, arm: str, column: dict[int, int]
) -> None:
    case_entry = entry.case(case)
    measured = case_entry.arm(arm) if case_entry else None
    if case_entry is None or measured is None or metric not in measured.metrics:
        return
    # A value that is not above zero has no ratio to anything.
    for seed, value in zip(case_entry.seeds, measured.metrics[metric].values, strict=False):
        if value is not None and value > 0:
            row[column[seed]] = np.log(value)


def moved_settings(before: Entry, after: Entry) -> tuple[str, ...]:
    """A line for each thing of the setting that is another: ``qemu: 7.2.17 -> 8.0.2``."""
    names = sorted(before.setting.keys() | after.setting.keys())
    pairs = [(name, before.setting.get(name, ""), after.setting.get(name, "")) for name in names]
    return tuple(f"{name}: {a or 'none'} -> {b or 'none'}" for name, a, b in pairs if a != b)


def same_code(before: Entry, after: Entry, arm: str) -> bool:
    """Whether an arm ran the same machine code with the same settings on both nights."""
    first, second = before.arm(arm), after.arm(arm)
    if first is None or second is None:
        return False
    same = first.kernel.code_key == second.kernel.code_key
    return same and first.settings == second.settings
