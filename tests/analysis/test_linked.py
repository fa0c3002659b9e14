"""The split of a phase's difference: into what changed code can have made, and the rest."""

import numpy as np
import pytest

from analysis.linked import Counted, Split, network, split
from results.profile import calls_of
from tests.values import data

SEEDS = 8
# walk() was changed; it calls load(), load() calls descend(); fault() calls walk().
EDGES = {
    "fault": {"walk", "note"},
    "walk": {"load"},
    "load": {"descend"},
    "compact": {"isolate"},
    "reader": {"fill"},
}
# Function → (calls, instructions a call) of the base arm.
BASE = data(__file__, "base")
CALLS = calls_of(EDGES, pointed=["fill"], indirect=["reader"])


def counted(patched: dict[str, tuple[float, float]], scatter: float = 0.0) -> Counted:
    """Both arms: the base, and the same with other calls and lengths of some functions."""
    names = sorted({*BASE, *patched})
    random = np.random.default_rng(1)
    arms = []
    for arm in (BASE, {**BASE, **patched}):
        calls = np.array([arm.get(name, (0.0, 0.0))[0] for name in names])
        each = np.array([arm.get(name, (0.0, 0.0))[1] for name in names])
        noise = 1 + scatter * random.standard_normal((SEEDS, len(names)))
        arms.append((calls * noise, calls * each * noise))
    total = [spent.sum(axis=1) + 1000.0 for _, spent in arms]
    return Counted(names, (arms[0][1], arms[1][1]), (arms[0][0], arms[1][0]), total)


def parts(patched: dict[str, tuple[float, float]], changed: set[str]) -> Split:
    each = counted(patched)
    result = split(each, changed, network(each.names, CALLS))
    whole = result.changed.difference + result.linked.difference + result.rest.difference
    assert whole == pytest.approx(result.total.difference)
    return result


def test_what_a_changed_function_executes_is_its_own() -> None:
    result = parts({"walk": (10.0, 60.0)}, {"walk"})
    assert result.changed.difference == pytest.approx(200.0)
    assert result.linked.difference == result.rest.difference == 0
    assert result.stands
    assert result.functions == ()


def test_more_calls_are_followed_as_far_as_calls_carry_them() -> None:
    # Twice as many walks of load(), so twice as many of what that calls.
    result = parts({"load": (40.0, 10.0), "descend": (80.0, 5.0)}, {"walk"})
    assert result.linked.difference == pytest.approx(400.0)
    assert result.rest.difference == pytest.approx(0.0)
    assert result.stands


def test_a_function_moves_no_more_than_who_calls_it() -> None:
    # load() is called a quarter more often, descend() three times as often: that is not the walk's.
    result = parts({"load": (25.0, 10.0), "descend": (120.0, 5.0)}, {"walk"})
    carried = 0.2 * 600.0
    assert result.linked.difference == pytest.approx(50.0 + carried)
    assert result.rest.difference == pytest.approx(400.0 - carried)
    assert [part.name for part in result.functions] == ["descend"]
    assert not result.stands


def test_what_memory_left_is_the_rest_and_named() -> None:
    result = parts({"walk": (10.0, 41.0), "isolate": (1.0, 1000.0)}, {"walk"})
    assert result.changed.difference == pytest.approx(10.0)
    assert result.rest.difference == pytest.approx(-1000.0)
    assert [part.name for part in result.functions] == ["isolate"]
    assert not result.stands


def test_a_longer_call_of_a_callee_is_linked_and_one_further_away_is_not() -> None:
    near = parts({"load": (20.0, 30.0)}, {"walk"})
    assert near.linked.difference == pytest.approx(400.0)
    far = parts({"descend": (40.0, 15.0)}, {"walk"})
    assert far.rest.difference == pytest.approx(400.0)
    assert not far.stands


def test_callers_are_linked_and_what_they_call_besides_as_often() -> None:
    # fault() goes round twice as often: it calls walk() and note() twice as often.
    result = parts({"fault": (10.0, 80.0), "walk": (20.0, 40.0), "note": (20.0, 5.0)}, {"walk"})
    assert result.linked.difference == pytest.approx(300.0 + 50.0)
    assert result.rest.difference == pytest.approx(0.0)


def test_a_function_that_only_one_arm_has() -> None:
    result = parts({"walk": (0.0, 0.0), "walk_fast": (10.0, 10.0)}, {"walk", "walk_fast"})
    assert result.changed.difference == pytest.approx(-300.0)
    assert result.stands


