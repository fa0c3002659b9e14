"""One family of errors: what is raised for a reader is a kind of LabError."""

import ast
import pickle
from pathlib import Path

import pytest

from errors import Exit, InfraError, LabError, RecordError, SpecError, UsageError
from tests.test_floors import FLOORS

CHECKOUT = Path(__file__).resolve().parent.parent
# These steer the lab from one function to another, and are always caught.
INNER = {"BootError", "InterruptedRunError", "MakeFailedError", "ReadingError"}


def strangers(source: str) -> set[str]:
    """Names of the exception classes in a file that derive from an exception of Python's."""
    bases = {"Exception", "BaseException", "ValueError", "RuntimeError", "OSError", "TypeError"}
    return {
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if isinstance(base, ast.Name) and base.id in bases
    }


def test_every_error_is_of_the_family() -> None:
    names = {
        name
        for folder in FLOORS
        for path in (CHECKOUT / folder).rglob("*.py")
        for name in strangers(path.read_text())
    }
    assert names == INNER
    assert strangers("class ShinyError(ValueError): ...") == {"ShinyError"}


@pytest.mark.parametrize(
    ("error", "code", "printed", "line"),
    [
        (UsageError("w", where="x", next_step="n"), 2, "error: x: w\nnext: n", "x: w (n)"),
        (InfraError("w"), 3, "error: w", "w"),
        (SpecError(["a: b", "c: d"]), 2, "error: a: b\nerror: c: d", "a: b; c: d"),
        (RecordError("torn", where="runs.jsonl"), 2, "error: runs.jsonl: torn", "runs.jsonl: torn"),
    ],
)
def test_each_error_has_a_code_and_its_texts(
    error: LabError, code: int, printed: str, line: str
) -> None:
    # A fleet's workers send them.
    for copy in (error, pickle.loads(pickle.dumps(error))):
        assert copy.exit_code == Exit(code)
        assert copy.for_terminal == printed
        assert copy.in_one_line == line
