"""The forms a comparison can take: an explicit mapping from name to renderer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType

from reports import html, letter, markdown, text
from reports.model import Comparison, ReportError
from results.record import as_json


def render_json(comparison: Comparison) -> str:
    """The whole record, changes as fractions; timelines are in the raw results.

    Of functions only the listed ones are here; functions.csv has thousands.
    """
    whole = as_json(comparison)
    for found in whole["attributions"]:
        found["functions"] = found["functions"][: found["listed"]]
    for case in whole["cases"]:
        del case["timelines"]
    return json.dumps(whole, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


FORMS: Mapping[str, Callable[[Comparison], str]] = MappingProxyType(
    {
        "text": text.render,
        "markdown": markdown.render,
        "letter": letter.render,
        "html": html.render,
        "json": render_json,
    }
)


def render(comparison: Comparison, form: str) -> str:
    """Return the comparison in the named form.

    Raises:
        ReportError: no such form; the message names the known ones.
    """
    if form not in FORMS:
        raise ReportError(f"form {form!r}: known are {', '.join(FORMS)}")
    return FORMS[form](comparison)
