"""The contracts of pyproject.toml: they cover the tree, and each can be broken."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.values import data
from tests.waiting import completed

CHECKOUT = Path(__file__).resolve().parent.parent
SETTINGS = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["importlinter"]
FLOORS: tuple[str, ...] = tuple(SETTINGS["root_packages"])
CONTRACTS = {contract["id"]: contract for contract in SETTINGS["contracts"]}
OUTSIDE = {"tests", "setup", "docs", "configs", "sessions", "benchmarks"}
GROUND = ("errors", "files", "text")
VAGUE = {"utils.py", "util.py", "helpers.py", "common.py", "misc.py", "manager.py"}


def linted(program: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return completed(
        [str(Path(sys.executable).with_name(program)), *arguments], check=False, cwd=folder
    )


def broken(folder: Path) -> set[str]:
    """Ids of the contracts that a tree breaks."""
    done = linted("lint-imports", "--no-logo", "--no-cache", folder=folder)
    lines = done.stdout.splitlines()
    assert f"Contracts: {len(CONTRACTS)} kept, 0 broken." in lines or done.returncode == 1, done
    return {
        name
        for name, contract in CONTRACTS.items()
        if any(line.startswith(f"{contract['name']} BROKEN") for line in lines)
    }


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small checkout with the contracts of this one."""
    (tmp_path / "pyproject.toml").write_text((CHECKOUT / "pyproject.toml").read_text())
    for name in FLOORS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    keys = "source_modules", "forbidden_modules"
    every = (contract.get(key, ()) for contract in CONTRACTS.values() for key in keys)
    for name in {name for names in every for name in names}:
        if "." in name:
            (tmp_path / name.replace(".", "/")).mkdir(parents=True, exist_ok=True)
            (tmp_path / name.replace(".", "/") / "__init__.py").touch()
    for name in ("process", "bounded"):
        (tmp_path / f"host/{name}.py").write_text("import subprocess\n")
    (tmp_path / "kernels/make.py").write_text("from host import process\n")
    (tmp_path / "kernels/build.py").write_text("from kernels import make\n")
    return tmp_path


def test_every_folder_with_code_has_a_floor() -> None:
    folders = {path.parent.name for path in CHECKOUT.glob("*/*.py")}
    assert {name for name in folders if not name.startswith(".")} - OUTSIDE == set(FLOORS)
    layers = " | ".join(CONTRACTS["floors"]["layers"]).split(" | ")
    assert sorted(layers) == sorted(FLOORS)
    assert set(CONTRACTS["circles"]["ancestors"]) == set(FLOORS)
    assert set(CONTRACTS["door"]["source_modules"]) == set(FLOORS)


@pytest.mark.parametrize("ground", GROUND)
def test_the_ground_imports_no_floor(ground: str) -> None:
    nodes = list(ast.walk(ast.parse((CHECKOUT / f"{ground}.py").read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} & {*FLOORS, *OUTSIDE, "lab"} == set()


def test_no_file_has_a_name_that_fits_any_other() -> None:
    files = {path.name for folder in FLOORS for path in (CHECKOUT / folder).rglob("*.py")}
    assert files & VAGUE == set()


def test_a_sound_tree_breaks_nothing(tree: Path) -> None:
    assert broken(tree) == set()


@pytest.mark.parametrize(
    ("path", "source", "contract"), data(__file__, "each_contract_can_be_broken")
)
def test_each_contract_can_be_broken(tree: Path, path: str, source: str, contract: str) -> None:
    (tree / path).write_text(f"{source}\n")
    assert broken(tree) == {contract}


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("import os\n\nos.system('true')\n", "TID251"),
        ("from os import execv\n", "TID251"),
        ("from ..runs import a\n", "TID252"),
    ],
)
def test_ruff_keeps_the_door_and_the_names(tree: Path, source: str, rule: str) -> None:
    (tree / "results/x.py").write_text(source)
    done = linted("ruff", "check", "--no-cache", "--output-format=concise", ".", folder=tree)
    assert done.returncode == 1
    assert rule in done.stdout
