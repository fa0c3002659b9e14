"""Reclaim as people know it from /proc/vmstat, derived from the samples of each arm; pure.

Samples are per I/O; times I/Os per second they are rates.  A row is there only where the
samples hold what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from reports import by_arm
from reports.by_arm import MetricRow
from reports.many import SessionComparison
from results.units import shown_unit


class Derived(NamedTuple):
    """One row of one phase; ``values`` has one an arm, None where nothing was measured."""

    case: str
    phase: str
    title: str
    unit: str
    values: tuple[float | None, ...]


Means = Mapping[str, float]


def _rate(per_io: str) -> Callable[[Means], float]:
    return lambda means: means[per_io] * means["iops"]


# Title, unit, the samples it needs, and how it comes from their means.
ROWS: tuple[tuple[str, str, tuple[str, ...], Callable[[Means], float]], ...] = (
    ("Pages scanned", "1/s", ("scanned_per_io", "iops"), _rate("scanned_per_io")),
    (
        "Pages reclaimed", "1/s", ("scanned_per_io", "iops", "reclaim_efficiency"),
        lambda means: means["scanned_per_io"] * means["iops"] * means["reclaim_efficiency"],
    ),
    (
        "Reclaim efficiency", "%", ("reclaim_efficiency",),
        lambda means: 100 * means["reclaim_efficiency"],
    ),
    (
        "Scanned by direct reclaim", "%", ("direct_scan_share",),
        lambda means: 100 * means["direct_scan_share"],
    ),
    ("Refaults", "1/s", ("refaults_per_io", "iops"), _rate("refaults_per_io")),
    ("Major faults", "1/s", ("major_faults_per_io", "iops"),
     _rate("major_faults_per_io")),
    (
        "Stalled on memory (PSI some)", "%", ("memory_stall_ns_per_io", "iops"),
        lambda means: 100 * means["memory_stall_ns_per_io"] * means["iops"] / 1e9,
    ),
    ("Huge pages in the page cache", "MiB", ("file_thp_mib",),
     lambda means: means["file_thp_mib"]),
)  # fmt: skip


def reclaim(session: SessionComparison) -> tuple[Derived, ...]:
    """The derived rows of every phase, in order; means of an arm's runs.

    Rates are per second of the guest's clock: in exact mode their unit says virtual.
    """
    derived_rows = []
    for case in session.comparisons[0].cases:
        for phase in case.phases:
            rows = {row.short: row for row in by_arm.of_case(session.rows, case.name)
                    if row.phase == phase.name}  # fmt: skip
            for title, unit, needed, value in ROWS:
                if not rows.keys() >= set(needed):
                    continue
                values = tuple(_of_arm(rows, arm.name, needed, value) for arm in session.arms)
                unit_text = shown_unit(unit, session.manifest.experiment.mode)
                if any(v is not None for v in values):
                    derived_rows.append(Derived(case.name, phase.name, title, unit_text, values))
    return tuple(derived_rows)


def _of_arm(
    rows: Mapping[str, MetricRow],
    arm: str,
    needed: tuple[str, ...],
    value: Callable[[Means], float],
) -> float | None:
    """The row's value over the arm's means; None where a sample is missing."""
    cells = {short: rows[short].cell(arm) for short in needed}
    if not all(cell.summary for cell in cells.values()):
        return None
    return value({short: c.summary.mean for short, c in cells.items() if c.summary})
