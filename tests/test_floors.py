"""No floor looks upward: the imports of every file against the table of docs/architecture.md."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
VAGUE = ("utils.py", "util.py", "helpers.py", "common.py", "misc.py", "manager.py")

FLOORS: dict[str, set[str]] = {
    "experiment": set(),
    "host": set(),
    "results": {"experiment"},
    "kernels": {"experiment", "host", "results"},
    "workloads": {"experiment", "results"},
    "guests": {"experiment", "host", "kernels", "workloads", "results"},
    "runs": {"experiment", "host", "results", "kernels", "workloads", "guests"},
    "fleet": {"experiment", "host", "results", "kernels", "workloads", "guests", "runs"},
    "reports": {"experiment", "results"},
    "history": {"experiment", "results", "reports"},
    "pages": {"experiment", "results", "reports", "history"},
    "queues": {"experiment", "host", "results", "kernels", "runs", "reports", "pages"},
    "verbs": {
        "experiment",
        "host",
        "results",
        "kernels",
        "workloads",
        "guests",
        "runs",
        "fleet",
        "reports",
        "history",
        "pages",
        "queues",
    },
}
# The ground: a module that every floor may import, and that imports none.
GROUND = ("errors.py",)
# The one door to subprocesses.
DOOR = "host/process.py"
DOOR_ONLY = {"subprocess", "multiprocessing", "pty", "popen2"}
DOOR_CALLS = {"system", "popen", "execv", "execve", "execvp", "execvpe", "fork", "forkpty"}
DOOR_CALLS |= {"posix_spawn", "posix_spawnp", "spawnl", "spawnv", "spawnlp", "spawnvp"}


@dataclass
class Tree:
    """A made-up checkout to show that the checker can fail."""

    top: Path
    files: dict[str, str] = field(default_factory=dict)

    def write(self, path: str, text: str) -> None:
        place = self.top / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def imported(source: str) -> Iterator[tuple[int, str]]:
    """Line and top-level name of everything a file imports, wherever in the file.

    A relative import is named by its dots.
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name.partition(".")[0]) for alias in names)
            case ast.ImportFrom(module=module, level=level):
                yield node.lineno, "." * level or str(module).partition(".")[0]
            case ast.Call(
                func=ast.Attribute(attr="import_module" | "__import__")
                | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield node.lineno, module.partition(".")[0]


def os_calls(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of the os functions in a file that start a program."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "os" and node.attr in DOOR_CALLS:
                yield node.lineno, f"os.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from ((node.lineno, f"os.{a.name}") for a in node.names if a.name in DOOR_CALLS)


def problems(top: Path) -> list[str]:
    """Everything in a checkout that breaks the rules, a line each, sorted."""
    found = []
    upper = {path.stem for path in top.glob("*.py") if path.name not in GROUND}
    upper |= {"tests", "setup", "benchmarks"}
    for name in GROUND:
        found += [
            f"{name}:{line}: the ground may not import {module}"
            for line, module in imported((top / name).read_text())
            if module in FLOORS or module in upper
        ]
    for folder, allowed in FLOORS.items():
        for path in sorted((top / folder).rglob("*.py")):
            name = path.relative_to(top).as_posix()
            source = path.read_text()
            if path.name in VAGUE:
                found.append(f"{name}: the name does not say what is in it")
            for line, module in imported(source):
                upward = (module in FLOORS or module in upper) and module not in allowed
                # A relative import hides which folder it reaches into.
                if module.startswith(".") or (upward and module != folder):
                    found.append(f"{name}:{line}: {folder} may not import {module}")
                if module in DOOR_ONLY and name != DOOR:
                    found.append(f"{name}:{line}: only {DOOR} may import {module}")
            if name != DOOR:
                found += [
                    f"{name}:{line}: only {DOOR} may call {call}" for line, call in os_calls(source)
                ]
    return sorted(found)


# Circles of these modules are known and to be opened.
OPEN = ("runs.", "verbs.invocation", "verbs.options")


def modules(top: Path) -> dict[str, set[str]]:
    """Every module of a checkout's folders, with the modules of these that it imports.

    What is imported for types alone counts: a circle is one, whether or not Python runs into it.
    """
    files = {
        path.relative_to(top).with_suffix("").as_posix().replace("/", ".").removesuffix(
            ".__init__"
        ): path
        for folder in FLOORS
        for path in (top / folder).rglob("*.py")
    }  # fmt: skip
    found: dict[str, set[str]] = {}
    for name, path in files.items():
        wanted: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                parts = [f"{node.module}.{alias.name}" for alias in node.names]
                wanted |= {part if part in files else str(node.module) for part in parts}
        found[name] = {each for each in wanted if each in files and each != name}
    return found


def circles(imports: dict[str, set[str]]) -> list[str]:
    """Modules that import themselves by way of others."""
    return sorted(name for name in imports if name in reached(imports, name))


def reached(imports: dict[str, set[str]], start: str) -> set[str]:
    """Everything that a module imports, at once or by way of others."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = imports[waiting.pop()] - found
        found |= new
        waiting += new
    return found


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.write("lab.py", "import runs.session\n")
    tree.write("errors.py", "import enum\n")
    tree.write("host/process.py", "import subprocess\nimport os\nos.execv\n")
    tree.write(
        "runs/session.py", "import os\nfrom kernels import build\nfrom host import process\n"
    )
    tree.write("kernels/build.py", "import json\nfrom kernels.make import x\n")
    tree.write("kernels/make.py", "from results.record import KernelIdentity\n")
    return tree


def test_this_checkout_keeps_to_its_floors() -> None:
    assert problems(CHECKOUT) == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    found = [name for name in circles(modules(CHECKOUT)) if not name.startswith(OPEN)]
    assert found == []


def test_a_circle_is_found_wherever_the_import_stands(tree: Tree) -> None:
    assert circles(modules(tree.top)) == []
    tree.write("kernels/make.py", "def f():\n    from kernels import build\n")
    assert circles(modules(tree.top)) == ["kernels.build", "kernels.make"]


def test_every_folder_with_code_has_a_floor() -> None:
    outside = {"tests", "setup", "docs", "configs", "sessions", "benchmarks"}
    folders = {
        path.parent.name for path in CHECKOUT.glob("*/*.py") if not path.parent.name.startswith(".")
    }
    assert folders - outside <= set(FLOORS)


def test_the_table_itself_only_looks_down() -> None:
    order: list[str] = []
    waiting = dict(FLOORS)
    while waiting:
        ready = [name for name, below in waiting.items() if below <= set(order)]
        assert ready, f"these floors stand on each other: {sorted(waiting)}"
        order += ready
        for name in ready:
            del waiting[name]


def test_a_sound_tree_has_no_problems(tree: Tree) -> None:
    assert problems(tree.top) == []


@pytest.mark.parametrize(
    ("path", "source", "said"),
    [
        ("host/x.py", "from kernels.build import a", "host may not import kernels"),
        ("host/x.py", "import results", "host may not import results"),
        ("experiment/x.py", "import host.facts as f", "experiment may not import host"),
        ("reports/charts/x.py", "from runs import a", "reports may not import runs"),
        ("reports/x.py", "def f():\n    import host.process", "reports may not import host"),
        ("workloads/x.py", "from host import process", "workloads may not import host"),
        ("kernels/x.py", "import lab", "kernels may not import lab"),
        ("runs/x.py", "from tests.runs import fake", "runs may not import tests"),
        ("results/x.py", "from ..runs import a", "results may not import .."),
        ("results/x.py", "import_module('guests.exact')", "results may not import guests"),
        ("guests/x.py", "import subprocess", "only host/process.py may import subprocess"),
        ("errors.py", "from host import process", "the ground may not import host"),
        ("experiment/x.py", "from errors import LabError", ""),
        ("lab.py", "", ""),
        ("runs/x.py", "import os\nos.system('true')", "only host/process.py may call os.system"),
        ("runs/x.py", "from os import execv", "only host/process.py may call os.execv"),
        ("runs/utils.py", "", "the name does not say what is in it"),
    ],
)
def test_the_checker_can_fail(tree: Tree, path: str, source: str, said: str) -> None:
    tree.write(path, source)
    found = problems(tree.top)
    if not said:
        assert found == []
        return
    assert len(found) == 1
    assert found[0].startswith(path + ":")
    assert said in found[0]
