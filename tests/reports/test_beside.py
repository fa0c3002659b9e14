"""A session's results in one table with those of other hardware."""

import json
from pathlib import Path

import pytest

from tests.analysis.factory import ExactSession, stored
from tests.analysis.native_factory import World, on_disk
from tests.conftest import Terminal
from tests.results.test_outside import MMTESTS, fio


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """A session of native mode in which nothing changed."""
    return on_disk(tmp_path / "s", World(layout=0.0005, noise=0.0005))


def named(folder: Path, **results: list[str]) -> list[str]:
    """The words of a command line for these texts of each arm."""
    words = ["--machine", "my EPYC"]
    for arm, texts in results.items():
        for number, text in enumerate(texts):
            path = folder / f"{arm}-{number}"
            path.write_text(text)
            words += ["--beside", f"{arm}={path}" if arm != "both" else str(path)]
    return words


def rows(main: Terminal, session: Path, *words: object) -> dict[str, list[str]]:
    """The cells of each row of the table, by the first."""
    assert main("report", session, "--form", "markdown", *words) == 0
    lines = main.out.partition("## Beside results of other hardware")[2].splitlines()
    cells = [[c.strip(" *") for c in line.split("|")[1:-1]] for line in lines if line[:1] == "|"]
    return {first: rest for first, *rest in cells}


def test_a_difference_is_called_with_its_degrees_of_freedom(
    main: Terminal, session: Path, tmp_path: Path
) -> None:
    words = named(
        tmp_path,
        base=[fio(1000), fio(1010), fio(990), fio(1005)],
        patched=[fio(500), fio(503), fio(498)],
    )
    shown = rows(main, session, *words)
    names = list(shown)
    assert names.index("native mode, a CPU") < names.index("readahead")
    assert names.index("readahead") < names.index("my EPYC") < len(names) - 4
    assert shown["readahead"][-1] == "no change"
    base, change, interval, spread, results, freedom, verdict = shown["w read: bandwidth"]
    assert (base, results, verdict) == ("1001 MiB/s", "4 and 3", "worse")
    assert change.startswith("-50.")
    assert interval.startswith("\\[-5")
    assert spread.startswith("±0.85")
    assert 3 <= float(freedom) <= 5
    # Half the latency, in this made-up result, is better.
    assert shown["w read: mean latency"][-1] == "better"


def test_one_result_an_arm_is_no_verdict(main: Terminal, session: Path, tmp_path: Path) -> None:
    words = named(tmp_path, base=[fio(1000)], patched=[fio(500)], both=[MMTESTS])
    shown = rows(main, session, *words)
    assert shown["w read: bandwidth"] == [
        *("1000 MiB/s", "-50.00 %", "–", "–", "1 and 1", "–", "no verdict")
    ]
    assert shown["mmtests: fault-4"] == [
        *("110.0", "-1.82 %", "–", "±2.78 %", "unknown", "–", "no verdict")
    ]
    assert "99th percentile: one result an arm: no spread is known" in main.out
    assert "the file does not say of how many results its means are" in main.out


@pytest.mark.parametrize(
    ("base", "patched", "why"),
    [
        ([1000, 1000], [500, 500], "the results of an arm are equal"),
        ([1000, 1001], [500], "one result of an arm"),
    ],
)
def test_no_spread_is_no_verdict(
    base: list[int], patched: list[int], why: str, main: Terminal, session: Path, tmp_path: Path
) -> None:
    words = named(tmp_path, base=[*map(fio, base)], patched=[*map(fio, patched)])
    assert rows(main, session, *words)["w read: bandwidth"][-1] == "no verdict"
    assert f"99th percentile: {why}: no spread is known" in main.out


def test_two_results_an_arm_are_few(main: Terminal, session: Path, tmp_path: Path) -> None:
    """Five percent, ten standard deviations of either arm, is nothing that two of each show."""
    words = named(tmp_path, base=[fio(1000), fio(1005)], patched=[fio(950), fio(955)])
    assert rows(main, session, *words)["w read: bandwidth"][-1] == "inconclusive"


def test_an_exact_session_has_it_too(main: Terminal, tmp_path: Path) -> None:
    folder = stored(tmp_path / "exact", ExactSession()).folder
    words = named(tmp_path, base=[fio(1000)], patched=[fio(500)])
    main("report", folder, "--form", "json")
    judged = [
        m
        for c in json.loads(main.out)["comparisons"][0]["cases"]
        for m in c["metrics"]
        if m["primary"]
    ]
    assert main("report", folder, "--no-judge", *words) == 0
    table = main.out.partition("Beside results of other hardware")[2]
    assert "exact mode" in table
    assert len([line for line in table.splitlines() if "%" in line]) >= len(judged) + 4


@pytest.mark.parametrize(
    "words",
    [
        ["--machine", "x"],
        ["--beside", "base=FILE"],
        ["--beside", "base=FILE", "--machine", "x", "--form", "html"],
        ["--beside", "base=FILE", "--machine", "x", "--write"],
        ["--beside", "base=FILE", "--machine", "x", "--json"],
        ["--beside", "base=FILE", "--machine", "x"],
        ["--beside", "base=none", "--machine", "x"],
    ],
)
def test_mistakes_end_with_2_and_nothing_is_shown(
    words: list[str], main: Terminal, session: Path, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("hello")
    given = [word.replace("FILE", str(tmp_path / "text")) for word in words]
    assert main("report", session, *given) == 2
    assert main.out == ""
    assert "next: " in main.err
    assert not (session / "report.html").exists()
