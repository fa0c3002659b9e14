"""Arms beside each other: values, changes, what columns are shown, and steps."""

import pytest

from analysis import execution
from analysis.many import MetricRow, SessionComparison, chosen_columns
from analysis.verdict import Verdict
from reports import sentences, wording
from reports.sections import metrics as section
from results.record import OptionRecord
from tests.analysis.factory import fails
from tests.analysis.many_factory import ARMS, Many
from tests.values import but, there


def row(session: SessionComparison, name: str) -> MetricRow:
    return next(row for row in session.rows if row.name == name)


def test_each_arm_has_its_values_and_its_change_from_base(five: SessionComparison) -> None:
    bw = row(five, "4k.bw")
    assert [cell.arm for cell in bw.cells] == list(ARMS)
    assert bw.base.against is None
    for cell in bw.others:
        assert cell.change == there(cell.against).judgement.change
        ratio = there(cell.summary).mean / there(bw.base.summary).mean - 1
        assert there(cell.change).estimate == pytest.approx(ratio, abs=1e-12)
        assert len(cell.numbers) == 8


def test_published_figures_are_those_of_the_arm(five: SessionComparison) -> None:
    bw = row(five, "4k.bw")
    assert [r.patched for r in bw.cell("sleepy").published] == [295.0]
    assert bw.base.published == ()
    assert [arm for arm, _ in sentences.references(five)] == list(ARMS)[1:]


def test_columns_are_what_is_judged_and_what_is_chosen(five: SessionComparison) -> None:
    rows = five.of_case("filemap-4k")
    assert [row.name for row in chosen_columns(rows)] == ["4k.bw", "4k.slowpath_share"]
    assert section.answers(five) == []


def test_percentages_change_by_points(five: SessionComparison) -> None:
    share = row(five, "4k.slowpath_share")
    change = wording.cell_change(share, share.cell("sleepy"))
    assert change == "-25.75 points"
    assert wording.cell_bounds(share, share.cell("sleepy")) == "[-25.75, -25.75]"


def test_a_failed_run_is_counted_and_its_block_left_out_of_that_comparison_only() -> None:
    many = Many()
    session = many.compared(fails(many.records(), "filemap-4k-002-bourney"))
    assert session.failures["filemap-4k", "bourney"] == (1, 8)
    assert session.failures["filemap-4k", "vanilla"] == (0, 8)
    bw = row(session, "4k.bw")
    assert [len(cell.values) for cell in bw.cells] == [8, 8, 7, 8, 8]
    assert wording.row_samples(bw) == "7 to 8 seeds"


def test_differences_beyond_the_series(five: SessionComparison) -> None:
    rows = execution.differences(five.arms)
    assert [difference.name for difference in rows] == ["sysctl vm.zone_reclaim_mode"]
    assert rows[0].values == ("not set", "not set", "not set", "not set", "1")
    other = five.arms[1]
    flavour = but(other.kernel, flavour="lockdep", config_sha256="f" * 64)
    arms = (five.arms[0], but(other, kernel=flavour))
    assert execution.sentences(arms) == [
        "flavour: perf in vanilla; lockdep in sleepy",
        "configuration, SHA-256: c0ffeec0ffee in vanilla; ffffffffffff in sleepy",
    ]
    assert execution.differences(five.arms[:3]) == ()


def test_options_that_the_arms_have_otherwise(five: SessionComparison) -> None:
    options = (
        OptionRecord(name="CONFIG_HINT", before="", after="y"),
        OptionRecord(name="CONFIG_NUMA", before="y", after="n"),
    )
    base, other, third = five.arms[:3]
    arms = (base, but(other, options=options), third)
    assert execution.sentences(arms) == [
        "CONFIG_HINT: absent in vanilla and bourney; y in sleepy",
        "CONFIG_NUMA: y in vanilla and bourney; n in sleepy",
    ]


def test_the_step_that_gives_it_is_named(stepwise: SessionComparison) -> None:
    bw = row(stepwise, "4k.bw")
    course = stepwise.course(bw)
    assert [step.own.judgement.verdict for step in course] == [
        Verdict.NO_CHANGE,
        Verdict.IMPROVEMENT,
        Verdict.NO_CHANGE,
    ]
    # What is not asked for has a change and no verdict.
    assert course[1].cell.against is None
    assert course[1].cell.change is not None
    answer = section.answer(stepwise, bw)
    assert "step 2 (lib/xarray: introduce a new helper xas_get_order)" in answer
    assert "accounts for it" in answer


@pytest.mark.parametrize(
    ("effects", "part"),
    [
        ((0.0, 0.0062, 0.0124, 0.0124), "steps that change it: step 1"),
        ((0.0, 0.0001, 0.0001, 0.0001), "no step changes it significantly"),
        ((0.0, 0.0200, 0.0001, 0.0001), "steps that change it: step 1"),
    ],
)
def test_nothing_is_blamed_that_the_intervals_do_not_show(
    effects: tuple[float, ...], part: str
) -> None:
    many = Many(arms={str(at): (effect, 0.0) for at, effect in enumerate(effects)}, compare="steps")
    session = many.compared()
    answer = section.answer(session, row(session, "4k.bw"))
    assert part in answer
    assert "gives it" not in answer


def test_a_step_is_numbered_once(stepwise: SessionComparison) -> None:
    """``--per-patch`` labels its arms with the number that every form puts before a step."""
    row = stepwise.rows[0]
    first = stepwise.course(row)[0]
    arm = but(first.arm, label="1: mm: drop a walk")
    assert first._replace(arm=arm).title == "mm: drop a walk"
    assert first._replace(arm=but(arm, label="")).title == arm.name
