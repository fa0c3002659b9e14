"""The page of many arms, the heat map, and JSON with its schema."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from experiment.design import AGAIN
from experiment.spec import KernelSpec
from reports import forms
from reports.charts import arms, canvas, course, heat
from reports.charts.canvas import Chart
from reports.charts.heat import Square
from reports.many import SessionComparison, compare_session
from reports.model import Comparison
from reports.sections.functions import changed_per_unit
from reports.steps import course as steps_of
from reports.write import write_all
from results.store import SessionStore
from tests.reports import counts_factory, factory
from tests.reports.many_factory import ARMS, Many, steps, workloads
from tests.reports.measured import measured
from tests.reports.render.test_page import ParsedPage
from tests.reports.wall_factory import WallSession

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "schema" / "report.schema.json"


@pytest.fixture(scope="module")
def page(five: SessionComparison) -> str:
    return forms.render(five, "html")


def test_one_page_names_every_arm_with_its_verdicts(page: str) -> None:
    parsed = ParsedPage(page)
    assert parsed.open == []
    text = " ".join(parsed.text.split())
    for part in (
        *ARMS, "6 regressions, 5 unchanged (within 0.25 %), 1 inconclusive.", "−4.54 %",
        "regression",
        "Beyond the series the arms differ", "vm.zone_reclaim_mode", "295.00 MB/s",
        "−25.75 points", "12 comparisons; their p values", "vanilla → zr-1",
    ):  # fmt: skip
        assert part in text, part
    folded = [a for tag, a in parsed.tags if tag == "details"]
    assert len(folded) >= 4


def test_ids_are_unique_although_pairs_share_their_charts(page: str) -> None:
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', page)) <= set(ids)


def test_loads_nothing_and_tables_scroll(page: str) -> None:
    parsed = ParsedPage(page)
    assert not {tag for tag, _ in parsed.tags} & {"link", "img", "iframe"}
    tables = [tag for tag, _ in parsed.tags if tag == "table"]
    boxes = [a for tag, a in parsed.tags if tag == "div" and "scroll" in str(a.get("class"))]
    assert len(boxes) >= len(tables) > 8


def test_hostile_texts_stay_text(hostile_five: SessionComparison) -> None:
    page = forms.render(hostile_five, "html")
    parsed = ParsedPage(page)
    assert parsed.open == []
    assert [tag for tag, _ in parsed.tags].count("script") == 1
    assert "\u202e" not in page
    assert "\x1b" not in page
    for form in ("text", "markdown", "matrix"):
        rendered = forms.render(hostile_five, form)
        assert all(c.isprintable() or c == "\n" for c in rendered), form


def test_one_report_for_any_number_of_arms(tmp_path: Path) -> None:
    many = Many(seeds=(1, 2))
    store = SessionStore(tmp_path)
    store.create(many.manifest())
    for record in many.records():
        store.append(record)
    write_all(tmp_path)
    before = (tmp_path / "report.html").read_bytes()
    assert [path.name for path in tmp_path.glob("report*")].count("report.html") == 1
    assert len(list(tmp_path.glob("report*.html"))) == 1
    write_all(tmp_path)
    assert (tmp_path / "report.html").read_bytes() == before


def test_three_kernels_are_all_named() -> None:
    many = Many()
    manifest = many.manifest()
    kernels = [KernelSpec(source=f"deb:linux-image-6.1.{number}") for number in range(5)]
    specs = tuple(
        arm.model_copy(update={"kernel": kernel})
        for arm, kernel in zip(manifest.experiment.arms, kernels, strict=True)
    )
    experiment = manifest.experiment.model_copy(
        update={"arms": specs, "series": None, "kernel": kernels[0]}
    )
    session = compare_session(
        measured(manifest.model_copy(update={"experiment": experiment}), many.records())
    )
    head = ParsedPage(forms.render(session, "html")).text
    for kernel in kernels:
        assert kernel.source in head


def test_a_wall_session_of_many_cases_says_blocks() -> None:
    manifest, records = workloads()
    wall = WallSession(blocks=8).manifest()
    again = [
        record.model_copy(update={"arm": AGAIN, "run_id": f"{record.run_id}-again"})
        for record in records
        if record.arm == "base"
    ]
    experiment = manifest.experiment.model_copy(
        update={"mode": "wall", "wall": wall.experiment.wall}
    )
    session = compare_session(measured(
        manifest.model_copy(
            update={"experiment": experiment, "arms": wall.arms, "provenance": wall.provenance,
                    "runs_planned": 3 * manifest.runs_planned // 2}
        ),
        [*records, *again],
    ))  # fmt: skip
    page = " ".join(ParsedPage(forms.render(session, "html")).text.split())
    assert "Means and standard deviations over the blocks" in page
    for form in ("text", "markdown", "html"):
        rendered = forms.render(session, form)
        rendered = ParsedPage(rendered).text if form == "html" else rendered
        # The seeds of fio are listed to repeat it.
        rendered = (
            rendered.replace("seeds 1001", "").replace("seeds | 1001", "").replace("seeds1001", "")
        )
        assert "seeds" not in " ".join(rendered.split()).replace("seeds 1001", ""), form


def drawn(chart: Chart) -> ET.Element:
    loose = re.sub(r"var\(--[a-z]+, #[0-9a-f]{6}\)", "", chart.svg)
    assert not re.search(r"#[0-9a-f]{6}\b", loose), chart.name
    return ET.fromstring(chart.svg)


def test_the_heat_map_prints_its_values(five: SessionComparison, matrix: Comparison) -> None:
    (chart,) = heat.draw(five)
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", chart.svg)
    assert texts.count("−4.54▼") == 2
    assert "sorted-bourney" in texts
    drawn(chart)
    (chart,) = heat.draw(forms.as_session(matrix))
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", chart.svg)
    assert "+255.6▲" in texts
    assert "libaio-read4 4k" in texts


def test_names_of_the_heat_maps_rows_are_whole(five: SessionComparison, matrix: Comparison) -> None:
    for session in (five, forms.as_session(matrix)):
        (chart,) = heat.draw(session)
        ends = re.findall(r'text-anchor: end[^>]* x="([\d.]+)"[^>]*>([^<]+)</text>', chart.svg)
        assert ends
        for x, name in ends:
            wide = TextPath((0, 0), name, size=9.5, prop=FontProperties(family="DejaVu Sans"))
            assert wide.get_extents().width <= float(x), name
            assert "…" not in name


def test_one_case_is_named_once(five: SessionComparison) -> None:
    cases = {comparison.cases[0].name for comparison in five.comparisons}
    assert len(cases) == 1
    (chart,) = heat.draw(five)
    assert not cases & set(re.findall(r">([^<\s]+) [^<]*</text>", chart.svg))


def test_a_map_of_many_rows_has_those_that_changed(
    matrix: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = forms.as_session(matrix)
    (whole,) = heat.draw(session)
    sure = set(re.findall(r">([^<]*▲|[^<]*▼)</text>", whole.svg))
    assert sure
    assert "rows" not in whole.caption
    monkeypatch.setattr(heat, "MOST_ROWS", 5)
    (chart,) = heat.draw(session)
    ((there, shown),) = re.findall(r"Of (\d+) rows the (\d+)", chart.caption)
    assert int(there) > int(shown) == 5
    # The last of the whole map is the largest.
    assert "+255.6▲" in re.findall(r"<text[^>]*>([^<]*)</text>", chart.svg)
    drawn(chart)


def test_rows_that_are_sure_come_before_those_that_are_deep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heat, "MOST_ROWS", 3)

    def row(depth: float, *, sure: bool) -> list[Square | None]:
        return [None, Square("", depth, False, sure)]

    squares: list[list[Square | None]] = [
        row(0.1, sure=False), row(0.5, sure=False), row(0.0, sure=True), [None, None],
        row(0.3, sure=False),
    ]  # fmt: skip
    assert heat.most_changed(squares) == [1, 2, 4]


def test_two_arms_and_few_cases_need_no_heat_map(normal: Comparison) -> None:
    assert heat.draw(forms.as_session(normal)) == []


def test_colour_grows_with_the_change_and_never_hides_ink() -> None:
    depths = [heat.depth(change, 0.0025) for change in (0.0, 0.001, 0.01, 0.1, 1.0, 9.0, 90.0)]
    assert depths == sorted(depths)
    assert depths[0] == depths[1] == 0.0
    assert depths[-1] <= heat.DEEPEST
    assert heat.depth(-1.0, 0.0025) <= heat.DEEPEST


def test_charts_of_arms_and_steps(five: SessionComparison, stepwise: SessionComparison) -> None:
    charts = [*arms.forest(five), *arms.runs(five)]
    assert [chart.kind for chart in charts] == ["arms", "runs", "runs", "runs"]
    for chart in charts:
        assert drawn(chart) is not None
        assert "sleepy" in chart.alt
    assert course.draw(five) == []
    steps = course.draw(stepwise)
    assert len(steps) == 3
    assert "xas_get_order: +1.17 %" in steps[0].alt
    for chart in steps:
        drawn(chart)


def test_steps_of_many_metrics_have_charts_of_those_that_changed_most(
    stepwise: SessionComparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = course.draw(stepwise)
    rows = [row for row in stepwise.rows if row.primary and row.measured]
    largest = max(rows, key=lambda row: max(
        abs(change.estimate)
        for step in steps_of(stepwise, row)
        if (change := step.own.judgement.change)
    ))  # fmt: skip
    monkeypatch.setattr(course, "MOST_CHARTS", 1)
    assert course.most_changed(stepwise, rows) == [largest]
    (chart,) = course.draw(stepwise)
    assert chart.name in {each.name for each in every}
    assert f"Of {len(rows)} judged metrics the 1" in chart.caption
    assert not any("judged metrics" in each.caption for each in every)


def test_a_renamed_chart_keeps_its_references(five: SessionComparison) -> None:
    (chart,) = arms.forest(five)
    other = canvas.within(chart, "pair2")
    assert set(re.findall(r'\bid="([^"]+)"', other.svg)).isdisjoint(
        re.findall(r'\bid="([^"]+)"', chart.svg)
    )
    assert other.svg.replace("pair2-arms-", "arms-") == chart.svg


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_renderings_are_what_the_schema_says(
    validator: jsonschema.Draft202012Validator,
    normal: Comparison,
    counted: Comparison,
    hostile: Comparison,
    five: SessionComparison,
    failed_five: SessionComparison,
    stepwise: SessionComparison,
) -> None:
    for session in (normal, counted, hostile, five, failed_five, stepwise):
        validator.validate(json.loads(forms.render(session, "json")))


def test_the_schema_refuses_what_is_not_rendered(
    validator: jsonschema.Draft202012Validator, five: SessionComparison
) -> None:
    whole = json.loads(forms.render(five, "json"))
    assert whole["schema_version"] == 2
    assert whole["arms"] == list(ARMS)
    assert [pair["patched"] for pair in whole["comparisons"]] == list(ARMS)[1:]
    wrong = [copy.deepcopy(whole) for _ in range(3)]
    del wrong[0]["schema_version"]
    wrong[1]["comparisons"][0]["extra"] = 1
    wrong[2]["comparisons"][0]["cases"][0]["metrics"][0]["direction"] = "sideways"
    for document in wrong:
        assert list(validator.iter_errors(document))


def test_patch_by_patch_says_which_functions_each_step_changed() -> None:
    many = steps()
    manifest = counts_factory.counted(many.manifest())
    counts = {profile.run_id: profile for profile in counts_factory.profiles(many.session())}
    # The second patch is the one that changes what is executed.
    like = dict(zip(many.arms, ("base", "base", "patched", "patched"), strict=True))
    profiles = [
        counts[f"{case}-{block:03d}-{like[arm]}"].model_copy(
            update={"run_id": f"{case}-{block:03d}-{arm}"}
        )
        for case in factory.PHASES for block in range(len(many.seeds)) for arm in many.arms
    ]  # fmt: skip
    session = compare_session(measured(manifest, many.records(), profiles))
    text = " ".join(forms.render(session, "text").split())
    second = next(each for each in session.comparisons if each.manifest.patched == "2")
    words = [changed_per_unit(each) for each in second.headlines]
    assert len(words) == 3
    for headline, each in zip(second.headlines, words, strict=True):
        assert f"Step 2, {headline.case} {headline.phase}: {each}." in text
    assert not any(f"Step {step}, " in text for step in (1, 3))
