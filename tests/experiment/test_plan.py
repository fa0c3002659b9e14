"""A plan holds every run once, in whole blocks, with one seed a block."""

import re
from collections import Counter
from dataclasses import replace
from inspect import signature
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errors import SpecError
from experiment import plan as design
from experiment.plan import (
    AGAIN,
    KERNEL_MIB,
    Conditions,
    Size,
    dropped_blocks,
    make_plan,
    memory_needed_mib,
    order,
    remaining,
    remaining_whole,
    require_memory,
    scaled,
    wall_arms,
)
from experiment.spec import (
    ArmSpec,
    CaseSpec,
    Dataset,
    Experiment,
    Guest,
    KernelSpec,
    PhaseTimes,
    SeriesSpec,
    ShapeSpec,
    TwinSpec,
)
from tests.values import but, spaced

DATASET = Dataset(cgroup_limit_mib=8192, brd_mib=16384, file_mib=13312, jobs=16)
GUEST = Guest(
    name="laptop",
    title="",
    vcpus=1,
    memory_mib=768,
    cpu="Nehalem",
    scale=128,
    jobs=4,
    boot_timeout_s=1,
    silence_timeout_s=1,
    run_timeout_s=1,
)
NAMES = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,8}", fullmatch=True)


def make_experiment(cases: list[tuple[str, str]], **changes: object) -> Experiment:
    times = {"laptop": {"4k": PhaseTimes(ramp_s=0, runtime_s=1)}}
    fields: dict[str, object] = {
        "name": "e",
        "title": "",
        "kernel": KernelSpec(source="deb:linux-source-6.12"),
        "series": SeriesSpec(path="configs/series/noop"),
        "dataset": DATASET,
        "cases": tuple(CaseSpec(workload=w, variant=v, times=times) for w, v in cases),
    }
    return Experiment.model_validate({**fields, **changes})


# What is wrong of a plan is so of one in three experiments at least, and drawing them takes long.
few = settings(max_examples=25)


@st.composite
def experiments(draw: st.DrawFn) -> Experiment:
    pairs = st.tuples(NAMES, st.one_of(st.just("default"), NAMES))
    cases = draw(st.lists(pairs, min_size=1, max_size=4, unique=True))
    names = draw(st.lists(NAMES, min_size=2, max_size=2, unique=True))
    arms = tuple(ArmSpec(name=name, patches=False) for name in names)
    blocks, seed = draw(st.integers(1, 12)), draw(st.integers(1, 2**31 - 1))
    return make_experiment(cases, arms=arms, blocks=blocks, seed=seed)


@few
@given(experiments())
def test_every_block_holds_every_arm_and_case_once_and_is_one_seed(experiment: Experiment) -> None:
    plan = make_plan(experiment)
    assert plan.seeds == tuple(range(experiment.seed, experiment.seed + experiment.blocks))
    assert all(run.seed == plan.seeds[run.block] for run in plan.runs)
    runs = [run for run in plan.runs if not run.repeat]
    cases = [case.name for case in experiment.cases]
    arms = [arm.name for arm in experiment.all_arms]
    for block in range(experiment.blocks):
        here = runs[block * len(cases) * 2 :][: len(cases) * 2]
        assert {run.block for run in here} == {block}
        assert [(run.case, run.arm) for run in here] == [(c, a) for c in cases for a in arms]
    assert len(runs) == experiment.blocks * len(cases) * 2


@few
@given(experiments())
def test_ids_are_unique_even_without_case_and_safe_as_file_names(experiment: Experiment) -> None:
    ids = [run.run_id for run in make_plan(experiment).runs]
    assert len(set(ids)) == len(ids)
    for run_id in ids:
        assert re.fullmatch(r"[a-z0-9][a-z0-9_.+-]*", run_id)
        assert len(run_id) < 255


@few
@given(experiments())
def test_one_repeat_a_case_right_after_the_first_block(experiment: Experiment) -> None:
    plan = make_plan(experiment)
    repeats = [run for run in plan.runs if run.repeat]
    assert [run.case for run in repeats] == [case.name for case in experiment.cases]
    by_id = {run.run_id: run for run in plan.runs}
    for run in repeats:
        first = by_id[run.run_id.removesuffix(".repeat")]
        assert first == but(run, run_id=first.run_id, repeat=False)
        assert (run.block, run.arm) == (0, experiment.all_arms[-1].name)
    start = len(experiment.cases) * 2
    assert plan.runs[start : start + len(repeats)] == tuple(repeats)


@few
@given(experiments(), st.data())
def test_remaining_is_what_is_not_done_in_order(
    experiment: Experiment, data: st.DataObject
) -> None:
    plan = make_plan(experiment)
    ids = [run.run_id for run in plan.runs]
    done = data.draw(st.sets(st.sampled_from(ids)))
    left = remaining(plan, done)
    assert [run.run_id for run in left] == [run_id for run_id in ids if run_id not in done]
    assert remaining(plan, set()) == plan.runs
    assert remaining(plan, ids) == ()
    assert remaining(plan, {*done, "of-another-plan"}) == left


