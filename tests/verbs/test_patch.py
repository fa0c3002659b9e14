"""One line a patch: from sessions that are there, and through the real b4."""

import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lab
from errors import UsageError
from results.coverage import Coverage, Suggestion
from results.record import PatchRecord, SeriesRecord
from runs.coverage import Advice, shipped
from tests.analysis.factory import ExactSession, stored
from tests.kernels.posting import git
from tests.waiting import completed
from verbs.coverage import _command
from verbs.workload import SKELETON, new

CHECKOUT = Path(__file__).resolve().parents[2]
B4 = CHECKOUT / ".venv" / "bin" / "b4"
SOURCE = """#include <linux/fs.h>

int __filemap_add_folio(int folio)
{
\tint error = 0;
\tint walks = 3;

\treturn error + walks;
}
"""
SLOWER = ExactSession(effect={"4k": -0.013, "thp": 0.0, "switch": 0.0})
Main = Callable[..., int]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree whose branch changes a function, a text and a file that no workload is known for."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "cache"))
    (tmp_path / "home").mkdir()
    tree = tmp_path / "linux"
    for file, text in (("mm/filemap.c", SOURCE), ("net/tcp.c", "int tcp;\n")):
        (tree / file).parent.mkdir(parents=True, exist_ok=True)
        (tree / file).write_text(text)
    git(tree, "init", "-q", "-b", "mainline")
    git(tree, "config", "user.name", "A Developer")
    git(tree, "config", "user.email", "a@example.org")
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "Linux 6.12")
    return tree


def commit(tree: Path, file: str, text: str, subject: str) -> None:
    (tree / file).parent.mkdir(parents=True, exist_ok=True)
    (tree / file).write_text(text)
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", f"{subject}\n\nWhy.\n\nSigned-off-by: A <a@example.org>")


def faster(tree: Path) -> None:
    commit(tree, "mm/filemap.c", SOURCE.replace("walks = 3", "walks = 1"), "mm: faster")


def mailed(tree: Path, commit: str = "HEAD") -> str:
    return git(tree, "format-patch", "-1", "--stdout", commit)


def measured(
    folder: Path, patches: list[str], session: ExactSession, *, runs: int | None = None
) -> None:
    """A session whose series has these patches, each with its file."""
    records = []
    for number, text in enumerate(patches, start=1):
        name = f"{number:04d}-x.patch"
        place = folder / "series" / "common" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        records.append(PatchRecord(name=name, subject="x", sha256="0", files=("mm/filemap.c",)))
    series = SeriesRecord(kind="folder", origin="x", title="x", patches=tuple(records))
    stored(folder, session, session.records()[:runs], series=(series,))


@pytest.fixture
def lookup(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str]]]:
    """The verb's exit code and its line for a mail."""
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    before = signal.getsignal(signal.SIGTERM)
    (tmp_path / "s").mkdir()

    def call(text: str, *options: str) -> tuple[int, str]:
        mail = tmp_path / "mail"
        mail.write_text(text)
        code = lab.main(["patch", str(mail), "--sessions", str(tmp_path / "s"), *options])
        shown = capsys.readouterr()
        assert shown.err == ""
        assert len(shown.out.splitlines()) <= 1
        return code, shown.out

    yield call
    signal.signal(signal.SIGTERM, before)


Lookup = Callable[..., tuple[int, str]]


def test_a_patch_that_nobody_measured(tree: Path, lookup: Lookup) -> None:
    faster(tree)
    code, line = lookup(mailed(tree))
    assert code == 0
    assert line.startswith("not measured: changes __filemap_add_folio(); 1 of 1 executed by ")
    commit(tree, "include/linux/huge_mm.h", "#define X 1\n", "mm: x")
    assert "filemap-thp (by name, not by counts)" in lookup(mailed(tree))[1]
    commit(tree, "net/tcp.c", "int tcp = 1;\n", "net: x")
    assert lookup(mailed(tree))[1].startswith(
        "not measured: no workload is known to execute net/tcp.c"
    )
    commit(tree, "Documentation/mm.rst", "x\n", "doc: x")
    assert lookup(mailed(tree)) == (0, "")
    assert "no kernel is affected" in lookup(mailed(tree), "--always")[1]


def test_counts_say_which_functions_a_workload_executes(tree: Path, lookup: Lookup) -> None:
    two = SOURCE.replace("walks = 3", "walks = 1") + "\nint never_called(void)\n{\n}\n"
    commit(tree, "mm/filemap.c", two, "mm: x")
    _, line = lookup(mailed(tree))
    assert "changes __filemap_add_folio(), never_called(); 1 of 2 executed by " in line
    assert f"(counts of {shipped().release})" in line


def test_the_verdict_is_that_of_the_session_that_has_the_patch(
    tree: Path, tmp_path: Path, lookup: Lookup
) -> None:
    faster(tree)
    text = mailed(tree)
    # Elsewhere in the file, and mailed by somebody else: the same change.
    measured(tmp_path / "s" / "slow", [text.replace("@@ -3,", "@@ -903,")], SLOWER)
    code, line = lookup(text)
    assert code == 1
    assert line.startswith("ERROR: regression of filemap-4k 4k.bw -1.")
    assert "(this patch alone, session slow)" in line
    shutil.rmtree(tmp_path / "s")
    other = text.replace("walks = 1", "walks = 2")
    measured(tmp_path / "s" / "other", [other], SLOWER)
    assert lookup(text)[1].startswith("not measured")
    measured(tmp_path / "s" / "good", [other, text], ExactSession())
    assert lookup(text) == (0, "")
    assert "(all 2 patches, session good)" in lookup(text, "--always")[1]
    shutil.rmtree(tmp_path / "s" / "good")
    measured(tmp_path / "s" / "half", [text], ExactSession(), runs=7)
    code, line = lookup(text)
    assert code == 0
    assert line.startswith("no verdict: ")