def test_calls_through_pointers_of_a_changed_function() -> None:
    result = parts({"fill": (15.0, 20.0)}, {"reader"})
    assert result.linked.difference == pytest.approx(200.0)
    # Nothing that the walk calls goes through pointers.
    assert not parts({"fill": (15.0, 20.0)}, {"walk"}).stands


def test_what_everybody_calls_is_linked_as_far_as_calls_by_what_differs_can_be() -> None:
    # copy() takes longer; rare() has two instructions, and one run of busy() in a hundred calls it.
    names = ["rare", "copy", "busy"]
    calls = np.tile([0.1, 10.0, 10.0], (SEEDS, 1))
    base, patched = (np.tile([0.2, each, 50.0], (SEEDS, 1)) for each in (400.0, 500.0))
    moved = Counted(
        names, (base, patched), (calls, calls), [arm.sum(axis=1) for arm in (base, patched)]
    )
    known = network(names, calls_of({"rare": {"copy"}, "busy": {"rare", "copy"}}))
    result = split(moved, {"rare"}, known)
    assert result.linked.difference == pytest.approx(0.2 / 10 * 500)
    assert not result.stands
    turned = moved._replace(names=["rare", "busy", "copy"])
    of_caller = split(turned, {"rare"}, network(turned.names, calls_of({"busy": {"rare"}})))
    assert of_caller.linked.difference == pytest.approx(0.1 / 10 * 500)


def test_what_traces_is_called_by_tracepoints_and_not_through_pointers() -> None:
    probe, trampoline = "trace_event_raw_event_mm_page", "__SCT__tp_func_mm_page_free"
    names = ["reader", "free", trampoline, probe]
    calls = [np.tile([5.0, each, each, each], (SEEDS, 1)) for each in (10.0, 20.0)]
    moved = Counted(
        names,
        (10 * calls[0], 10 * calls[1]),
        (calls[0], calls[1]),
        [10 * arm.sum(axis=1) for arm in calls],
    )
    edges = {"free": {trampoline}}
    known = network(names, calls_of(edges, pointed=[probe], indirect=["reader", "free"]))
    assert split(moved, {"reader"}, known).linked.difference == 0
    assert split(moved, {"free"}, known).linked.difference == pytest.approx(200.0)


def test_a_rest_that_hides_what_the_changed_code_made() -> None:
    result = parts({"walk": (10.0, 60.0), "isolate": (1.0, 1800.0)}, {"walk"})
    assert result.total.difference == pytest.approx(0.0)
    assert result.hides(0.01)
    assert not result.hides(0.9)
    assert not parts({"walk": (10.0, 60.0)}, {"walk"}).hides(0.01)


def test_parts_add_up_for_each_seed_and_scatter_is_not_carried() -> None:
    each = counted({"walk": (10.0, 60.0)}, scatter=0.01)
    scattered = split(each, {"walk"}, network(each.names, CALLS))
    assert scattered.changed.difference == pytest.approx(200.0, rel=0.1)
    assert scattered.stands


def test_the_order_of_functions_does_not_matter() -> None:
    plain = counted({"load": (40.0, 10.0), "descend": (90.0, 5.0)})
    back = [arm[:, ::-1] for arm in (*plain.instructions, *plain.calls)]
    turned = Counted(plain.names[::-1], (back[0], back[1]), (back[2], back[3]), plain.total)
    of_turned, of_plain = (
        split(each, {"walk"}, network(each.names, CALLS)) for each in (turned, plain)
    )
    assert of_turned.linked == of_plain.linked


@pytest.mark.parametrize("queues", ["task_work_add", "another"])
def test_what_is_left_for_later_is_called_by_who_left_it(queues: str) -> None:
    # fput() leaves no work any more: each return to user space calls nobody for it.
    names = ["fput", queues, "exit_to_user_mode_loop", "task_work_run"]
    calls = [np.tile([10.0, each, 30.0, each], (SEEDS, 1)) for each in (10.0, 0.0)]
    lengths = [np.array([20.0, 15.0, each, 50.0]) for each in (12.0, 8.0)]
    spent = [arm * each for arm, each in zip(calls, lengths, strict=True)]
    moved = Counted(
        names, (spent[0], spent[1]), (calls[0], calls[1]), [s.sum(axis=1) for s in spent]
    )
    edges = {"fput": {queues}, "exit_to_user_mode_loop": {"task_work_run"}}
    result = split(moved, {"fput"}, network(names, calls_of(edges)))
    later = -500.0 - 30 * 4
    assert result.rest.difference == pytest.approx(0.0 if queues == "task_work_add" else later)
    assert result.linked.difference + result.rest.difference == pytest.approx(later - 150.0)
    assert result.stands is (queues == "task_work_add")
