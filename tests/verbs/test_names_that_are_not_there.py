"""A name that is not there ends every verb with 2, and nothing is made in its place."""

import json
from pathlib import Path

import pytest

from history.store import HistoryStore
from queues.store import QueueStore
from tests.analysis.factory import ExactSession, stored
from tests.conftest import Terminal
from tests.history.factory import Nights, with_functions
from tests.values import data


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session ``s``, a history ``h``, a queue ``q``, a mailbox ``m`` and an empty folder.

    Of all tests: each sees that nothing is made in it.
    """
    folder = tmp_path_factory.mktemp("places")
    for name in ("none-yet", "m/cur", "m/new", "m/tmp"):
        (folder / name).mkdir(parents=True)
    QueueStore(folder / "q").create()
    HistoryStore(folder / "h").add(Nights((0.0,)).entries()[0])
    stored(folder / "s", ExactSession())
    return folder


@pytest.mark.parametrize("line", data(__file__, "each_verb_says_so"))
def test_each_verb_says_so(main: Terminal, places: Path, line: str) -> None:
    before = set(places.rglob("*"))
    assert main(*(word.replace("TMP", str(places)) for word in line.split())) == 2
    shown = main.err
    assert "none" in shown or "manifest.json" in line or "--auto" in line
    steps = ("next: ", "allowed: ", "known in", "in none", "the nearest")
    assert any(words in shown for words in steps)
    assert {path for path in places.rglob("*") if path.suffix != ".lock"} == before


def test_json_of_a_history_has_the_changes_of_functions_that_its_text_has(
    main: Terminal, tmp_path: Path
) -> None:
    nights = Nights(levels=(0.0, 0.0), codes=("a", "a")).entries()
    store = HistoryStore(tmp_path / "h")
    for entry, sizes in zip(nights, ({}, {"xas_load": 0.002, "xas_start": -0.003}), strict=True):
        store.add(with_functions(entry, sizes))
    assert main("history", "show", "--history", store.folder) == 0
    text = main.out
    assert main("history", "show", "--history", store.folder, "--json") == 0
    shown = json.loads(main.out)
    (change,) = shown["functions"]
    assert f"change {change['id']}" in text
    assert [each["name"] for each in change["functions"]] == ["xas_start", "xas_load"]
    assert (shown["changes"], shown["left_out"]) == ([], [])


def test_the_next_step_of_a_mistaken_option_names_its_verb(main: Terminal) -> None:
    for verb in ("gate", "queue list", "run"):
        assert main(*verb.split(), "--mistyped") == 2
        assert f"./lab.py {verb} --help" in main.err
