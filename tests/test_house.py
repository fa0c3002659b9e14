"""The house does not grow unnoticed: bounds of pyproject.toml, held by ``make lint``."""

import ast
import tomllib
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.waiting import completed

CHECKOUT = Path(__file__).resolve().parent.parent
BOUNDS = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["twinboot"]["house"]


@cache
def sources() -> dict[str, str]:
    """Text of each Python file, by its path; a file that git does not know yet counts, too."""
    listed = completed(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"], cwd=CHECKOUT
    )
    names = [name for name in listed.stdout.split() if (CHECKOUT / name).is_file()]
    return {name: (CHECKOUT / name).read_text() for name in names}


def used_once(text: str) -> list[str]:
    """Private functions of a module that one place in it names."""
    tree = ast.parse(text)
    names = Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    )
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [name for name in functions if name.startswith("_") and names[name] == 1]


def product() -> dict[str, str]:
    return {name: text for name, text in sources().items() if not name.startswith("tests/")}


@pytest.mark.parametrize("folder", BOUNDS["folders"])
def test_a_folder_is_within_its_bounds(folder: str) -> None:
    """More lines or files need a commit that raises the bound and says what they buy."""
    texts = [text for name, text in sources().items() if name.split("/")[0] == folder]
    lines, files = BOUNDS["folders"][folder]
    assert (sum(text.count("\n") for text in texts), len(texts)) <= (lines, len(texts))
    assert len(texts) <= files


def test_every_folder_has_a_bound() -> None:
    assert {name.split("/")[0] for name in sources() if "/" in name} == set(BOUNDS["folders"])


@pytest.mark.parametrize(
    ("kind", "files", "count"),
    [
        ("small_files", product, lambda text: 0 < text.count("\n") < 60),
        ("used_once", product, lambda text: len(used_once(text))),
        ("fmt_skip", product, lambda text: text.count("# fmt: " + "skip")),
        ("fmt_skip_of_tests", sources, lambda text: text.count("# fmt: " + "skip")),
    ],
)
def test_a_habit_does_not_grow(
    kind: str, files: Callable[[], dict[str, str]], count: Callable[[str], int]
) -> None:
    assert sum(map(count, files().values())) <= BOUNDS[kind]


def test_what_is_counted() -> None:
    text = "def _a(): ...\ndef _b(): ...\ndef c(): _a(), _b(), _b()\n"
    assert used_once(text) == ["_a"]
