"""The mapping of forms, and that they agree."""

from __future__ import annotations

import json

import pytest

from reports import forms, wording
from reports.model import Comparison, ReportError


def test_an_unknown_form_names_the_known(normal: Comparison) -> None:
    known = "text, markdown, letter, lkp, mmtests, matrix, html, json, summary"
    with pytest.raises(ReportError, match=known):
        forms.render(normal, "pdf")


def test_every_form_says_the_same_change(normal: Comparison) -> None:
    said = {form: forms.render(normal, form) for form in ("text", "markdown", "html", "letter")}
    for metric in normal.primary:
        change = wording.change(metric)
        assert change in said["text"]
        assert change in said["markdown"]
        assert wording.typeset(change) in said["html"]
        assert change.replace(" ", "") in said["letter"]


def test_json_is_the_record(normal: Comparison) -> None:
    whole = json.loads(forms.render(normal, "json"))
    bw = whole["cases"][0]["metrics"][0]
    assert bw["judgement"]["verdict"] == "improvement"
    assert bw["judgement"]["change"]["estimate"] == pytest.approx(0.01163, abs=1e-5)
    assert whole["exactness"]["status"] == "bit-exact"


@pytest.mark.parametrize("name", ["normal", "five"])
def test_no_unit_of_time_in_json_is_without_virtual(
    name: str, request: pytest.FixtureRequest
) -> None:
    found = units_in(json.loads(forms.render(request.getfixturevalue(name), "json")))
    assert {"virtual MiB/s", "virtual 1/s", "count"} <= found
    assert not found & {"MiB/s", "1/s", "ns", "s"}


def units_in(value: object) -> set[str]:
    """Every unit of a metric in a document; what documents published was real time."""
    if isinstance(value, list):
        return set().union(*map(units_in, value))
    if not isinstance(value, dict):
        return set()
    own = {str(value["unit"])} if "unit" in value and "direction" in value else set()
    return own.union(*map(units_in, value.values()))
