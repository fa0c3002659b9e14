"""A mailbox followed: which series are whole, which are wanted, and what is remembered."""

import bz2
import gzip
import json
import lzma
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from errors import InfraError, UsageError
from experiment.spec import SeriesSpec
from kernels.intake import take_in
from kernels.mail import Mail
from queues import watch as watching
from queues.mailboxes import MailBatch, mailbox_of
from queues.store import QueueEntry, QueueStore
from queues.watch import PollReport, Selection, Watch, read_posted
from results import door
from runs.request import Request
from tests.kernels.fake import keep
from tests.kernels.posting import UNREADABLE, Post, mbox, reply
from tests.queues.archive import DAY, NOW, MailArchive, diff, git, patch, series
from tests.values import but
from verbs.queue import lines_of


class WatchedQueue:
    """A queue, and an archive of mails that it follows."""

    def __init__(self, folder: Path) -> None:
        self.store = QueueStore(folder / "queue")
        self.archive = MailArchive(folder / "linux-mm")
        self.add = self.archive.add

    def poll(self, *paths: str, place: Path | None = None, **more: Any) -> PollReport:
        now = more.pop("now", NOW)
        place = place or self.archive.folder
        selection = Selection(Request(automatic=True), paths, **{"days": 14.0, **more})
        return Watch(self.store, place, selection).poll(mailbox_of(place), now)

    @property
    def waiting(self) -> list[QueueEntry]:
        return [entry for entry in self.store.read().entries if entry.state == "waiting"]

    @property
    def titles(self) -> list[str]:
        return [f"v{entry.version} {entry.title}" for entry in self.waiting]


@pytest.fixture
def box(tmp_path: Path) -> WatchedQueue:
    return WatchedQueue(tmp_path)


def test_a_whole_series_is_queued_with_its_mails(box: WatchedQueue, tmp_path: Path) -> None:
    posts = series("a", 2)
    box.add([posts[2], posts[0], reply(posts[1], "Nice"), posts[1]])
    result = box.poll("mm/")
    assert len(result.queued) == 1
    (entry,) = box.waiting
    assert (entry.title, entry.version) == ("mm: make it fast", 1)
    assert entry.author == "Ada L <ada@example.org>"
    # What intake makes of it is the series, in its order.
    spec = keep(SeriesSpec(path=str(box.store.mails(entry))), checkout=tmp_path, cache=tmp_path)
    (record,) = take_in(spec, checkout=tmp_path, cache=tmp_path).records
    assert [each.subject for each in record.patches] == ["mm: step 1 of a", "mm: step 2 of a"]
    assert record.title == "mm: make it fast"
    assert (result.waiting, result.left_out, result.mails) == ([], [], 4)


def test_what_was_read_is_not_read_again(box: WatchedQueue) -> None:
    box.add(series("a", 1))
    assert len(box.poll().queued) == 1
    again = box.poll()
    assert (again.mails, again.queued) == (0, [])
    box.add(series("b", 1, title="mm: another"))
    later = box.poll()
    assert later.mails == 2
    assert box.titles == ["v1 mm: make it fast", "v1 mm: another"]


def test_an_incomplete_series_waits_until_it_is_whole(box: WatchedQueue) -> None:
    posts = series("a", 4)
    box.add([*posts[:3], posts[4]])
    result = box.poll()
    assert result.queued == []
    assert result.waiting == ['v1 of "mm: make it fast" (Ada L <ada@example.org>): 3/4 missing']
    assert box.poll(now=NOW + DAY).waiting == result.waiting
    box.add([posts[3]], at=NOW + DAY)
    assert len(box.poll(now=NOW + 2 * DAY).queued) == 1
    (entry,) = box.waiting
    assert box.store.mails(entry).read_bytes().count(b"\nSubject: [PATCH ") == 5


def test_one_that_stays_incomplete_is_given_up(box: WatchedQueue) -> None:
    posts = series("a", 2)
    box.add(posts[:2])
    box.poll(days=3)
    result = box.poll(now=NOW + 4 * DAY, days=3)
    assert result.given_up == [
        'v1 of "mm: make it fast" (Ada L <ada@example.org>): 1 of 2 patches missing (3 days)'
    ]
    assert result.waiting == []
    assert not list((box.store.folder / "watch").glob("*/*.eml"))


