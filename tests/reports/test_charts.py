"""Charts: all that the numbers allow are on a page, well-formed, right about what they show."""

import itertools
import math
import re
from collections import Counter
from xml.etree import ElementTree as ET

import pytest

from analysis.many import SessionComparison, compare_session
from analysis.model import Comparison
from analysis.verdict import Change
from experiment.spec import Thresholds
from reports import charts
from reports.charts import ChangeGroup, ChangeLine
from tests.analysis.factory import ExactSession
from tests.analysis.many_factory import workloads
from tests.analysis.measured import measured, render
from tests.reports.drawn import OnPage, charts_on, draw_all, page_of
from tests.values import but, data, there

# What each session's page has: a chart that is lost, or drawn twice, is an error here.
ON_PAGE = data(__file__, "on_page")


@pytest.fixture(scope="module")
def many() -> SessionComparison:
    return compare_session(measured(*workloads(9)))


@pytest.fixture(params=ON_PAGE)
def session(request: pytest.FixtureRequest) -> Comparison | SessionComparison:
    value: Comparison | SessionComparison = request.getfixturevalue(request.param)
    return value


def test_every_chart_that_the_numbers_allow_is_on_the_page(
    session: Comparison | SessionComparison, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.params["session"]
    assert Counter(chart.kind for chart in draw_all(session)) == ON_PAGE[name]


def test_charts_are_well_formed_follow_the_page_and_say_in_words_what_they_show(
    session: Comparison | SessionComparison,
) -> None:
    drawings = draw_all(session)
    for chart in drawings:
        root = ET.fromstring(chart.svg)
        assert root.get("role") == "img"
        title = there(root.find("{http://www.w3.org/2000/svg}title"))
        assert root.get("aria-labelledby") == title.get("id")
        assert title.text == chart.alt != ""
        loose = re.sub(r"var\(--[a-z]+, #[0-9a-f]{6}\)", "", chart.svg)
        assert not re.search(r"#[0-9a-f]{6}\b", loose), chart.name
        assert "DejaVu" not in chart.svg, chart.name
        assert "http" not in re.sub(r'(href="https://[^"]+)|http://www.w3.org/', "", loose)
    ids = re.findall(r'\bid="([^"]+)"', page_of(session))
    assert len(ids) == len(set(ids))
    used = re.findall(r'(?:href="#|url\(#)([^")]+)', "".join(chart.svg for chart in drawings))
    assert set(used) <= set(ids)


def named(session: Comparison | SessionComparison) -> dict[str, OnPage]:
    return {chart.name: chart for chart in draw_all(session)}


@pytest.mark.parametrize(
    ("kind", "words"), [("forest", "change, % of base"), ("samples", "virtual MiB/s")]
)
def test_axes_have_units(normal: Comparison, kind: str, words: str) -> None:
    for chart in draw_all(normal):
        texts = re.findall(r"<text[^>]*>([^<]*)</text>", chart.svg)
        assert chart.kind != kind or any(words in text for text in texts), chart.name


def test_words_of_a_chart_are_its_numbers(normal: Comparison) -> None:
    samples = named(normal)["samples-filemap-4k-4k-bw"]
    assert "base 259.019, patched 262.032 virtual MiB/s" in samples.alt
    assert len(re.findall(r"<use ", samples.svg)) >= 2 * len(normal.manifest.seeds) + 1
    assert "filemap-4k 4k.bw +1.16 % ▲ improvement" in named(normal)["forest"].alt


def test_wall_mode_shows_a_a_wherever_runs_are(quiet: Comparison) -> None:
    for chart in draw_all(quiet):
        assert "var(--again, " in chart.svg, chart.name


def change(estimate: float, reach: float = 0.002) -> Change:
    ends = {"low": estimate - reach, "high": estimate + reach}
    return Change(estimate=estimate, hodges_lehmann=estimate, level=0.99, **ends)


def groups(*lines: ChangeLine, threshold: float = Thresholds().change) -> list[ChangeGroup]:
    return [ChangeGroup(f"case {number}", threshold, (line,)) for number, line in enumerate(lines)]


def test_a_published_change_far_away_does_not_flatten_ours() -> None:
    def upper(published: float) -> float:
        return charts.limits_of(groups(ChangeLine("", "", change(0.01), published=(published,))))[1]

    assert upper(0.02) > charts.at(0.02)
    assert upper(0.5) < charts.at(0.03)


def test_few_changes_are_a_forest_and_many_are_ranked() -> None:
    sizes = [0.01 * number for number in range(-4, 6)]
    every = [ChangeLine("", f"{size:+.2f}", change(size)) for size in sizes]
    assert [chart.kind for chart in charts.draw(groups(*every[:3]), "±1 %")] == ["forest"]
    (chart,) = charts.draw(groups(*every), "±1 %")
    shown = [float(text) for text in re.findall(r"[+-]0\.\d\d", chart.alt)]
    assert chart.kind == "ranked"
    assert shown == sorted(shown, reverse=True)
    # Of many arms a chart that nobody can read is none; a pair of arms has one of any length.
    wall = ChangeGroup("", 0.01, tuple(every * 7))
    assert charts.draw([wall], "") == []
    assert len(charts.draw(groups(*every * 7), "")) == 1
    assert charts.draw(groups(ChangeLine("", "failed", None)), "") == []


@pytest.mark.parametrize("size", [0.01, -0.05])
def test_a_change_that_is_tenfold_does_not_hide_the_others(size: float) -> None:
    low, high = charts.limits_of(groups(ChangeLine("", "", change(size))))
    assert abs(charts.at(size)) / (high - low) > 0.3
    both = ChangeLine("", "", change(size)), ChangeLine("", "", change(9.0))
    low, high = charts.limits_of(groups(*both, threshold=0.0))
    assert low < charts.at(size) < charts.at(9.0) < high


def test_on_the_axis_double_is_as_far_as_half() -> None:
    assert charts.at(1.0) == pytest.approx(-charts.at(-0.5))
    assert math.isfinite(charts.at(-1.0))


@pytest.mark.parametrize(
    ("low", "high"), [(-0.0005, 0.0009), (-0.01, 0.02), (-3.0, 1.0), (0.0, 4.0)]
)
def test_ticks_are_apart_and_name_zero(low: float, high: float) -> None:
    ticks = [charts.at(tick) for tick in charts.ticks(low, high)]
    assert 0.0 in ticks
    assert len(ticks) > 2
    for after, before in itertools.pairwise(reversed(ticks)):
        assert after - before >= charts.FREE * (high - low)


def test_hostile_strings_are_text(hostile: Comparison, hostile_five: SessionComparison) -> None:
    for session in (hostile, hostile_five):
        for chart in draw_all(session):
            root = ET.fromstring(chart.svg)
            assert not [e for e in root.iter() if e.tag.endswith("script")]
            assert not {"\x1b", "\u202e"} & set(chart.svg)


@pytest.mark.parametrize("seeds", [(), (7,)])
def test_of_hardly_anything_what_there_is_is_drawn(seeds: tuple[int, ...]) -> None:
    session = ExactSession(seeds=seeds) if seeds else ExactSession(same_code=True)
    comparison = session.compared(session.records() if seeds else [])
    kinds = {chart.kind for chart in charts_on(render(comparison, "html", drawn=True))}
    assert kinds == ({"forest", "samples"} if seeds else set())


def test_identifiers_are_safe() -> None:
    assert charts.identifier('a"><x', "4K") == "a-x-4k"
    assert charts.identifier("∞") == "chart"


def test_seeds_are_shown_of_what_is_judged() -> None:
    session = ExactSession()
    case, *others = session.manifest().cases
    judged = but(case, primary=("4k.refaults_per_io", "4k.bw"))
    metrics = charts.charted_metrics(session.compared(cases=(judged, *others)))
    assert [metric.name for metric in metrics] == ["4k.refaults_per_io", "thp.bw", "switch.bw"]


def test_a_renamed_chart_keeps_its_references(normal: Comparison) -> None:
    (chart, *_) = charts.samples(normal)
    other = charts.within(chart, "pair2")
    assert set(re.findall(r'\bid="([^"]+)"', other.svg)).isdisjoint(
        re.findall(r'\bid="([^"]+)"', chart.svg)
    )
    assert other.svg.replace(f"pair2-{chart.name}-", f"{chart.name}-") == chart.svg
