"""Call stacks, on a machine whose every call is known."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from guests.probe import counts
from guests.probe.counts import Counts
from guests.probe.plugin import Probe
from tests.guests.probe.machines import address, run, total
from tests.values import spaced

FUNCTIONS = spaced(
    "outer inner leaf tail speculated thunk deeper interrupted on_interrupt leaving "
    "middle thrower sleeper switch other system ends"
)
PARTS = {"enter": "on_interrupt", "begin": "system", "switches": "switch"}
Spent = dict[tuple[str, ...], tuple[int, int]]
# By phase: path → instructions of the function itself, and calls of it.
EXPECTED: dict[int, Spent] = {
    1: {
        ("outer",): (10 * 5, 10),
        ("outer", "inner"): (10 * 3, 10),
        ("outer", "inner", "leaf"): (10 * 3, 10),
        ("tail",): (10 * 3, 10),
        ("tail", "leaf"): (10 * 3, 10),
    },
    2: {
        ("speculated",): (4, 1),
        # Its own call, and what that leads to.
        ("speculated", "thunk"): (3, 1),
        ("speculated", "leaf"): (3, 1),
    },
    3: {("deeper",): (4, 1), ("deeper", "deeper"): (4, 1), ("deeper", "deeper", "deeper"): (3, 1)},
    4: {
        ("interrupted",): (4, 1),
        ("interrupted", "on_interrupt"): (3, 1),
        ("interrupted", "on_interrupt", "leaf"): (3, 1),
    },
    5: {
        ("leaving",): (5, 1),
        ("leaving", "leaf"): (3, 1),
        ("leaving", "middle"): (2, 1),
        ("leaving", "middle", "thrower"): (2, 1),
    },
    6: {
        ("sleeper",): (4, 1),
        # On either stack what is before the switch, and what is behind.
        ("sleeper", "switch"): (6, 1),
        ("other",): (2, 1),
        ("other", "leaf"): (3, 1),
        ("other", "switch"): (5, 1),
    },
    7: {("system",): (3, 1), ("system", "leaf"): (3, 1)},
}


# Of two vCPUs: what each calls, and a task that leaves one and goes on on the other.
OF_TWO = ("ours", "theirs", "leaf", "sleeper", "resumer", "switch", "ends")
EXPECTED_OF_TWO: dict[int, Spent] = {
    1: {
        ("ours",): (10 * 5, 10),
        ("ours", "leaf"): (10 * 3, 10),
        ("theirs",): (10 * 6, 10),
        ("theirs", "leaf"): (10 * 3, 10),
    },
    2: {
        ("sleeper",): (4, 1),
        ("sleeper", "switch"): (6, 1),
        ("resumer",): (2, 1),
        ("resumer", "switch"): (5, 1),
    },
}


def words(
    image: Path,
    folder: Path,
    functions: tuple[str, ...] = FUNCTIONS,
    parts: Mapping[str, str] = PARTS,
) -> str:
    """The plugin's arguments for the functions of the image, which a System.map lists."""
    places = {name: address(image, name) for name in functions}
    system_map = folder / "System.map"
    system_map.write_text(
        "".join(f"{place:016x} t {name}\n" for name, place in places.items())
        + f"{address(image, 'kernel'):016x} D kernel_data\n"
    )
    return f",functions={system_map}" + "".join(
        f",{word}={places[name]:x}" for word, name in parts.items()
    )


@pytest.fixture(scope="module")
def image(images: Path) -> Path:
    return images / "stacks"


@pytest.fixture(scope="module", params=[1, 2], ids=["inline", "called"])
def counted(
    request: pytest.FixtureRequest,
    image: Path,
    probe: Probe,
    tmp_path_factory: pytest.TempPathFactory,
) -> Counts:
    folder = tmp_path_factory.mktemp("counts")
    more = words(image, folder)
    return counts.parse(run(image, probe, folder / "counts", vcpus=request.param, more=more))


def spent(
    counted: Counts, image: Path, phase: int, functions: tuple[str, ...] = FUNCTIONS
) -> Spent:
    names = {address(image, name): name for name in functions}
    paths: list[tuple[str, ...]] = []
    for row in counted.paths:
        above = paths[int(row["parent"])] if paths else ()
        paths.append((*above, names[int(row["function"])]) if paths else ())
    return {
        paths[int(row["path"])]: (int(row["instructions"]), int(row["calls"]))
        for row in counted.stacks
        if row["phase"] == phase and row["path"]
    }


@pytest.mark.parametrize("phase", EXPECTED)
def test_each_path_has_what_its_function_executed(counted: Counts, image: Path, phase: int) -> None:
    assert counted.stacked
    assert spent(counted, image, phase) == EXPECTED[phase]


@pytest.mark.parametrize("phase", EXPECTED)
def test_every_instruction_is_on_one_path(counted: Counts, phase: int) -> None:
    rows = counted.stacks[counted.stacks["phase"] == phase]
    # The mark's own block is counted for the phase before it, and its path from the mark on.
    assert abs(int(rows["instructions"].sum()) - total(counted, phase)) <= 2


def test_each_of_two_vcpus_has_a_stack_and_a_task_takes_its_own_along(
    images: Path, probe: Probe, tmp_path: Path
) -> None:
    image = images / "stacks_of_two"
    more = words(image, tmp_path, OF_TWO, {"switches": "switch"})
    counted = counts.parse(run(image, probe, tmp_path / "counts", vcpus=2, more=more))
    of_phases = {phase: spent(counted, image, phase, OF_TWO) for phase in EXPECTED_OF_TWO}
    assert of_phases == EXPECTED_OF_TWO


def test_nothing_is_felt_of_it(image: Path, probe: Probe, tmp_path: Path) -> None:
    plain = counts.parse(run(image, probe, tmp_path / "plain"))
    stacked = counts.parse(run(image, probe, tmp_path / "a", more=words(image, tmp_path)))
    assert plain.rows.tobytes() == stacked.rows.tobytes()
    assert (plain.stacked, len(plain.paths), len(plain.stacks)) == (False, 0, 0)
