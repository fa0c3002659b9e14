"""What a page has no room for, as CSV: every counted function, and every call path."""

from __future__ import annotations

import csv
import io

from reports.explain.kinds import EXPLANATION as KINDS_COUNTED
from reports.explain.stacks import EXPLANATION as STACKS_COUNTED
from reports.model import Comparison
from results.profile import KINDS
from text import clean_line

FUNCTIONS = (
    "case", "phase", "unit", "function", "file", "line_base", "line_patched",
    "part_of", "user", "only_in", "base", "patched",
    "difference", "low_95", "high_95", "seeds", "calls_base", "calls_patched", "changed",
    *(f"{kind}_{arm}" for kind in KINDS for arm in ("base", "patched")),
)  # fmt: skip


def functions(comparison: Comparison) -> str:
    """One row a function, instructions and calls per unit of work, means over the seeds.

    ``only_in`` is ``base`` or ``patched`` whatever the arms are called; ``changed`` is 1 for the
    functions that are called changed, which are tested per a phase's first unit.  Kinds of
    instructions are there per a phase's first unit, too.
    """
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(FUNCTIONS)
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


STACKS = (
    "case", "phase", "unit", "path", "base", "patched", "calls_base", "calls_patched",
)  # fmt: skip


def stacks(comparison: Comparison) -> str:
    """One row a path: instructions of its function itself and calls of it, per unit of work.

    Paths are written as tools that draw flame graphs read them, the outermost function first
    (``a;b;c``); values are means over the seeds.
    """
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(STACKS)
    for each in STACKS_COUNTED.of(comparison):
        for row in each.rows:
            pairs = row.instructions, row.calls
            writer.writerow([
                each.case, each.phase, clean_line(each.unit_title),
                ";".join(map(clean_line, row.path)),
                *(repr(value) for pair in pairs for value in (pair.base, pair.patched)),
            ])  # fmt: skip
    return sink.getvalue()