def test_several_epochs_and_a_new_one(box: WatchedQueue) -> None:
    posts = series("a", 2)
    box.add(posts[:2], epoch=0)
    box.add([posts[2]], epoch=1)
    box.archive.epoch(2)  # made, and empty
    assert len(box.poll().queued) == 1
    box.add(series("b", 1, title="mm: in a new epoch"), epoch=10)
    box.add(series("c", 1, title="mm: in an old one"), epoch=1)
    assert len(box.poll().queued) == 2
    assert len(box.waiting) == 3


@pytest.mark.parametrize("below", ["", "git", "git/0.git"])
def test_an_archive_may_be_named_in_three_ways(box: WatchedQueue, below: str) -> None:
    box.add(series("a", 1))
    assert len(box.poll(place=box.archive.folder / below).queued) == 1


def test_a_first_look_goes_back_so_many_days(box: WatchedQueue) -> None:
    box.add(series("old", 1, title="mm: old"), at=NOW - 20 * DAY)
    box.add(series("new", 1, title="mm: new"), at=NOW - 5 * DAY)
    box.poll()
    assert box.titles == ["v1 mm: new"]
    # Later looks take whatever is new, however long nobody looked.
    box.add(series("late", 1, title="mm: late"), at=NOW + DAY)
    box.poll(now=NOW + 40 * DAY)
    assert box.titles == ["v1 mm: new", "v1 mm: late"]


def test_only_what_touches_the_paths(box: WatchedQueue) -> None:
    for number, file in enumerate(("mm/slub.c", "mm2/x.c", "fs/xfs/xfs_file.c", "net/tcp.c")):
        box.add(series(f"s{number}", 1, title=file, file=file))
    result = box.poll("mm", "fs/*/xfs_f*.c")
    assert box.titles == ["v1 mm/slub.c", "v1 fs/xfs/xfs_file.c"]
    assert result.elsewhere == 2
    assert box.poll().elsewhere == 0


def test_a_deep_thread_whose_mails_say_only_what_they_answer(box: WatchedQueue) -> None:
    posts = [
        patch(f"[PATCH {n}/3] mm: deep {n}", f"d{n}", answers=[f"d{n - 1}"] if n > 1 else [])
        for n in (1, 2, 3)
    ]
    plain = [Post(tuple(h for h in p.headers if h[0] != "References"), p.body) for p in posts]
    box.add([plain[2], plain[0]])
    assert box.poll().queued == []
    box.add([plain[1]])
    box.poll()
    assert box.titles == ["v1 mm: deep 1"]


def test_replies_and_other_mails_are_no_series(box: WatchedQueue) -> None:
    (mail,) = series("a", 1, cover=False)
    quoting = patch(f"Re: {mail.header('Subject')}", "r1", answers=["a-1"])
    robot = patch("[linux-next:master] [mm] 0123456789: regression", "r2")
    pull = patch("[GIT PULL] MM updates", "r3", body="The following changes\n")
    bare = patch("mm: a diff and no tag", "r4")
    box.add([quoting, robot, pull, bare])
    result = box.poll()
    assert (result.queued, result.waiting, result.left_out) == ([], [], [])


def test_each_version_of_a_series_is_an_entry_whoever_sends_it(box: WatchedQueue) -> None:
    box.add(series("a2", 1, version=2))
    box.poll()
    box.add(series("a", 1))
    box.add(series("b99", 1, version=99, sender="Ada L <eve@example.org>"))
    box.add(series("again", 1, version=2, tag="PATCH RESEND"))
    assert len(box.poll().queued) == 3
    assert sorted(entry.version for entry in box.waiting) == [1, 2, 2, 99]


def test_copies_late_covers_and_patches_of_reviewers(box: WatchedQueue) -> None:
    posts = series("a", 2)
    box.add([posts[1], posts[2]])
    assert len(box.poll().queued) == 1
    fix = patch("[PATCH] mm: like this?", "fix", answers=["a-0", "a-2"], sender="R <r@example.org>")
    box.add([posts[0], posts[1], fix])
    result = box.poll()
    assert (result.queued, result.waiting) == ([], [])
    assert result.left_out == [
        'v1 of "mm: like this?" (R <r@example.org>): a patch by itself in the thread of a series'
    ]


def test_a_mail_that_is_taken_out_of_the_archive(box: WatchedQueue) -> None:
    posts = series("a", 2)
    box.add(posts[:2])
    box.poll()
    box.add([posts[1]], name="d")
    box.add([posts[2]])
    result = box.poll()
    assert result.queued == []
    assert "1/2 missing" in result.waiting[0]


