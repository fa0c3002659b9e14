"""``twinboot loop``: what a save begins, what it ends, and what is said of it."""

import shutil
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from analysis.many import compare_session
from analysis.two_sessions import compare_two
from errors import SeriesError
from experiment.ad_hoc import NoWorkloadError
from reports import sessions
from runs.boots import Reporter
from runs.local import Options
from runs.request import CHECKOUT, Request
from tests.analysis.test_execution import on_record, running
from tests.kernels.fake import FAKE_LINUX, FASTER, GROWN, git
from verbs import saves
from verbs.saves import SAME, Loop, Tree, unexecuted

SOURCE = "mm/filemap.c"
BASE = SimpleNamespace(identity=SimpleNamespace(code_key="base"), symbols=Path())
Pass = Callable[["Played"], None]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A tree as it is committed."""
    monkeypatch.setattr(saves, "INTERVAL_S", 0.01)
    folder = tmp_path / "linux"
    shutil.copytree(FAKE_LINUX, folder)
    git(folder, "init", "-q", "-b", "mainline")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "Linux 6.12")
    return Tree(folder, git(folder, "rev-parse", "HEAD").strip())


@dataclass
class Played(Loop):
    """One whose passes are played: what each was of, and what it does in place of booting."""

    passes: list[Pass] = field(default_factory=list)
    contents: list[str] = field(default_factory=list)

    def measure(self) -> None:
        self.contents.append((self.tree.folder / SOURCE).read_text())
        self.passes.pop(0)(self)


def played(tree: Tree, *passes: Pass) -> Played:
    on = Options(CHECKOUT, tree.folder.parent / "cache")
    return Played(tree, Request(), on, Reporter(), passes=list(passes))


def ends(_: Played) -> None:
    """The user does."""
    raise KeyboardInterrupt


def test_a_save_ends_what_is_under_way_and_begins_anew(tree: Tree) -> None:
    source = tree.folder / SOURCE
    before = source.read_text()

    def saved(loop: Played) -> None:
        GROWN(loop.tree.folder)
        threading.Event().wait()  # for ever, but for the save

    FASTER(tree.folder)
    loop = played(tree, saved, ends)
    # As it is for what a shell begins in the background.
    before_it = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run()
    finally:
        signal.signal(signal.SIGINT, before_it)
    first, second = loop.contents
    assert before != first != second == source.read_text()


def test_an_error_is_a_line_and_the_next_save_is_measured(
    tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    original = (tree.folder / SOURCE).read_text()

    def fails(loop: Played) -> None:
        raise SeriesError("does not build", where=SOURCE)

    def taken_back(loop: Played) -> None:
        (loop.tree.folder / SOURCE).write_text(original)

    FASTER(tree.folder)
    loop = played(tree, fails, taken_back, ends)

    def write_line(text: str) -> None:
        Loop.write_line(loop, text)
        # Not before the line is there: a save ends what is under way, this line too.
        (FASTER if text == SAME else GROWN)(tree.folder)

    loop.write_line = write_line  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        loop.run()
    first, second = capsys.readouterr().out.splitlines()
    assert f"{SOURCE}: does not build; 0 s" in first
    assert SAME in second


def test_a_commit_on_top_is_part_of_what_is_measured(tree: Tree) -> None:
    FASTER(tree.folder)
    git(tree.folder, "commit", "-qam", "mm: faster")
    committed = tree.changes()
    assert b"index >> 5" in committed
    GROWN(tree.folder)
    assert tree.changes() != committed


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions whose code a save changed; nothing is built."""
    names: list[str] = []

    def built(*_: object) -> dict[str, SimpleNamespace]:
        identity = SimpleNamespace(code_key=str(len(built_before)))
        built_before.append(identity)
        return dict.fromkeys(("base",), BASE) | {
            "patched": SimpleNamespace(identity=identity, symbols=Path())
        }

    built_before = [BASE.identity]
    monkeypatch.setattr(saves, "build_arms", built)
    monkeypatch.setattr(
        saves, "changed_functions", lambda *_: [SimpleNamespace(name=name) for name in names]
    )
    return names


def test_the_workload_is_the_one_that_executes_most_of_the_last_save(
    tree: Tree, changed: list[str]
) -> None:
    FASTER(tree.folder)
    loop = played(tree)
    changed[:] = ["filemap_read"]
    request, resolved, _, saved = loop.resolved()
    assert request.source == f"git:{tree.folder}@{tree.start}"
    assert [case.name for case in resolved.experiment.cases] == [request.workloads]
    assert saved == ("filemap_read",)
    # The workload of the last verdict is kept where it executes what the next save changes.
    loop.workloads = "cgroups"
    changed[:] = ["path_openat"]
    assert loop.resolved()[0].workloads == "cgroups"
    changed[:] = ["do_futex"]
    assert loop.resolved()[0].workloads == "syscalls"
    changed[:] = ["build_all_zonelists"]
    with pytest.raises(NoWorkloadError, match="build_all_zonelists"):
        loop.resolved()
    named = played(tree)
    named.request = Request(workloads="memory,syscalls")
    assert len(named.resolved()[1].experiment.cases) == 2


def test_of_a_save_that_no_guest_executed_nothing_is_known() -> None:
    session = running(on_record("xas_load", **{"4k": 0.02}), "xas_load", "4k")
    assert unexecuted(["xas_load.isra.0", "do_futex"], session) == ()
    assert unexecuted(["do_futex"], session) == ("do_futex",)
    compared = compare_session(session)
    line = sessions.line(compared, compare_two(session, session), ("do_futex",))
    assert "; last save not tested: do_futex not executed; " in line
