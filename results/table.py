"""The tidy table: one row a sample."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from results.record import Manifest, RunRecord
from results.units import shown_unit

COLUMNS = (
    "session", "experiment", "guest", "case", "metric", "unit", "direction", "primary",
    "arm", "block", "seed", "value",
)  # fmt: skip


def tidy(manifest: Manifest, records: Iterable[RunRecord]) -> pd.DataFrame:
    """Return the samples of all valid runs as a frame with :data:`COLUMNS`.

    Units are as shown: what is counted in virtual time says so.

    Repeats (they check exactness), twins and failed runs are not in it.  Rows are sorted
    by case, metric, block and arm order, so that equal sessions give equal tables.
    """
    mode = manifest.experiment.mode
    arm_order = {arm.name: position for position, arm in enumerate(manifest.arms)}
    rows: list[tuple[object, ...]] = []
    for record in records:
        if record.samples is None or record.repeat or record.twin:
            continue
        case = next(case for case in manifest.cases if case.name == record.case)
        rows += [
            (
                manifest.session, manifest.experiment.name, manifest.guest.name, case.name,
                metric.name, shown_unit(metric.unit, mode), metric.direction,
                metric.name in case.primary,
                record.arm, record.block, record.seed, record.samples[metric.name],
            )
            for metric in case.metrics
            if metric.name in record.samples
        ]  # fmt: skip
    rows.sort(key=lambda row: (row[3], row[4], row[9], arm_order[str(row[8])]))
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"value": float})


def export(frame: pd.DataFrame, folder: Path) -> tuple[Path, Path]:
    """Write ``samples.parquet`` and ``samples.csv`` into ``folder``; return the paths."""
    parquet, csv = folder / "samples.parquet", folder / "samples.csv"
    frame.to_parquet(parquet, index=False)
    frame.to_csv(csv, index=False)
    return parquet, csv