def test_ids_read_as_case_block_arm() -> None:
    plan = make_plan(make_experiment([("filemap-4k", "default"), ("filemap-4k", "v1")], blocks=2))
    assert [run.run_id for run in plan.runs] == [
        *spaced(
            "filemap-4k.b00.base filemap-4k.b00.patched filemap-4k+v1.b00.base "
            "filemap-4k+v1.b00.patched filemap-4k.b00.patched.repeat "
            "filemap-4k+v1.b00.patched.repeat filemap-4k.b01.base filemap-4k.b01.patched "
            "filemap-4k+v1.b01.base filemap-4k+v1.b01.patched"
        )
    ]


@pytest.mark.parametrize("blocks", [99, 100, 101, 1000])
def test_ids_of_one_case_sort_by_block(blocks: int) -> None:
    plan = make_plan(make_experiment([("filemap-4k", "default")], blocks=blocks))
    assert [run.block for run in sorted(plan.runs, key=lambda run: run.run_id)] == [
        run.block for run in plan.runs
    ]


def test_sizes_keep_the_ratios_of_the_original() -> None:
    assert scaled(DATASET, GUEST) == Size(cgroup_limit_mib=64, brd_mib=128, file_mib=104, jobs=4)


def test_a_division_with_a_remainder_is_refused_for_each_size() -> None:
    with pytest.raises(SpecError) as caught:
        scaled(DATASET, but(GUEST, scale=100))
    assert caught.value.problems == [
        f"dataset.{key}: found {value} (MiB); configs/guests/laptop.toml divides sizes by its "
        f"scale of 100, and wants a multiple: {multiple}"
        for key, value, multiple in (
            ("cgroup_limit_mib", 8192, 8200),
            ("brd_mib", 16384, 16400),
            ("file_mib", 13312, 13300),
        )
    ]


def test_a_brd_too_small_for_a_file_system_is_refused() -> None:
    with pytest.raises(SpecError, match="gives a brd of 32 MiB, at least 64 MiB are needed"):
        scaled(DATASET, but(GUEST, scale=512))


def test_memory_counts_what_reclaim_cannot_take() -> None:
    size = scaled(DATASET, GUEST)
    assert memory_needed_mib(size, GUEST, 50) == 128 + 64 + 2 * 50 + KERNEL_MIB + 12
    require_memory(size, GUEST, 182)
    with pytest.raises(SpecError) as caught:
        require_memory(size, GUEST, 183)
    assert caught.value.problems == [
        "configs/guests/laptop.toml: memory_mib: found 768; at least 770 MiB are needed: "
        "brd 128, cgroup 64, initramfs twice 183, kernel 200, and its page structures"
    ]


def test_memory_that_is_left_for_the_page_cache_is_part_of_the_guest() -> None:
    left = Dataset(memory_mib=4096, brd_mib=16384, file_mib=13312, jobs=16)
    size = scaled(left, GUEST)
    assert (size.memory_mib, size.cgroup_limit_mib) == (32, 0)
    # No reserve is kept beside it: each run checks what was left.
    assert memory_needed_mib(size, GUEST, 50) == 104 + 32 + 50 + 12
    with pytest.raises(SpecError, match="page cache 32, initramfs 700"):
        require_memory(size, GUEST, 700)
    odd = Dataset(memory_mib=4097, brd_mib=16384, file_mib=13312, jobs=16)
    with pytest.raises(SpecError, match=r"dataset.memory_mib: found 4097 .* multiple: 4096"):
        scaled(odd, GUEST)


def twin(name: str, **changes: object) -> TwinSpec:
    return TwinSpec.model_validate(
        {"name": name, "observe": "contention", "cases": ("w",), **changes}, strict=False
    )


def test_twins_come_last_on_the_same_seeds_and_arms() -> None:
    experiment = make_experiment(
        [("w", "default"), ("other", "default")],
        blocks=2,
        seed=5,
        twins=(twin("held", blocks=1), twin("waited", blocks=3)),
    )
    runs = make_plan(experiment).runs
    assert [run.twin for run in runs[:10]] == [""] * 10
    assert [(run.run_id, run.seed) for run in runs[10:]] == [
        ("w.b00.base.held", 5),
        ("w.b00.patched.held", 5),
        ("w.b00.base.waited", 5),
        ("w.b00.patched.waited", 5),
        ("w.b01.base.waited", 6),
        ("w.b01.patched.waited", 6),
        ("w.b02.base.waited", 7),
        ("w.b02.patched.waited", 7),
    ]
    assert not any(run.repeat for run in runs[10:])
    assert len({run.run_id for run in runs}) == len(runs)


