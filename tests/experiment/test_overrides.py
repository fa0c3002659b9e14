"""``--set`` changes single values, and is named as the place of its mistakes."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import SpecError
from experiment.load import Catalogue, apply_override, load_experiment
from experiment.spec import Experiment, Looks, SeriesSpec, WallSpec
from tests.experiment.conftest import GOOD, Problems
from tests.values import data


def series_of(experiment: Experiment) -> SeriesSpec:
    assert experiment.series is not None
    return experiment.series


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(GOOD)
    return path


def test_values_are_toml_or_plain_text(file: Path, catalogue: Catalogue) -> None:
    def load(*overrides: str) -> Experiment:
        return load_experiment(file, overrides=overrides, catalogue=catalogue)

    assert load("blocks=4").blocks == 4
    assert load("blocks = 4 ").blocks == 4
    assert load("blocks=4", "blocks=5").blocks == 5
    assert load("title=a = b").title == "a = b"
    assert load('title="4"').title == "4"
    assert load("title=1\nblocks=3").blocks == 8
    assert load("title=").title == ""
    assert series_of(load("series.reverse=true")).reverse
    assert load("thresholds.change=0.01").thresholds.change == 0.01
    assert series_of(load("series.path=configs/series/noop/")).path == "configs/series/noop"
    link = "https://lore.kernel.org/all/a@b/"
    assert series_of(load(f"series.path={link}")).parts == (link,)
    assert series_of(load('series.stack=["x.mbox"]')).parts == ("configs/series/noop", "x.mbox")
    assert load('cases.0.primary=["4k.ios"]').cases[0].primary == ("4k.ios",)
    both = (
        "guest=smoke",
        "cases=[{workload='filemap-4k', primary=['4k.bw'], times.smoke.4k={runtime_s=1}}]",
    )
    assert load(*both).guest == "smoke"


def test_another_series_is_not_called_by_the_name_of_the_file_s(
    file: Path, catalogue: Catalogue
) -> None:
    file.write_text(
        GOOD.replace(
            'path = "configs/series/noop"', 'path = "configs/series/noop"\ntitle = "comments"'
        )
    )

    def titled(*overrides: str) -> str:
        return series_of(load_experiment(file, overrides=overrides, catalogue=catalogue)).title

    assert titled() == titled("series.reverse=true") == "comments"
    other = "series.path=configs/series/slow-add-80"
    assert titled(other) == ""
    assert titled(other, "series.title=slower") == titled("series.title=slower", other) == "slower"


@pytest.mark.parametrize("key", ["cases.0.times", "cases[0].times"])
def test_dots_and_brackets_are_the_same(file: Path, catalogue: Catalogue, key: str) -> None:
    override = f"{key}.laptop.4k.runtime_s=1.5"
    experiment = load_experiment(file, overrides=[override], catalogue=catalogue)
    assert experiment.cases[0].times["laptop"]["4k"].runtime_s == 1.5
    assert experiment.cases[1].times["laptop"]["thp"].runtime_s == 1.5


def test_a_number_of_seeds_that_is_given_is_fixed(file: Path, catalogue: Catalogue) -> None:
    """The file's budget goes with the file's number."""
    file.write_text(f"max_seeds = 16\n{GOOD}")

    def looks(*overrides: str) -> Looks:
        return load_experiment(file, overrides=overrides, catalogue=catalogue).looks()

    assert looks().seeds == (8, 10, 12, 16)
    assert looks("blocks=4") == Looks((4,), sequential=False)
    assert looks("blocks=4", "max_seeds=12").seeds == (4, 8, 10, 12)
    assert looks("mode=wall").seeds == (8, 10, 12, 16)
    with pytest.raises(SpecError, match=r"max_seeds: found 20; .* 8, 10, 12, 16, 24"):
        looks("max_seeds=20")


@pytest.mark.parametrize(
    ("override", "line"), data(__file__, "mistakes_name_the_option_as_their_place")
)
def test_mistakes_name_the_option_as_their_place(
    problems: Problems, override: str, line: str
) -> None:
    short = " (--guest)" if override.startswith("guest=") else ""
    assert problems(GOOD, override) == [f"--set {override}{short}: {line}"]


def test_an_ended_key_is_read_where_it_says_what_is_so_now(problems: Problems) -> None:
    """Every session on record of before has it, whatever its mode."""
    assert WallSpec.model_validate({"attempts": 3, "early_looks": False}) == WallSpec(attempts=3)
    (line,) = problems(GOOD, "wall.early_looks=true")
    assert line.startswith("--set wall.early_looks=true: wall.early_looks: unknown key")


def test_a_table_that_an_option_made_is_its_own_fault(problems: Problems) -> None:
    override = "cases.0.times.lapdog.4k.runtime_s=1"
    assert problems(GOOD, override) == [
        f'--set {override}: cases[0].times.lapdog: found "lapdog": unknown guest; '
        "allowed: laptop, wall, full, smoke; did you mean 'laptop'?"
    ]


def test_the_last_of_two_is_to_blame_and_the_file_for_the_rest(problems: Problems) -> None:
    lines = problems(f"seed = 0\n{GOOD}", "blocks=0", "title=x", "blocks=-1")
    assert lines == [
        "--set blocks=-1: blocks: found -1: must be at least 1",
        "small.toml: seed: found 0: must be at least 1",
    ]


def test_hostile_options_stay_on_their_line(problems: Problems) -> None:
    # A byte of the command line that is not UTF-8 arrives as a lone surrogate.
    long = "9" * 400
    for text in ("guest=a\nb\x1b[31m", "a\nb", "guest=\udcff", "title=\udcff", f"seed={long}"):
        assert len(problems(GOOD, text)) == 1
    deep, wrong = problems(GOOD, f"title={'[' * 200}{']' * 200}")
    assert deep.endswith("title" + "[0]" * 12 + ": is nested too deeply")
    assert wrong.endswith("title: found an array of 1: must be a valid string")
    (line,) = problems(GOOD, f"title.{'x.' * 2000}x=1")
    assert line.endswith('title: found "a small experiment": is a value and has no keys')
    lines = problems(GOOD, f"{'x.' * 2000}x=1")
    assert len(lines) == 2
    assert all(len(line) < 300 for line in lines)
    (line,) = problems(GOOD, f"seed={long}")
    assert "seed: found 9999" in line
    assert line.endswith("...: is no TOML integer, which has 64 bits")


@given(st.text(), st.text())
def test_any_text_is_read_or_refused(key: str, value: str) -> None:
    outcome = apply_override({"a": [1, {"b": 2}], "c": {}}, f"{key}={value}")
    assert isinstance(outcome, tuple) or outcome.isprintable()
