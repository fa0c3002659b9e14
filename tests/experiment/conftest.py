"""A catalogue and a small experiment file for the tests of loading."""

from collections.abc import Callable
from pathlib import Path

import pytest

from errors import SpecError
from experiment.load import Catalogue, load_experiment
from tests.values import data, spaced

METRICS = spaced(
    "bw iops ios refaults_per_io major_faults_per_io path work guest_ns_per_io file_thp_mib"
)
CHECKOUT = Path(__file__).resolve().parents[2]
SERIES = ("configs/series/filemap-walks", "configs/series/noop", "configs/series/slow-add-80")

GOOD: str = data(__file__, "good")


@pytest.fixture
def catalogue() -> Catalogue:
    return Catalogue(
        workloads={
            "filemap-4k": {"default": ("4k",), "v1": ("4k",)},
            "filemap-thp": {"default": ("thp", "switch"), "v1": ("thp", "switch")},
        },
        metrics=METRICS,
        guests=("full", "laptop", "smoke", "wall"),
        flavours=("lockdep", "perf", "selftest"),
        series=SERIES,
    )


def swap(old: str, new: str) -> str:
    """The small experiment with one text replaced."""
    assert old in GOOD
    return GOOD.replace(old, new, 1)


Problems = Callable[..., list[str]]


@pytest.fixture
def problems(tmp_path: Path, catalogue: Catalogue) -> Problems:
    """Load a text with overrides and return the problems, without the file's folder."""

    def load(text: str = GOOD, *overrides: str) -> list[str]:
        file = tmp_path / "small.toml"
        file.write_text(text, encoding="utf-8")
        with pytest.raises(SpecError) as caught:
            load_experiment(file, overrides=overrides, catalogue=catalogue)
        for line in caught.value.problems:
            assert line.isprintable(), line
        return [line.replace(f"{tmp_path}/", "") for line in caught.value.problems]

    return load
