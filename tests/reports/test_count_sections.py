"""The section "Why" in every form."""

import csv
import io

import pytest

from analysis.counts import pair
from analysis.model import Comparison
from reports import forms
from reports.charts import functions as charted
from reports.sections import functions
from reports.sections.view import worth
from tests.analysis import counts_factory as counts
from tests.analysis.factory import ExactSession, all_equal
from tests.analysis.measured import compare
from tests.reports.render.test_page import ParsedPage


def section(rendered: str, start: str, end: str) -> str:
    return rendered[rendered.index(f"{start}\n") : rendered.index(f"{end}\n")]


@pytest.fixture(scope="module")
def page(counted: Comparison) -> ParsedPage:
    return ParsedPage(forms.render(counted, "html"))


def test_a_letter_begins_with_the_answer(counted: Comparison) -> None:
    rendered = forms.render(counted, "letter")
    first = rendered.partition("\n\n4K pages, random mmap reads:")[0]
    assert "Why        filemap-4k 4k: tree walks per folio added 9.09 -> 7.34; 153.8" in first
    assert "counted under emulation" in " ".join(first.split())
    assert max(map(len, first.splitlines())) <= 75


def test_the_page_hides_nothing(counted: Comparison, page: ParsedPage) -> None:
    assert page.open == []
    text = " ".join(page.text.split())
    for part in (
        "Why",
        "Locks",
        "never make one",
        "the other 62 functions",
        "page-cache tree (xarray)",
        "only in base",
        "i_pages.xa_lock",
        "saturates at, CPUs",
        "__filemap_add_folio",
        "waiting function",
    ):
        assert part in text, part
    every = {row.name for row in functions.significant(counted.headlines[0])}
    assert all(name in text for name in every)
    tables = [tag for tag, _ in page.tags if tag == "table"]
    boxes = [a for tag, a in page.tags if tag == "div" and "scroll" in str(a.get("class"))]
    assert len(tables) == len(boxes)


def test_an_a_a_is_called_identical() -> None:
    session = ExactSession()
    manifest = counts.counted(session.manifest())
    comparison = compare(
        manifest, all_equal(session.records()), counts.profiles(session, same=True)
    )
    assert functions.IDENTICAL in forms.render(comparison, "text")
    assert functions.IDENTICAL in " ".join(forms.render(comparison, "letter").split())
    assert not any(charted.waterfall(comparison, each) for each in comparison.headlines)


def test_one_seed_claims_no_interval() -> None:
    session = ExactSession(seeds=(5,))
    manifest = counts.counted(session.manifest())
    comparison = compare(manifest, session.records(), counts.profiles(session))
    rendered = forms.render(comparison, "text")
    # Nothing is known of what seeds scatter by.
    why = " ".join(section(rendered, "Why", "Published figures").split())
    assert "4k: instructions 12,880 12,719 (-1.25 %)" in why
    assert ParsedPage(forms.render(comparison, "html")).open == []


def test_the_waterfall_ends_at_the_whole_change(counted: Comparison) -> None:
    for headline in counted.headlines:
        bars = charted.bars(headline)
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
