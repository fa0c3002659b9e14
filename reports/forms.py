"""The forms of a report: which sections each has, and what writes its blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from analysis.many import SessionComparison, of_comparisons
from analysis.model import Comparison, ReportError
from reports import FORM_NAMES, json_form, letter, lkp, matrix, mmtests, summary, verdict_words
from reports.document import Block, Link, Paragraph
from reports.headline import headline
from reports.render import html, markdown, text
from reports.sections import (
    arms,
    explained,
    metrics,
    subject,
    trust,
    verdicts,
)
from reports.sections.view import View, of_each_pair

# What a page links to beside itself; functions and stacks only where they were counted.
MARKDOWN_FILE, SAMPLES_FILE = "report.md", "samples.csv"
FUNCTIONS_FILE, STACKS_FILE = "functions.csv", "stacks.csv"
LINKED = (MARKDOWN_FILE, SAMPLES_FILE, FUNCTIONS_FILE, STACKS_FILE)
Section = Callable[[View], list[Block]]


def pairs(view: View) -> list[Block]:
    """What is of two arms: all of a session that has no more, else each pair in its fold."""
    body = of_each_pair(view, (metrics.blocks, *explained.sections()))
    return body if view.session.is_pair else [*body, Paragraph(metrics.note(view.first), "note")]


# In the order of reading: what came out, whether to believe it, where it came from, the rest.
PAGE: tuple[Section, ...] = (
    verdicts.blocks, trust.differences, trust.host, trust.checks, arms.patches, arms.workloads,
    arms.blocks, arms.runs, pairs, subject.published, trust.findings, trust.failures, subject.full,
    subject.again, subject.made_with, subject.meaning,
)  # fmt: skip
MARKDOWN: tuple[Section, ...] = (subject.title, subject.brief, *PAGE)
TEXT: tuple[Section, ...] = (
    subject.title, subject.brief, verdicts.blocks, trust.differences, trust.host, trust.checks,
    arms.patches, arms.workloads, arms.blocks, pairs, subject.published, trust.findings,
    trust.failures, subject.again, subject.meaning,
)  # fmt: skip
SECTIONS: Mapping[str, tuple[Section, ...]] = MappingProxyType(
    {"text": TEXT, "markdown": MARKDOWN, "html": PAGE}
)


def _blocks(sections: Sequence[Section], view: View) -> list[Block]:
    return [block for section in sections for block in section(view)]


def as_text(session: SessionComparison, width: int = text.WIDTH, folder: str = "") -> str:
    """The report for a terminal of so many columns, of a session in this folder."""
    return text.text(_blocks(TEXT, View(session, folder=folder)), width)


def happened_lines(
    session: SessionComparison, width: int = text.WIDTH, folder: str = ""
) -> list[str]:
    """What happened and why, for a terminal at the end of a session."""
    return text.render(verdicts.happened(View(session, folder=folder)), width)


def verdict_lines(session: SessionComparison, width: int = text.WIDTH) -> list[str]:
    """The verdicts, two lines a primary metric or three, for a terminal."""
    return text.render(verdicts.every(View(session)), width)


def as_markdown(session: SessionComparison) -> str:
    """The report as Markdown."""
    return markdown.text(_blocks(MARKDOWN, View(session)))


def as_html(session: SessionComparison, *, drawn: bool = True) -> str:
    """The report as one page, with its charts where it is ``drawn``."""
    view = View(session, page=True, drawn=drawn)
    experiment = session.manifest.experiment
    over = f"Twinboot · {experiment.name} · {experiment.mode} mode · {subject.origin(view)}"
    counted = {
        FUNCTIONS_FILE: view.first.attributions,
        STACKS_FILE: view.first.explained.get("stacks"),
    }
    files = [name for name in LINKED if counted.get(name, True)]
    links = [part for name in files for part in (", ", Link(name, name))][1:]
    beside = Paragraph(("Other files in the session's folder: ", *links), "note")
    return html.page(
        f"{headline(session).text}: {verdict_words.title(session.manifest)}", subject.title(view),
        [*_blocks(PAGE, view), beside], over,
    )  # fmt: skip


def as_summary(session: SessionComparison) -> str:
    """One screen of Markdown, with the whole report in a fold."""
    return summary.render(View(session), as_markdown(session))


def as_session(comparison: Comparison | SessionComparison) -> SessionComparison:
    """A comparison as a session of its two arms."""
    if isinstance(comparison, SessionComparison):
        return comparison
    return of_comparisons(comparison.manifest, (comparison,))


_WRITERS: tuple[Callable[[SessionComparison], str], ...] = (
    as_text, as_markdown, letter.render, lkp.render, mmtests.render, matrix.render, as_html,
    json_form.render, as_summary,
)  # fmt: skip
FORMS: Mapping[str, Callable[[SessionComparison], str]] = MappingProxyType(
    dict(zip(FORM_NAMES, _WRITERS, strict=True))
)


def render(
    comparison: Comparison | SessionComparison,
    form: str,
    width: int | None = None,
    folder: str = "",
    *,
    drawn: bool = True,
) -> str:
    """Return all of a session in the named form.

    ``width`` is that of the terminal, in columns, and ``folder`` where the session lies;
    None for a file, which is the same wherever it is written.  A page that is not ``drawn`` has
    no charts, which take seconds.

    Raises:
        ReportError: no such form; the message names the known ones.
    """
    if form not in FORMS:
        raise ReportError(f"unknown form {form!r}; known: {', '.join(FORMS)}")
    session = as_session(comparison)
    if form == "text" and width is not None:
        return as_text(session, width, folder)
    return FORMS[form](session) if drawn or form != "html" else as_html(session, drawn=False)
