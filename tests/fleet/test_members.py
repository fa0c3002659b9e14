"""What a session knows of the workers that serve it."""

from __future__ import annotations

from fleet.members import Member, Members


def members(**since: float) -> Members:
    made = Members(client=None, identity={}, log=print)
    for name, when in since.items():
        made.serving[name] = Member(name, "host", {"cores": 1}, (), since=when)
    return made


def test_somebody_served_since_before_it_was_sent() -> None:
    assert members(old=1.0, new=5.0).served_since(3.0, lambda _: True)


def test_whoever_came_after_it_was_sent_may_not_have_been_given_it() -> None:
    assert not members(new=5.0).served_since(3.0, lambda _: True)
    assert not members().served_since(3.0, lambda _: True)


def test_only_those_that_can_take_it_count() -> None:
    there = members(old=1.0, new=5.0)
    assert not there.served_since(3.0, lambda member: member.address == "new")
    assert there.served_since(5.0, lambda member: member.address == "new")
    assert not there.served_since(3.0, lambda _: True, {"new"})
    assert there.served_since(5.0, lambda _: True, {"new"})
