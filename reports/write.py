"""Read a session folder and write its reports: the same bytes every time."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path

from analysis.explain.kinds import EXPLANATION as KINDS_COUNTED
from analysis.explain.stacks import EXPLANATION as STACKS_COUNTED
from analysis.many import SessionComparison, compare_session
from analysis.model import Comparison
from reports import forms
from reports.forms import FUNCTIONS_FILE, LINKED, MARKDOWN_FILE, STACKS_FILE
from results import door, table
from results.profile import KINDS
from results.session import MeasuredSession, open_session
from text import clean_line

HTML = "report.html"
TEXT = "report.txt"


def read_comparison(folder: Path) -> SessionComparison:
    """Return what the session in ``folder`` shows, without writing anything new.

    Raises:
        StoreError: the folder is no session, or cannot be read.
        ReportError: its records cannot be compared.
    """
    return _compared(open_session(folder))


# The last session that was compared, and what it shows.  A look compares a session, and the report
# that follows it in the same process reads the same records.
_last: list[tuple[MeasuredSession, SessionComparison]] = []


def _compared(session: MeasuredSession) -> SessionComparison:
    if not _last or _last[0][0] != session:
        _last[:] = [(session, compare_session(session))]
    return _last[0][1]


def _file_name(name: str, apart: str) -> str:
    stem, dot, ending = name.partition(".")
    return f"{stem}{apart}{dot}{ending}"


def write_all(
    folder: Path, show: Callable[[SessionComparison], None] | None = None
) -> SessionComparison:
    """Write the HTML, Markdown and text reports and the tidy tables; return the comparison.

    ``show`` gets it first: the charts of a page take seconds, and somebody waits for a verdict.
    ``functions.csv`` is written only where functions were counted, and ``stacks.csv`` where call
    stacks were followed; with more than two arms each further pair has tables of its own, named
    for its arms.

    Raises:
        StoreError: the folder is no session, or cannot be read.
        ReportError: its records cannot be compared.
        OSError: the folder cannot be written.
    """
    session = open_session(folder)
    comparison = _compared(session)
    if show is not None:
        show(comparison)
    for name, content in _files(session, comparison):
        door.write(folder, name, content)
    return comparison


def published(folder: Path) -> dict[str, str | bytes]:
    """The page of the session in ``folder`` and the files that it links to, by name.

    Made of the records: what lies in the folder under these names may be anybody's.

    Raises:
        StoreError: the folder is no session, or cannot be read.
        ReportError: its records cannot be compared.
    """
    session = open_session(folder)
    files = _files(session, _compared(session))
    return {name: content for name, content in files if name in (HTML, *LINKED)}


def _files(
    session: MeasuredSession, comparison: SessionComparison
) -> Iterator[tuple[str, str | bytes]]:
    yield from table.as_files(table.tidy(session.manifest, session.records)).items()
    for pair in comparison.comparisons:
        # The first pair has the plain names, the others are named for their arms.
        first = pair is comparison.comparisons[0]
        apart = "" if first else f"-{pair.manifest.base}-{pair.manifest.patched}"
        counted = (
            (pair.attributions, FUNCTIONS_FILE, functions_table),
            (pair.explained.get("stacks"), STACKS_FILE, stacks_table),
        )
        for numbers, name, render in counted:
            if numbers:
                yield _file_name(name, apart), render(pair)
    yield HTML, forms.render(comparison, "html")
    yield MARKDOWN_FILE, forms.render(comparison, "markdown")
    yield TEXT, forms.render(comparison, "text")


FUNCTION_COLUMNS = (
    "case", "phase", "unit", "function", "file", "line_base", "line_patched",
    "part_of", "user", "only_in", "base", "patched",
    "difference", "low_95", "high_95", "seeds", "calls_base", "calls_patched", "changed",
    *(f"{kind}_{arm}" for kind in KINDS for arm in ("base", "patched")),
)  # fmt: skip


def functions_table(comparison: Comparison) -> str:
    """One row a function, instructions and calls per unit of work, means over the seeds.

    ``only_in`` is ``base`` or ``patched`` whatever the arms are called; ``changed`` is 1 for the
    functions that are called changed, which are tested per a phase's first unit.  Kinds of
    instructions are there per a phase's first unit, too.
    """
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(FUNCTION_COLUMNS)
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


STACK_COLUMNS = (
    "case", "phase", "unit", "path", "base", "patched", "calls_base", "calls_patched",
)  # fmt: skip


def stacks_table(comparison: Comparison) -> str:
    """One row a path: instructions of its function itself and calls of it, per unit of work.

    Paths are written as tools that draw flame graphs read them, the outermost function first
    (``a;b;c``); values are means over the seeds.
    """
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(STACK_COLUMNS)
    for each in STACKS_COUNTED.of(comparison):
        for row in each.rows:
            pairs = row.instructions, row.calls
            writer.writerow([
                each.case, each.phase, clean_line(each.unit_title),
                ";".join(map(clean_line, row.path)),
                *(repr(value) for pair in pairs for value in (pair.base, pair.patched)),
            ])  # fmt: skip
    return sink.getvalue()
