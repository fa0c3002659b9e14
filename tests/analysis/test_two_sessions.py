"""Two sessions side by side: what may be judged, and that all differences are named."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from analysis.many import compare_session
from analysis.operations import per_operation
from analysis.two_sessions import SessionPair, compare_two, unequal_runs
from analysis.verdict import Verdict
from experiment.spec import CheckSpec
from host.facts import CHECKOUT
from reports.sessions import side_by_side
from reports.wording import figure
from results.profile import Profile
from results.record import Failure, Manifest, RunRecord
from results.session import MeasuredSession, open_session
from tests.analysis import counts_factory
from tests.analysis.factory import SEEDS, ExactSession, fails
from tests.analysis.measured import measured
from tests.analysis.test_gate import SLEEPS, checked
from tests.values import but, there
from tests.waiting import completed

FIRST = ExactSession()
# The same base arm, and another series in the patched arm.
SLOWER = ExactSession(effect={"4k": -0.013, "thp": 0.0, "switch": 0.0})


def session(made: ExactSession, **manifest: Any) -> MeasuredSession:
    return measured(but(made.manifest(), **manifest), made.records())


def with_kernel(manifest: Manifest, arm: str, **kernel: Any) -> dict[str, Any]:
    arms = tuple(
        but(each, kernel=but(each.kernel, **kernel)) if each.name == arm else each
        for each in manifest.arms
    )
    return {"arms": arms}


def other_series(made: ExactSession) -> MeasuredSession:
    manifest = made.manifest()
    kernel = {"key": "77" * 8, "code_key": "77" * 32, "patches": ("0001-mm-slower.patch",)}
    return session(made, session="second", **with_kernel(manifest, "patched", **kernel))


def verdicts(pair: SessionPair) -> dict[tuple[str, str], str]:
    return {
        (m.arm, m.name): str(m.judgement.verdict) if m.judgement else "not judged"
        for m in pair.metrics
        if m.primary
    }


def test_instructions_are_shown_per_read_as_in_the_report(tmp_path: Path) -> None:
    packed = CHECKOUT / "configs/gallery/regression.tar.xz"
    completed(["tar", "-xJf", packed, "-C", tmp_path])
    own = open_session(tmp_path / "regression")
    text = side_by_side(compare_two(own, own))
    reported = per_operation(compare_session(own)).primary[0]
    assert reported.base
    assert reported.patched
    for arm in (reported.base, reported.patched):
        assert f"4k.instructions per read  {figure(arm.mean)}" in text
    assert ".path" not in text


def test_a_session_against_itself_differs_in_nothing() -> None:
    pair = compare_two(session(FIRST), session(FIRST))
    assert (len(pair.differences), len(pair.obstacles)) == (0, 0)
    assert pair.same_code == ("base", "patched")
    assert set(verdicts(pair).values()) == {"no change"}
    assert all(
        m.judgement and m.judgement.change and m.judgement.change.estimate == 0
        for m in pair.metrics
        if m.primary
    )
    assert "Nothing differs between them" in side_by_side(pair)


def test_another_series_is_judged_seed_by_seed() -> None:
    pair = compare_two(session(FIRST), other_series(SLOWER))
    assert pair.obstacles == ()
    assert [each.name for each in pair.differences] == [
        "patched: kernel",
        "patched: patches",
        "patched: machine code",
    ]
    assert pair.same_code == ("base",)
    by_metric = verdicts(pair)
    assert by_metric["patched", "4k.bw"] == "regression"
    assert {by_metric["base", name] for name in ("4k.bw", "thp.bw", "switch.bw")} == {"no change"}
    # The same rules as within a session, over the arm that is asked about.
    judged = [m for m in pair.metrics if m.arm == "patched" and m.primary]
    assert [m.seeds for m in judged] == [len(SEEDS)] * 3
    metric = judged[0]
    assert metric.judgement is not None
    assert metric.judgement.p_adjusted == pytest.approx(
        min(1.0, 3 * there(metric.judgement.p_value)), rel=1e-9
    )
    assert metric.first_median == pytest.approx(
        sorted(
            r.samples["4k.bw"]
            for r in FIRST.records()
            if r.arm == "patched" and r.samples and "4k.bw" in r.samples
        )[3:5][0],
        rel=0.01,
    )
    text = side_by_side(pair)
    assert "patched: patches: none -> 0001-mm-slower.patch" in text
    assert "Arm base, the same machine code and settings" in text
    assert max(map(len, text.splitlines())) <= 100


HEAD = FIRST.manifest()
CASE = HEAD.cases[0]
OTHER_PHASE = but(CASE, phases=(but(CASE.phases[0], command="fio --rw=randwrite"),))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"guest": but(HEAD.guest, vcpus=4)}, "guest: vcpus: 1, then 4"),
        (
            {"provenance": but(HEAD.provenance, initramfs_sha256="cd" * 32)},
            "userland of guests, SHA-256: ab12ab12ab12, then cdcdcdcdcdcd",
        ),
        (
            {"provenance": but(HEAD.provenance, tools=HEAD.provenance.tools | {"fio": "fio-3.39"})},
            "fio: fio-3.33, then fio-3.39",
        ),
        ({"cases": (OTHER_PHASE, *HEAD.cases[1:])}, "filemap-4k: phases"),
        ({"experiment": but(HEAD.experiment, mode="wall")}, "mode: exact, then wall"),
    ],
)
def test_nothing_is_judged_where_more_than_kernels_differs(
    change: dict[str, Any], name: str
) -> None:
    second = other_series(SLOWER)
    manifest = but(second.manifest, **change)
    pair = compare_two(session(FIRST), measured(manifest, second.records))
    assert any(each.startswith(name) for each in pair.obstacles)
    assert set(verdicts(pair).values()) == {"not judged"}
    assert pair.primary == ()
    text = side_by_side(pair)
    assert "Not comparable, so nothing is judged" in text
    assert "regression" not in text


def test_lab_host_and_build_tools_are_named_and_prevent_nothing() -> None:
    manifest = FIRST.manifest()
    update = {
        "lab_commit": "fedcba",
        "host": {**manifest.provenance.host, "cpu": "another"},
        "tools": {**manifest.provenance.tools, "gcc": "gcc 14"},
    }
    provenance = but(manifest.provenance, **update)
    pair = compare_two(session(FIRST), session(FIRST, provenance=provenance))
    assert [each.name for each in pair.differences] == ["lab", "gcc", "host: cpu"]
    assert set(verdicts(pair).values()) == {"no change"}


def test_the_same_code_with_other_numbers_is_no_change_of_a_kernel() -> None:
    pair = compare_two(session(FIRST), session(SLOWER))
    assert pair.obstacles == (
        "patched: the same machine code in the same guest gave other numbers",
    )
    assert set(verdicts(pair).values()) == {"not judged"}


def test_only_seeds_that_both_have_are_paired() -> None:
    later = ExactSession(seeds=tuple(range(1005, 1013)))
    pair = compare_two(session(FIRST), session(later))
    assert [each.name for each in pair.differences] == ["seeds"]
    assert {m.seeds for m in pair.metrics} == {4}
    none = compare_two(session(FIRST), session(ExactSession(seeds=(7, 8))))
    assert none.obstacles == ("the sessions have no arm, case and seed in common",)


def test_a_session_that_is_unsound_itself_is_no_yardstick() -> None:
    experiment = but(FIRST.manifest().experiment, check=CheckSpec())
    manifest = but(FIRST.manifest(), experiment=experiment)
    broken = measured(
        manifest, FIRST.records(), checks=[checked("base"), checked("patched", SLEEPS)]
    )
    pair = compare_two(session(FIRST), broken)
    assert any("patched: not judged: a correctness check failed" in each for each in pair.obstacles)


def test_an_arm_that_panics_in_one_of_them_is_a_failure_and_not_left_out() -> None:
    second = other_series(SLOWER)
    names = [r.run_id for r in second.records if r.arm == "patched" and r.case == "filemap-4k"]
    lost = measured(second.manifest, fails(list(second.records), *names, blame="series"))
    pair = compare_two(session(FIRST), lost)
    metric = next(m for m in pair.metrics if (m.arm, m.name) == ("patched", "4k.bw"))
    assert (metric.first, metric.seeds) == (None, 0)
    judged = there(metric.judgement)
    assert (judged.verdict, judged.blame) == (Verdict.FAILED, "series")
    assert "8 runs failed" in side_by_side(pair)


def recorded(*records: RunRecord, profiles: Sequence[Profile] = ()) -> MeasuredSession:
    return dataclasses.replace(session(FIRST), records=records, profiles=tuple(profiles))


RUN, NEXT = FIRST.records()[:2]
SAMPLES = RUN.samples or {}
LOST = but(RUN, samples=None, failure=Failure(kind="panic", blame="lab", message=""))
COUNTED = [each for each in counts_factory.profiles(FIRST) if each.run_id == RUN.run_id]
(PROFILE,) = COUNTED
MORE = but(PROFILE, phases=tuple(but(p, instructions=p.instructions + 1) for p in PROFILE.phases))


def test_the_last_digit_of_a_run_counts() -> None:
    first = recorded(RUN, NEXT, profiles=COUNTED)
    assert unequal_runs(first, first) == {}
    was, now = SAMPLES["4k.bw"], math.nextafter(SAMPLES["4k.bw"], 1e9)
    last = recorded(but(RUN, samples=SAMPLES | {"4k.bw": now}), NEXT, profiles=COUNTED)
    assert unequal_runs(first, last) == {RUN.run_id: f"4k.bw {was} then {now}"}
    # What only the second has is nobody's business.
    assert unequal_runs(recorded(NEXT), last) == {}
    assert unequal_runs(recorded(LOST), recorded(LOST)) == {}


@pytest.mark.parametrize(
    ("now", "apart"),
    [
        (recorded(but(RUN, fingerprint="e" * 64), profiles=COUNTED), "then eeee"),
        (recorded(RUN, profiles=[MORE]), "what was counted"),
        (recorded(RUN), "what was counted"),
        (recorded(), "was not made"),
        (recorded(LOST, profiles=COUNTED), "then failed: panic"),
    ],
)
def test_what_is_not_the_same_of_a_run_is_named(now: MeasuredSession, apart: str) -> None:
    assert apart in unequal_runs(recorded(RUN, profiles=COUNTED), now)[RUN.run_id]
