"""Plans of wall sessions: whole blocks, fair and repeatable orders, rules that see no arm."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from inspect import signature
from itertools import permutations
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import SpecError
from experiment import plan as design
from experiment.plan import (
    AGAIN,
    LOOKS,
    Conditions,
    DropRules,
    at_look,
    dropped_blocks,
    look_after,
    order,
    remaining_whole,
    wall_arms,
    wall_plan,
)
from experiment.spec import (
    ArmSpec,
    CaseSpec,
    Dataset,
    Experiment,
    KernelSpec,
    PhaseTimes,
    SeriesSpec,
    Thresholds,
)

TIMES = {"laptop": {"4k": PhaseTimes(ramp_s=0, runtime_s=1)}}
EXPERIMENT = Experiment(
    name="asked",
    title="asked",
    kernel=KernelSpec(source="dir:/nowhere"),
    series=SeriesSpec(path="series"),
    dataset=Dataset(cgroup_limit_mib=8192, brd_mib=16384, file_mib=13312, jobs=16),
    cases=(
        CaseSpec(workload="filemap-4k", times=TIMES),
        CaseSpec(workload="filemap-4k", variant="v1", times=TIMES),
    ),
    blocks=24,
    seed=7,
)


def test_every_block_has_every_arm_of_every_case_once_and_back_to_back() -> None:
    plan = wall_plan(EXPERIMENT)
    assert len(plan.runs) == 24 * 2 * 3
    assert len({run.run_id for run in plan.runs}) == len(plan.runs)
    for at in range(0, len(plan.runs), 3):
        runs = plan.runs[at : at + 3]
        assert {run.arm for run in runs} == {"base", "patched", AGAIN}
        assert len({(run.block, run.case, run.seed) for run in runs}) == 1
    assert [run.block for run in plan.runs] == sorted(run.block for run in plan.runs)
    assert plan.seeds == tuple(range(7, 31))
    assert not any(run.repeat or run.twin for run in plan.runs)


def test_plan_is_a_function_of_the_seed_and_more_blocks_keep_the_first_ones() -> None:
    assert wall_plan(EXPERIMENT) == wall_plan(EXPERIMENT)
    longer = wall_plan(EXPERIMENT.model_copy(update={"blocks": 48}))
    assert longer.runs[: 24 * 6] == wall_plan(EXPERIMENT).runs
    other = wall_plan(EXPERIMENT.model_copy(update={"seed": 8}))
    assert [run.arm for run in other.runs] != [run.arm for run in wall_plan(EXPERIMENT).runs]


def test_orders_are_fair() -> None:
    """Each of 6 orders 1,000 times in 6,000 draws, give or take 5 standard deviations."""
    arms = ("base", "patched", AGAIN)
    drawn = Counter(order(arms, seed=1, block=block, case="x") for block in range(6000))
    assert set(drawn) == set(permutations(arms))
    assert all(abs(count - 1000) < 5 * (6000 * 1 / 6 * 5 / 6) ** 0.5 for count in drawn.values())


def test_cases_and_blocks_have_orders_of_their_own() -> None:
    arms = ("a", "b")
    first, second = (
        [order(arms, seed=1, block=block, case=case) for block in range(64)] for case in "xy"
    )
    agree = sum(a == b for a, b in zip(first, second, strict=True))
    assert 12 < agree < 52


def test_the_a_a_arm_is_the_base_under_another_name() -> None:
    base, patched, again = wall_arms(EXPERIMENT)
    assert (again.name, again.patches) == (AGAIN, base.patches)
    assert again.patches != patched.patches
    assert again.label == "without the series, again"


def test_an_arm_may_not_have_the_a_a_arms_name() -> None:
    arms = (ArmSpec(name=AGAIN, patches=False), ArmSpec(name="patched", patches=True))
    with pytest.raises(SpecError, match="choose another"):
        wall_arms(EXPERIMENT.model_copy(update={"arms": arms}))


def test_looks_spend_the_error_rates_exactly() -> None:
    thresholds = Thresholds(change=0.01)
    spent = [at_look(thresholds, each) for each in LOOKS]
    assert [round(each.alpha, 6) for each in spent] == [0.001, 0.002, 0.003, 0.004]
    assert isclose(sum(each.alpha for each in spent), thresholds.alpha)
    assert isclose(sum(each.equivalence_alpha for each in spent), thresholds.equivalence_alpha)
    assert {each.change for each in spent} == {0.01}
    assert look_after(20) == LOOKS[1]
    assert look_after(21) is None


def test_interrupted_block_is_made_again_whole() -> None:
    plan = wall_plan(EXPERIMENT)
    ids = [run.run_id for run in plan.runs]
    assert remaining_whole(plan, ids) == ()
    assert remaining_whole(plan, ()) == plan.runs
    # Interrupted after the first run of the second case of the second block.
    left = remaining_whole(plan, ids[:10])
    assert left == plan.runs[9:]
    # A run in the middle that has to be made again takes its block along, of its case only.
    left = remaining_whole(plan, [*ids[:4], *ids[5:]])
    assert left == plan.runs[3:6]


CALM = Conditions(stolen=0, foreign=0.01, swapped_pages=0, throttled=0)


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        (replace(CALM, stolen=0.02), "2.0% of CPU time stolen, 1.0% allowed"),
        (replace(CALM, foreign=0.2), "20.0% of CPU time foreign, 5.0% allowed"),
        (replace(CALM, swapped_pages=3), "3 pages swapped"),
        (replace(CALM, throttled=1), "1 thermal throttling events"),
    ],
)
def test_block_is_dropped_whole_and_the_reason_named(spoilt: Conditions, reason: str) -> None:
    blocks = {0: (CALM, CALM, CALM), 1: (CALM, spoilt, CALM), 2: (CALM, CALM, None)}
    assert dropped_blocks(blocks) == {1: reason, 2: "a run failed"}


def test_rules_can_be_wider() -> None:
    busy = Conditions(stolen=0, foreign=0.2, swapped_pages=0, throttled=0)
    assert dropped_blocks({0: (busy,)}, DropRules(foreign=0.5)) == {}


@given(st.permutations([CALM, None, Conditions(0.5, 0, 0, 0)]))
def test_dropping_is_blind_to_the_arm(runs: list[Conditions | None]) -> None:
    """The same whichever arm a run was of, and no value can reach the rule."""
    assert set(dropped_blocks({4: tuple(runs)})) == {4}
    assert set(signature(design.dropped_blocks).parameters) == {"blocks", "rules"}
    assert set(Conditions.__dataclass_fields__) == {
        "stolen",
        "foreign",
        "swapped_pages",
        "throttled",
    }
