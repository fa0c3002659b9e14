"""Functions that differ between two arms: a change of their own, known by id or by name."""

from history.changes import FunctionsChange, function_changes
from history.entry import Entry
from history.gate import Message, of_history
from history.policy import KnownChange, KnownChanges, Policy, Rule
from tests.history.factory import Nights, with_functions
from tests.values import but

FAILING = Policy(rules=(Rule(functions="fail"),))


def track(*nights: dict[str, float] | None, half: float = 1e-4) -> list[Entry]:
    """A night each: functions that changed by fractions of the phase; None tested nothing."""
    made = Nights(levels=(0.0,) * len(nights), codes=("a",) * len(nights)).entries()
    return [with_functions(entry, sizes, half) for entry, sizes in zip(made, nights, strict=True)]


def standing(entries: list[Entry], known: KnownChanges | None = None) -> list[FunctionsChange]:
    return [each for each in function_changes(entries, known) if each.functions]


def messages_of(entries: list[Entry], *known: KnownChange) -> list[Message]:
    messages = of_history(entries, (), FAILING, known_changes=KnownChanges(known=known)).messages
    return [each for each in messages if each.title.startswith(("functions: ", "known changes"))]


def acknowledged(name: str) -> KnownChange:
    return KnownChange(change=name, reason="accepted on the list")


def test_a_change_is_of_its_first_night_and_has_one_id_as_long_as_it_stays() -> None:
    nights = track({}, {"xas_load": 0.002}, {"xas_load": 0.0021}, None, {"xas_load": 0.0019})
    (change,) = standing(nights)
    assert (change.night, change.metric, change.names) == (
        "2026-01-02",
        "4k.functions",
        ("xas_load",),
    )
    assert {standing(nights[:n])[0].id for n in (2, 3, 4, 5)} == {change.id}
    # Its numbers are those of the newest night that tested any.
    assert change.size == 0.0019
    assert (
        standing([*nights[:3], but(nights[0], night="2026-01-09", created="2026-01-09T02:00:00Z")])
        == []
    )


def test_what_moves_on_or_comes_with_others_is_another_change() -> None:
    nights = track({"a": 0.002, "b": 0.001}, {"a": 0.002, "b": 0.0015, "c": 0.003})
    first, second = standing(nights)
    assert (first.night, [each.name for each in first.functions]) == ("2026-01-01", ["a"])
    assert (second.night, [each.name for each in second.functions]) == ("2026-01-02", ["c", "b"])
    assert first.id != second.id
    # By less than makes a function changed, or within the intervals of both nights.
    assert len(standing(track({"a": 0.002}, {"a": 0.0022}))) == 1
    assert len(standing(track({"a": 0.002}, {"a": 0.003}, half=6e-4))) == 1


def test_what_is_back_after_it_was_gone_is_another_change() -> None:
    nights = track({"a": 0.002}, {}, {"a": 0.002})
    (change,) = standing(nights)
    assert change.night == "2026-01-03"
    assert change.id not in {each.id for each in function_changes(nights[:2])}


def test_the_gate_is_silent_of_what_is_acknowledged_and_of_nothing_else() -> None:
    nights = track({"a": 0.002}, {"a": 0.002}, {"a": 0.002})
    (open_,) = messages_of(nights)
    assert (open_.code, open_.text) == (
        1,
        "since 2026-01-01: tonight against pinned: 1 of 200 functions changed: a +20.00 instruc"
        f"tions per I/O; change {open_.change}",
    )
    known = acknowledged(open_.change)
    assert messages_of(nights, known) == []
    # On its own night it is shown.
    (shown,) = messages_of(nights[:1], known)
    assert (shown.level, shown.code) == ("notice", 0)
    assert "; acknowledged: accepted on the list; change " in shown.text
    # Another function, or the same one slower again, fails as before.
    for more in ({"a": 0.002, "b": 0.001}, {"a": 0.004}):
        (message,) = messages_of([*nights[:2], track({}, {}, more)[2]], known)
        assert message.code == 1
        assert message.change != open_.change


def test_an_acknowledged_change_that_is_gone_is_still_a_change_by_name() -> None:
    nights = track({"a": 0.002}, {})
    (change,) = function_changes(nights[:1])
    assert messages_of(nights, acknowledged(change.id)) == []
