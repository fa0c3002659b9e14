"""The forms a comparison can take: an explicit mapping from name to renderer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from reports import html, letter, markdown, summary, text
from reports.many import SessionComparison
from reports.model import Comparison, ReportError
from results.record import as_json

# What has a value in wall mode only, and is no key of an exact session's record.
OF_WALL = frozenset({"again", "again_values", "wall", "host_findings", "in_wall"})


def _without_wall(found: Any) -> None:
    """Take the keys of wall mode out of a record that has nothing in them, in place."""
    if isinstance(found, dict):
        for key in OF_WALL & found.keys():
            if not found[key]:
                del found[key]
        for value in found.values():
            _without_wall(value)
    elif isinstance(found, list):
        for value in found:
            _without_wall(value)


def render_json(comparison: Comparison) -> str:
    """The whole record, changes as fractions; timelines are in the raw results.

    Of functions only the listed ones are here; functions.csv has thousands.
    """
    whole = as_json(comparison)
    for found in whole["attributions"]:
        found["functions"] = found["functions"][: found["listed"]]
    for case in whole["cases"]:
        del case["timelines"]
    if not comparison.gates:
        del whole["gates"]
    if comparison.wall is None:
        _without_wall({key: whole[key] for key in whole if key != "manifest"})
        del whole["wall"], whole["host_findings"]
    return json.dumps(whole, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


FORMS: Mapping[str, Callable[[Comparison], str]] = MappingProxyType(
    {
        "text": text.render,
        "markdown": markdown.render,
        "letter": letter.render,
        "html": html.render,
        "json": render_json,
        "summary": summary.render,
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
        return "\n".join(FORMS[form](one) for one in comparison.comparisons)
    return FORMS[form](comparison)
