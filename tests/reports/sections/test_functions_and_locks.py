"""Functions and locks in sentences: what counts explain, and what they do not."""

import csv
import io
from collections.abc import Sequence

import pytest

from analysis.counts import pair
from analysis.explain.locks import WAITS as LOCKS
from analysis.model import Comparison
from analysis.verdict import Verdict
from reports import charts, forms, wording
from reports.document import Block, Fold, Table
from reports.sections import functions, locks, worth
from tests.analysis import counts_factory as counts
from tests.analysis.factory import ExactSession, all_equal
from tests.analysis.measured import compare, render
from tests.reports.render.test_page import ParsedPage
from tests.values import but, there
from text import typeset


def table_of(blocks: Sequence[Block]) -> Table:
    """The only table of these blocks, in a fold or not."""
    parts = [
        part for each in blocks for part in (each.blocks if isinstance(each, Fold) else [each])
    ]
    (table,) = [part for part in parts if isinstance(part, Table)]
    return table


@pytest.mark.parametrize(
    ("value", "expected"),
    [(-85.31, "-85.3"), (17.46, "+17.5"), (0.0, "0"), (0.04, "±0.0"), (-0.04, "±0.0")],
)
def test_differences(value: float, expected: str) -> None:
    assert wording.signed(value) == expected


def test_changes() -> None:
    assert wording.paired_change(pair([100.0], [90.0])) == "-10.00 %"
    assert wording.paired_change(pair([0.0], [90.0])) == "from 0"
    assert wording.paired_change(pair([0.0], [0.0])) == "–"
    assert wording.paired_change(None) == "–"


def test_a_change_within_the_scatter_is_in_parentheses() -> None:
    assert wording.moved(pair([100.0, 101.0, 99.0], [90.0, 91.0, 89.5])) == "-9.83 %"
    assert wording.moved(pair([100.0, 101.0, 99.0], [90.0, 121.0, 90.0])) == "(+0.33 %)"
    assert wording.moved(pair([0.0, 0.0, 0.0], [0.0, 1.0, 0.0])) == "(from 0)"
    # Nothing is known of the scatter of one seed.
    assert wording.moved(pair([100.0], [90.0])) == "(-10.00 %)"
    assert wording.moved(pair([100.0], [100.0])) == "0 %"
    # Nothing scatters here.
    assert wording.moved(pair([100.0, 100.0], [100.0, 100.0])) == "0 %"
    assert wording.moved(None) == "–"


def test_what_few_functions_do_not_explain_is_reported(counted: Comparison) -> None:
    headline = but(counted.headlines[0], listed=1)
    assert functions.share(headline).endswith("; the change is spread over many functions")


def test_significant_functions_come_first_and_all_rows_add_up(counted: Comparison) -> None:
    headline = counted.headlines[0]
    noise = tuple(row for row in headline.functions if row.instructions.within_scatter)
    assert noise
    mixed = but(
        headline, functions=noise[:2] + headline.rows[:1] + noise[2:], listed=3, others=None
    )
    assert [row.name for row in functions.significant(mixed)] == [headline.rows[0].name]
    table = table_of(functions._significant(counted, mixed))
    heads = [row.cells[0].text for row in table.rows]
    assert heads == [headline.rows[0].name, "2 listed functions, not significant", "all"]
    lost = but(headline, functions=noise, listed=3)
    table = table_of(functions._significant(counted, lost))
    assert "not significant" in table.rows[0].cells[0].text