def test_rewritten_history_is_noted_and_read_from_where_it_forks(box: WatchedQueue) -> None:
    base = box.add(series("a", 1))
    box.add([patch("[PATCH] mm: purged", "purged")])
    box.add(series("b", 1, title="mm: kept"))
    box.poll()
    assert len(box.waiting) == 3
    box.add(series("b", 1, title="mm: kept"), parent=base)
    box.add(series("c", 1, title="mm: new"))
    result = box.poll()
    assert len(result.notes) == 1
    assert f"mails since commit {base[:12]} are read again" in result.notes[0]
    assert [line.split()[0][:6] for line in result.queued] == ["mm-new"]
    assert box.poll().notes == []


def test_history_without_a_common_commit(box: WatchedQueue) -> None:
    box.add(series("a", 1))
    box.poll()
    repository = box.archive.epoch(0)
    box.add(series("z", 1, title="mm: very old"), parent="", at=NOW - 30 * DAY)
    box.add([*series("a", 1), *series("b", 1, title="mm: other")])
    git(repository, "reflog", "expire", "--expire=now", "--all")
    git(repository, "gc", "-q", "--prune=now")
    result = box.poll()
    assert "nor anything before it; its newest mails are read again" in result.notes[0]
    assert box.titles == ["v1 mm: make it fast", "v1 mm: other"]


def test_a_damaged_archive_is_named(box: WatchedQueue) -> None:
    box.add(series("a", 1))
    shutil.rmtree(box.archive.epoch(0) / "objects")
    (box.archive.epoch(0) / "objects").mkdir()
    with pytest.raises(InfraError, match=r"0\.git: cannot be read"):
        box.poll()


def test_what_the_user_removed_stays_removed(box: WatchedQueue) -> None:
    box.add(series("a", 1))
    box.poll()
    (entry,) = box.waiting
    with box.store.change(entry.id) as entry:
        box.store.save(but(entry, state="removed"))
    shutil.rmtree(box.store.folder / "watch")
    assert box.poll().queued == []
    assert box.waiting == []


