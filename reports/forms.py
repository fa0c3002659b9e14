"""The forms a comparison can take: an explicit mapping from name to renderers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from reports import (
    html,
    json_form,
    letter,
    lkp,
    many_html,
    many_letter,
    markdown,
    matrix,
    mmtests,
    summary,
    text,
)
from reports.many import SessionComparison
from reports.model import Comparison, ReportError


class Form(NamedTuple):
    """How a session is written: one of two arms, and one of more.

    ``fitted`` writes it for a terminal of so many columns, for a session in this folder;
    None where that changes nothing.
    """

    two: Callable[[Comparison], str]
    many: Callable[[SessionComparison], str]
    fitted: Callable[[SessionComparison, int, str], str] | None = None


def as_session(comparison: Comparison | SessionComparison) -> SessionComparison:
    """A comparison as a session of its two arms."""
    if isinstance(comparison, SessionComparison):
        return comparison
    return SessionComparison(manifest=comparison.manifest, comparisons=(comparison,))


def _alike(render: Callable[[SessionComparison], str]) -> Form:
    """A form that is the same for any number of arms."""
    return Form(lambda comparison: render(as_session(comparison)), render)


FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "text": _alike(text.render)._replace(fitted=text.render),
        "markdown": _alike(markdown.render),
        "letter": Form(letter.render, many_letter.render),
        "lkp": _alike(lkp.render),
        "mmtests": _alike(mmtests.render),
        "matrix": _alike(matrix.render),
        "html": Form(html.render, many_html.render),
        "json": Form(json_form.render_two, json_form.render_many),
        "summary": _alike(summary.render),
    }
)


def render(
    comparison: Comparison | SessionComparison,
    form: str,
    width: int | None = None,
    folder: str = "",
) -> str:
    """Return the comparison, or all of a session's, in the named form.

    ``width`` is that of the terminal, in columns, and ``folder`` where the session lies;
    None for a file, which is the same wherever it is written.

    Raises:
        ReportError: no such form; the message names the known ones.
    """
    if form not in FORMS:
        raise ReportError(f"form {form!r}: known are {', '.join(FORMS)}")
    session, chosen = as_session(comparison), FORMS[form]
    if width is not None and chosen.fitted is not None:
        return chosen.fitted(session, width, folder)
    return chosen.many(session) if session.single is None else chosen.two(session.single)
