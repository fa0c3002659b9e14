"""Parts of the kernel, by which the nightly site groups what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from errors import SpecError
from experiment.load import OTHERS, Subsystems, SubsystemWorkloads, load_subsystems
from workloads.spec import load_catalogue

TWO = Subsystems(
    subsystem=(
        SubsystemWorkloads(title="reading", workloads=("a", "b")),
        SubsystemWorkloads(title="writing", workloads=("c",)),
    )
)


def test_every_workload_of_the_catalogue_is_in_one_part() -> None:
    named = [name for part in load_subsystems().subsystem for name in part.workloads]
    assert sorted(named) == sorted(load_catalogue())


def test_a_variant_is_where_its_workload_is() -> None:
    assert [TWO.of_case(case) for case in ("b", "c+ext4", "new")] == ["reading", "writing", OTHERS]
    assert [TWO.position(title) for title in ("reading", "writing", OTHERS)] == [0, 1, 2]


@pytest.mark.parametrize("text", ["subsystem = 1", '[[subsystem]]\ntitle = "a"', "subsystem = ["])
def test_a_file_that_is_wrong_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "parts.toml"
    file.write_text(text)
    with pytest.raises(SpecError, match=r"parts.toml"):
        load_subsystems(file)
