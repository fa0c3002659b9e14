"""Each kind of mistake in a file is one line with place, key, value and what is allowed."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from errors import SpecError
from experiment.load import (
    OTHERS,
    Catalogue,
    Subsystems,
    SubsystemWorkloads,
    load_experiment,
    load_guest,
    load_subsystems,
    read_toml,
)
from experiment.machine import names_in
from experiment.spec import CheckSpec, PhaseTimes
from tests.experiment.conftest import GOOD, Problems, swap
from tests.values import data
from workloads.spec import load_catalogue


def test_a_good_file_is_an_experiment(tmp_path: Path, catalogue: Catalogue) -> None:
    file = tmp_path / "small.toml"
    file.write_text(GOOD)
    experiment = load_experiment(file, catalogue=catalogue)
    assert (experiment.blocks, experiment.seed, experiment.guest) == (8, 1, "laptop")
    assert [case.name for case in experiment.cases] == ["filemap-4k", "filemap-thp"]
    assert experiment.cases[0].times["laptop"]["4k"] == PhaseTimes(ramp_s=0.6, runtime_s=2)


@pytest.mark.parametrize(("old", "new", "line"), data(__file__, "one_mistake_is_one_line"))
def test_one_mistake_is_one_line(problems: Problems, old: str, new: str, line: str) -> None:
    assert problems(swap(old, new)) == [f"small.toml: {line}"]


def test_all_mistakes_are_reported_at_once(problems: Problems) -> None:
    text = swap('workload = "filemap-thp"', 'workload = "filemap-4k"').replace("iops", "iopps")
    text = f'blocks = "3"\nguest = "labtop"\narms = [{{ name = "a", patches = true }}]\n{text}'
    keys = [line.split(": ")[1] for line in problems(text)]
    assert sorted(keys) == [
        "arms",
        "blocks",
        "cases",  # named twice
        "cases[0].primary[1]",
        "cases[1].primary[0]",
        "cases[1].times.laptop.switch",
        "cases[1].times.laptop.thp",
        "guest",
    ]


@pytest.mark.parametrize(
    ("text", "line"), data(__file__, "syntax_errors_are_placed_as_compilers_do")
)
def test_syntax_errors_are_placed_as_compilers_do(problems: Problems, text: str, line: str) -> None:
    assert problems(text) == [line]


def test_what_is_no_text_at_all(tmp_path: Path, catalogue: Catalogue) -> None:
    file = tmp_path / "a.toml"
    file.write_bytes(b'a = 1\nb = "\xff"\n')
    with pytest.raises(SpecError, match=r"a\.toml:2: is not UTF-8 \(byte 11\)"):
        load_experiment(file, catalogue=catalogue)
    file.write_text(f"a = {'[' * 5000}")
    with pytest.raises(SpecError, match=r"a\.toml: not TOML that can be read"):
        load_experiment(file, catalogue=catalogue)


@pytest.mark.parametrize(
    "text",
    [
        f"# x\n{'a.' * 50_000}b = 1",
        f"# x\n[{'a . ' * 50_000}b]",
        "# x\n" + '"a".' * 50_000 + "b = 1",
        "x" * (5 << 20),
        " " * (5 << 20),
    ],
    ids=["a key", "a table", "a key in quotes", "a word", "blanks"],
)
def test_a_file_that_no_experiment_is_ends_at_once(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(SpecError, match=r"a\.toml(:2: has a key of|: has) more than"):
        read_toml(tmp_path / "a.toml")


def test_a_device_without_an_end_is_no_experiment() -> None:
    with pytest.raises(SpecError, match="/dev/zero: has more than 1 MiB"):
        read_toml(Path("/dev/zero"))


def test_hostile_text_stays_on_its_line_and_is_not_printed_whole(problems: Problems) -> None:
    (line,) = problems(f'guest = "{"x" * 1000}\\n\\u001b[31m"\n{GOOD}')
    assert len(line) < 200
    (line,) = problems(f'"a\\n\\u001b" = 1\n{GOOD}')
    assert line.startswith(r'small.toml: "a\n\u001b": unknown key (value 1)')


def test_a_missing_file_names_those_beside_it(tmp_path: Path, catalogue: Catalogue) -> None:
    for name in ("filemap-v1", "filemap-v4", "noop"):
        (tmp_path / f"{name}.toml").write_text(GOOD)
    assert names_in(tmp_path) == ("filemap-v1", "filemap-v4", "noop")
    assert names_in(tmp_path / "none") == ()
    with pytest.raises(SpecError) as caught:
        load_experiment(tmp_path / "filemap-v5.toml", catalogue=catalogue)
    assert caught.value.problems == [
        f"{tmp_path}/filemap-v5.toml: no such experiment; known in {tmp_path}: filemap-v4, "
        "filemap-v1, noop; did you mean 'filemap-v4'?"
    ]


@pytest.mark.parametrize("name", ["filemap-v5", "filemap-v5.toml", "no/such/filemap-v5.toml"])
def test_a_missing_name_names_the_shipped_ones(catalogue: Catalogue, name: str) -> None:
    with pytest.raises(
        SpecError,
        match=r"known in .*/configs/experiments: filemap-v4, filemap-v1, .* and [0-9]+ more",
    ):
        load_experiment(Path(name), catalogue=catalogue)


def test_a_folder_is_no_experiment(tmp_path: Path, catalogue: Catalogue) -> None:
    with pytest.raises(SpecError, match="no such experiment"):
        load_experiment(tmp_path, catalogue=catalogue)


def test_a_guest_by_path_with_its_mistakes(tmp_path: Path) -> None:
    shipped = (Path(__file__).parents[2] / "configs/guests/smoke.toml").read_text()
    file = tmp_path / "tiny.toml"
    file.write_text(shipped.replace('"smoke"', '"tiny"'))
    assert load_guest(file).name == "tiny"
    file.write_text('arch = "arm64"\n' + shipped.replace('"smoke"', '"tiny"'))
    with pytest.raises(SpecError, match=r"arch: found .arm64.: follows from kernel\.arch"):
        load_guest(file)
    file.write_text(shipped.replace("vcpus", "vcpu").replace("jobs = 4", "jobs = 4.5"))
    with pytest.raises(SpecError) as caught:
        load_guest(file)
    assert [line.removeprefix(f"{file}: ") for line in sorted(caught.value.problems)] == [
        "jobs: found 4.5: must be a whole number",
        'name: found "smoke": must be the file\'s name; allowed: tiny',
        "vcpu: unknown key (value 1); allowed: vcpus, cpu, scale, "
        "silence_timeout_s, numa_nodes and 8 more; "
        "did you mean 'vcpus'?",
        "vcpus: missing: this key is required",
    ]
    with pytest.raises(SpecError, match=r"no such guest; .*did you mean 'laptop'"):
        load_guest(Path("labtop"))


@pytest.mark.parametrize(
    ("place", "step"),
    [
        ("configs/guests/smoke.toml", "; name it with --guest smoke"),
        ("configs/machines/zen3-epyc.toml", "; name it with --memory zen3-epyc"),
        ("workloads/catalogue/swap.toml", "; name it with --workloads swap"),
        ("configs/gate.toml", ""),
    ],
)
def test_a_file_of_another_kind_is_one_mistake(catalogue: Catalogue, place: str, step: str) -> None:
    file = Path(__file__).parents[2] / place
    with pytest.raises(SpecError) as caught:
        load_experiment(file, catalogue=catalogue)
    none = "is no experiment: it has none of cases, dataset, kernel"
    assert caught.value.problems == [f"{file}: {none}{step}"]


def test_an_experiment_judges_something(catalogue: Catalogue) -> None:
    file = Path(__file__).parents[2] / "configs/experiments/noop.toml"
    with pytest.raises(SpecError, match=r"cases\[0\]\.primary: no case has a metric") as caught:
        load_experiment(file, overrides=("cases.0.primary=[]",), catalogue=catalogue)
    assert len(caught.value.problems) == 1
    # In wall mode others are judged.
    on = ("mode=wall", "guest=wall", "cases.0.primary=[]")
    assert load_experiment(file, overrides=on, catalogue=catalogue).cases[0].primary == ()


def test_a_guest_has_nodes_and_what_only_wall_mode_has(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "configs/guests/full.toml").read_text()
    path = tmp_path / "full.toml"
    path.write_text(f"numa_nodes = 2\n{text}\n[wall]\nhuge_pages = true\n")
    guest = load_guest(path)
    assert (guest.numa_nodes, guest.wall.huge_pages, guest.wall.cpu) == (2, True, "")
    path.write_text(f"numa_nodes = 3\n{text}")
    with pytest.raises(SpecError, match="3 nodes cannot share vcpus = 16"):
        load_guest(path)


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


def test_a_gate_builds_what_its_checks_need_and_refuses_what_would_check_nothing() -> None:
    spec = CheckSpec()
    assert spec.flavours == ("lockdep", "selftest")
    assert (spec.vcpus, spec.selftests) == ((1, 4), ("xarray",))
    assert CheckSpec(selftests=()).flavours == ("lockdep",)
    assert CheckSpec(selftest_flavour="lockdep").flavours == ("lockdep",)
    assert CheckSpec(vcpus=()).flavours == ("selftest",)
    for wrong, why in (
        ({"vcpus": (0,)}, "vcpus"),
        ({"vcpus": (65,)}, "vcpus"),
        ({"selftests": ("xaray",)}, "xarray"),
        ({"vcpus": (), "selftests": ()}, "nothing would be checked"),
    ):
        with pytest.raises(ValidationError, match=why):
            CheckSpec.model_validate(wrong)
