"""The forms of a wall session: A/A everywhere, honest words, real units."""

import json

import pytest

from analysis import findings
from analysis.explain.locks import WAITS as LOCKS
from analysis.model import Comparison
from reports import forms
from tests.analysis import counts_factory
from tests.analysis.measured import compare, render
from tests.analysis.wall_factory import WallSession
from tests.reports.render.test_page import ParsedPage
from tests.values import but, there


@pytest.fixture(scope="module")
def translated() -> Comparison:
    return WallSession(blocks=12, effect=0.03, spread=0.2, accelerator="tcg").compared()


@pytest.fixture(scope="module")
def unsteady() -> Comparison:
    return WallSession(effect=0.03, again=0.02).compared()


@pytest.mark.parametrize("form", ["text", "letter"])
def test_within_the_width_and_no_claim_where_withheld(
    translated: Comparison, unsteady: Comparison, form: str
) -> None:
    for comparison in (translated, unsteady):
        rendered = render(comparison, form)
        assert max(map(len, rendered.splitlines())) <= (100 if form == "text" else 75)
        assert "improvement" not in rendered
        assert "regression" not in rendered
        assert "better" not in rendered


@pytest.mark.parametrize("form", ["text", "markdown", "html", "letter", "json"])
def test_a_report_notes_that_what_belongs_to_a_build_is_in_no_interval(
    quiet: Comparison, translated: Comparison, form: str
) -> None:
    words = "ach kernel is one build, and what its layout gives is in no interval"

    def plain(comparison: Comparison) -> str:
        rendered = render(comparison, form)
        return " ".join((ParsedPage(rendered).text if form == "html" else rendered).split())

    assert words in plain(quiet)
    # Emulated time does not depend on layout, and two arms of one image share theirs.
    assert words not in plain(translated)
    facts = there(quiet.wall)
    assert facts.images == 2
    alike = findings.of_host(but(facts, images=1), quiet.manifest)
    assert {finding.kind for finding in findings.of_host(facts, quiet.manifest)} - {
        finding.kind for finding in alike
    } == {"one-build"}


@pytest.mark.parametrize("recorded", [0, 2])
def test_forms_of_hardly_anything(recorded: int) -> None:
    comparison = WallSession(blocks=12, recorded=recorded).compared()
    for form in forms.FORMS:
        assert render(comparison, form)


def test_json_has_the_noise_in_wall_mode_only(quiet: Comparison, normal: Comparison) -> None:
    [wall] = json.loads(render(quiet, "json"))["comparisons"]
    metric = wall["cases"][0]["metrics"][0]
    assert metric["again"]["needed"] == 10
    assert metric["pairs"][0]["again"] > 0
    assert wall["wall"]["real_time"] is True
    exact = render(normal, "json")
    assert '"again' not in exact
    [comparison] = json.loads(exact)["comparisons"]
    assert comparison.keys() == wall.keys() - {"wall", "host_findings"}


@pytest.fixture(scope="module")
def with_locks() -> Comparison:
    session = WallSession(effect=0.03)
    manifest = counts_factory.with_twins(session.manifest())
    records, _, locks = counts_factory.twin_runs(manifest)
    return compare(manifest, session.records() + records, (), locks)


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_locks_of_twins_are_in_real_ns(with_locks: Comparison, form: str) -> None:
    assert LOCKS.of(with_locks)
    assert {each.unit_title for each in LOCKS.of(with_locks)} == {"ms"}
    rendered = render(with_locks, form)
    rendered = ParsedPage(rendered).text if form == "html" else rendered
    rendered = " ".join(rendered.replace("\\", "").split())
    assert "real nanoseconds of the guest's clock on this host" in rendered
    assert "__filemap_add_folio" in rendered
    assert "virtual" not in rendered
    assert "exact and repeatable" not in rendered
    # No twin's number reaches the measured ones.
    assert with_locks.primary[0].judgement.pairs == 24
