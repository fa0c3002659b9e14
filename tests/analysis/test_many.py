"""Arms beside each other, and cut into pairs: values, changes, columns and steps."""

import pytest

from analysis import execution
from analysis.many import MetricRow, SessionComparison, chosen_columns, compare_session, views
from analysis.model import ReportError
from analysis.verdict import Verdict
from reports import sentences, wording
from reports.sections import metrics as section
from results.record import FunctionRecord, OptionRecord, TriageRecord
from tests.analysis import factory
from tests.analysis.factory import fails
from tests.analysis.many_factory import ARMS, Many, steps
from tests.analysis.measured import measured
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


def test_what_stands_in_for_an_option_comes_first(five: SessionComparison) -> None:
    options = (
        OptionRecord(name="CONFIG_ACPI", before="", after="y"),
        OptionRecord(name="CONFIG_PREEMPT_LAZY", before="", after="y"),
    )
    note = "CONFIG_PREEMPT_LAZY in the place of CONFIG_PREEMPT_VOLUNTARY: the nearest"
    base, other = five.arms[:2]
    arm = but(other, options=options, kernel=but(other.kernel, options=(note,)))
    assert [each.name for each in execution.options((base, arm))] == [
        "CONFIG_PREEMPT_LAZY",
        "CONFIG_ACPI",
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


def test_each_pair_holds_its_two_arms_and_their_runs() -> None:
    many = Many()
    manifest, compared = many.manifest(), many.compared()
    arms = [arm.name for arm in manifest.arms]
    assert [(pair.manifest.base, pair.manifest.patched) for pair in compared.comparisons] == [
        (arms[0], name) for name in arms[1:]
    ]
    runs = sum(not record.repeat for record in many.records())
    for pair in compared.comparisons:
        assert pair.manifest.runs_planned == manifest.runs_planned * 2 // len(arms)
        assert pair.runs_recorded == runs * 2 // len(arms)


def test_more_arms_make_every_verdict_harder_to_give() -> None:
    many = Many()
    whole = many.compared()
    view = views(many.manifest())[0]
    two = but(view.experiment, arms=view.experiment.all_arms[:2])
    names = [arm.name for arm in view.arms]
    alone = compare_session(
        measured(but(view, experiment=two), [r for r in many.records() if r.arm in names])
    )
    first, same = whole.comparisons[0].primary[0], alone.comparisons[0].primary[0]
    assert first.pairs == same.pairs
    assert first.judgement.p_value == same.judgement.p_value
    assert there(first.judgement.p_adjusted) > there(same.judgement.p_adjusted)


def test_published_figures_are_of_the_base_and_no_step() -> None:
    many = steps()
    manifest = many.manifest()
    published = factory.ExactSession().manifest().experiment.cases[0].published
    cases = tuple(but(c, published=published) for c in manifest.experiment.cases)
    experiment = but(manifest.experiment, cases=cases)
    compared = many.compared(experiment=experiment)
    first = experiment.all_arms[0].name
    shown = {pair.manifest.base: bool(pair.published) for pair in compared.comparisons}
    assert shown == {base: base == first for base in shown}
    assert len(shown) > 1


def test_a_step_over_a_patch_that_does_not_build_is_that_of_both() -> None:
    many = steps()
    manifest = many.manifest()
    names = [arm.name for arm in manifest.arms]
    experiment = but(manifest.experiment, unbuilt=(names[2],))
    records = [record for record in many.records() if record.arm != names[2]]
    compared = many.compared(records, experiment=experiment)
    by_number = {
        number: (each.manifest.base, each.manifest.patched) for number, each in compared.steps
    }
    assert by_number["2"] == (names[1], names[2])
    assert by_number["2-3"] == (names[1], names[3])
    assert [step.number for step in compared.course(compared.rows[0])] == list(by_number)


def test_a_step_has_what_differs_from_the_build_before_it() -> None:
    manifest = steps().manifest()

    def of(name: str) -> TriageRecord:
        function = FunctionRecord(name=name, before=1, after=2)
        return TriageRecord(verdict="functions", functions=(function,))

    arms = tuple(
        but(arm, triage=of(f"{arm.name} of all"), step=of(arm.name)) for arm in manifest.arms
    )
    known = {
        tuple(arm.name for arm in view.arms): view.triage.functions[0].name
        for view in views(but(manifest, arms=arms))
        if view.triage
    }
    assert known == {
        ("0", "1"): "1 of all",
        ("1", "2"): "2",
        ("2", "3"): "3",
        ("0", "3"): "3 of all",
    }


def test_records_of_an_arm_that_is_not_there_are_refused() -> None:
    many = Many()
    stranger = but(many.records()[0], arm="stranger")
    with pytest.raises(ReportError, match="stranger"):
        many.compared([*many.records(), stranger])
