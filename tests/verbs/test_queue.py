"""The queue from the command line: what is flavours, what is told, and what is refused."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import lab
from errors import SeriesError
from host import sandbox
from queues.store import QueueStore
from runs.local import Options
from runs.request import Request
from tests.conftest import Terminal
from tests.kernels.posting import UNREADABLE
from tests.queues.archive import DAY, MailArchive, patch, series
from tests.values import but, data, spaced
from tests.waiting import completed
from verbs import invocation
from verbs import session as actions
from verbs.options import Booting

LAB = Path(lab.__file__).resolve()
WALKS = LAB.parent / "configs/series/filemap-walks"


@pytest.fixture
def main(main: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Terminal:
    """The program from an empty folder."""
    # What no workload is known for is built to see what it changes: minutes, of a real kernel.
    monkeypatch.setattr(invocation, "build_judged", lambda *_: None)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return main


@pytest.fixture
def archive(tmp_path: Path) -> MailArchive:
    return MailArchive(tmp_path / "linux-mm")


def recently() -> float:
    return time.time() - DAY


def sound(*names: str) -> None:
    """Patches that can be queued."""
    for name in names:
        Path(name).write_text(
            "From: a <a@b>\nSubject: [PATCH] mm: x\n\n--- a/mm/filemap.c\n+++ b/mm/filemap.c\n"
            "@@ -1 +1 @@\n-x\n+y\n"
        )


def evil() -> None:
    """The same files later: a patch that is refused before anything is built."""
    Path("evil.patch").write_text(
        "From: a <a@b>\nSubject: [PATCH] mm: x\n\n--- /dev/null\n+++ b/../x\n@@ -0,0 +1 @@\n+x\n"
    )
    Path("tcp.patch").write_text("--- a/net/tcp.c\n+++ b/net/tcp.c\n@@ -1 +1 @@\n-x\n+y\n")


def test_from_adding_to_the_page(main: Terminal) -> None:
    sound("evil.patch", "tcp.patch")
    assert main("queue", "add", "evil.patch", "tcp.patch", "--auto", "--queue", "q") == 0
    ids = [line.split()[0] for line in main.out.splitlines()]
    assert [each.rpartition("-")[0] for each in ids] == ["evil", "tcp"]
    assert main("queue", "add", "tcp.patch", "--auto", "--priority", "1", "--queue", "q") == 0
    assert "is queued already, now with priority 1" in main.out
    evil()
    assert main("queue", "list", "--queue", "q", "--json") == 0
    assert [entry["id"] for entry in json.loads(main.out)] == ids[::-1]
    assert main("queue", "run", "--queue", "q") == 0
    assert main.out == f"{Path.cwd() / 'q' / 'index.html'}\n"
    assert main.err.index("tcp") < main.err.index("evil")
    assert main("queue", "list", "--queue", "q") == 0
    lines = main.out.splitlines()
    assert "no workload is known for net/tcp.c" in lines[0]
    assert lines[1].startswith("series failed")
    assert "names a path outside the kernel tree" in lines[1]
    page = Path("q/index.html").read_text()
    assert "1 series failed, 1 usage error" in page


def test_remove_and_retry(main: Terminal) -> None:
    sound("evil.patch")
    main("queue", "add", "evil.patch", "--queue", "q")
    evil()
    assert main("queue", "remove", "evil", "--queue", "q") == 0
    assert main("queue", "run", "--queue", "q") == 0
    assert "begins" not in main.err
    assert main("queue", "list", "--queue", "q") == 0
    assert main.err.endswith("the queue is empty\n")
    assert main("queue", "list", "--all", "--queue", "q") == 0
    assert main.out.startswith("removed ")
    assert main("queue", "retry", "evil", "--queue", "q") == 0
    assert main("queue", "run", "--queue", "q", "--limit", "1") == 0
    assert "goes on" not in main.err
    assert main("queue", "retry", "evil", "--queue", "q") == 0
    assert "session evil-" in main.out


def test_what_is_queued_is_taken_in_first(main: Terminal) -> None:
    sound("x.patch")
    evil()
    assert main("queue", "add", "x.patch", "--queue", "q") == 0, main.err
    lines = main.err.splitlines()
    assert lines[0] == 'series: "mm: x", by a <a@b>'
    assert "  changes mm/filemap.c" in lines
    assert max(map(len, lines)) <= 80
    # Whatever is wrong with it is said now, and nothing is queued.
    assert main("queue", "add", "x.patch", "evil.patch", "--queue", "r") == 4
    assert main("queue", "add", "https://forge.example/o/r/8.patch", "--queue", "r") == 2
    assert "only archives of mails are fetched" in main.err
    assert not Path("r").exists()


@pytest.mark.parametrize(("arguments", "message"), data(__file__, "mistakes_of_the_user"))
def test_mistakes_of_the_user(main: Terminal, arguments: str, message: str) -> None:
    Path("thesis.txt").write_text("mine")
    QueueStore(Path("q")).create()
    assert main(*arguments.split()) == 2
    assert main.out == ""
    assert message in main.err
    assert "Traceback" not in main.err
    assert {path.name for path in Path.cwd().iterdir()} <= {"thesis.txt", "q"}


def test_watch_prints_what_it_queued_and_takes_paths_in_two_ways(
    main: Terminal, archive: MailArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.add(
        [
            *series("a", 2),
            *series("b", 1, title="fs: b", file="fs/b.c"),
            *series("c", 1, title="net: c", file="net/c.c"),
            *series("d", 2, title="mm: d")[:2],
        ],
        at=recently(),
    )
    at = ("watch", str(archive.folder), "--queue", "q", "--once", "--priority", "2")
    assert main(*at, "--set", "guest=smoke", "--paths", "mm/", "fs/") == 0
    assert [line.split()[0] for line in main.out.splitlines()] == [
        *spaced("queued queued waits ignored")
    ]
    assert "2/2 missing" in main.out
    assert main.err == "9 new mails; 2 series queued, 1 incomplete\n"
    entries = QueueStore(Path("q")).read().entries
    assert [entry.title for entry in entries] == ["mm: make it fast", "fs: b"]
    for entry in entries:
        assert entry.priority == 2
        assert entry.question.automatic
        assert entry.question.overrides == ("guest=smoke",)
        assert entry.origin == str(archive.folder)
    # What no workload is known for is told by the entry's outcome, and nothing is built for it.
    flavours: list[str] = []
    monkeypatch.setattr(
        invocation, "build_judged", lambda usual, *_: flavours.append(usual.flavours[0])
    )
    assert main("queue", "remove", entries[0].id, "--queue", "q") == 0
    assert main("queue", "run", "--queue", "q", "--trust-authors") == 0
    assert "no workload is known for fs/b.c" in main.err
    assert flavours == []


def test_what_came_by_mail_is_built_only_where_its_authors_are_trusted(
    main: Terminal, archive: MailArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "available", lambda: None)
    sound("tcp.patch")
    archive.add(series("b", 1, title="fs: b", file="fs/b.c"), at=recently())
    assert main("watch", archive.folder, "--queue", "q", "--once") == 0
    # A file is the decision of whoever adds it; a message-id or a link is whatever was mailed.
    names = ("tcp.patch", "mid:a@example.org", "https://lore.kernel.org/all/b@example.org/")
    assert main("queue", "add", *names, "--auto", "--queue", "q") == 0
    evil()
    queue = QueueStore(Path("q"))
    mailed = [entry.id for entry in queue.read().entries if entry.is_from_mail]
    assert len(mailed) == 3
    assert main("queue", "run", "--queue", "q") == 2
    shown = main.err
    assert "3 entries came by mail" in shown
    assert "add --trust-authors" in shown
    for entry in queue.read().entries:
        assert f"not built  {entry.id}  " in shown or entry.id not in mailed
        assert (entry.state, entry.tries, entry.began) == ("waiting", 0, "") or (
            entry.id not in mailed and entry.state == "failed"
        )
    # One that was begun where they were trusted is no exception.
    begun = queue.find(mailed[0])
    queue.save(but(begun, state="running"))
    assert main("queue", "run", "--queue", "q") == 2
    assert queue.find(mailed[0]).state == "running"
    for name in mailed[1:]:
        assert main("queue", "remove", name, "--queue", "q") == 0
    assert main("queue", "run", "--queue", "q", "--trust-authors") == 0
    assert "no workload is known for fs/b.c" in queue.find(mailed[0]).message


@pytest.mark.parametrize(
    ("flags", "tool", "boxed"),
    [
        ((), "bwrap", True),
        (("--sandbox",), "bwrap", True),
        (("--trust-authors",), "bwrap", True),
        (("--trust-authors",), None, False),
        (("--trust-authors", "--no-sandbox"), "bwrap", False),
    ],
)
def test_what_came_by_mail_is_built_in_a_sandbox(
    main: Terminal,
    archive: MailArchive,
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[str, ...],
    tool: str | None,
    boxed: bool,
) -> None:
    sandboxes: list[bool | None] = []

    def measure(request: object, options: Options, *_: object, **__: object) -> None:
        sandboxes.append(options.sandbox)
        raise SeriesError("does not build")

    monkeypatch.setattr(sandbox, "available", lambda: tool)
    monkeypatch.setattr(actions, "measure", measure)
    archive.add(series("b", 1, title="fs: b", file="fs/b.c"), at=recently())
    assert main("watch", archive.folder, "--queue", "q", "--once") == 0
    assert main("queue", "run", "--queue", "q", *flags) == 0
    assert sandboxes == [boxed]


@pytest.mark.parametrize("name", [*UNREADABLE][:2])
def test_a_mail_that_cannot_be_read_stops_no_watch_and_is_a_broken_series(
    main: Terminal, archive: MailArchive, name: str
) -> None:
    after = patch("[PATCH] fs: after", "after", file="fs/b.c")
    archive.add([UNREADABLE[name], after], at=recently())
    assert main("watch", archive.folder, "--queue", "q", "--once") == 0
    assert [line.split()[0] for line in main.out.splitlines()] == ["queued", "left"]
    assert name in main.out.splitlines()[1]
    assert main.err == "2 new mails; 1 series queued, 0 incomplete\n"
    Path("thread.mbox").write_bytes(b"From a@b Thu Jan  1 00:00:00 1970\n" + UNREADABLE[name])
    named = ("--series", "thread.mbox", "--workloads", "filemap-4k")
    assert main("plan", *named) == 4
    assert "Traceback" not in main.err
    assert main.err.startswith("error: ")
    assert name in main.err.splitlines()[0]
    assert "next: " in main.err


@pytest.mark.slow
def test_a_watch_killed_again_and_again_loses_nothing_and_queues_nothing_twice(
    archive: MailArchive, tmp_path: Path
) -> None:
    queue = tmp_path / "q"
    argv = [sys.executable, str(LAB), "watch", str(archive.folder), "--queue", str(queue)]
    env = {**os.environ, "TWINBOOT_CACHE": str(tmp_path / "cache")}
    number = 0
    for _ in range(2):
        worker = subprocess.Popen([*argv, "--every", "1"], stdout=subprocess.PIPE, env=env)
        assert worker.stdout is not None
        for _ in range(4):
            posts = series(f"s{number}", 2, title=f"mm: series {number}")
            archive.add(posts[:2], at=recently())
            archive.add(posts[2:], at=recently())
            number += 1
        # As soon as it says something, wherever it is then.
        worker.stdout.readline()
        worker.send_signal(signal.SIGKILL)
        worker.communicate()
        assert worker.returncode == -signal.SIGKILL
    archive.add([patch("[PATCH] mm: last", "last")], at=recently())
    completed([*argv, "--once"], env=env)
    titles = [entry.title for entry in QueueStore(queue).read().entries]
    assert sorted(titles) == sorted([*(f"mm: series {n}" for n in range(number)), "mm: last"])
    again = completed([*argv, "--once"], check=False, env=env)
    assert again.stdout == ""
    assert again.stderr == "0 new mails; 0 series queued, 0 incomplete\n"


def test_a_session_is_requested_as_by_run(
    main: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[dict[str, Any]] = []

    def measured(request: Request, options: Options, where: Booting, **more: Any) -> None:
        calls.append({"request": request, "options": options, "where": where, **more})
        raise SeriesError("does not apply")

    monkeypatch.setattr("verbs.session.measure", measured)
    added = ("queue", "add", str(WALKS), "--reverse", "--set", "blocks=2", "--check")
    assert main(*added, "--queue", "q") == 0
    where = ("--executor", "dask://127.0.0.1:8786", "--store", str(tmp_path / "store"))
    assert main("queue", "run", "--queue", "q", "--guests", "3", *where) == 0
    (call,) = calls
    request, folder = call["request"], call["folder"]
    assert (request.series, request.reverse, request.check) == ((str(WALKS),), True, True)
    assert request.overrides == ("blocks=2",)
    assert "resume" not in call
    assert folder.parent == Path.cwd() / "q" / "sessions"
    assert call["options"].guests_at_once == 3
    assert (call["where"].executor, call["where"].store) == where[1::2]
    # Where a manifest is, the session is finished and nothing else is flavours.
    queue = QueueStore(Path("q"))
    (entry,) = queue.read().entries
    queue.save(but(entry, state="running"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text("{}")
    assert main("queue", "run", "--queue", "q") == 0
    again = calls[1]
    assert (again["request"].is_empty, again["resume"]) == (True, folder)
    assert "folder" not in again
