"""Which functions changed: large ones and small ones, and none where nothing did."""

import numpy as np
import pytest
from scipy import special

from analysis.counts import Floats, Recorded
from analysis.explain.functions import SMALLEST, Attribution, PhaseCounts, attribute, changed
from results.record import Manifest
from tests.analysis import counts_factory
from tests.analysis.factory import ExactSession
from tests.values import but

SEEDS, FUNCTIONS, TOTAL = 8, 500, 1000.0
ALPHA = 0.01
SESSIONS = 300


def phase(
    rng: np.random.Generator, *, seeds: int = SEEDS, scatter: float = 0.005
) -> tuple[Floats, Floats]:
    """Instructions and calls of functions of very different size: each (arms, seeds, functions)."""
    sizes = TOTAL * rng.dirichlet(np.full(FUNCTIONS, 0.2))
    wobble = np.exp(scatter * rng.standard_normal((2, seeds, FUNCTIONS)))
    return sizes * wobble, sizes / 50 * wobble


def counts(instructions: Floats, calls: Floats) -> PhaseCounts:
    return PhaseCounts(
        names=[f"f{at:03d}" for at in range(instructions.shape[2])],
        files=["mm/filemap.c"] * instructions.shape[2],
        lines=[(7, 7)] * instructions.shape[2],
        instructions=(instructions[0], instructions[1]),
        calls=(calls[0], calls[1]),
        total=float(instructions[0].sum(axis=1).mean()),
    )


def test_nothing_is_called_where_nothing_changed() -> None:
    """Sessions of 500 functions, with three kinds of noise: at most 1 % of them are wrong."""
    wrong = 0
    for seed in range(SESSIONS):
        rng = np.random.default_rng(seed)
        spent, calls = phase(rng)
        if seed % 3 == 1:  # heavy tails
            spent = spent * np.exp(0.003 * rng.standard_t(3, spent.shape))
        if seed % 3 == 2:  # runs now and then, in whole turns
            spent[:, :, :50] = 0.2 * rng.poisson(3, (2, SEEDS, 50))
        wrong += bool(changed([counts(spent, calls)], ALPHA)[0].changed)
    # So many sessions or more show in one of a thousand such tests, at 1 %.
    assert special.bdtrc(wrong - 1, SESSIONS, ALPHA) > 0.001


def test_a_change_that_the_whole_hides_is_detected_with_its_kind() -> None:
    """0.05 % of the phase, in one function by its length and in another by its calls."""
    rng = np.random.default_rng(1)
    spent, calls = phase(rng)
    spent[:, :, 3] = 5.0 * np.exp(0.002 * rng.standard_normal((2, SEEDS)))
    calls[:, :, 3] = spent[:, :, 3] / 25
    spent[1, :, 3] += 0.5
    spent[:, :, 4], calls[:, :, 4] = 5.0, 0.2
    calls[1, :, 4] -= 0.016
    (tested,) = changed([counts(spent, calls)], ALPHA)
    assert [(each.name, each.moved) for each in tested.changed] == [
        ("f003", ("instructions",)),
        ("f004", ("calls",)),
    ]
    longer, rarer = tested.changed
    assert longer.size == pytest.approx(0.5, rel=0.05)
    assert longer.per_call[1] > longer.per_call[0]  # type: ignore[operator]
    # Calls weigh what the function takes on average.
    assert rarer.size == pytest.approx(-0.016 * 5.0 / 0.192)
    assert tested.functions < FUNCTIONS


def test_one_seed_that_goes_the_other_way_is_enough_for_none() -> None:
    rng = np.random.default_rng(2)
    spent, calls = phase(rng, scatter=1e-6)
    spent[1, :, 3] = 1.01 * spent[0, :, 3].max() + 5
    assert [each.name for each in changed([counts(spent, calls)], ALPHA)[0].changed] == ["f003"]
    spent[1, 0, 3] = spent[0, 0, 3] - 1e-9
    assert changed([counts(spent, calls)], ALPHA)[0].changed == ()


def test_what_a_boot_leaves_changes_no_function_and_its_calls_do() -> None:
    """The length of free lists is the same on all seeds of a build."""
    rng = np.random.default_rng(5)
    spent, calls = phase(rng)
    spent[:, :, 3], calls[:, :, 3] = 52.0, 0.385
    spent[1, :, 3] = 27.0

    def moved() -> list[tuple[str, tuple[str, ...]]]:
        made = counts(spent, calls)
        names = ["__rmqueue_pcplist" if name == "f003" else name for name in made.names]
        (tested,) = changed([made._replace(names=names)], ALPHA)
        return [(each.name, each.moved) for each in tested.changed]

    assert changed([counts(spent, calls)], ALPHA)[0].changed[0].name == "f003"
    assert moved() == []
    calls[1, :, 3] *= 1.1
    assert moved() == [("__rmqueue_pcplist", ("calls",))]


