"""Call stacks: per unit, in pairs, by path, and in every form."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from reports import forms, stacks_table
from reports.charts import stacks as chart
from reports.model import Comparison
from reports.sections import stacks as section
from reports.stacks import compare_stacks
from reports.stacks_model import StackComparison, StackRow
from results.profile import SMALLER, Profile, StackFrame
from results.record import Manifest, RunRecord
from tests.reports import counts_factory as counts
from tests.reports.factory import ExactSession
from tests.reports.measured import compare
from tests.reports.test_memory import FOLIOS, modelled, runs

ENTRY, READ, ADD, LOAD = "entry_SYSCALL_64", "filemap_read", "filemap_add_folio", "xas_load"


def frames(load: int, *, again: int = 0, seed: int = 0) -> tuple[StackFrame, ...]:
    """A read that adds folios, with ``load`` instructions in xas_load, and a fault beside it."""
    below = [(3, LOAD, load, load // 10)] if load else []
    below += [(3, "xas_store", again, 5)] if again else []
    return tuple(
        StackFrame(depth=depth, function=function, instructions=instructions, calls=calls)
        for depth, function, instructions, calls in (
            (0, "asm_exc_page_fault", 700 + seed, 10),
            (0, ENTRY, 1000, 20),
            (1, READ, 5000 + 100 * seed, 20),
            (2, SMALLER, 30 + 5 * again, 0),
            (2, ADD, 2000, 20),
            *below,
        )
    )


def stacked(
    manifest: Manifest, **arms: list[tuple[StackFrame, ...] | None]
) -> tuple[list[RunRecord], list[Profile]]:
    """Runs of the twin with these frames, by arm and seed."""
    records, profiles = runs(manifest, {arm: [None] * len(each) for arm, each in arms.items()})
    every = [each for of_arm in arms.values() for each in of_arm]
    return records, [
        profile.model_copy(
            update={"phases": (profile.phases[0].model_copy(update={"stacks": each}),)}
        )
        for profile, each in zip(profiles, every, strict=True)
    ]


@pytest.fixture(scope="module")
def session() -> ExactSession:
    return ExactSession()


@pytest.fixture(scope="module")
def manifest(session: ExactSession) -> Manifest:
    return modelled(counts.counted(session.manifest()))


@pytest.fixture(scope="module")
def of_twin(manifest: Manifest) -> tuple[list[RunRecord], list[Profile]]:
    return stacked(
        manifest,
        base=[frames(400), frames(410, seed=1)],
        patched=[frames(0, again=40), frames(0, again=41, seed=1)],
    )


@pytest.fixture(scope="module")
def stacks(manifest: Manifest, of_twin: tuple[list[RunRecord], list[Profile]]) -> StackComparison:
    (each,) = compare_stacks(manifest, *of_twin)
    return each


@pytest.fixture(scope="module")
def comparison(
    session: ExactSession,
    manifest: Manifest,
    of_twin: tuple[list[RunRecord], list[Profile]],
) -> Comparison:
    records, profiles = of_twin
    return compare(manifest, [*session.records(), *records], [*counts.profiles(session), *profiles])


def row(stacks: StackComparison, *path: str) -> StackRow:
    return next(each for each in stacks.rows if each.path == path)


def test_a_path_has_its_own_and_all_that_it_called(stacks: StackComparison) -> None:
    assert (stacks.unit_title, len(stacks.seeds)) == ("folio added", 2)
    add = row(stacks, ENTRY, READ, ADD)
    assert add.instructions.equal
    assert (add.total.base, add.total.patched) == pytest.approx((2.405, 2.0405))
    load = row(stacks, ENTRY, READ, ADD, LOAD)
    assert (load.instructions.base, load.instructions.patched) == pytest.approx((0.405, 0))
    assert (load.calls.base, load.calls.patched) == pytest.approx((0.0405, 0))
    read = row(stacks, ENTRY, READ)
    assert read.total.base == pytest.approx((5050 + 30 + 2000 + 405) / FOLIOS)


def test_paths_add_up_to_the_whole_and_stand_behind_their_callers(stacks: StackComparison) -> None:
    outermost = [each for each in stacks.rows if not each.callers]
    assert sum(each.total.base for each in outermost) == pytest.approx(stacks.total.base)
    assert sum(each.instructions.base for each in stacks.rows) == pytest.approx(stacks.total.base)
    before: set[tuple[str, ...]] = {()}
    for each in stacks.rows:
        assert each.callers in before
        before.add(each.path)


def test_what_changed_is_listed_by_how_much_and_no_sum_of_small_ones(
    stacks: StackComparison,
) -> None:
    assert [stacks.rows[number].function for number in stacks.listed] == [LOAD, "xas_store"]
    assert not row(stacks, ENTRY, READ, SMALLER).instructions.equal


def test_the_focus_is_the_longest_path_with_most_of_what_changed(stacks: StackComparison) -> None:
    # xas_load alone has 0.405 of 0.645; what the small ones moved is above.
    assert stacks.focus == (ENTRY, READ)
    assert stacks.focus_share == pytest.approx(1.0)


def test_equal_arms_have_no_row_and_no_focus(manifest: Manifest) -> None:
    same = [frames(400), frames(410, seed=1)]
    (each,) = compare_stacks(manifest, *stacked(manifest, base=list(same), patched=list(same)))
    assert (each.listed, each.focus, each.total.equal) == ((), (), True)
    assert "no path changed" in section.sentence(each)


def test_nothing_is_compared_unless_every_run_has_stacks(manifest: Manifest) -> None:
    some: list[tuple[StackFrame, ...] | None] = [frames(400), None]
    records, profiles = stacked(manifest, base=some, patched=[frames(400), frames(400)])
    assert compare_stacks(manifest, records, profiles) == ()


def test_bars_lie_in_their_callers_and_widths_are_means(stacks: StackComparison) -> None:
    bars = {bar.row.path: bar for bar in chart.bars(stacks)}
    whole = (stacks.total.base + stacks.total.patched) / 2
    for path, bar in bars.items():
        size = (bar.row.total.base + bar.row.total.patched) / 2
        assert bar.end - bar.start == pytest.approx(size / whole)
        if path[:-1]:
            above = bars[path[:-1]]
            assert above.start - 1e-9 <= bar.start
            assert bar.end <= above.end + 1e-9
    load, store = (bars[ENTRY, READ, ADD, name] for name in (LOAD, "xas_store"))
    assert load.end == pytest.approx(store.start)


def test_every_form_has_them_and_says_virtual(comparison: Comparison) -> None:
    text = forms.render(comparison, "text").partition("Call stacks")[2]
    assert f"{LOAD} < {ADD}" in text
    assert "virtual instructions" in text
    page = forms.render(comparison, "html")
    assert 'id="stacks"' in page
    (pair,) = json.loads(forms.render(comparison, "json"))["comparisons"]
    (each,) = pair["stacks"]
    assert [row["function"] for row in each["rows"]] == [LOAD, "xas_store"]
    assert each["listed"] == [0, 1]


def test_who_points_at_a_path_reads_its_numbers(
    comparison: Comparison, stacks: StackComparison
) -> None:
    (drawn,) = chart.draw(comparison, stacks)
    titles = re.findall(r"<title>(.*?)</title>", drawn.svg)
    assert len(titles) == len(chart.bars(stacks))
    (load,) = (title for title in titles if title.startswith(f"{LOAD}: "))
    assert "0.4050 -&gt; 0 virtual ns per folio added itself (-0.4)" in load


def test_the_table_has_every_path(comparison: Comparison, stacks: StackComparison) -> None:
    rows = list(csv.DictReader(io.StringIO(stacks_table.render(comparison))))
    assert [each["path"] for each in rows] == [";".join(each.path) for each in stacks.rows]
    (load,) = (each for each in rows if each["path"] == ";".join((ENTRY, READ, ADD, LOAD)))
    assert (float(load["base"]), float(load["patched"])) == pytest.approx((0.405, 0))


def test_a_session_without_has_no_section(session: ExactSession, manifest: Manifest) -> None:
    plain = compare(manifest, session.records(), counts.profiles(session))
    assert plain.stacks == ()
    assert 'id="stacks"' not in forms.render(plain, "html")
