"""Names of the whole tree: nouns for values, and one meaning for the name of a class.

No linter has a rule for either.  `make lint` runs this file.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.values import data, spaced

CHECKOUT = Path(__file__).resolve().parent.parent
OUTSIDE = {"sessions", "gallery"}

# What somebody did is no name of what came of it: a reader has to search for what it holds.
SPEECH = {
    *spaced(
        "ask asked found gave hear heard look meant one said say seen take tell told took wanted"
    )
}
# In compound names: `found_by`, `sizes_seen`.
PARTICIPLES = {"asked", "found", "heard", "said", "seen", "told"}

KEY = "a key of a record or of printed JSON, which older versions wrote"
INTERIM = "an interim look: the word of group-sequential tests"
KEPT = {
    ("host/doctor.py", "found"): KEY,
    ("queues/watch.py", "seen"): KEY,
    ("analysis/model.py", "found"): KEY,
    ("host/facts.py", "NOT_FOUND"): "a missing value is named as tools name it",
    ("verbs/bisect.py", "FOUND"): "the name of a documented exit code",
    ("tests/analysis/simulation.py", "look"): INTERIM,
    ("runs/stages.py", "look"): INTERIM,
}


def names_in(tree: ast.Module) -> Iterator[tuple[int, str, bool]]:
    """Line and name of everything that a file gives a name to, and whether it is a class."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef():
                yield node.lineno, node.name, True
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.lineno, node.name, False
            case ast.arg():
                yield node.lineno, node.arg, False
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id, False
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr, False
            case ast.ExceptHandler(name=str(name)):
                yield node.lineno, name, False
            case ast.alias(asname=str(name)):
                yield getattr(node, "lineno", 1), name, False
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name, False


def is_speech(name: str) -> bool:
    """Whether a name is a verb of speech or search, or has a participle of one in it."""
    words = name.strip("_").lower().split("_")
    return (len(words) == 1 and words[0] in SPEECH) or not PARTICIPLES.isdisjoint(words)


@cache
def names_of(path: Path) -> tuple[tuple[int, str, bool], ...]:
    """Line and name of everything in a file, and whether it is a class; read once for all tests."""
    return tuple(names_in(ast.parse(path.read_text())))


def files() -> list[Path]:
    return sorted(
        path
        for path in [*CHECKOUT.glob("*.py"), *CHECKOUT.glob("*/**/*.py")]
        if path.relative_to(CHECKOUT).parts[0] not in OUTSIDE
        and not any(part.startswith(".") for part in path.relative_to(CHECKOUT).parts)
    )


def spoken(top: Path, paths: list[Path]) -> list[str]:
    """``FILE:LINE: NAME`` of each name that is a verb of speech and no exception."""
    return [
        f"{path.relative_to(top)}:{line}: {name}"
        for path in paths
        for line, name, _ in names_of(path)
        if is_speech(name) and (str(path.relative_to(top)), name) not in KEPT
    ]


def doubled(top: Path, paths: list[Path]) -> list[str]:
    """``NAME: FILE, FILE`` of each class name that several files define."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        for line, name, is_class in names_of(path):
            if is_class:
                places[name].append(f"{path.relative_to(top)}:{line}")
    return [f"{name}: {', '.join(where)}" for name, where in places.items() if len(where) > 1]


def test_values_are_named_for_what_they_are() -> None:
    assert spoken(CHECKOUT, files()) == []


def test_a_class_name_has_one_meaning() -> None:
    assert doubled(CHECKOUT, files()) == []


def test_every_exception_is_needed() -> None:
    for file, name in KEPT:
        assert name in {each for _, each, _ in names_of(CHECKOUT / file)}, (file, name)


@pytest.mark.parametrize(
    ("text", "line", "name"), data(__file__, "a_verb_of_speech_is_named_with_its_place")
)
def test_a_verb_of_speech_is_named_with_its_place(
    tmp_path: Path, text: str, line: int, name: str
) -> None:
    (tmp_path / "a.py").write_text(text)
    assert spoken(tmp_path, [tmp_path / "a.py"]) == [f"a.py:{line}: {name}"]


def test_names_of_other_things_are_fine(tmp_path: Path) -> None:
    text = "foundation = one_line = looks = unseen = take_snapshot = oneself = 1\n"
    (tmp_path / "a.py").write_text(text)
    assert spoken(tmp_path, [tmp_path / "a.py"]) == []


def test_a_class_that_two_files_have_is_named_with_both(tmp_path: Path) -> None:
    paths = [tmp_path / "a.py", tmp_path / "b.py"]
    for path in paths:
        path.write_text("class Place:\n    pass\n")
    assert doubled(tmp_path, paths) == ["Place: a.py:1, b.py:1"]
