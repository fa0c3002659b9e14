"""Every call path of every phase as CSV: what the page has no room for."""

from __future__ import annotations

import csv
import io

from reports.explain.stacks import EXPLANATION
from reports.model import Comparison
from text import clean_line

COLUMNS = (
    "case", "phase", "unit", "path", "base", "patched", "calls_base", "calls_patched",
)  # fmt: skip


def render(comparison: Comparison) -> str:
    """One row a path: instructions of its function itself and calls of it, per unit of work.

    Paths are written as tools that draw flame graphs read them, the outermost function first
    (``a;b;c``); values are means over the seeds.
    """
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(COLUMNS)
    for stacks in EXPLANATION.of(comparison):
        for row in stacks.rows:
            pairs = row.instructions, row.calls
            writer.writerow([
                stacks.case, stacks.phase, clean_line(stacks.unit_title),
                ";".join(map(clean_line, row.path)),
                *(repr(value) for pair in pairs for value in (pair.base, pair.patched)),
            ])  # fmt: skip
    return sink.getvalue()
