"""Read a session folder and write its reports: the same bytes every time."""

from __future__ import annotations

from pathlib import Path

from reports import functions_table, html, markdown
from reports.comparison import compare
from reports.model import Comparison
from results import table
from results.store import SessionStore, write_atomically

HTML = "report.html"
MARKDOWN = "report.md"
FUNCTIONS = "functions.csv"


def read_comparison(folder: Path) -> Comparison:
    """Return what the session in ``folder`` shows, without writing anything new.

    Raises:
        StoreError: the folder is no session, or cannot be read.
        ReportError: its records cannot be compared.
    """
    store = SessionStore(folder)
    return compare(store.manifest(), store.records(), store.profiles(), store.locks())


def write_all(folder: Path) -> Comparison:
    """Write the HTML and Markdown reports and the tidy tables; return the comparison.

    ``functions.csv`` is written only where functions were counted.

    Raises:
        StoreError: the folder is no session, or cannot be read.
        ReportError: its records cannot be compared.
        OSError: the folder cannot be written.
    """
    store = SessionStore(folder)
    manifest, records = store.manifest(), store.records()
    comparison = compare(manifest, records, store.profiles(), store.locks())
    table.export(table.tidy(manifest, records), folder)
    if comparison.attributions:
        write_atomically(folder / FUNCTIONS, functions_table.render(comparison))
    write_atomically(folder / MARKDOWN, markdown.render(comparison))
    write_atomically(folder / HTML, html.render(comparison))
    return comparison