def test_what_is_too_small_and_what_is_always_equal_is_none() -> None:
    """A timer that fires once in every run of one arm is a change of nothing."""
    rng = np.random.default_rng(3)
    spent, calls = phase(rng)
    spent[0, :, 3], spent[1, :, 3] = 0.0, 0.9 * SMALLEST * TOTAL
    spent[:, :, 4] = 7.0
    assert changed([counts(spent, calls)], ALPHA)[0].changed == ()
    spent[1, :, 3] = 3 * SMALLEST * TOTAL
    (only,) = changed([counts(spent, calls)], ALPHA)[0].changed
    assert (only.name, only.instructions.base, only.p_value) == ("f003", 0.0, 0.0)


def test_a_phase_may_have_a_smallest_change_of_its_own() -> None:
    spent, calls = phase(np.random.default_rng(3))
    spent[0, :, 3], spent[1, :, 3] = 0.0, 3 * SMALLEST * TOTAL
    made = counts(spent, calls)
    assert [each.name for each in changed([made], ALPHA)[0].changed] == ["f003"]
    larger = made._replace(smallest=4 * SMALLEST)
    assert changed([larger], ALPHA)[0].changed == ()
    # One phase's own is no other's.
    assert [len(each.changed) for each in changed([larger, made], ALPHA)] == [0, 1]


def test_fewer_seeds_than_a_verdict_needs_test_nothing() -> None:
    spent, calls = phase(np.random.default_rng(4), seeds=7)
    spent[1, :, 3] += 50
    assert changed([counts(spent, calls)], ALPHA)[0] == (0, ())


def test_all_phases_are_one_family() -> None:
    """A difference that is clear in a phase alone is not among forty."""
    rng = np.random.default_rng(5)
    phases = [counts(*phase(rng)) for _ in range(40)]
    t_needed = phases[0].instructions[1]
    t_needed[:, 3] = phases[0].instructions[0][:, 3] + 0.3 + 0.08 * np.linspace(-1, 1, SEEDS)
    phases[0].calls[1][:, 3] = phases[0].calls[0][:, 3]
    alone, among = changed(phases[:1], ALPHA)[0], changed(phases, ALPHA)[0]
    assert [each.name for each in alone.changed] == ["f003"]
    assert among.changed == ()


SESSION = ExactSession()
COUNTED = counts_factory.counted(SESSION.manifest())
CASE = COUNTED.cases[0]


def attributed(
    manifest: Manifest = COUNTED, *, same: bool = False, trusted: bool = True
) -> tuple[Attribution, ...]:
    profiles = counts_factory.profiles(SESSION, same=same)
    return attribute(Recorded(manifest, SESSION.records(), profiles, trusted=trusted))


def test_of_a_session_only_headlines_are_tested_and_only_where_it_is_believed() -> None:
    attributions = attributed()
    assert {each.headline for each in attributions if each.tested} == {True}
    first = attributions[0]
    names = {each.name for each in first.changed}
    assert {"xas_load", "xas_start"} <= names
    assert not names & {row.name for row in first.functions if row.user}
    doubted = attributed(trusted=False)
    assert [(each.tested, each.changed) for each in doubted] == [(0, ())] * len(doubted)
    same = attributed(same=True)
    assert [each.changed for each in same] == [()] * len(same)
    assert same[0].tested


def test_of_a_phase_that_prepares_others_no_function_is_tested() -> None:
    first = but(CASE.phases[0], prepares=True)
    case = but(CASE, phases=(first, *CASE.phases[1:]))
    prepared = but(COUNTED, cases=(case, *COUNTED.cases[1:]))
    tested, untested = (
        {(each.case, each.phase) for each in attributed(of) if each.tested}
        for of in (COUNTED, prepared)
    )
    assert tested - untested == {(CASE.name, first.name)}


def test_a_phases_own_smallest_change_of_functions_is_among_the_thresholds() -> None:
    key = f"{CASE.name}/{CASE.phases[0].name}.functions"
    thresholds = but(COUNTED.experiment.thresholds, metrics={key: 0.9})
    experiment = but(COUNTED.experiment, thresholds=thresholds)
    usual, own = attributed(), attributed(but(COUNTED, experiment=experiment))
    assert usual[0].changed
    assert own[0].changed == ()
    others = ([bool(each.changed) for each in of if each.case != CASE.name] for of in (usual, own))
    assert next(others) == next(others)
