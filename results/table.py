"""The tidy table: one row a sample."""

from __future__ import annotations

import io
from collections.abc import Iterable

import pandas as pd

from results.record import Manifest, RunRecord
from results.units import shown_unit
from text import words

COLUMNS = words("session experiment guest case metric unit direction primary arm block seed value")


def tidy(manifest: Manifest, records: Iterable[RunRecord]) -> pd.DataFrame:
    """Return the samples of all valid runs as a frame with :data:`COLUMNS`.

    Units are as shown: what is counted in virtual time says so.
    Repeats (they check exactness), twins and failed runs are not in it.  Rows are sorted
    by case, metric, block and arm order, so that equal sessions give equal tables.
    """
    mode = manifest.experiment.mode
    arm_order = {arm.name: position for position, arm in enumerate(manifest.arms)}
    cases = {case.name: case for case in manifest.cases}
    rows: list[tuple[object, ...]] = []
    for record in records:
        if record.samples is None or record.repeat or record.twin:
            continue
        case = cases[record.case]
        rows += [
            (
                manifest.session,
                manifest.experiment.name,
                manifest.guest.name,
                case.name,
                metric.name,
                shown_unit(metric.unit, mode),
                metric.direction,
                metric.name in case.primary,
                record.arm,
                record.block,
                record.seed,
                record.samples[metric.name],
            )
            for metric in case.metrics
            if metric.name in record.samples
        ]
    rows.sort(key=lambda row: (row[3], row[4], row[9], arm_order[str(row[8])]))
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"value": float})


def as_files(frame: pd.DataFrame) -> dict[str, bytes]:
    """``samples.parquet`` and ``samples.csv``, by name."""
    csv = frame.to_csv(index=False).encode()
    sink = io.BytesIO()
    frame.to_parquet(sink, index=False)
    return {"samples.parquet": sink.getvalue(), "samples.csv": csv}
