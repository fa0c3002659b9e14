"""Every counted function of every phase and unit as CSV: what the page has no room for."""

from __future__ import annotations

import csv
import io

from reports.explain.kinds import EXPLANATION as KINDS_COUNTED
from reports.model import Comparison
from results.profile import KINDS
from text import clean_line

COLUMNS = (
    "case", "phase", "unit", "function", "file", "line_base", "line_patched",
    "part_of", "user", "only_in", "base", "patched",
    "difference", "low_95", "high_95", "seeds", "calls_base", "calls_patched", "changed",
    *(f"{kind}_{arm}" for kind in KINDS for arm in ("base", "patched")),
)  # fmt: skip


def render(comparison: Comparison) -> str:
    """One row a function, instructions and calls per unit of work, means over the seeds.

    ``only_in`` is ``base`` or ``patched`` whatever the arms are called; ``changed`` is 1 for the
    functions that are called changed, which are tested per a phase's first unit.  Kinds of
    instructions are there per a phase's first unit, too.
    """
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(COLUMNS)
    counted = {
        (each.case, each.phase, each.unit, row.user, row.name): row
        for each in KINDS_COUNTED.of(comparison)
        for row in each.rows
    }
    for attribution in comparison.attributions:
        changed = {each.name for each in attribution.changed}
        for row in attribution.functions:
            pair, calls = row.instructions, row.calls
            kinds = counted.get(
                (attribution.case, attribution.phase, attribution.unit, row.user, row.name)
            )
            by_kind = [getattr(kinds, kind) for kind in KINDS] if kinds else []
            of_kinds = [repr(value) for each in by_kind for value in (each.base, each.patched)]
            writer.writerow([
                attribution.case, attribution.phase, attribution.unit, clean_line(row.name),
                clean_line(row.file), *(line or "" for line in row.lines),
                clean_line(row.subsystem), int(row.user), row.only_in,
                repr(pair.base), repr(pair.patched), repr(pair.difference),
                "" if pair.low is None else repr(pair.low),
                "" if pair.high is None else repr(pair.high), pair.n,
                "" if calls is None else repr(calls.base),
                "" if calls is None else repr(calls.patched),
                int(not row.user and row.name in changed),
                *(of_kinds or [""] * (2 * len(KINDS))),
            ])  # fmt: skip
    return sink.getvalue()
