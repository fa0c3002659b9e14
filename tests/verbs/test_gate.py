"""`report`, `gate` and `history add` of one session folder say the same."""

import json
from pathlib import Path

import pytest

from errors import Exit
from experiment.spec import CheckSpec
from history.store import HistoryStore
from results.record import Check, RunCost
from tests.analysis.factory import ExactSession, stored
from tests.analysis.test_gate import SLEEPS, checked
from tests.conftest import Terminal
from tests.values import but


def session_folder(
    folder: Path, *checks: Check, with_check: bool = True, recorded: int = 99
) -> Path:
    """A session on disk whose experiment asks for correctness checks."""
    session = ExactSession()
    checking = but(session.manifest().experiment, check=CheckSpec() if with_check else None)
    store = stored(folder, session, session.records()[:recorded], experiment=checking)
    for check in checks:
        store.append(check, RunCost(run_id=check.run_id, elapsed_s=1.0, guest_cpu_s=1.0))
    return folder


def exit_codes(main: Terminal, folder: Path, history: Path) -> tuple[int, int]:
    """Those of ``report`` and ``gate``; the session is added to the history, too."""
    reported = main("report", folder)
    gated = main("gate", folder)
    assert main("history", "add", folder, "--history", history) == 0
    return reported, gated


def verdicts(main: Terminal, folder: Path, history: Path) -> tuple[dict[str, str], dict[str, str]]:
    """What the report and the history say of each primary metric."""
    main("report", folder, "--form", "json")
    report = json.loads(main.out)
    shown = {
        f"{case['name']} {metric['name']}": metric["judgement"]["verdict"]
        for comparison in report["comparisons"]
        for case in comparison["cases"]
        for metric in case["metrics"]
        if metric["primary"]
    }
    (entry,) = HistoryStore(history).read().entries
    kept = {
        f"{case.name} {s.metric}": str(s.verdict) for case in entry.cases for s in case.conclusions
    }
    return shown, kept


def test_checks_that_passed_are_known_to_all(main: Terminal, tmp_path: Path) -> None:
    folder = session_folder(tmp_path / "s", checked("base"), checked("patched"))
    assert exit_codes(main, folder, tmp_path / "h") == (0, 0)
    shown, kept = verdicts(main, folder, tmp_path / "h")
    assert shown == kept
    assert "improvement" in shown.values()
    assert "failed" not in shown.values()


def test_a_broken_arm_is_broken_for_all(main: Terminal, tmp_path: Path) -> None:
    folder = session_folder(tmp_path / "s", checked("base"), checked("patched", SLEEPS), recorded=0)
    assert exit_codes(main, folder, tmp_path / "h") == (Exit.SERIES, Exit.SERIES)
    shown, kept = verdicts(main, folder, tmp_path / "h")
    assert shown == kept == dict.fromkeys(shown, "failed")
    (entry,) = HistoryStore(tmp_path / "h").read().entries
    assert {conclusion.blame for case in entry.cases for conclusion in case.conclusions} == {
        "series"
    }
    of_history = ("history", "show", "--history", tmp_path / "h")
    assert main(*of_history, "--json") == 0
    unseen = json.loads(main.out)["unseen"]
    assert {f"{each['case']} {each['metric']}" for each in unseen} == set(shown)
    assert main(*of_history) == 0
    lines = main.out.splitlines()
    assert sum("failed: not judged: a correctness check failed" in line for line in lines) == 3


def test_a_verdict_whose_checks_are_pending_passes_nowhere(main: Terminal, tmp_path: Path) -> None:
    folder = session_folder(tmp_path / "s")
    assert main("report", folder) == Exit.INFRASTRUCTURE
    assert "improvement" in main.out
    assert main("gate", folder) == Exit.INFRASTRUCTURE
    assert f"./lab.py run --resume {folder}" in main.err
    assert main("history", "add", folder, "--history", tmp_path / "h") != 0
    assert not (tmp_path / "h").exists()


def test_an_unfinished_session_is_not_judged(main: Terminal, tmp_path: Path) -> None:
    # Half of the blocks are there, and enough of them for an interval.
    folder = session_folder(tmp_path / "s", with_check=False, recorded=29)
    assert main("report", folder) == Exit.INFRASTRUCTURE
    assert main("gate", folder) == Exit.INFRASTRUCTURE
    message = main.err
    assert "29 of 32 runs" in message
    assert f"./lab.py run --resume {folder}" in message
    assert main("history", "add", folder, "--history", tmp_path / "h") == Exit.USAGE
    assert not (tmp_path / "h").exists()


@pytest.mark.parametrize("name", ["latest", "one"])
def test_a_session_is_named_as_for_report(main: Terminal, name: str, tmp_path: Path) -> None:
    assert main("gate", name) == Exit.USAGE
    session_folder(tmp_path / "one", with_check=False)
    assert main("gate", name) == main("gate", tmp_path / "one") == 0
    assert main("history", "add", name, "--history", tmp_path / "h") == 0
    assert len(HistoryStore(tmp_path / "h").read().entries) == 1