def test_killed_between_queueing_and_remembering(
    box: WatchedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.add(series("a", 1))
    box.poll()
    box.add([*series("a2", 1, version=2), *series("b", 3, title="mm: half")[:2]])

    write_below = door.write

    def killed(top: Path, name: str, content: str | bytes) -> None:
        if name == watching.STATE:
            raise KeyboardInterrupt
        write_below(top, name, content)

    with monkeypatch.context() as patched:
        patched.setattr(door, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            box.poll()
    assert sorted(box.titles) == ["v1 mm: make it fast", "v2 mm: make it fast"]
    result = box.poll()
    assert result.mails == 4
    assert sorted(box.titles) == ["v1 mm: make it fast", "v2 mm: make it fast"]
    assert "2/3, 3/3 missing" in result.waiting[0]


def test_one_watch_at_a_time_and_a_state_of_another_version(box: WatchedQueue) -> None:
    box.add(series("a", 1))
    watch = Watch(box.store, box.archive.folder, Selection(Request()))

    def reentered(positions: object, since: float, now: float) -> Iterator[MailBatch]:
        with pytest.raises(UsageError, match="another lab process watches it"):
            box.poll()
        yield MailBatch((), {})

    watch.poll(reentered, NOW)
    (watch.folder / "state.json").write_text('{"schema_version": 1, "mailbox": "x"}')
    with pytest.raises(UsageError, match="another version of the lab"):
        box.poll()


def write(path: Path, content: bytes) -> None:
    """Make a file that nobody has written to for a minute."""
    path.write_bytes(content)
    moment = path.stat().st_mtime - 60
    os.utime(path, (moment, moment))


def test_a_folder_of_mboxes(box: WatchedQueue, tmp_path: Path) -> None:
    folder = tmp_path / "mails"
    folder.mkdir()
    posts = series("a", 2)
    write(folder / "one.mbox", mbox(posts[:2]))
    assert "2/2 missing" in box.poll(place=folder).waiting[0]
    write(folder / "two.eml", posts[2].encoded())
    write(folder / "notes.txt", mbox(series("c", 1)))
    assert len(box.poll(place=folder).queued) == 1
    assert box.poll(place=folder).mails == 0


def test_an_mbox_that_grows_is_read_from_where_it_was(box: WatchedQueue, tmp_path: Path) -> None:
    file = tmp_path / "mm.mbox"
    write(file, mbox(series("a", 1)))
    assert len(box.poll(place=file).queued) == 1
    write(file, file.read_bytes() + mbox(series("b", 1, title="mm: b")))
    result = box.poll(place=file)
    assert (result.mails, len(result.queued)) == (2, 1)
    # Sorted anew, or cut: all of it is read, and nothing queued twice.
    write(file, mbox([*series("c", 1, title="mm: c"), *series("a", 1)]))
    result = box.poll(place=file)
    assert (result.mails, len(result.queued)) == (4, 1)


def test_an_mbox_in_the_middle_of_a_delivery(
    box: WatchedQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mm.mbox"
    whole = mbox(series("a", 1))
    file.write_bytes(whole[:-40])

    def delivered(_: float) -> None:
        file.write_bytes(whole[:-30])

    monkeypatch.setattr("queues.mailboxes.time.sleep", delivered)
    result = box.poll(place=file)
    assert result.queued == []
    assert "is being written; its last mail waits" in result.notes[0]
    write(file, whole)
    assert len(box.poll(place=file).queued) == 1


def test_a_maildir(box: WatchedQueue, tmp_path: Path) -> None:
    folder = tmp_path / "Maildir"
    for name in ("cur", "new", "tmp"):
        (folder / name).mkdir(parents=True)
    posts = series("a", 2)
    (folder / "new" / "1.x").write_bytes(posts[1].encoded())
    (folder / "cur" / "2.x:2,S").write_bytes(posts[0].encoded())
    assert "2/2 missing" in box.poll(place=folder).waiting[0]
    (folder / "new" / "1.x").rename(folder / "cur" / "1.x:2,S")
    (folder / "new" / "3.x").write_bytes(posts[2].encoded())
    result = box.poll(place=folder)
    assert (result.mails, len(result.queued)) == (1, 1)


def test_old_mails_of_files_are_counted_and_left(box: WatchedQueue, tmp_path: Path) -> None:
    file = tmp_path / "mm.mbox"
    posts = series("a", 1)
    ancient = [post.with_header("Date", "Mon, 1 Jan 2024 00:00:00 +0000") for post in posts]
    write(file, mbox(ancient))
    result = box.poll(place=file)
    assert result.notes == ["mm.mbox: 2 mails are older (--days)"]
    assert result.queued == []


@pytest.mark.parametrize("make", ["nothing", "empty", "text"])
def test_what_is_no_mailbox(tmp_path: Path, make: str) -> None:
    place = tmp_path / "place"
    if make != "nothing":
        place.mkdir()
    if make == "text":
        (place / "notes.txt").write_text("x")
    with pytest.raises(UsageError, match=r"no mailbox|no such mailbox"):
        mailbox_of(place)
    with pytest.raises(UsageError, match=r"lore\.kernel\.org/linux-mm: https:// is read by git"):
        mailbox_of(Path("https://lore.kernel.org/linux-mm/"))


HOSTILE_DIFF = diff("../../etc/passwd")


def test_hostile_mails_queue_nothing_and_stop_nobody(box: WatchedQueue) -> None:
    mail = series("x", 1, cover=False)[0]
    raw = mail.encoded()
    nested = b"".join(
        b'Content-Type: multipart/mixed; boundary="b%d"\n\n--b%d\n' % (n, n) for n in range(3000)
    )
    mails: list[Post | bytes] = [
        patch("[PATCH] mm: \x1b[2J\u202eevil ../../x", "../../../tmp/evil", body=HOSTILE_DIFF),
        patch("[PATCH 1/9999] mm: bomb", "bomb"),
        patch("[PATCH 70/3] mm: beyond", "beyond"),
        patch("[PATCH 0/0] mm: none", "none", body="nothing"),
        b"Subject: [PATCH] mm: heads\n" + b"".join(b"X-%d: y\n" % n for n in range(60000)) + raw,
        b"Subject: [PATCH] mm: parts\n" + nested + b"\n" + raw,
        b"Subject: [PATCH] mm: refs\nReferences: " + b"<a@b> " * 30000 + b"\n" + raw,
        b"Subject: [PATCH] mm: loop\nMessage-ID: <l@x>\nReferences: <l@x> <m@x>\n\n" + raw,
        b"Subject: [PATCH] mm: no id, no sender\n\n" + diff("mm/x.c").encode(),
        b"\xff\xfe\x00\x00",
        b"",
        b"Subject: [PATCH] mm: charset\nContent-Type: text/plain; charset=\xff\n\n" + raw,
        patch("[PATCH 1/2] mm: place", "p1"),
        patch("[PATCH 1/2] mm: same place", "p2", answers=["p1"]),
        *series("good", 2, title="mm: good"),
    ]
    box.add(mails)
    result = box.poll("mm/")
    text = "\n".join([*result.left_out, *result.waiting, *result.queued])
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "names a path outside the kernel tree" in text
    assert "1/9999: mm: bomb: no such place" in text
    assert "70/3: mm: beyond: no such place" in text
    assert '"[PATCH] mm: heads": has a header of more than 256 KiB' in text
    assert "v1 mm: good" in box.titles
    assert not any("evil" in entry.id or "bomb" in entry.id for entry in box.waiting)
    # Nothing was written but below the queue, by names of the lab's own making.
    assert {path.name for path in box.store.folder.parent.iterdir()} == {"queue", "linux-mm"}
    for path in box.store.folder.rglob("*"):
        assert ".." not in path.name
        assert path.resolve().is_relative_to(box.store.folder.resolve())
    assert box.poll().mails == 0


def test_a_huge_mail_is_left_out(box: WatchedQueue) -> None:
    box.add([b"Subject: [PATCH] mm: huge\n\n" + b"x" * (33 << 20), *series("a", 1)])
    result = box.poll()
    commit = git(box.archive.epoch(0), "rev-list", "--max-parents=0", "master")[:12]
    assert len(result.left_out) == 1
    assert result.left_out[0].startswith(f"0.git {commit}: ")
    assert result.left_out[0].endswith(": has more than 32 MiB")
    assert len(result.queued) == 1


def put(kind: str, folder: Path, mails: list[bytes]) -> Path:
    """A mailbox of this kind, new or with these mails after what it has."""
    if kind == "archive":
        MailArchive(folder).add(mails)
    elif kind == "maildir":
        for name in ("cur", "new", "tmp"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for mail in mails:
            count = len(list((folder / "new").iterdir()))
            (folder / "new" / f"{count}.x").write_bytes(mail)
    else:
        more = b"".join(b"From a@b Thu Jan  1 00:00:00 1970\n" + mail + b"\n" for mail in mails)
        write(folder, (folder.read_bytes() if folder.exists() else b"") + more)
    return folder


@pytest.mark.parametrize("kind", ["archive", "maildir", "mbox"])
def test_a_mail_that_cannot_be_read_is_named_and_the_ones_after_it_are_read(
    box: WatchedQueue, tmp_path: Path, kind: str
) -> None:
    (before,) = series("before", 1, cover=False, title="mm: before")
    posts = series("after", 2, title="mm: after")
    mails = [before.encoded(), *UNREADABLE.values(), *(post.encoded() for post in posts)]
    place = put(kind, tmp_path / "box", mails)
    result = box.poll("mm/", place=place)
    assert box.titles == ["v1 mm: step 1 of before", "v1 mm: after"]
    assert len(result.left_out) == len(UNREADABLE)
    for name in UNREADABLE:
        words = f"<{name}@example.org>", f"mm: {name}"
        assert sum(any(each in line for each in words) for line in result.left_out) == 1
    # It is on record, and the mailbox is past it.
    watch = Watch(box.store, place, Selection(Request()))
    state = watching.State.model_validate_json((watch.folder / "state.json").read_bytes())
    assert [each.what for each in state.left_out] == result.left_out
    assert {each.at for each in state.left_out} == {NOW}
    again = box.poll("mm/", place=place)
    assert (again.mails, again.left_out) == (0, [])
    put(kind, place, [post.encoded() for post in series("new", 1, cover=False, title="mm: new")])
    assert len(box.poll("mm/", place=place).queued) == 1


def test_so_much_is_remembered_of_what_was_left_out(
    box: WatchedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "MOST_LEFT_OUT", 2)
    box.add([patch(f"[PATCH 20/1] mm: {n}", f"m{n}") for n in range(3)])
    box.poll()
    box.add([patch("[PATCH 20/1] mm: last", "m4")])
    box.poll()
    state = json.loads(next((box.store.folder / "watch").glob("*/state.json")).read_text())
    assert [each["what"].split()[-8:-6] for each in state["left_out"]] == [
        ["mm:", "2:"],
        ["mm:", "last:"],
    ]


def test_a_mailbox_cannot_fill_the_disk(box: WatchedQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MOST_PENDING", 5)
    box.add([patch(f"[PATCH 1/2] mm: half {n}", f"h{n}") for n in range(9)])
    result = box.poll()
    assert len(result.given_up) == 4
    assert "too many mails wait" in result.given_up[0]
    assert len(list((box.store.folder / "watch").glob("*/*.eml"))) == 5


def test_whatever_one_mail_has_somebody_raise_the_next_is_queued(
    box: WatchedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:

    def raising(raw: bytes) -> Mail:
        if b"step 1 of a" in raw:
            raise RecursionError("brackets")
        return read_posted(raw)

    monkeypatch.setattr(watching, "read_posted", raising)
    box.add(series("a", 1, title="mm: bad"))
    box.add(series("b", 1, title="mm: good"))
    result = box.poll()
    assert box.titles == ["v1 mm: good"]
    assert any("RecursionError: brackets" in line for line in result.left_out)
    assert box.poll().mails == 0


def test_a_patch_that_came_too_late_is_named(box: WatchedQueue) -> None:
    cover, first, second = series("a", 2)
    other = series("forged", 2)[2].with_header("References", "<a-0@example.org>")
    box.add([cover, first, other.with_header("In-Reply-To", "<a-0@example.org>")])
    box.poll()
    box.add([second, first])
    result = box.poll()
    (line,) = result.left_out
    assert "a-2@example.org" in line
    assert line.endswith("its series was whole without it")


def test_of_two_for_one_place_the_one_that_is_dropped_is_named(box: WatchedQueue) -> None:
    cover, first, second = series("a", 2)
    again = first.with_header("Message-ID", "<a-again@example.org>")
    box.add([cover, first, again, second])
    result = box.poll()
    (line,) = result.left_out
    assert "a-again@example.org" in line
    assert "another mail came for its place" in line
    assert result.waiting == []


def test_mails_with_a_diff_that_are_no_posting_are_counted_by_the_reason(box: WatchedQueue) -> None:
    posts = series("a", 1)
    page = patch("[PATCH] mm: html", "h", body="<pre>diff --git a/x b/x</pre>\n")
    box.add(
        [
            *posts,
            reply(posts[1], "Nice"),
            patch("Re: [PATCH] x", "r", answers=["a-1"]),
            patch("+ mm-x.patch added to mm-unstable branch", "m"),
            patch("Re: [PATCH] y", "s"),
            page.with_header("Content-Type", "text/html"),
        ]
    )
    result = box.poll()
    counts = {why: len(names) for why, names in result.unposted.items()}
    assert counts == {"a reply": 2, "no [PATCH] in its subject": 1, "its diff is in HTML only": 1}
    lines = [line for line in lines_of(result, []) if line.startswith("no series")]
    assert lines[0].startswith("no series 2 mails have a diff and no place in a series (a reply): ")
    assert "<r@example.org>; " in lines[0]
    assert box.poll().unposted == {}


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
def test_a_packed_mailbox_is_read_whenever_it_is_another(
    box: WatchedQueue, tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    folder = tmp_path / "mails"
    folder.mkdir()
    file = folder / "t.mbox.gz"
    write(file, pack(mbox(series("a", 2))))
    write(folder / "cut.mbox.gz", pack(mbox(series("c", 2)))[:100])
    result = box.poll(place=folder)
    assert (result.mails, len(result.queued)) == (3, 1)
    assert result.notes[0].startswith("cut.mbox.gz: is damaged and cannot be unpacked")
    assert (box.poll(place=folder).mails, box.poll(place=folder).notes) == (0, [])
    write(file, pack(mbox([*series("a", 2), *series("b", 1, title="mm: b")])))
    assert len(box.poll(place=folder).queued) == 1


@pytest.mark.parametrize("cover", [True, False])
def test_a_series_in_the_thread_of_one_that_is_queued_is_another_one(
    box: WatchedQueue, cover: bool
) -> None:
    box.add(series("a", 2))
    box.poll()
    box.add(series("b", 2 if cover else 3, title="mm: b", under=["a-0"], cover=cover))
    result = box.poll()
    assert (len(result.queued), result.left_out) == (1, [])
