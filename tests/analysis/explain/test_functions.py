"""Where a change came from: nothing hidden, nothing invented."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.counts import MOST_LISTED, Recorded
from analysis.explain.functions import (
    MOVEMENT,
    OTHER,
    TOLERANCE,
    Attribution,
    attribute,
    catalogue,
    listed,
    programs,
    subsystem,
)
from analysis.model import Comparison
from results.profile import FunctionCount, PhaseProfile, Profile
from results.record import Manifest, RunRecord
from tests.analysis import counts_factory as counts
from tests.analysis.factory import ExactSession, all_equal, fails
from tests.analysis.measured import compare
from tests.values import but, data, there


def find(attributions: Sequence[Attribution], unit: str, phase: str = "4k") -> Attribution:
    return next(each for each in attributions if (each.phase, each.unit) == (phase, unit))


def made(
    *blocks: tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]]],
    units: float = 10.0,
    user: int = 0,
) -> tuple[Manifest, list[RunRecord], list[Profile]]:
    """A session of one phase whose functions have the given (instructions, calls)."""
    session = ExactSession(seeds=tuple(range(1, len(blocks) + 1)))
    manifest = counts.counted(session.manifest())
    records = [r for r in session.records() if r.case == "filemap-4k" and not r.repeat]
    profiles = []
    for block, arms in enumerate(blocks):
        for arm, functions in zip(("base", "patched"), arms, strict=True):
            kernel = tuple(
                FunctionCount(name=name, file="mm/x.c", instructions=i, calls=c)
                for name, (i, c) in functions.items()
            )
            total = sum(f.instructions for f in kernel) + user
            phase = PhaseProfile(
                phase="4k",
                instructions=total,
                kernel=kernel,
                user={"fio": user} if user else {},
                by_vcpu=(total,),
                units={"io": units, "folio": units / 2},
            )
            profiles.append(Profile(run_id=f"filemap-4k-{block:03d}-{arm}", phases=(phase,)))
    return manifest, records, profiles


def test_the_normal_session(counted: Comparison) -> None:
    assert [(a.case, a.phase, a.unit) for a in counted.headlines] == [
        ("filemap-4k", "4k", "io"),
        ("filemap-thp", "thp", "io"),
        ("filemap-thp", "switch", "io"),
    ]
    per_folio = find(counted.attributions, "folio")
    walks = per_folio.rows[0]
    assert walks.name == "xas_load"
    assert walks.subsystem == "page-cache tree (xarray)"
    assert walks.instructions.base == pytest.approx(634.6, rel=0.002)
    assert walks.instructions.patched == pytest.approx(494.9, rel=0.002)
    assert not walks.instructions.within_scatter
    (ratio,) = find(counted.attributions, "io").ratios
    assert (ratio.calls.base, ratio.calls.patched) == pytest.approx((9.09, 7.34), rel=0.002)
    assert ratio.absent == ()


def test_rows_groups_and_others_are_the_whole_difference(counted: Comparison) -> None:
    for attribution in counted.attributions:
        whole = attribution.total
        assert sum(r.instructions.difference for r in attribution.functions) == pytest.approx(
            whole.difference, abs=1e-6
        )
        assert sum(g.instructions.base for g in attribution.groups) == pytest.approx(whole.base)
        assert sum(g.instructions.patched for g in attribution.groups) == pytest.approx(
            whole.patched
        )
        assert sum(g.functions for g in attribution.groups) == len(attribution.functions)
        for group in attribution.groups:
            assert sum(file.functions for file in group.files) == group.functions
            of_files = sum(file.instructions.difference for file in group.files)
            assert of_files == pytest.approx(group.instructions.difference, abs=1e-6)
        shown = sum(row.instructions.difference for row in attribution.rows)
        shown += there(attribution.others).difference
        assert shown == pytest.approx(whole.difference, abs=1e-6)


def test_the_listed_functions_explain_the_change(counted: Comparison) -> None:
    for attribution in counted.attributions:
        assert attribution.share == pytest.approx(1, abs=TOLERANCE)
        assert there(attribution.movement) >= MOVEMENT
        sizes = [abs(row.instructions.difference) for row in attribution.functions]
        assert sizes == sorted(sizes, reverse=True)


def test_evictions_are_not_sold_as_a_cause(counted: Comparison) -> None:
    attribution = find(counted.attributions, "io")
    rows = {row.name: row.instructions for row in attribution.functions}
    assert rows["shrink_folio_list"].within_scatter
    assert not rows["__filemap_add_folio"].within_scatter
    groups = {group.title: group.instructions for group in attribution.groups}
    assert groups["reclaim"].within_scatter
    assert not groups["page-cache tree (xarray)"].within_scatter


def test_a_function_of_one_arm_only_says_so(counted: Comparison) -> None:
    attribution = find(counted.attributions, "io")
    only = {row.name: row.only_in for row in attribution.functions if row.only_in}
    assert only == {
        "filemap_range_has_entry": "base",
        "xa_get_order.constprop.0": "base",
        "xa_get_order": "patched",
        "xas_get_order": "patched",
    }


def test_user_code_is_a_row_a_file(counted: Comparison) -> None:
    attribution = find(counted.attributions, "io")
    fio = next(row for row in attribution.functions if row.user and row.name == "fio")
    assert (fio.subsystem, fio.calls) == ("user: fio", None)
    assert fio.instructions.base == pytest.approx(5400)


def test_what_keeps_a_vcpu_from_being_idle_is_no_work_of_anybody() -> None:
    manifest, records, profiles = made(({"f": (90, 1)}, {"f": (80, 1)}), user=10)
    idling = []
    for number, profile in enumerate(profiles):
        (phase,) = profile.phases
        idle = {"busybox": 1000 * (number + 1)}
        more = {
            "user": {**phase.user, **idle},
            "instructions": phase.instructions + idle["busybox"],
        }
        idling.append(but(profile, phases=(but(phase, **more),)))
    plain, idle_too = (
        find(attribute(Recorded(manifest, records, those)), "io") for those in (profiles, idling)
    )
    assert idle_too == plain
    assert idle_too.total.difference == pytest.approx(-1)


def test_an_a_a_is_zero_everywhere() -> None:
    session = ExactSession()
    manifest = counts.counted(session.manifest())
    records = all_equal(session.records())
    comparison = compare(manifest, records, counts.profiles(session, same=True))
    assert len(comparison.headlines) == 3
    for attribution in comparison.attributions:
        assert attribution.identical
        assert attribution.total.equal
        assert (attribution.listed, attribution.share, attribution.movement) == (0, None, None)
        assert all(row.instructions.equal for row in attribution.functions)
        assert all(row.calls is None or row.calls.equal for row in attribution.functions)
        assert all(ratio.calls.equal for ratio in attribution.ratios)


def test_one_call_more_is_not_identical() -> None:
    base = {"a": (100, 1), "b": (50, 1)}
    same = attribute(Recorded(*made((base, base), (base, base))))
    assert all(attribution.identical for attribution in same)
    other = attribute(Recorded(*made((base, base), (base, {"a": (100, 2), "b": (50, 1)}))))
    assert not any(attribution.identical for attribution in other)
    assert all(attribution.total.equal for attribution in other)


def test_the_order_of_profiles_and_records_does_not_matter(counted: Comparison) -> None:
    session = ExactSession()
    manifest = counts.counted(session.manifest())
    profiles, records = counts.profiles(session), session.records()
    shuffled = [
        but(p, phases=tuple(but(phase, kernel=phase.kernel[::-1]) for phase in p.phases[::-1]))
        for p in profiles
    ]
    random.Random(1).shuffle(shuffled)
    random.Random(2).shuffle(records)
    again = attribute(Recorded(manifest, records, shuffled))
    assert again == counted.attributions


def test_only_measured_blocks_with_all_arms_count() -> None:
    session = ExactSession()
    manifest = counts.with_twins(counts.counted(session.manifest()))
    profiles = [p for p in counts.profiles(session) if p.run_id != "filemap-4k-001-base"]
    records = fails(session.records(), "filemap-4k-003-patched")
    twins, twin_profiles, _ = counts.twin_runs(manifest)
    attribution = find(
        attribute(Recorded(manifest, records + twins, profiles + twin_profiles)), "io"
    )
    assert attribution.seeds == tuple(
        seed for block, seed in enumerate(session.seeds) if block not in {1, 3}
    )
    assert attribution.total.n == 6


def test_nothing_counted_gives_nothing() -> None:
    session = ExactSession()
    assert attribute(Recorded(session.manifest(), session.records(), [])) == ()


def test_a_unit_that_was_not_done_is_left_out() -> None:
    base = {"a": (100, 1)}
    manifest, records, profiles = made((base, base))
    attributions = attribute(Recorded(manifest, records, profiles))
    assert [(each.unit, each.headline) for each in attributions] == [("io", True), ("folio", False)]


def test_instructions_without_a_function_are_a_row() -> None:
    base = {"a": (100, 1)}
    manifest, records, profiles = made((base, base))
    (phase,) = profiles[1].phases
    more = but(phase, instructions=phase.instructions + 7)
    attribution = attribute(
        Recorded(manifest, records, [profiles[0], but(profiles[1], phases=(more,))])
    )[0]
    assert [row.name for row in attribution.rows] == ["[not attributed]"]
    assert attribution.total.difference == pytest.approx(0.7)


def test_a_ratio_of_a_function_that_is_never_entered_warns() -> None:
    attribution = attribute(Recorded(*made(({"xas_load": (90, 9)}, {"b": (10, 1)}))))[0]
    (ratio,) = attribution.ratios
    assert ratio.absent == ("xas_load",)
    assert (ratio.calls.base, ratio.calls.patched) == (1.8, 0.0)


def test_a_name_in_two_files_is_one_row() -> None:
    manifest, records, profiles = made(({"a": (10, 1)}, {"a": (30, 1)}))
    (phase,) = profiles[0].phases
    twice = (*phase.kernel, FunctionCount(name="a", file="", instructions=20, calls=1))
    split = but(phase, kernel=twice, instructions=30)
    both = [but(profiles[0], phases=(split,)), profiles[1]]
    (row,) = attribute(Recorded(manifest, records, both))[0].functions
    assert (row.instructions.base, row.instructions.difference) == (3.0, 0.0)
    assert there(row.calls).base == 0.2


DIFFERENCES = st.lists(st.floats(-1e6, 1e6, allow_nan=False), max_size=60)


@given(DIFFERENCES)
def test_what_is_listed_keeps_its_promise(values: list[float]) -> None:
    values = sorted(values, key=abs, reverse=True)
    number = listed(values)
    moved = sum(value != 0 for value in values)
    assert 0 <= number <= min(MOST_LISTED, moved)

    def explains(count: int) -> bool:
        near = abs(sum(values) - sum(values[:count])) <= TOLERANCE * abs(sum(values))
        return near and sum(map(abs, values[:count])) >= MOVEMENT * sum(map(abs, values))

    if number < min(MOST_LISTED, moved):
        assert explains(number)
    assert not any(explains(count) for count in range(1, number))


def test_two_that_cancel_are_listed() -> None:
    assert listed([100.0, -99.0, 0.02]) == 2
    assert listed([5.0, 0.0, 0.0]) == 1
    assert listed([0.0, 0.0]) == 0
    assert listed([1.0] * 60) == MOST_LISTED


COUNT = st.tuples(st.integers(0, 10**9), st.integers(0, 10**6))
FUNCTIONS = st.dictionaries(st.text(min_size=1, max_size=8), COUNT, min_size=1, max_size=8)


@given(st.lists(st.tuples(FUNCTIONS, FUNCTIONS), min_size=1, max_size=3), st.integers(0, 10**6))
def test_any_profile_adds_up(
    blocks: list[tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]]]], user: int
) -> None:
    manifest, records, profiles = made(*blocks, user=user)
    for attribution in attribute(Recorded(manifest, records, profiles)):
        scale = max(1.0, abs(attribution.total.base), abs(attribution.total.patched))
        rows = sum(row.instructions.difference for row in attribution.functions)
        assert rows == pytest.approx(attribution.total.difference, abs=1e-9 * scale)


def test_small_files_of_user_code_are_one_group(counted: Comparison) -> None:
    attribution = find(counted.attributions, "io")
    titles = {group.title: group.functions for group in attribution.groups}
    assert titles["user: fio"] == 1
    assert titles["user: other files"] == 1
    assert "user: ld-linux.so.2" not in titles
    assert "ld-linux.so.2" in {row.name for row in attribution.functions}


@pytest.mark.parametrize(("function", "file", "expected"), data(__file__, "where_functions_belong"))
def test_where_functions_belong(function: str, file: str, expected: str) -> None:
    assert subsystem(function, file) == expected


def test_no_prefix_is_in_two_subsystems() -> None:
    for kind in ("files", "functions"):
        prefixes = [prefix for entry in catalogue() for prefix in getattr(entry, kind)]
        assert len(prefixes) == len(set(prefixes))
    titles = [entry.title for entry in catalogue()]
    assert len(titles) == len(set(titles))
    assert OTHER not in titles


def test_the_spinning_agent_is_explained() -> None:
    assert "idle" in programs()["busybox"]
