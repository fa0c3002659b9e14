"""How an arm stands after its checks: one decision for measuring and for reporting."""

from __future__ import annotations

import pytest

from results.checks import ArmStanding, Check, CheckProblem, CheckStatus, standing

WARNS = CheckProblem(kind="warning", title="WARNING: CPU: 0 PID: 91 at mm/page.c:7", says="warns")
AGAIN = WARNS.model_copy(update={"title": "WARNING: CPU: 3 PID: 11 at mm/page.c:7"})
SLEEPS = CheckProblem(kind="sleeping", title="BUG: sleeping function", says="sleeps", where="f")


def check(*problems: CheckProblem, status: CheckStatus | None = None, of: int = 1) -> Check:
    return Check(
        run_id="check.patched.lockdep.v1",
        arm="patched",
        of=of,
        flavour="lockdep",
        vcpus=1,
        cases=(),
        kernel_key="k",
        status=status or ("red" if problems else "green"),
        problems=problems,
        reason="lost" if status == "not run" else "",
    )


@pytest.mark.parametrize(
    ("own", "of_base", "expected", "sound"),
    [
        ([check()], [check()], "green", True),
        ([check(SLEEPS)], [check()], "red", False),
        ([check(AGAIN)], [check(WARNS)], "red before the series", True),
        ([check(AGAIN, SLEEPS)], [check(WARNS)], "red", False),
        ([check(SLEEPS, of=2), check(status="not run", of=2)], [], "red", False),
        ([], [check()], "pending", False),
        ([check(of=3)], [check()], "pending", False),
        ([check(SLEEPS, of=3)], [check()], "red", False),
        ([check(status="not run")], [check()], "not run", False),
        ([check(AGAIN, of=2), check(status="not run", of=2)], [check(WARNS)], "not run", False),
    ],
)
def test_an_arm_stands_as_its_checks_and_those_of_the_base_say(
    own: list[Check], of_base: list[Check], expected: ArmStanding, sound: bool
) -> None:
    result = standing(own, of_base)
    assert (result.arm, result.is_sound) == (expected, sound)
    assert bool(result.reason) == (expected in ("not run", "pending"))


def test_what_is_inherited_is_apart_from_what_is_new() -> None:
    result = standing([check(AGAIN, SLEEPS)], [check(WARNS)])
    assert [problem for _, problem in result.problems] == [SLEEPS]
    assert [problem for _, problem in result.inherited] == [AGAIN]


def test_why_an_arm_was_not_checked_is_named() -> None:
    assert standing([], []).reason == "no check made yet"
    assert standing([check(of=3)], []).reason == "1 of 3 checks made"
    assert standing([check(status="not run")], []).reason == "lost"
