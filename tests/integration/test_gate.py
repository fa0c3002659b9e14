"""The gate in real guests: a sound series passes, and each broken one is told for its reason.

Of the broken ones that the kernel itself reports, what it prints is among the recorded consoles of
the quick tests, too (``tests/workloads/test_splats.py``).
"""

from pathlib import Path

import pytest

from analysis.verdict import Verdict
from guests import channel
from reports.forms import read_comparison
from results.record import Check
from results.store import SessionStore
from tests.integration.conftest import EndedSession, measured
from tests.integration.lab_process import bytes_of, run_lab

pytestmark = [pytest.mark.guest, pytest.mark.usefixtures("kept_runs")]

GATE = str(Path(__file__).with_name("gate.toml"))


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> EndedSession:
    """The base and a series that is broken through the gate."""
    return measured(tmp_path_factory.mktemp("gate") / "session", GATE)


@pytest.fixture(scope="module")
def checks(gated: EndedSession) -> dict[str, Check]:
    return {check.arm: check for check in SessionStore(gated.folder).checks()}


def test_a_sound_kernel_is_green(checks: dict[str, Check]) -> None:
    assert checks["base"].problems == ()
    assert checks["base"].status == "green"
    summary = "; ".join(checks["base"].checked)
    assert "blocks of 4 KiB read back and compared" in summary
    assert "MiB in huge folios" in summary
    assert "lockdep watched" in summary


def test_a_broken_kernel_is_red_for_the_right_reason(checks: dict[str, Check]) -> None:
    assert checks["leak"].status == "red"
    problems = checks["leak"].problems
    assert any(p.kind == "leak" and "radix_tree_node" in p.title for p in problems), problems


def test_small_folios_come_where_huge_ones_left_their_shadows(gated: EndedSession) -> None:
    """Not so where fio drops the file as a step begins: then no entry of a tree is split."""
    raw = gated.folder / "raw" / "check.base.lockdep.v1" / "result"
    files = channel.decode(raw.read_bytes())

    def refaults(step: str) -> int:
        lines = files[f"{step}/memory.stat"].decode().splitlines()
        return int(dict(line.split() for line in lines)["workingset_refault_file"])

    assert refaults("huge") < refaults("small") < refaults("huge-again") < refaults("small-again")


def judged(folder: Path) -> dict[str, tuple[Verdict | None, str]]:
    return {
        comparison.manifest.patched: (metric.judgement.verdict, metric.judgement.blame)
        for comparison in read_comparison(folder).comparisons
        for metric in comparison.primary
    }


def test_a_broken_arm_has_no_verdict(gated: EndedSession) -> None:
    """All are measured first, for an early verdict; the checks take back that of broken arms."""
    assert gated.status == 4, gated.err
    records = SessionStore(gated.folder).records()
    assert {record.arm for record in records if record.samples} >= {"base"}
    assert {record.arm for record in records} == {"base", "leak"}
    assert judged(gated.folder) == {"leak": (Verdict.FAILED, "series")}


def test_a_session_that_is_whole_is_not_begun_again_and_checks_nothing_again(
    gated: EndedSession,
) -> None:
    names = ("manifest.json", "runs.jsonl", "checks.jsonl")
    before = bytes_of(gated.folder, names)
    refused = measured(gated.folder, GATE)
    assert refused.status == 2
    assert f"--resume {gated.folder}" in refused.err
    resumed = run_lab("run", "--resume", str(gated.folder))
    assert resumed.returncode == 4, resumed.stderr
    assert bytes_of(gated.folder, names) == before
    assert before["checks.jsonl"].count(b"\n") == 2


@pytest.mark.long
def test_what_the_kernel_reports_itself_fails_for_the_right_reason(tmp_path: Path) -> None:
    """A task that sleeps with a lock held, and a check of the kernel's own that stops it.

    The sound series beside them keeps its verdict.
    """
    series = {"lock": "broken-lock", "order": "broken-order", "sound": "slow-add-16"}
    arms = ", ".join(
        f'{{name="{name}", series={{path="configs/series/{path}"}}}}'
        for name, path in series.items()
    )
    session = measured(
        tmp_path / "session", GATE, "--no-snapshot", "--set", f'arms=[{{name="base"}}, {arms}]'
    )
    assert session.status == 4, session.err
    by_arm = {check.arm: check for check in SessionStore(session.folder).checks()}
    assert {arm: check.status for arm, check in by_arm.items()} == {
        "base": "green",
        "lock": "red",
        "order": "red",
        "sound": "green",
    }
    verdicts = judged(session.folder)
    assert verdicts.pop("sound")[0] is not Verdict.FAILED
    assert set(verdicts.values()) == {(Verdict.FAILED, "series")}
    assert "sound: passed (lockdep on 1 vCPU)" in run_lab("report", str(session.folder)).stdout
    slept = by_arm["lock"].problems
    assert any(p.kind == "sleeping" and p.where == "xas_split_alloc" for p in slept), slept
    stopped = by_arm["order"].problems
    assert any("folio_contains" in problem.title for problem in stopped), stopped


@pytest.mark.long
@pytest.mark.usefixtures("selftest")
def test_the_kernel_s_own_tests_find_a_wrong_order(tmp_path: Path) -> None:
    arms = '[{name="base"}, {name="patched", series={path="configs/series/broken-lookup"}}]'
    session = measured(
        tmp_path / "session",
        GATE,
        "--set",
        f"arms={arms}",
        "--set",
        "check={vcpus=[], selftests=['xarray']}",
    )
    assert session.status == 4, session.err
    by_arm = {check.arm: check for check in SessionStore(session.folder).checks()}
    assert by_arm["base"].status == "green"
    assert any("tests passed" in line for line in by_arm["base"].checked)
    kinds = {problem.kind for problem in by_arm["patched"].problems}
    assert "selftest" in kinds
