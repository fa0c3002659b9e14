"""A session of native mode meets every verb: each works, or refuses by name with a next step."""

import json
import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import lab
from results import native
from tests.analysis.native_factory import World, boots_of, head_of
from tests.values import data

SERIES = "configs/series/slow-add-256"


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A session of native mode with a regression, in a folder of sessions."""
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    folder, head = tmp_path / "sessions" / "slow", head_of(24)
    monkeypatch.setattr("verbs.options.SESSIONS", folder.parent)
    folder.mkdir(parents=True)
    native.begin(folder, head)
    for boot in boots_of(head, World(change=0.03), 1):
        native.append(folder, boot)
    before = signal.getsignal(signal.SIGTERM)
    yield folder
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("arguments", "why"), data(__file__, "a_verb_of_other_modes_refuses_it_by_name")
)
def test_a_verb_of_other_modes_refuses_it_by_name(
    arguments: str, why: str, session: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = {path.name for path in session.iterdir()}
    assert lab.main(arguments.format(session).split()) == 2
    errors = capsys.readouterr().err
    assert why in errors
    assert "next: " in errors or "./lab.py report" in errors or "is no history" in errors
    assert {path.name for path in session.iterdir()} == kept


def test_the_verbs_that_show_sessions_show_it(
    session: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab.main(["sessions", str(session.parent)]) == 0
    assert "exit 1  slow  1 regression" in capsys.readouterr().out
    assert lab.main(["sessions", str(session.parent), "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["mode"], listed["primary"][0]["metric"]) == ("native", "readahead")
    assert lab.main(["report", "latest", "--form", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["mode"] == "native"


def test_one_that_is_damaged_is_listed_as_such(
    session: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (session / native.NATIVE).write_text("{}")
    assert lab.main(["sessions", str(session.parent)]) == 0
    assert "cannot be reported" in capsys.readouterr().out
