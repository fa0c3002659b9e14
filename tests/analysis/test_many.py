"""A session of many arms cut into pairs: what is cut, and what stays one."""

import pytest

from analysis.many import compare_session, views
from analysis.model import ReportError
from results.record import FunctionRecord, TriageRecord
from tests.analysis import factory, many_factory
from tests.analysis.many_factory import Many
from tests.analysis.measured import measured
from tests.values import but, there


def test_each_pair_holds_its_two_arms_and_their_runs() -> None:
    many = Many()
    manifest = many.manifest()
    compared = compare_session(measured(manifest, many.records()))
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
    whole = compare_session(measured(many.manifest(), many.records()))
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
    steps = many_factory.steps()
    manifest = steps.manifest()
    published = factory.ExactSession().manifest().experiment.cases[0].published
    cases = tuple(but(c, published=published) for c in manifest.experiment.cases)
    experiment = but(manifest.experiment, cases=cases)
    manifest = but(manifest, experiment=experiment)
    compared = compare_session(measured(manifest, steps.records()))
    first = experiment.all_arms[0].name
    shown = {pair.manifest.base: bool(pair.published) for pair in compared.comparisons}
    assert shown == {base: base == first for base in shown}
    assert len(shown) > 1


def test_a_step_over_a_patch_that_does_not_build_is_that_of_both() -> None:
    many = many_factory.steps()
    manifest = many.manifest()
    names = [arm.name for arm in manifest.arms]
    experiment = but(manifest.experiment, unbuilt=(names[2],))
    compared = compare_session(
        measured(
            but(manifest, experiment=experiment),
            [record for record in many.records() if record.arm != names[2]],
        )
    )
    steps = {number: (each.manifest.base, each.manifest.patched) for number, each in compared.steps}
    assert steps["2"] == (names[1], names[2])
    assert steps["2-3"] == (names[1], names[3])
    assert [step.number for step in compared.course(compared.rows[0])] == list(steps)


def test_a_step_has_what_differs_from_the_build_before_it() -> None:
    manifest = many_factory.steps().manifest()

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
        compare_session(measured(many.manifest(), [*many.records(), stranger]))
