"""Nobody else opens files where others may write: what does, is named here with the reason."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.values import data, spaced

CHECKOUT = Path(__file__).resolve().parents[2]
# Who reads and writes sessions, histories, queues, stores, archives and sites.
FOLDERS = ("results", "analysis", "history", "queues", "runs", "reports", "verbs")
CALLS = {
    *spaced(
        "open read_text read_bytes write_text write_bytes copyfile copytree copy copy2 move "
        "read_parquet"
    )
}
ALLOWED = data(__file__, "allowed")


def opening(tree: ast.AST) -> Iterator[str]:
    """The names of the calls that open a file by its path."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Attribute):
            # `door.opened` has another name, and `door.read` is no method of a path.
            if function.attr in CALLS and not function.attr.startswith("copy"):
                yield function.attr
            elif isinstance(function.value, ast.Name) and function.value.id == "shutil":
                yield from {function.attr} & CALLS
        elif isinstance(function, ast.Name) and function.id == "open":
            yield "open"


def in_tree() -> dict[str, Counter[str]]:
    files = (path for folder in FOLDERS for path in sorted((CHECKOUT / folder).rglob("*.py")))
    calls = {
        str(path.relative_to(CHECKOUT)): Counter(opening(ast.parse(path.read_text())))
        for path in files
    }
    return {name: names for name, names in calls.items() if names}


def test_files_of_such_folders_are_opened_by_the_door_alone() -> None:
    assert {name: {*calls} for name, calls in in_tree().items()} == {
        name: {*reasons} for name, reasons in ALLOWED.items()
    }


@pytest.mark.parametrize("text", data(__file__, "each_way_is_noticed"))
def test_each_way_is_noticed(text: str) -> None:
    assert list(opening(ast.parse(text)))
