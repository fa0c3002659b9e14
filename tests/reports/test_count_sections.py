"""The sections "Where it came from" and "Locks" in every form."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from reports import forms, tables
from reports.charts import waterfall
from reports.explain.contention import EXPLANATION as LOCKS
from reports.explain.locks import EXPLANATION as MEASURED_LOCKS
from reports.model import Comparison
from reports.paired import pair
from reports.render.html import SCRIPT
from reports.sections import functions, locks, measured_locks
from results.profile import FunctionCount, LockSite, LockUse, Profile
from tests.reports import counts_factory as counts
from tests.reports.conftest import HOSTILE
from tests.reports.drawn import draw_all
from tests.reports.factory import ExactSession, all_equal
from tests.reports.measured import compare
from tests.reports.render.test_page import ParsedPage
from text import typeset

GOLDEN = Path(__file__).parent / "golden"


def golden(rendered: str, name: str) -> bool:
    return rendered == (GOLDEN / name).read_text(encoding="utf-8")


def section(rendered: str, start: str, end: str) -> str:
    return rendered[rendered.index(f"{start}\n") : rendered.index(f"{end}\n")]


@pytest.fixture(scope="module")
def page(counted: Comparison) -> ParsedPage:
    return ParsedPage(forms.render(counted, "html"))


@pytest.fixture(scope="module")
def hostile_counts() -> Comparison:
    """Function, file, unit and lock names come from a guest: each is an attack."""
    session = ExactSession(seeds=(1, 2))
    manifest = counts.with_twins(counts.counted(session.manifest()))
    records, profiles, locks = counts.twin_runs(manifest)
    profiles += counts.profiles(session)

    def attack(profile: Profile) -> Profile:
        phases = tuple(
            phase.model_copy(update={
                "kernel": (*phase.kernel, FunctionCount(
                    name=HOSTILE, file=HOSTILE, calls=1,
                    instructions=10**7 if "base" in profile.run_id else 5,
                )),
                "locks": (LockUse(instances=1, sleeps=False, symbol=HOSTILE, sites=(
                    LockSite(function=HOSTILE, file=HOSTILE, shared=False, taken=9, held=10**7),
                )),),
                "user": {**phase.user, f"{HOSTILE}.so": 10**8 if "base" in profile.run_id else 1},
                "instructions": phase.instructions + 10**9,
            })
            for phase in profile.phases
        )  # fmt: skip
        return profile.model_copy(update={"phases": phases})

    locks = [of_run.model_copy(update={"phases": tuple(
        phase.model_copy(update={
            "waits": tuple(w.model_copy(update={"callers": (HOSTILE, HOSTILE), "flags": HOSTILE})
                           for w in phase.waits),
        }) for phase in of_run.phases
    )}) for of_run in locks]  # fmt: skip
    units = tuple(u.model_copy(update={"title": HOSTILE}) for u in counts.UNITS)
    ratios = tuple(
        r.model_copy(update={"title": HOSTILE, "functions": (HOSTILE, "gone" + HOSTILE)})
        for r in counts.RATIOS
    )
    manifest = manifest.model_copy(update={"cases": tuple(
        case.model_copy(update={"phases": tuple(
            phase.model_copy(update={"units": units, "ratios": ratios}) for phase in case.phases
        )}) for case in manifest.cases
    )})  # fmt: skip
    return compare(manifest, session.records() + records, list(map(attack, profiles)), locks)


def test_golden_text(counted: Comparison) -> None:
    rendered = section(forms.render(counted, "text"), "Where it came from", "Published figures")
    assert golden(rendered, "counts.txt")


def test_golden_letter(counted: Comparison, normal: Comparison) -> None:
    rendered = forms.render(counted, "letter")
    before = forms.render(normal, "letter")
    assert rendered.startswith(before)
    added = rendered.removeprefix(before).strip("\n").splitlines()
    assert 1 <= len(added) <= 3
    assert max(map(len, added)) <= 75
    assert golden("\n".join(added) + "\n", "letter_counts.txt")


def test_every_form_has_the_same_sentences(counted: Comparison, page: ParsedPage) -> None:
    flat = {
        "html": " ".join(page.text.split()),
        "text": " ".join(forms.render(counted, "text").split()),
        "markdown": " ".join(re.sub(r"\\(.)", r"\1", forms.render(counted, "markdown")).split()),
    }
    for headline in counted.headlines:
        for sentence in (functions.total(headline), functions.share(headline),
                         *map(functions.ratio, headline.ratios)):  # fmt: skip
            assert typeset(sentence) in flat["html"]
            assert sentence in flat["text"]
            assert sentence in flat["markdown"]
    for measured in MEASURED_LOCKS.of(counted):
        sentence = measured_locks.sentence(measured)
        assert typeset(sentence) in flat["html"]
        assert sentence in flat["text"]
        assert sentence in flat["markdown"]
    for twin in LOCKS.of(counted):
        for sentence in (locks.BANNER, locks.limits(twin),
                         locks.guest(twin), locks.slow_path(twin)):  # fmt: skip
            assert typeset(sentence) in flat["html"]
            assert sentence in flat["text"]
            assert sentence in flat["markdown"]


def test_the_page_hides_nothing(counted: Comparison, page: ParsedPage) -> None:
    assert page.open == []
    text = " ".join(page.text.split())
    for part in ("Where it came from", "Locks", "never make one", "the other 62 functions",
                 "page-cache tree (xarray)", "user: fio", "only in base",
                 "i_pages.xa_lock", "saturates at, CPUs", "__filemap_add_folio",
                 "All 7 locks, and who takes them", "taken in try_to_wake_up",
                 "waiting function", "69 of 69 functions"):  # fmt: skip
        assert part in text, part
    every = {row.name for row in counted.headlines[0].functions}
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
    assert functions.IDENTICAL in ParsedPage(forms.render(comparison, "html")).text
    assert functions.IDENTICAL in forms.render(comparison, "text")
    assert functions.IDENTICAL in forms.render(comparison, "markdown")
    assert forms.render(comparison, "letter").endswith(f"\n\n{functions.IDENTICAL}\n")
    assert not [c for c in draw_all(comparison) if c.kind == "waterfall"]


def test_sessions_without_counts_are_as_before(normal: Comparison) -> None:
    for form in ("text", "markdown", "html", "letter"):
        rendered = forms.render(normal, form)
        assert "Where it came from" not in rendered
        assert ">Locks<" not in rendered


def test_one_seed_claims_no_interval() -> None:
    session = ExactSession(seeds=(5,))
    manifest = counts.counted(session.manifest())
    comparison = compare(manifest, session.records(), counts.profiles(session))
    rendered = forms.render(comparison, "text")
    assert "1 seed, each -" in rendered
    # Nothing is known of what seeds scatter by.
    came_from = " ".join(section(rendered, "Where it came from", "Published figures").split())
    assert "each -161.6; not significant" in came_from
    assert ParsedPage(forms.render(comparison, "html")).open == []


def test_charts(counted: Comparison) -> None:
    by_name = {chart.name: chart for chart in draw_all(counted)}
    fall = by_name["waterfall-filemap-4k-4k"]
    assert "xas_load -85.3" in fall.alt
    assert "instructions per I/O, patched minus base" in fall.svg
    assert "waits per 1,000 folios added" in by_name["locks-callers-filemap-4k-4k-callers"].svg


def test_the_waterfall_ends_at_the_whole_change(counted: Comparison) -> None:
    for headline in counted.headlines:
        bars = waterfall.bars(headline)
        assert bars[0].start == 0
        assert [bar.start for bar in bars[1:-1]] == [bar.end for bar in bars[:-2]]
        assert bars[-2].end == pytest.approx(headline.total.difference)
        assert (bars[-1].start, bars[-1].end) == (0, headline.total.difference)


@pytest.mark.slow
def test_hostile_names_stay_text(hostile_counts: Comparison) -> None:
    assert hostile_counts.headlines[0].rows
    assert any(HOSTILE in row.name for row in hostile_counts.headlines[0].rows)
    for form in ("text", "markdown", "letter", "html", "json"):
        rendered = forms.render(hostile_counts, form)
        assert "\x1b" not in rendered, form
        assert "\u202e" not in rendered, form
        if form in {"html", "markdown"}:
            outside_code = "".join(rendered.split("```")[::2]) if form == "markdown" else rendered
            own = f"<script>{SCRIPT.read_text()}</script>"
            assert "<script" not in outside_code.replace(r"\<script", "").replace(own, ""), form
    parsed = ParsedPage(forms.render(hostile_counts, "html"))
    assert parsed.open == []
    assert [tag for tag, _ in parsed.tags].count("script") == 1
    assert max(map(len, forms.render(hostile_counts, "text").splitlines())) <= 100
    assert max(map(len, forms.render(hostile_counts, "letter").splitlines())) <= 75
    for chart in draw_all(hostile_counts):
        assert not [e for e in ET.fromstring(chart.svg).iter() if e.tag.endswith("script")]


def test_json_has_what_is_listed(counted: Comparison) -> None:
    whole = json.loads(forms.render(counted, "json"))
    attribution = whole["comparisons"][0]["attributions"][0]
    assert attribution["headline"]
    assert len(attribution["functions"]) == attribution["listed"] == 7
    assert whole["comparisons"][0]["locks"][0]["waits"][0]["caller"] == "__filemap_add_folio"


def test_the_table_of_functions_adds_up(counted: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(tables.functions(counted))))
    assert len(rows) == sum(len(attribution.functions) for attribution in counted.attributions)
    first = [r for r in rows if (r["phase"], r["unit"]) == ("4k", "folio")]
    attribution = next(a for a in counted.attributions if (a.phase, a.unit) == ("4k", "folio"))
    assert sum(float(r["difference"]) for r in first) == pytest.approx(attribution.total.difference)
    assert {r["only_in"] for r in first} == {"", "base", "patched"}


def test_rows_that_print_as_zeros_are_not_visible() -> None:
    assert not functions.visible(pair([0.04], [0.01]))
    assert functions.visible(pair([0.04], [0.06]))
    assert functions.visible(pair([12.0], [12.0]))
