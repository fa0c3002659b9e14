"""Names that the catalogue does not hold: what may stand there, and what was meant."""

from dataclasses import replace
from pathlib import Path

import pytest

from errors import SpecError
from experiment.load import Catalogue, load_experiment
from experiment.spec import Experiment
from tests.experiment.conftest import GOOD, Problems, swap
from tests.values import data, spaced


@pytest.mark.parametrize(("old", "new", "line"), data(__file__, "one_unknown_name_is_one_line"))
def test_one_unknown_name_is_one_line(problems: Problems, old: str, new: str, line: str) -> None:
    assert problems(swap(old, new)) == [f"small.toml: {line}"]


def test_an_unknown_workload_does_not_hide_other_mistakes(problems: Problems) -> None:
    text = swap('workload = "filemap-4k"', 'workload = "filemap-4kb"').replace(
        "4k.iops", "4k.ioops"
    )
    keys = [line.split(": ")[1] for line in problems(text.replace("laptop.4k", "lapdog.4k"))]
    assert keys == [
        *spaced("cases[0].workload cases[0].times.lapdog cases[0].times.laptop cases[0].primary[1]")
    ]


def test_an_invalid_name_is_reported_once(problems: Problems) -> None:
    (line,) = problems(f'guest = "smoke"\n{swap("laptop.4k", "smoke.4k")}')
    assert line.endswith("times.smoke: missing: no times for guest 'smoke'; given for: laptop")
    (line,) = problems(f'guest = "Laptop"\n{GOOD}')
    assert line.endswith("unknown; allowed: laptop, wall, full, smoke; did you mean 'laptop'?")


def test_what_a_workload_needs_of_the_kernel_is_named(tmp_path: Path, catalogue: Catalogue) -> None:
    needing = replace(catalogue, additions=("tests",), needs={"filemap-thp": ("tests",)})
    file = tmp_path / "small.toml"

    def load(text: str) -> Experiment:
        file.write_text(text, encoding="utf-8")
        return load_experiment(file, catalogue=needing)

    with pytest.raises(SpecError) as caught:
        load(GOOD)
    (line,) = caught.value.problems
    assert line.endswith(
        "kernel.additions: found an array of 0: filemap-thp needs tests; allowed: tests"
    )
    with_it = swap("[kernel]", '[kernel]\nadditions = ["tests"]')
    assert load(with_it).kernel.configuration == "perf+tests"
    with pytest.raises(SpecError, match=r"additions\[0\]: found \"test\": unknown"):
        load(with_it.replace('"tests"', '"test"'))


def test_a_workload_whose_file_cannot_be_used_is_named_with_its_mistakes(
    tmp_path: Path, catalogue: Catalogue
) -> None:
    file = tmp_path / "small.toml"
    file.write_text(GOOD)
    known = {name: catalogue.workloads[name] for name in ("filemap-4k",)}
    broken = replace(catalogue, workloads=known, broken={"filemap-thp": ("x.toml: a", "x.toml: b")})
    with pytest.raises(SpecError) as caught:
        load_experiment(file, catalogue=broken)
    assert caught.value.problems == [
        f'{file}: cases[1].workload: found "filemap-thp": its file cannot be used: '
        "x.toml: a; x.toml: b"
    ]


def test_a_variant_may_be_called_as_its_section_is(tmp_path: Path, catalogue: Catalogue) -> None:
    file = tmp_path / "small.toml"
    file.write_text(swap('workload = "filemap-4k"', 'workload = "filemap-4k"\nvariant = "Q8 T1"'))
    known = {**catalogue.workloads, "filemap-4k": {"default": ("4k",), "q8-t1": ("4k",)}}
    case = load_experiment(file, catalogue=replace(catalogue, workloads=known)).cases[0]
    assert case.name == "filemap-4k:q8-t1"
