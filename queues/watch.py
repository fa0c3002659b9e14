"""Follow a mailbox: queue every new, complete series that touches the given paths.

What a watch knows is in ``QUEUE/watch/NAME/``: where it is in the mailbox, the mails of
series that are not whole yet, and the series it has seen.  Mails are kept before what is made
of them, entries before the state that says so, and both have names of what they hold: killed
at any moment, the next look does the rest, and nothing is queued twice.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, TypeAlias

from filelock import FileLock, Timeout
from pydantic import Field, ValidationError

from errors import SeriesError, UsageError
from kernels.b4 import attested
from kernels.diff import of_kernel, read_diff
from kernels.mail import Mail, diff_of, name_of, read_mail, reading, slug
from kernels.series import LARGEST, host_code
from kernels.threads import MOST_PATCHES, Group, groups_of
from queues import known_series, page
from queues.entry import QueueEntry
from queues.known_series import KnownSeries
from queues.mailboxes import ENDINGS, Arrival, Mailbox, Maildir, MboxFiles, PublicInbox, epochs
from queues.store import MAILS, WATCH, QueueStore, stamp
from results import door
from results.door import StoreError
from results.record import Record
from runs.request import Request
from text import clean

LARGEST_HEAD = 1 << 18
# Patches that are sent after a series, as [PATCH 3/2].
MOST_BESIDE = 9


def read_posted(raw: bytes) -> Mail:
    """A mail that came by; ``Mail.is_posted`` says whether it is a member of a series.

    Raises:
        SeriesError: too large, with a header too large, of too many patches, or it cannot
            be read.
    """
    with reading(raw):
        if len(raw) > LARGEST:
            raise SeriesError(f"has more than {LARGEST >> 20} MiB", where=name_of(raw))
        head = re.split(rb"\r?\n\r?\n", raw[: LARGEST_HEAD + 4], maxsplit=1)[0]
        if len(head) > LARGEST_HEAD:
            what = f"has a header of more than {LARGEST_HEAD >> 10} KiB"
            raise SeriesError(what, where=name_of(raw))
        mail = read_mail(raw)
        if mail.is_posted and not (
            0 < mail.total <= MOST_PATCHES and mail.number <= mail.total + MOST_BESIDE
        ):
            what = f"{mail.place}: {mail.subject}: no such place in a series"
            raise SeriesError(what, where=name_of(raw))
        return mail


def why_not_posted(mail: Mail) -> str:
    """Why a mail that has a diff is no member of a series; nothing where it has none."""
    if mail.has_diff:
        return "a reply" if mail.is_reply else "no [PATCH] in its subject"
    if any(b"diff --git " in raw for raw in mail.enclosed):
        return "a mail that encloses others"
    return mail.unread


def touches(files: Iterable[str], paths: Sequence[str]) -> bool:
    """Whether a file is one of ``paths`` (folders, files, patterns), or none are named.

    "*" stands for any characters, "/" too.
    """
    return not paths or any(fits(file, path) for file in files for path in paths)


def fits(file: str, path: str) -> bool:
    """Whether a file is ``path``, lies below it, or is of that pattern."""
    if any(character in path for character in "*?["):
        return fnmatchcase(file, path)
    folder = path.rstrip("/")
    return file == folder or file.startswith(f"{folder}/")


STATE, MAIL = "state.json", ".eml"
DAY_S = 86400.0
# Beyond these the oldest are given up: a mailbox must not fill the disk.
MOST_PENDING = 20_000
MOST_PENDING_BYTES = 1 << 30
MOST_LEFT_OUT = 1000
POSTMARK = b"From twinboot@z Thu Jan  1 00:00:00 1970\n"


class LeftOut(Record):
    """What a watch left out and why, in the words of its output; ``at`` in seconds since 1970."""

    at: float
    what: str


class State(Record):
    """Where a watch is; ``pending`` has the mails kept, by hash, and when each came.

    ``left_out`` has the newest ``MOST_LEFT_OUT``, the newest last.
    """

    schema_version: Literal[1] = 1
    mailbox: str
    positions: dict[str, str] = Field(default_factory=dict)
    pending: dict[str, float] = Field(default_factory=dict)
    seen: tuple[KnownSeries, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


# Raw mails and their sender's address to what vouches for it, or nothing.
Attest: TypeAlias = Callable[[Sequence[bytes], str], str]


@dataclass(frozen=True)
class Selection:
    """What is to be queued and how: ``paths`` empty takes every series.

    After ``days`` a series that is not whole is given up; a first look goes as far back.
    """

    request: Request
    paths: tuple[str, ...] = ()
    priority: int = 0
    days: float = 14.0


@dataclass
class PollReport:
    """What one look found, a line each.

    ``unposted`` has mails with a diff that are members of no series, by the reason.
    """

    queued: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unposted: dict[str, list[str]] = field(default_factory=dict)
    elsewhere: int = 0
    mails: int = 0


def mailbox_of(place: Path) -> Mailbox:
    """The mailbox at a place: an archive, a maildir, an mbox or a folder of them.

    Raises:
        UsageError: none of these.
    """
    if place.is_file():
        return MboxFiles(place)
    if place.is_dir():
        if epochs(place):
            return PublicInbox(place)
        if (place / "cur").is_dir() and (place / "new").is_dir():
            return Maildir(place)
        if any(path.name.endswith(ENDINGS) for path in place.iterdir()):
            return MboxFiles(place)
    raise UsageError(
        "no mailbox" if place.exists() else "no such mailbox",
        where=clean(str(place)),
        next_step="name a public-inbox archive (N.git, format v2), a maildir, an mbox or a folder "
        f"of files that end in {', '.join(ENDINGS[:3])}, packed or not",
    )


class Watch:
    """One mailbox followed for one queue."""

    def __init__(
        self, store: QueueStore, place: Path, selection: Selection, attest: Attest = attested
    ) -> None:
        self.store = store
        self.attest = attest
        self.selection = selection
        self.place = place.absolute()
        name = hashlib.sha256(str(self.place).encode(errors="surrogateescape")).hexdigest()[:8]
        self.name = f"{WATCH}/{slug(self.place.name).lower()}-{name}"
        self.folder = store.folder / self.name

    def poll(self, mailbox: Mailbox, now: float) -> PollReport:
        """Read what is new, queue what is whole, and remember.

        Raises:
            UsageError: another process looks, or the state is of another version of the lab.
            InfraError: the mailbox cannot be read; what came before is queued.
        """
        self.store.create()
        door.make_folder(self.store.folder, self.name)
        try:
            with FileLock(self.folder / ".lock", timeout=0):
                return _Poll(self, now).run(mailbox)
        except Timeout:
            raise UsageError(
                "another lab process watches it for this queue", where=str(self.place)
            ) from None


class _Poll:
    """One look, under the watch's lock."""

    def __init__(self, watch: Watch, now: float) -> None:
        self.watch, self.selection, self.now = watch, watch.selection, now
        self.store, self.folder = watch.store, watch.folder
        self.report = PollReport()
        self.recorded = 0  # of what was left out
        self.state = self._load()
        self.posts: dict[str, Mail] = {}
        self.came: dict[str, float] = {}
        self.series = {series.key: series for series in self.state.seen}
        self.known = known_series.by_id(self.series.values())
        for stem in self._kept():
            post = self._posted(stem) if stem in self.state.pending else None
            if post is None:  # kept, and then killed: it is read again
                door.remove(self.folder, f"{stem}{MAIL}")
            else:
                self.posts[post.id] = post
                self.came[post.id] = self.state.pending[stem]

    def run(self, mailbox: Mailbox) -> PollReport:
        since = self.now - self.selection.days * DAY_S
        for batch in mailbox.new(self.state.positions, since=since, now=self.now):
            self.report.notes += batch.notes
            for arrival in batch.arrivals:
                self._receive(arrival)
            self._queue_whole()
            self._save(dict(batch.positions))
        self._queue_whole()
        self._give_up(since)
        self._save(self.state.positions)
        for group in self._groups():
            numbers = ", ".join(f"{number}/{group.total}" for number in group.missing[:5])
            more = f" and {len(group.missing) - 5} more" if len(group.missing) > 5 else ""
            self.report.waiting.append(f"{group.words}: {numbers or 'nothing'}{more} missing")
        if self.report.queued or self.report.replaced:
            page.write(self.store)
        return self.report

    def _load(self) -> State:
        path = self.folder / STATE
        try:
            return State.model_validate_json(door.read(self.folder, STATE, 256 * door.MIB))
        except FileNotFoundError:
            return State(mailbox=str(self.watch.place))
        except ValidationError:
            raise UsageError(
                "is damaged or of another version of the lab", where=str(path),
                next_step=f"remove {self.folder}: the newest mails are read again, and no series "
                "that is in the queue is queued again",
            ) from None  # fmt: skip

    def _receive(self, arrival: Arrival) -> None:
        self.report.mails += 1
        try:
            post = read_posted(arrival.raw)
        except Exception as error:  # one mail, whatever it is that it has somebody raise
            self.report.left_out.append(f"{arrival.place}: {_why(error)}")
            return
        if not post.is_posted:
            if not arrival.deleted and (why := why_not_posted(post)):
                name = f'"{post.subject}" ({post.poster}), {arrival.place}, <{post.message_id}>'
                self.report.unposted.setdefault(why, []).append(clean(name))
        elif arrival.deleted:
            self._drop(post)
        elif known_series.is_late(post, self.known):
            if post.number and not known_series.is_copy(post, self.known):
                self._dropped(post, "its series was whole without it")
        else:
            there = self.posts.get(post.id)
            if there is not None and diff_of(there.text) != diff_of(post.text):
                self._dropped(post, "another mail with its message-id came before it")
                return
            door.write(self.folder, f"{post.id}{MAIL}", post.raw)
            self.came[post.id] = min(arrival.at, self.came.get(post.id, arrival.at))
            self.posts.setdefault(post.id, post)

    def _dropped(self, mail: Mail, why: str) -> None:
        words = f'{mail.place}: "{mail.subject}" ({mail.poster}), {mail.message_id}'
        self.report.left_out.append(f"{clean(words)}: {why}")

    def _drop(self, post: Mail) -> None:
        self.posts.pop(post.id, None)
        self.came.pop(post.id, None)

    def _groups(self) -> tuple[Group, ...]:
        return groups_of(self.posts.values())

    def _queue_whole(self) -> None:
        groups = self._groups()
        for group in groups:
            if not group.missing:
                self._whole(group, groups)
                for post in group.others:
                    self._dropped(post, "another mail came for its place in the series")
                for post in (*group.ordered, *group.others):
                    self._drop(post)

    def _whole(self, group: Group, groups: tuple[Group, ...]) -> None:
        """A series that is whole: queue it, or say why not; it is never looked at again."""
        new = known_series.known_of(group, self.now)
        try:
            files = {file for post in group.patches for file in _files(post)}
            if group.conflict:
                self.report.left_out.append(f"{group.words}: {group.conflict}")
            elif not touches(files, self.selection.paths):
                self.report.elsewhere += 1
            elif not of_kernel(tuple(files)):
                names = clean(", ".join(sorted(files)))
                why = f"no path or folder of it is in a kernel's source: {names}"
                self.report.left_out.append(f"{group.words}: {why}")
            elif aside := known_series.aside(
                group, new := self._attested(group, new), groups, self.series.values()
            ):
                self.report.left_out.append(f"{group.words}: {aside}")
            else:
                new = new.model_copy(update={"entry": self._queue(group, new)})
        except (OSError, StoreError):
            raise
        except Exception as error:  # as for a mail
            self.report.left_out.append(f"{group.words}: {_why(error)}")
        self.series[new.key] = new
        for each, series in known_series.by_id([new]).items():
            self.known.setdefault(each, []).extend(series)

    def _attested(self, group: Group, new: KnownSeries) -> KnownSeries:
        raws = [post.raw for post in group.ordered]
        return new.model_copy(update={"attested": self.watch.attest(raws, new.sender)})

    def _queue(self, group: Group, new: KnownSeries) -> str:
        entry_id = f"{slug(group.title).lower()[:40].strip('-.') or 'series'}-{group.id}"
        name = f"{entry_id}.mbox"
        mails = b"".join(_in_mbox(post.raw) for post in group.ordered)
        door.write(self.store.folder, f"{MAILS}/{name}", mails)
        # The mails stand for the series; a name in the request would be a machine's path.
        request = replace(self.selection.request, series=(name,))
        entry = QueueEntry(
            id=entry_id, question=request, mailbox=name, title=group.title, author=group.author,
            version=group.version, origin=str(self.watch.place), priority=self.selection.priority,
            added=stamp(), attested=new.attested,
        )  # fmt: skip
        if self.store.add(entry):
            count = sum(len(post.attached) or 1 for post in group.patches)
            patches = "1 patch" if count == 1 else f"{count} patches"
            executed = host_code(post.text for post in group.patches)
            of_host = f"; its build executes {clean(', '.join(executed))}" if executed else ""
            self.report.queued.append(f"{entry_id}  {group.words}, {patches}{of_host}")
        for old in known_series.replaced_by(new, self.series.values()):
            self._replace(old.entry, entry_id)
        for other in known_series.beside(new, self.series.values()):
            if other.entry != entry_id:
                self.report.notes.append(
                    f"{other.entry} stays beside {entry_id}: nothing proves that both are of one "
                    "sender"
                )
        return entry_id

    def _replace(self, old: str, new: str) -> None:
        if old == new:
            return
        try:
            with self.store.change(old) as entry:
                if entry.state == "waiting":
                    message = f"replaced by {new}"
                    self.store.save(
                        entry.model_copy(update={"state": "replaced", "message": message})
                    )
                    self.report.replaced.append(f"{old} by {new}")
        except UsageError:
            # It is being measured: both are.
            self.report.notes.append(f"{old} is being measured, and {new} waits")

    def _give_up(self, since: float) -> None:
        """Let go of series that stayed incomplete for too long, and of the oldest of too many."""
        oldest_first = sorted(self._groups(), key=self._since)
        mails = len(self.posts)
        size = sum(len(post.raw) for post in self.posts.values())
        for group in oldest_first:
            too_many = mails > MOST_PENDING or size > MOST_PENDING_BYTES
            if self._since(group) >= since and not too_many:
                break
            why = "too many mails wait" if too_many else f"{self.selection.days:g} days"
            missing = f"{len(group.missing)} of {group.total} patches missing"
            self.report.given_up.append(f"{group.words}: {missing} ({why})")
            for post in (*group.ordered, *group.others):
                mails, size = mails - 1, size - len(post.raw)
                self._drop(post)

    def _since(self, group: Group) -> float:
        """When the first of its mails came."""
        return min(self.came[post.id] for post in group.members.values())

    def _save(self, positions: dict[str, str]) -> None:
        # Twice as long as a first look reaches back: what is read again is known.
        kept = [
            o for o in self.series.values() if o.at >= self.now - 2 * self.selection.days * DAY_S
        ]
        new = self.report.left_out[self.recorded :]
        self.recorded += len(new)
        left_out = (*self.state.left_out, *(LeftOut(at=self.now, what=line) for line in new))
        state = self.state.model_copy(
            update={
                "left_out": left_out[-MOST_LEFT_OUT:],
                "positions": positions,
                "pending": {post_id: self.came[post_id] for post_id in self.posts},
                "seen": tuple(kept),
            }
        )
        if state != self.state:
            door.write(self.folder, STATE, state.model_dump_json() + "\n")
            self.state = state
        for stem in self._kept():
            if stem not in state.pending:
                door.remove(self.folder, f"{stem}{MAIL}")

    def _kept(self) -> list[str]:
        """The ids of mails that wait for others of their series."""
        names = door.names(self.folder)
        return [name.removesuffix(MAIL) for name in names if name.endswith(MAIL)]

    def _posted(self, stem: str) -> Mail | None:
        try:
            mail = read_posted(door.read(self.folder, f"{stem}{MAIL}", 2 * LARGEST))
        except Exception:  # it was said when it came
            return None
        return mail if mail.is_posted else None


def _why(error: Exception) -> str:
    if isinstance(error, SeriesError):
        return f"{error.where}: {clean(error.what)}"
    return clean(f"{type(error).__name__}: {error}")


def _files(post: Mail) -> tuple[str, ...]:
    """The files that a patch names; raises SeriesError where it cannot be read."""
    where = clean(post.place)
    with reading(post.raw, where):
        return read_diff(post.text, where).files


def _in_mbox(raw: bytes) -> bytes:
    body = re.sub(rb"^(>*From )", rb">\1", raw, flags=re.M)
    return POSTMARK + body + (b"\n" if body.endswith(b"\n") else b"\n\n")