@pytest.mark.parametrize("most", [1, 3, 100])
def test_more_functions_than_a_table_holds_are_a_row_of_their_sum(
    counted: Comparison, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(functions, "MOST_FUNCTIONS", most)
    headline = counted.headlines[0]
    clear = functions.significant(headline)
    table = table_of(functions._significant(counted, headline))
    numbers = [float(row.cells[1].text) for row in table.rows]
    assert sum(numbers[:-1]) == pytest.approx(numbers[-1], abs=0.5)
    more = [row for row in table.rows if "more significant" in row.cells[0].text]
    assert bool(more) == (len(clear) > most)


def test_absent_functions_are_named(counted: Comparison) -> None:
    ratio = counted.headlines[0].ratios[0]
    assert functions.absent(ratio) == ""
    assert "xas_load never entered" in functions.absent(but(ratio, absent=("xas_load",)))


def test_diagnostic_runs_say_what_they_cannot(counted: Comparison) -> None:
    (callers,) = LOCKS.of(counted)
    assert "no prediction" in locks.limits(callers)
    assert locks.guest(callers) == "8 vCPUs, 8 jobs, a timer every 20 µs, 2 seeds"
    assert "in parentheses" in locks.limits(callers)
    alone = but(callers, seeds=callers.seeds[:1])
    assert "in parentheses" not in locks.limits(alone)
    assert "times per 1,000 folios added" in locks.slow_path(callers)


def test_a_long_chain_of_callers_keeps_its_ends(counted: Comparison) -> None:
    row = LOCKS.of(counted)[0].waits[0]
    long = but(row, chain=("waits", *"abcdefgh"))
    assert locks.chain(long) == "a < b < c < d < ... < h"
    # Nothing is gained by three dots in place of one name.
    short = but(row, chain=("waits", *"abcdef"))
    assert locks.chain(short) == "a < b < c < d < e < f"


def test_a_verdict_names_the_functions_behind_it(counted: Comparison) -> None:
    bw, thp = counted.primary[:2]
    explanation = functions.explained(counted, bw)
    assert explanation.startswith("153.8 fewer instructions per I/O: xas_load -85.3, ")
    for form in (render(counted, "text"), typeset(render(counted, "text"))):
        assert "153.8 fewer instructions per read" in " ".join(form.split())
    assert typeset(explanation).replace("I/O", "read") in " ".join(render(counted, "html").split())
    # Nothing is explained where nothing is called.
    assert thp.judgement.verdict is not Verdict.IMPROVEMENT
    assert functions.explained(counted, thp) == ""


def test_a_path_is_explained_by_the_functions_that_make_it_up(counted: Comparison) -> None:
    """A path moves as instructions do, a rate as their reciprocal."""
    bw = counted.primary[0]
    moved = there(counted.headlines[0].total.change)
    for estimate, name, explained in (
        (moved, "4k.instructions", True),
        (-moved, "4k.instructions", False),
        (moved, "4k.work", False),
    ):
        change = but(there(bw.judgement.change), estimate=estimate)
        judgement = but(bw.judgement, change=change)
        path = but(bw, name=name, direction="lower", judgement=judgement)
        case = counted.cases[0]
        metrics = tuple(path if metric == bw else metric for metric in case.metrics)
        cases = (but(case, metrics=metrics), *counted.cases[1:])
        explanation = functions.explained(but(counted, cases=cases), path)
        assert explanation.startswith("153.8 fewer") == explained


def test_instructions_that_do_not_account_for_a_rate_are_not_named(counted: Comparison) -> None:
    """As where work takes longer because it sleeps, and costs a few instructions besides."""
    bw = counted.primary[0]
    for estimate in (-0.26, 0.1, -1.0):
        change = but(there(bw.judgement.change), estimate=estimate)
        other = but(bw, judgement=but(bw.judgement, change=change))
        case = counted.cases[0]
        metrics = tuple(other if metric == bw else metric for metric in case.metrics)
        cases = (but(case, metrics=metrics), *counted.cases[1:])
        assert functions.explained(but(counted, cases=cases), other) == ""


def section(rendered: str, start: str, end: str) -> str:
    return rendered[rendered.index(f"{start}\n") : rendered.index(f"{end}\n")]


@pytest.fixture(scope="module")
def page(counted: Comparison) -> ParsedPage:
    return ParsedPage(render(counted, "html"))


def test_an_a_a_is_called_identical() -> None:
    session = ExactSession()
    manifest = counts.counted(session.manifest())
    comparison = compare(
        manifest, all_equal(session.records()), counts.profiles(session, same=True)
    )
    assert functions.IDENTICAL in render(comparison, "text")
    assert functions.IDENTICAL in " ".join(render(comparison, "letter").split())
    assert not any(charts.waterfall(comparison, each) for each in comparison.headlines)


def test_the_waterfall_ends_at_the_whole_change(counted: Comparison) -> None:
    for headline in counted.headlines:
        bars = charts.bars(headline)
        assert bars[0].start == 0
        assert [bar.start for bar in bars[1:-1]] == [bar.end for bar in bars[:-2]]
        assert bars[-2].end == pytest.approx(headline.total.difference)
        assert (bars[-1].start, bars[-1].end) == (0, headline.total.difference)


def test_the_table_of_functions_adds_up(counted: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(forms.functions_table(counted))))
    assert len(rows) == sum(len(attribution.functions) for attribution in counted.attributions)
    first = [r for r in rows if (r["phase"], r["unit"]) == ("4k", "folio")]
    attribution = next(a for a in counted.attributions if (a.phase, a.unit) == ("4k", "folio"))
    assert sum(float(r["difference"]) for r in first) == pytest.approx(attribution.total.difference)
    assert {r["only_in"] for r in first} == {"", "base", "patched"}


def test_a_row_holds_a_thousandth_of_the_whole_or_is_significant() -> None:
    whole = pair([1000.0, 1001.0, 1002.0], [1000.0, 1001.0, 1003.0])
    assert worth(pair([3.0, 1.0, 2.0], [1.0, 2.0, 3.0]), whole)
    assert worth(pair([0.02, 0.02, 0.02], [0.01, 0.01, 0.011]), whole)
    assert not worth(pair([0.3, 0.1, 0.2], [0.1, 0.2, 0.3]), whole)
