"""The page of many arms, and JSON with its schema."""

import copy
import json
from pathlib import Path

import jsonschema
import pytest

from analysis.many import SessionComparison, compare_session
from analysis.model import Comparison
from experiment.plan import AGAIN
from experiment.spec import KernelSpec
from reports import forms
from reports.document import Table
from reports.sections import View, answer, metrics
from reports.sentences import changed_per_unit
from tests.analysis import counts_factory, factory
from tests.analysis.many_factory import ARMS, Many, steps, workloads
from tests.analysis.measured import measured, render
from tests.analysis.wall_factory import WallSession
from tests.reports.render.test_page import ParsedPage
from tests.values import but

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "schema" / "report.schema.json"


@pytest.fixture(scope="module")
def page(five: SessionComparison) -> str:
    return render(five, "html")


@pytest.mark.parametrize("width", [100, 200])
def test_each_row_of_verdicts_has_its_case_and_metric(
    five: SessionComparison, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(answer, "MOST_COLUMNS", 0)
    shown = "\n".join(forms.answer_lines(five, width)).partition("Every verdict")[0]
    for row in five.rows:
        assert (f"{row.case} {row.shown_name}" in shown) == row.primary


def test_three_kernels_are_all_named() -> None:
    many = Many()
    manifest = many.manifest()
    kernels = [KernelSpec(source=f"deb:linux-image-6.1.{number}") for number in range(5)]
    specs = tuple(
        but(arm, kernel=kernel)
        for arm, kernel in zip(manifest.experiment.arms, kernels, strict=True)
    )
    experiment = but(manifest.experiment, arms=specs, series=None, kernel=kernels[0])
    session = many.compared(experiment=experiment)
    head = ParsedPage(render(session, "html")).text
    for kernel in kernels:
        assert kernel.source in head


def test_a_wall_session_of_many_cases_says_blocks() -> None:
    manifest, records = workloads()
    wall = WallSession(blocks=8).manifest()
    again = [
        but(record, arm=AGAIN, run_id=f"{record.run_id}-again")
        for record in records
        if record.arm == "base"
    ]
    experiment = but(manifest.experiment, mode="wall", wall=wall.experiment.wall)
    session = compare_session(
        measured(
            but(
                manifest,
                experiment=experiment,
                arms=wall.arms,
                provenance=wall.provenance,
                runs_planned=3 * manifest.runs_planned // 2,
            ),
            [*records, *again],
        )
    )
    page = " ".join(ParsedPage(render(session, "html")).text.split())
    assert "Means and standard deviations over the blocks" in page
    for form in ("text", "markdown", "html"):
        rendered = render(session, form)
        rendered = ParsedPage(rendered).text if form == "html" else rendered
        # The seeds of fio are listed to repeat it.
        rendered = (
            rendered.replace("seeds 1001", "").replace("seeds | 1001", "").replace("seeds1001", "")
        )
        assert "seeds" not in " ".join(rendered.split()).replace("seeds 1001", ""), form


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_renderings_are_what_the_schema_says(
    validator: jsonschema.Draft202012Validator,
    counted: Comparison,
    hostile: Comparison,
    failed_five: SessionComparison,
    stepwise: SessionComparison,
) -> None:
    for session in (counted, hostile, failed_five, stepwise):
        validator.validate(json.loads(render(session, "json")))


def test_the_schema_refuses_what_is_not_rendered(
    validator: jsonschema.Draft202012Validator, five: SessionComparison
) -> None:
    whole = json.loads(render(five, "json"))
    assert whole["schema_version"] == 2
    assert whole["arms"] == list(ARMS)
    assert [pair["patched"] for pair in whole["comparisons"]] == list(ARMS)[1:]
    wrong = [copy.deepcopy(whole) for _ in range(3)]
    del wrong[0]["schema_version"]
    wrong[1]["comparisons"][0]["extra"] = 1
    wrong[2]["comparisons"][0]["cases"][0]["metrics"][0]["direction"] = "sideways"
    assert not any(map(validator.is_valid, wrong))


def test_patch_by_patch_says_which_functions_each_step_changed() -> None:
    many = steps()
    manifest = counts_factory.counted(many.manifest())
    counts = {profile.run_id: profile for profile in counts_factory.profiles(many.session())}
    # The second patch is the one that changes what is executed.
    like = dict(zip(many.arms, ("base", "base", "patched", "patched"), strict=True))
    profiles = [
        but(counts[f"{case}-{block:03d}-{like[arm]}"], run_id=f"{case}-{block:03d}-{arm}")
        for case in factory.PHASES
        for block in range(len(many.seeds))
        for arm in many.arms
    ]
    session = compare_session(measured(manifest, many.records(), profiles))
    text = " ".join(render(session, "text").split())
    second = next(each for each in session.comparisons if each.manifest.patched == "2")
    words = [changed_per_unit(each).replace("I/O", "read") for each in second.headlines]
    assert len(words) == 3
    for headline, each in zip(second.headlines, words, strict=True):
        assert f"Step 2, {headline.case} {headline.phase}: {each}." in text
    assert not any(f"Step {step}, " in text for step in (1, 3))


def test_the_changes_stand_before_the_arms() -> None:
    many = compare_session(measured(*workloads(9)))
    [table] = [
        block for block in metrics.workloads(View(many, drawn=False)) if isinstance(block, Table)
    ]
    assert [column.head for column in table.columns] == [
        "workload",
        "",
        "change",
        *(arm.name for arm in many.arms),
    ]
    assert {len(row.cells) for row in table.rows} == {len(table.columns)}