def test_a_modelled_run_is_of_a_seed_that_is_judged() -> None:
    """Its guest is the judged one, whose result it is compared with: of one seed it is of one."""
    experiment = make_experiment(
        [("w", "default")],
        blocks=1,
        seed=5,
        twins=(
            twin("modelled", observe="memory", machine="ice-lake-sp"),
            twin("larger", observe="memory", machine="ice-lake-sp", guest={"jobs": 2}),
        ),
    )
    runs = [run.run_id for run in make_plan(experiment).runs if run.twin]
    assert runs == [
        *spaced(
            "w.b00.base.modelled w.b00.patched.modelled w.b00.base.larger "
            "w.b00.patched.larger w.b01.base.larger w.b01.patched.larger"
        )
    ]


@pytest.mark.parametrize(
    ("twins", "message"),
    [
        ((twin("a"), twin("a")), "twin named twice"),
        ((twin("repeat"),), "twin named twice, or 'repeat'"),
        ((twin("a", cases=("w", "x")),), "twins: a: no such case: x; known: w"),
    ],
)
def test_twins_that_make_no_sense(twins: tuple[TwinSpec, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_experiment([("w", "default")], twins=twins)


def test_a_twin_changes_what_it_names_of_the_guest() -> None:
    shape = ShapeSpec(vcpus=8, metronome_ns=20000, more_memory_mib=100)
    changed = {"vcpus": 8, "metronome_ns": 20000, "memory_mib": GUEST.memory_mib + 100}
    assert shape.of(GUEST) == but(GUEST, **changed)
    assert ShapeSpec().of(GUEST) == GUEST


def test_a_shape_has_nodes_that_share_alike() -> None:
    shaped = ShapeSpec(vcpus=8, numa_nodes=4).of(GUEST)
    assert (shaped.vcpus, shaped.numa_nodes) == (8, 4)
    with pytest.raises(SpecError, match=r"4 nodes cannot share vcpus = 6"):
        ShapeSpec(vcpus=6, numa_nodes=4).of(GUEST)
    with pytest.raises(SpecError, match=r"4 nodes cannot share memory_mib = \d+"):
        ShapeSpec(vcpus=4, numa_nodes=4, more_memory_mib=1).of(GUEST)


def test_without_a_limit_the_files_have_to_fit() -> None:
    size = scaled(Dataset(brd_mib=16384, file_mib=8192, jobs=8), GUEST)
    assert (size.cgroup_limit_mib, size.brd_mib, size.file_mib) == (0, 128, 64)
    # brd, cached files, initramfs twice, kernel, and 64 bytes for each page.
    assert memory_needed_mib(size, GUEST, 90) == 128 + 64 + 180 + KERNEL_MIB + 12
    small = but(GUEST, memory_mib=512)
    with pytest.raises(SpecError) as caught:
        require_memory(size, small, 90)
    assert caught.value.problems == [
        "configs/guests/laptop.toml: memory_mib: found 512; at least 580 MiB are needed: brd 128, "
        f"files, cached without a limit, 64, initramfs twice 90, kernel {KERNEL_MIB}, "
        "and its page structures"
    ]


def test_without_a_device_none_is_too_small() -> None:
    size = scaled(Dataset(file_mib=4096, jobs=8), GUEST)
    assert (size.cgroup_limit_mib, size.brd_mib, size.file_mib) == (0, 0, 32)
    assert memory_needed_mib(size, GUEST, 90) == 32 + 180 + KERNEL_MIB + 12


WALL = make_experiment(
    [("filemap-4k", "default"), ("filemap-4k", "v1")], blocks=24, seed=7, mode="wall"
)


def test_every_block_has_every_arm_of_every_case_once_and_back_to_back() -> None:
    plan = make_plan(WALL)
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
    assert make_plan(WALL) == make_plan(WALL)
    longer = make_plan(WALL, 48, {WALL.cases[0].name: 24})
    assert longer.runs[: 24 * 6] == make_plan(WALL).runs
    assert len(longer.runs) == (24 + 48) * 3
    other = make_plan(but(WALL, seed=8))
    assert [run.arm for run in other.runs] != [run.arm for run in make_plan(WALL).runs]


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
    base, patched, again = wall_arms(WALL)
    assert (again.name, again.patches) == (AGAIN, base.patches)
    assert again.patches != patched.patches
    assert again.label == "without the series, again"


def test_an_arm_may_not_have_the_a_a_arms_name() -> None:
    arms = (ArmSpec(name=AGAIN, patches=False), ArmSpec(name="patched", patches=True))
    with pytest.raises(SpecError, match="choose another"):
        wall_arms(but(WALL, arms=arms))


def test_interrupted_block_is_made_again_whole() -> None:
    plan = make_plan(WALL)
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


@given(st.permutations([CALM, None, Conditions(0.5, 0, 0, 0)]))
def test_dropping_is_blind_to_the_arm(runs: list[Conditions | None]) -> None:
    """The same whichever arm a run was of, and no value can reach the rule."""
    assert set(dropped_blocks({4: tuple(runs)})) == {4}
    assert set(signature(design.dropped_blocks).parameters) == {"blocks"}
    assert set(Conditions.__dataclass_fields__) == {
        *spaced("stolen foreign swapped_pages throttled")
    }
