"""Read a session folder and write its reports: the same bytes every time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from reports import forms, tables
from reports.forms import FUNCTIONS_FILE, LINKED, MARKDOWN_FILE, STACKS_FILE
from reports.many import SessionComparison, compare_session
from results import door, table
from results.session import MeasuredSession, open_session

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
            (pair.attributions, FUNCTIONS_FILE, tables.functions),
            (pair.explained.get("stacks"), STACKS_FILE, tables.stacks),
        )
        for numbers, name, render in counted:
            if numbers:
                yield _file_name(name, apart), render(pair)
    yield HTML, forms.render(comparison, "html")
    yield MARKDOWN_FILE, forms.render(comparison, "markdown")
    yield TEXT, forms.render(comparison, "text")
