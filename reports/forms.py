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
    many_markdown,
    many_text,
    markdown,
    matrix,
    mmtests,
    summary,
    text,
)
from reports.many import SessionComparison
from reports.model import Comparison, ReportError


class Form(NamedTuple):
    """How a session is written: one of two arms, and one of more."""

    two: Callable[[Comparison], str]
    many: Callable[[SessionComparison], str]


def as_session(comparison: Comparison) -> SessionComparison:
    """A comparison as a session of its two arms."""
    return SessionComparison(manifest=comparison.manifest, comparisons=(comparison,))


def _alike(render: Callable[[SessionComparison], str]) -> Form:
    """A form that is the same for any number of arms."""
    return Form(lambda comparison: render(as_session(comparison)), render)


FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "text": Form(text.render, many_text.render),
        "markdown": Form(markdown.render, many_markdown.render),
        "letter": Form(letter.render, many_letter.render),
        "lkp": _alike(lkp.render),
        "mmtests": _alike(mmtests.render),
        "matrix": _alike(matrix.render),
        "html": Form(html.render, many_html.render),
        "json": Form(json_form.render_two, json_form.render_many),
        "summary": Form(summary.render, summary.render_many),
    }
)


def render(comparison: Comparison | SessionComparison, form: str) -> str:
    """Return the comparison, or all of a session's, in the named form.

    Raises:
        ReportError: no such form; the message names the known ones.
    """
    if form not in FORMS:
        raise ReportError(f"form {form!r}: known are {', '.join(FORMS)}")
    if isinstance(comparison, SessionComparison):
        if comparison.single is None:
            return FORMS[form].many(comparison)
        return FORMS[form].two(comparison.single)
    return FORMS[form].two(comparison)
