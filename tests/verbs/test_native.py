"""A session of native mode meets every verb: each works, or refuses by name with a next step."""

import json
from pathlib import Path

import pytest

from results import native
from tests.analysis.native_factory import World, on_disk
from tests.conftest import Terminal
from tests.values import data

SERIES = "configs/series/slow-add-256"


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """A session of native mode with a regression, in a folder of sessions."""
    return on_disk(tmp_path / "slow", World(change=0.03))


@pytest.mark.parametrize(
    ("arguments", "why"), data(__file__, "a_verb_of_other_modes_refuses_it_by_name")
)
def test_a_verb_of_other_modes_refuses_it_by_name(
    main: Terminal, arguments: str, why: str, session: Path
) -> None:
    kept = {path.name for path in session.iterdir()}
    assert main(*arguments.format(session).split()) == 2
    errors = main.err
    assert why in errors
    assert "next: " in errors or "./lab.py report" in errors or "is no history" in errors
    assert {path.name for path in session.iterdir()} == kept


def test_an_interruption_names_the_command_that_resumes_it(
    main: Terminal, session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*of: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("runs.native.resume_native", interrupted)
    assert main("run", "--resume", session) == 130
    assert f"to continue: ./lab.py run --resume {session}\n" in main.err


def test_the_verbs_that_show_sessions_show_it(main: Terminal, session: Path) -> None:
    assert main("sessions", session.parent) == 0
    assert "exit 1  slow  1 regression" in main.out
    assert main("sessions", session.parent, "--json") == 0
    (listed,) = json.loads(main.out)
    assert (listed["mode"], listed["primary"][0]["metric"]) == ("native", "readahead")
    assert main("report", "latest", "--form", "json") == 1
    assert json.loads(main.out)["mode"] == "native"


def test_one_that_is_damaged_is_listed_as_such(main: Terminal, session: Path) -> None:
    (session / native.NATIVE).write_text("{}")
    assert main("sessions", session.parent) == 0
    assert "cannot be reported" in main.out
