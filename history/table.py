"""The history as one table: one row a metric of an arm of a case of a night."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from files import digest
from history.entry import Entry
from history.store import collecting_nothing
from results.units import shown_unit

COLUMNS = (
    "night", "created", "entry", "session", "link", "experiment", "guest", "mode",
    "lab_version", "setting", "case", "metric", "unit", "direction", "primary",
    "arm", "role", "kernel", "kernel_key", "code_key", "commit",
    "n", "mean", "stddev", "minimum", "maximum", "runs", "failed", "seeds", "values",
    "against", "verdict", "reason", "estimate", "low", "high", "noise",
)  # fmt: skip


def table(entries: Iterable[Entry]) -> pd.DataFrame:
    """Return a frame with :data:`COLUMNS`, in the order of the nights.

    ``stddev``, ``estimate``, ``low``, ``high`` and ``noise`` are fractions; ``seeds`` and
    ``values`` are lists of equal length, ``values`` empty where the entry was thinned.
    ``verdict`` and what follows are those of this arm ``against`` another in the same
    session, None for the base arm and for metrics that are not primary.
    """
    columns: dict[str, list[object]] = {name: [] for name in COLUMNS}
    with collecting_nothing():
        for entry in entries:
            for row in _rows(entry):
                for name, value in zip(COLUMNS, row, strict=True):
                    columns[name].append(value)
    frame = pd.DataFrame(columns, columns=list(COLUMNS))
    numbers = ("mean", "stddev", "minimum", "maximum", "estimate", "low", "high", "noise")
    return frame.astype(dict.fromkeys(numbers, float))


def _rows(entry: Entry) -> Iterable[tuple[object, ...]]:
    night = (
        entry.night, entry.created, entry.id, entry.session, entry.link, *entry.track,
        entry.lab_version, setting_key(entry),
    )  # fmt: skip
    arms = {arm.name: arm for arm in entry.arms}
    for case in entry.cases:
        conclusions = {(each.arm, each.metric): each for each in case.said}
        metrics = {metric.name: metric for metric in case.metrics}
        seeds = list(case.seeds)
        for arm_entry in case.arms:
            arm = arms[arm_entry.arm]
            kernel = (
                arm.name, arm.role, arm.version, arm.kernel.key, arm.kernel.code_key, arm.commit,
            )  # fmt: skip
            for name, ensemble in arm_entry.metrics.items():
                conclusion, summary = conclusions.get((arm.name, name)), ensemble.summary
                yield (
                    *night,
                    case.name,
                    name,
                    shown_unit(metrics[name].unit, entry.mode),
                    metrics[name].direction,
                    name in case.primary,
                    *kernel,
                    *(
                        (summary.n, summary.mean, summary.stddev, summary.minimum, summary.maximum)
                        if summary
                        else (0, None, None, None, None)
                    ),
                    arm_entry.runs,
                    arm_entry.failed,
                    seeds,
                    list(ensemble.values),
                    *(
                        (
                            conclusion.against,
                            conclusion.verdict.value,
                            conclusion.reason,
                            conclusion.estimate,
                            conclusion.low,
                            conclusion.high,
                            conclusion.noise,
                        )
                        if conclusion
                        else ("", None, "", None, None, None, None)
                    ),
                )


def setting_key(entry: Entry) -> str:
    """12 hex digits: equal for two nights that only their kernels tell apart."""
    text = "\n".join(f"{name}={value}" for name, value in sorted(entry.setting.items()))
    return digest(text)[:12]
