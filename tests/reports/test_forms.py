"""The mapping of forms, and that they agree."""

import json
from collections.abc import Iterator, Sequence
from typing import get_type_hints

import pytest

from analysis.many import SessionComparison
from analysis.model import Comparison, ReportError
from reports import FORM_NAMES, forms
from reports.document import Block, Fold, Heading
from reports.sections import View
from tests.analysis.measured import render, whole
from tests.analysis.test_gate import SLEEPS, checked, compared
from tests.reports.render.test_page import ParsedPage
from verbs.session import report_verb


def test_an_unknown_form_names_the_known(normal: Comparison) -> None:
    known = "text, markdown, letter, lkp, mmtests, html, json, summary"
    with pytest.raises(ReportError, match=known):
        render(normal, "pdf")


def test_the_command_line_lists_every_form() -> None:
    assert tuple(forms.FORMS) == FORM_NAMES
    writers = {name: write.__name__.removeprefix("as_") for name, write in forms.FORMS.items()}
    assert all(writer in (name, "render") for name, writer in writers.items())
    assert forms.FORMS["lkp"].__module__ == "reports.lkp"
    [option] = get_type_hints(report_verb, include_extras=True)["form"].__metadata__
    assert option.help == ", ".join(FORM_NAMES)


@pytest.mark.parametrize("name", ["normal", "five"])
def test_no_unit_of_time_in_json_is_without_virtual(
    name: str, request: pytest.FixtureRequest
) -> None:
    units = units_in(json.loads(render(request.getfixturevalue(name), "json")))
    assert {"virtual MiB/s", "virtual 1/s", "count"} <= units
    assert not units & {"MiB/s", "1/s", "ns", "s"}


def units_in(value: object) -> set[str]:
    """Every unit of a metric in a document; what documents published was real time."""
    if isinstance(value, list):
        return set().union(*map(units_in, value))
    if not isinstance(value, dict):
        return set()
    own = {str(value["unit"])} if "unit" in value and "direction" in value else set()
    return own.union(*map(units_in, value.values()))


BY_FORM = {"text": forms.TEXT, "markdown": forms.MARKDOWN, "html": forms.PAGE}
ALWAYS = ("findings", "repeat", "meaning")
SECTIONS = {
    "normal": ("verdict", "change", "published", *ALWAYS),
    "counted": ("verdict", "change", "why", "published", *ALWAYS),
    "five": ("verdict", "arms", "pairs", "change", "published", *ALWAYS),
    "failed_five": ("verdict", "arms", "pairs", "change", "published", "failures", *ALWAYS),
    "stepwise": ("verdict", "patches", "arms", "pairs", "change", *ALWAYS),
    "matrix": ("verdict", "workloads", "change", *ALWAYS),
    "quiet": ("verdict", "host", "change", "published", *ALWAYS),
    "broken": ("verdict", "checks", "published", *ALWAYS),
}


@pytest.fixture(scope="module")
def broken() -> SessionComparison:
    return compared(checked("base", SLEEPS), checked("patched", SLEEPS), measured=False)


@pytest.mark.parametrize("name", SECTIONS)
def test_every_section_that_has_something_to_say_is_in_every_form(
    name: str, request: pytest.FixtureRequest
) -> None:
    session = whole(request.getfixturevalue(name))
    every: dict[str, set[str]] = {}
    for form, sections in BY_FORM.items():
        view = View(session)
        blocks = [block for section in sections for block in section(view)]
        titles = {anchor.rpartition("-")[2]: text for anchor, text in sections_of(blocks)}
        rendered = render(session, form)
        shown = ParsedPage(rendered).text if form == "html" else rendered
        assert all(title in shown for title in titles.values()), form
        every[form] = {*titles} - {"subject", *(["runs"] if form == "html" else [])}
        assert ("subject" in titles) == (form != "text")
    assert every == {form: {*SECTIONS[name]} for form in BY_FORM}


def sections_of(blocks: Sequence[Block]) -> Iterator[tuple[str, str]]:
    """Anchor and title of every section, of those of a pair in a fold, too."""
    for block in blocks:
        if isinstance(block, Heading) and block.level == 2:
            yield block.anchor, block.text
        if isinstance(block, Fold):
            yield from sections_of(block.blocks)