def test_a_patch_that_leaves_the_tree_is_an_error(lookup: Lookup) -> None:
    code, line = lookup("Subject: [PATCH] x\n\n--- /dev/null\n+++ b/../x\n@@ -0,0 +1 @@\n+x\n")
    assert code == 4
    assert line.startswith("ERROR: the patch: names a path outside the kernel tree: b/../x")


@pytest.mark.slow
def test_b4_prep_check_shows_the_line(tree: Path, tmp_path: Path) -> None:
    """As docs/command-line.md has it: the real b4, its configuration, and the real program."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "twinboot").symlink_to(CHECKOUT / "lab.py")
    path = f"{folder}:{B4.parent}:{os.environ['PATH']}"

    def b4(*words: str) -> str:
        done = completed(
            [str(B4), *words], cwd=tree, env={**os.environ, "PATH": path, "GIT_EDITOR": "true"}
        )
        return done.stdout + done.stderr

    (tmp_path / "s").mkdir()
    command = f"twinboot patch --sessions {tmp_path / 's'}"
    git(tree, "config", "--add", "b4.prep-perpatch-check-cmd", command)
    b4("prep", "-n", "topic", "-f", "mainline")
    faster(tree)
    commit(tree, "Documentation/mm.rst", "x\n", "doc: x")
    lines = b4("prep", "--check").splitlines()
    assert "Success: 1, Warning: 1, Error: 0" in lines
    (line,) = [line for line in lines if "twinboot: " in line]
    assert "not measured: changes __filemap_add_folio()" in line
    measured(tmp_path / "s" / "slow", [mailed(tree, "HEAD~1")], SLOWER)
    # b4 remembers what a command said of a commit.
    lines = b4("prep", "--check", "--no-cache").splitlines()
    assert "Success: 1, Warning: 0, Error: 1" in lines
    (line,) = [line for line in lines if "twinboot: " in line]
    assert "ERROR: regression of filemap-4k 4k.bw -1." in line


def test_another_projects_patch_is_named(lookup: Callable[..., tuple[int, str]]) -> None:
    diff = "--- /dev/null\n+++ b/tests/generic/790\n@@ -0,0 +1 @@\n+x\n"
    code, line = lookup(f"From: A <a@example.org>\nSubject: [PATCH] x\n\n{diff}")
    assert code == 4
    assert line.startswith("ERROR: no path or folder of it is in a kernel's source: tests/generic")


ANSWER = Advice(
    Coverage("deb:linux", "6.12", (), {}),
    Suggestion((), (), (), ()),
    (),
    by_kernels=False,
    chosen=("filemap-4k", "memory"),
)


@pytest.mark.parametrize(
    ("series", "source"),
    [
        (["configs/series/noop"], ""),
        (["/home/me/my patches/v2.mbox", "a;b"], "git:/home/me/linux tree"),
        (["$(reboot)", "HEAD~3..it's"], "dir:&"),
    ],
)
def test_the_command_is_what_was_given(series: list[str], source: str) -> None:
    words = shlex.split(_command(ANSWER, series, source))
    names = [word for name in series for word in ("--series", name)]
    more = ["--source", source] if source else []
    assert words == ["./lab.py", "run", *names, *more, "--workloads", "filemap-4k,memory"]


PLACES = (
    "workloads/catalogue/my-own.toml",
    "workloads/programs/my_own.c",
    "tests/workloads/test_my_own.py",
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what a workload and its test need."""
    for name in ("errors.py", "text.py", "files.py", "pyproject.toml"):
        shutil.copy(CHECKOUT / name, tmp_path)
    for name in ("workloads", "experiment", "results", "configs", "guests", "kernels", "host"):
        shutil.copytree(CHECKOUT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.pyc"))
    (tmp_path / "tests/workloads").mkdir(parents=True)
    return tmp_path


def test_a_new_workload_is_whole(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new("my-own", checkout)
    assert tuple(capsys.readouterr().out.split()) == PLACES
    done = completed(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--noconftest",
            "--rootdir=.",
            "-c",
            os.devnull,
            PLACES[2],
        ],
        cwd=checkout,
    )
    assert "2 passed" in done.stdout
    program = checkout / "program"
    subprocess.run(["gcc", "-Wall", "-Werror", "-o", program, checkout / PLACES[1]], check=True)
    ran = completed([program, "read", "30", "7"])
    assert ran.stdout.startswith('{"operation": "read", "count": 30, "seed": 7, ')


def test_nothing_is_overwritten(checkout: Path) -> None:
    (checkout / PLACES[2]).write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        new("my-own", checkout)
    assert [(checkout / place).exists() for place in PLACES] == [False, False, True]
    assert (checkout / PLACES[2]).read_text() == "mine"


@pytest.mark.parametrize("name", ["", "../x", "Big", "a_b", "1a", "x" * 41])
def test_names_are_those_of_files(checkout: Path, name: str) -> None:
    with pytest.raises(UsageError, match="no name of a workload"):
        new(name, checkout)


def test_the_skeleton_is_all_that_is_written() -> None:
    assert {path.name for path in (CHECKOUT / SKELETON).iterdir()} == {
        "catalogue.toml",
        "program.c",
        "test.py.in",
    }
