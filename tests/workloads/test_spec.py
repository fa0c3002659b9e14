from __future__ import annotations

from pathlib import Path

import pytest

from experiment.spec import SpecError
from workloads.spec import CATALOGUE, load_catalogue, load_workload, phase_names

GOOD = """\
name = "small"
title = "a small workload"
mkfs = "mkfs.ext4 -q"
mount_options = "noatime"

[[phases]]
name = "one"
drop_caches = true
thp = "never"
fio = ["--name=a", "--rw=randread"]
checks = ["refaults"]

[[phases]]
name = "two"
drop_caches = false
thp = "always"
fio = ["--name=b"]

[variants.quick.fio]
two = ["--name=c"]
"""


def add(line: str) -> str:
    """The good file with one more line in its first phase."""
    return swap("drop_caches = true", f"drop_caches = true\n{line}")


def load(folder: Path, text: str) -> list[str]:
    """Problems with a file of this text, without the folder."""
    file = folder / "small.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_workload(file)
    assert all(problem.startswith(f"{file}: ") for problem in caught.value.problems)
    return [problem.removeprefix(f"{folder}/") for problem in caught.value.problems]


def swap(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


def test_shipped_catalogue() -> None:
    loaded = load_catalogue()
    assert list(loaded) == ["filemap-4k", "filemap-thp"]
    assert list(loaded) == [path.stem for path in sorted(CATALOGUE.glob("*.toml"))]
    assert phase_names(loaded) == {
        "filemap-4k": {"default": ("4k",), "v1": ("4k",)},
        "filemap-thp": {"default": ("thp", "switch"), "v1": ("thp", "switch")},
    }


def test_shipped_thp_keeps_the_caches_between_its_phases() -> None:
    thp, switch = load_catalogue()["filemap-thp"].phases
    assert (thp.drop_caches, thp.thp) == (True, "always")
    assert (switch.drop_caches, switch.thp) == (False, "never")


def test_variant_changes_the_phases_it_names(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(GOOD)
    workload = load_workload(file)
    assert workload.phases_of("default") == workload.phases
    one, two = workload.phases_of("quick")
    assert one == workload.phases[0]
    assert two.fio == ("--name=c",)
    assert two.thp == "always"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (swap("title =", "titel ="), "small.toml: titel: "),
        (swap("drop_caches = true", "drop_cache = true"), "small.toml: phases.0.drop_cache: "),
        (swap('thp = "never"', 'thp = "off"'), "small.toml: phases.0.thp: "),
        (swap('["refaults"]', '["refault"]'), "small.toml: phases.0.checks.0: "),
        (swap('fio = ["--name=b"]', 'fio = "--name=b"'), "small.toml: phases.1.fio: "),
        (swap("[variants.quick.fio]", "[variants.quick.fioo]"), "small.toml: variants.quick.fioo"),
        (swap('two = ["--name=c"]', 'tow = ["--name=c"]'), "small.toml: variants.quick.fio.tow: "),
        (swap('name = "two"', 'name = "one"'), "small.toml: phases.1.name: "),
        (swap("variants.quick", "variants.default"), "small.toml: variants.default: "),
        (swap('"--name=b"', '"--allrandrepeat=1"'), "small.toml: phases.1.fio.0: "),
        (swap('"--name=c"', '"--name=c", "--randrepeat=1"'),
         "small.toml: variants.quick.fio.two.1: "),
        (swap('"--rw=randread"', '"--randseed=3"'), "small.toml: phases.0.fio.1: "),
        (swap('name = "small"', 'name = "smalls"'), "small.toml: name: "),
        (add('units = [{ name = "f", title = "fault" }]'),
         "small.toml: phases.0.units.0: "),
        (add('units = [{ name = "f", title = "fault", ios = true, counter = "pgfault" }]'),
         "small.toml: phases.0.units.0: "),
        (add('units = [{ name = "f", title = "", ios = true }, '
             '{ name = "f", title = "", counter = "pgfault" }]'), "small.toml: phases.0: "),
        (add('ratios = [{ name = "r", title = "", calls = ["a"], unit = "folio" }]'),
         "small.toml: phases.0: "),
        ("name = ", "small.toml: "),
    ],
)  # fmt: skip
def test_mistake_is_named_with_file_and_key(tmp_path: Path, text: str, problem: str) -> None:
    (found,) = [line for line in load(tmp_path, text) if line.startswith(problem)]
    assert found != problem


def test_units_of_work_are_data(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    unit = '{ name = "folio", title = "folio added", calls = ["__filemap_add_folio"] }'
    ratio = '{ name = "walks", title = "walks", calls = ["xas_load"], unit = "folio" }'
    file.write_text(add(f"units = [{unit}]\nratios = [{ratio}]"))
    first, second = load_workload(file).phases
    assert first.units[0].calls == ("__filemap_add_folio",)
    assert first.ratios[0].unit == "folio"
    # Without a word about it, work is I/O.
    assert [(unit.name, unit.ios) for unit in second.units] == [("io", True)]


def test_unknown_key_names_the_value_found(tmp_path: Path) -> None:
    problems = load(tmp_path, swap("drop_caches = true", 'drop_caches = true\nnumjobs = "4"'))
    assert problems == ["small.toml: phases.0.numjobs: Extra inputs are not permitted (found '4')"]
