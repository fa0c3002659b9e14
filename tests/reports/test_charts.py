"""Charts: well-formed, the same bytes every time, and right about what they show."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from reports.charts import Chart, bandwidth, canvas, forest
from reports.model import Comparison
from reports.verdict import Change
from tests.reports.conftest import draw_all, draw_anew
from tests.reports.factory import ExactSession
from tests.reports.measured import compare


@pytest.fixture(scope="module")
def drawn(normal: Comparison) -> tuple[Chart, ...]:
    return draw_all(normal)


def test_all_kinds_are_there(drawn: tuple[Chart, ...]) -> None:
    kinds = [chart.kind for chart in drawn]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "forest": 1, "bandwidth": 3, "timeline": 3,
    }  # fmt: skip


def test_the_same_bytes_every_time(normal: Comparison, drawn: tuple[Chart, ...]) -> None:
    kept = draw_all(normal)
    draw_anew()
    again = draw_all(normal)
    assert kept == again == drawn
    # A report written again draws what changed, and no more.
    of_runs = [at for at, chart in enumerate(drawn) if chart.kind != "forest"]
    assert all(kept[at] is drawn[at] is not again[at] for at in of_runs)


def test_each_is_well_formed_and_says_in_words_what_it_shows(drawn: tuple[Chart, ...]) -> None:
    for chart in drawn:
        root = ET.fromstring(chart.svg)
        assert root.get("role") == "img"
        title = root.find("{http://www.w3.org/2000/svg}title")
        assert title is not None
        assert title.text == chart.alt
        assert root.get("aria-labelledby") == title.get("id")
    by_name = {chart.name: chart.alt for chart in drawn}
    assert "base 259.019, patched 262.032 virtual MiB/s" in by_name["bandwidth-filemap-4k-4k"]
    assert "+1.16 % [+0.94, +1.30] at 99 %, improvement" in by_name["forest"]


def test_ids_are_unique_over_the_page(drawn: tuple[Chart, ...]) -> None:
    ids = re.findall(r'\bid="([^"]+)"', "".join(chart.svg for chart in drawn))
    assert len(ids) == len(set(ids))
    used = re.findall(r'(?:href="#|url\(#)([^")]+)', "".join(chart.svg for chart in drawn))
    assert set(used) <= set(ids)


def test_every_colour_follows_the_page(drawn: tuple[Chart, ...]) -> None:
    for chart in drawn:
        loose = re.sub(r"var\(--[a-z]+, #[0-9a-f]{6}\)", "", chart.svg)
        assert not re.search(r"#[0-9a-f]{6}\b", loose), chart.name
        assert "http" not in loose.replace("http://www.w3.org/", "")


def test_axes_have_units(drawn: tuple[Chart, ...]) -> None:
    for chart in drawn:
        expected = {
            "forest": "change, % of base",
            "bandwidth": "virtual MiB/s",
            "timeline": "virtual s since the phase began",
        }[chart.kind]
        texts = re.findall(r"<text[^>]*>([^<]*)</text>", chart.svg)
        assert any(expected in text for text in texts), chart.name


def test_every_seed_is_a_point(drawn: tuple[Chart, ...], normal: Comparison) -> None:
    chart = next(c for c in drawn if c.name == "bandwidth-filemap-4k-4k")
    points = len(re.findall(r"<use ", chart.svg))
    assert points >= 2 * len(normal.manifest.seeds) + 2


def test_a_published_change_far_away_does_not_flatten_ours() -> None:
    ours = Change(estimate=0.01, hodges_lehmann=0.01, low=0.008, high=0.012, level=0.99)
    near = forest.limits_of([ours], [0.02], 0.0025)
    assert near[1] > 2.0
    far = forest.limits_of([ours], [0.5], 0.0025)
    assert far[1] < 3.0


def test_hostile_strings_are_text(hostile: Comparison) -> None:
    for chart in draw_all(hostile):
        root = ET.fromstring(chart.svg)
        assert not [e for e in root.iter() if e.tag.endswith("script")]


def test_absent_metrics_draw_nothing() -> None:
    session = ExactSession(same_code=True)
    assert draw_all(compare(session.manifest(), [])) == ()
    session = ExactSession()
    bare = [
        r.model_copy(update={"timelines": (), "samples": {"4k.ios": 5000.0}})
        for r in session.records()
        if r.case == "filemap-4k"
    ]
    assert draw_all(compare(session.manifest(), bare)) == ()


def test_a_single_block_can_be_drawn() -> None:
    session = ExactSession(seeds=(7,))
    kinds = {chart.kind for chart in draw_all(compare(session.manifest(), session.records()))}
    assert kinds == {"forest", "bandwidth", "timeline"}


def test_identifiers_are_safe() -> None:
    assert canvas.identifier('a"><x', "4K") == "a-x-4k"
    assert canvas.identifier("∞") == "chart"


def test_a_long_name_does_not_run_into_its_verdict(normal: Comparison) -> None:
    def places(comparison: Comparison) -> dict[str, tuple[float, float]]:
        (chart,) = forest.draw(comparison)
        texts = re.findall(r'<text[^>]* x="([\d.-]+)" y="([\d.-]+)"[^>]*>([^<]*)</text>', chart.svg)
        return {text: (float(x), float(y)) for x, y, text in texts}

    def renamed(name: str) -> Comparison:
        first = normal.cases[0]
        metrics = tuple(
            metric.model_copy(update={"name": name}) if metric.primary else metric
            for metric in first.metrics
        )
        cases = (first.model_copy(update={"metrics": metrics}), *normal.cases[1:])
        return normal.model_copy(update={"cases": cases})

    short, long = places(normal), places(renamed("overwrite.device_bytes_per_written_byte"))
    verdict = next(text for text in short if "improvement" in text)
    assert short["filemap-4k  4k.bw"][1] == pytest.approx(short[verdict][1])
    named = long["filemap-4k  overwrite.device_bytes_per_written_byte"]
    assert long[verdict][1] > named[1] + 10
    assert long[verdict][0] == pytest.approx(named[0])


def test_seeds_are_shown_of_what_is_judged() -> None:
    session = ExactSession()
    manifest = session.manifest()
    case, *others = manifest.cases
    judged = case.model_copy(update={"primary": ("4k.refaults_per_io", "4k.bw")})
    changed = manifest.model_copy(update={"cases": (judged, *others)})
    comparison = compare(changed, session.records())
    names = [
        metric.name
        for of in comparison.cases
        for phase in of.phases
        if (metric := bandwidth.charted_metric(of, phase.name))
    ]
    assert names == ["4k.refaults_per_io", "thp.bw", "switch.bw"]
