"""Follow a mailbox: queue every new, complete series that touches the given paths.

What a watch knows is in ``QUEUE/watch/NAME/``: where it is in the mailbox, the mails of
series that are not whole yet, and the series it has seen.  Mails are kept before what is made
of them, entries before the state that says so, and both have names of what they hold: killed
at any moment, the next look does the rest, and nothing is queued twice.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout
from pydantic import Field, ValidationError

from errors import SeriesError, UsageError
from kernels.diff import of_kernel, read_diff
from kernels.mail import Mail, diff_of, name_of, read_mail, reading, slug
from kernels.series import LARGEST, host_code
from kernels.threads import MOST_PATCHES, Group, groups_of
from queues import page
from queues.mailboxes import Arrival, Mailbox
from queues.store import MAILS, WATCH, QueueEntry, QueueStore, stamp
from results import door
from results.door import StoreError
from results.record import Record
from runs.request import Request
from text import clean, counted

LARGEST_HEAD = 1 << 18
# Patches that are sent after a series, as [PATCH 3/2].
MOST_BESIDE = 9


def read_posted(raw: bytes) -> Mail:
    """A mail that came by; ``Mail.is_posted`` says whether it is a member of a series.

    Raises SeriesError: too large, with a header too large, of too many patches, or it cannot be
    read.
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


def touches(files: Iterable[str], paths: Sequence[str]) -> bool:
    """Whether a file is one of ``paths`` or below it, or none are named.

    Paths are folders, files, or patterns, in which "*" stands for any characters, "/" too.
    """
    return not paths or any(
        fnmatchcase(file, path)
        if any(character in path for character in "*?[")
        else f"{file}/".startswith(f"{path.rstrip('/')}/")
        for file in files
        for path in paths
    )


class KnownSeries(Record):
    """A series that was whole; ids are hashes."""

    key: str
    sender: str
    version: int
    total: int
    resent: bool
    root: str
    ids: tuple[str, ...]
    at: float

    @classmethod
    def of(cls, group: Group, now: float) -> KnownSeries:
        """What is remembered of a series, queued or not."""
        # The mail that the first patch answers, where the cover letter is not there.
        cover = () if 0 in group.members else group.ordered[0].references[-1:]
        return cls(
            key=group.id,
            sender=group.sender,
            version=group.version,
            total=group.total,
            resent=group.is_resent,
            root=group.root,
            ids=(*(mail.id for mail in group.ordered), *cover),
            at=now,
        )


def by_id(known: Iterable[KnownSeries]) -> dict[str, list[KnownSeries]]:
    """The series that each id is a member or the root of."""
    by_member: dict[str, list[KnownSeries]] = {}
    for series in known:
        for member in {series.root, *series.ids}:
            by_member.setdefault(member, []).append(series)
    return by_member


def lateness(
    post: Mail, known: Mapping[str, Sequence[KnownSeries]]
) -> Literal["", "copy", "too late"]:
    """Whether a mail is one that a whole series has, or belongs to one that was whole without."""
    ids = {post.id, post.stem or post.id, *post.references[-1:]}
    near = [series for each in ids for series in known.get(each, ())]
    if any(post.id in series.ids for series in near):
        return "copy"
    here = (post.sender, post.total, post.is_resent)
    late = post.number and any(
        post.version <= series.version and (series.sender, series.total, series.resent) == here
        for series in near
    )
    return "too late" if late else ""


def is_remark(
    group: Group, new: KnownSeries, groups: Iterable[Group], older: Iterable[KnownSeries]
) -> bool:
    """Whether a series is a patch by itself that somebody sent into the thread of another."""
    references = set(group.ordered[0].references)
    if group.total > 1 or group.version > 1 or not references:
        return False
    threads = [(s.root, set(s.ids)) for s in older if s.total > 1]
    threads += [(g.root, {p.id for p in g.members.values()}) for g in groups if g.total > 1]
    return any(root == new.root or not references.isdisjoint(ids) for root, ids in threads)


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

    schema_version: Literal[2] = 2
    mailbox: str
    positions: dict[str, str] = Field(default_factory=dict)
    pending: dict[str, float] = Field(default_factory=dict)
    seen: tuple[KnownSeries, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


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
    left_out: list[str] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unposted: dict[str, list[str]] = field(default_factory=dict)
    elsewhere: int = 0
    mails: int = 0


class Watch:
    """One mailbox followed for one queue."""

    def __init__(self, store: QueueStore, place: Path, selection: Selection) -> None:
        self.store, self.selection = store, selection
        self.place = place.absolute()
        name = hashlib.sha256(str(self.place).encode(errors="surrogateescape")).hexdigest()[:8]
        self.name = f"{WATCH}/{slug(self.place.name).lower()}-{name}"
        self.folder = store.folder / self.name

    def poll(self, mailbox: Mailbox, now: float) -> PollReport:
        """Read what is new, queue what is whole, and remember.

        Raises UsageError: another process looks, or the state is of another version of the lab;
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
        try:
            text = door.read(self.folder, STATE, 256 * door.MIB)
            self.state = State.model_validate_json(text)
        except FileNotFoundError:
            self.state = State(mailbox=str(watch.place))
        except ValidationError:
            raise UsageError(
                "is damaged or of another version of the lab",
                where=str(self.folder / STATE),
                next_step=f"remove {self.folder}: the newest mails are read again, and no series "
                "that is in the queue is queued again",
            ) from None
        self.series = {series.key: series for series in self.state.seen}
        self.known = by_id(self.series.values())
        # Mails that wait for others of their series, and when each came.
        self.posts: dict[str, Mail] = {}
        self.came: dict[str, float] = {}
        for stem in self._kept():
            try:
                post = read_posted(door.read(self.folder, f"{stem}{MAIL}", 2 * LARGEST))
            except Exception:  # it was said when it came
                post = None
            if post is None or not post.is_posted or stem not in self.state.pending:
                # It was kept, and then the lab was killed: it is read again.
                door.remove(self.folder, f"{stem}{MAIL}")
            else:
                self.posts[post.id], self.came[post.id] = post, self.state.pending[stem]

    def run(self, mailbox: Mailbox) -> PollReport:
        since = self.now - self.selection.days * DAY_S
        for batch in mailbox(self.state.positions, since, self.now):
            self.report.notes += batch.notes
            for arrival in batch.arrivals:
                self._receive(arrival)
            self._queue_whole()
            self._save(dict(batch.positions))
        self._queue_whole()
        self._give_up(since)
        self._save(self.state.positions)
        for group in groups_of(self.posts.values()):
            numbers = ", ".join(f"{number}/{group.total}" for number in group.missing[:5])
            more = f" and {len(group.missing) - 5} more" if len(group.missing) > 5 else ""
            self.report.waiting.append(f"{group.words}: {numbers or 'nothing'}{more} missing")
        if self.report.queued:
            page.write(self.store)
        return self.report

    def _receive(self, arrival: Arrival) -> None:
        self.report.mails += 1
        try:
            post = read_posted(arrival.raw)
        except Exception as error:  # one mail, whatever it is that it has somebody raise
            self._leave_out(arrival.place, error)
            return
        if not post.is_posted:
            why = post.unread
            if post.has_diff:
                why = "a reply" if post.is_reply else "no [PATCH] in its subject"
            elif any(b"diff --git " in raw for raw in post.enclosed):
                why = "a mail that encloses others"
            if why and not arrival.deleted:
                name = f'"{post.subject}" ({post.poster}), {arrival.place}, <{post.message_id}>'
                self.report.unposted.setdefault(why, []).append(clean(name))
            return
        if arrival.deleted:
            self._drop(post)
            return
        if late := lateness(post, self.known):
            if late == "too late":
                self._drop(post, "its series was whole without it")
            return
        there = self.posts.get(post.id)
        if there is not None and diff_of(there.text) != diff_of(post.text):
            self._leave_out(_named(post), "another mail with its message-id came before it")
            return
        door.write(self.folder, f"{post.id}{MAIL}", post.raw)
        self.came[post.id] = min(arrival.at, self.came.get(post.id, arrival.at))
        self.posts.setdefault(post.id, post)

    def _leave_out(self, what: str, why: str | Exception) -> None:
        if isinstance(why, SeriesError):
            why = f"{why.where}: {clean(why.what)}"
        elif isinstance(why, Exception):
            why = clean(f"{type(why).__name__}: {why}")
        self.report.left_out.append(f"{what}: {why}")

    def _drop(self, post: Mail, why: str = "") -> None:
        """Let a mail go; ``why`` it is left out, where that is to be said."""
        self.posts.pop(post.id, None)
        self.came.pop(post.id, None)
        if why:
            self._leave_out(_named(post), why)

    def _queue_whole(self) -> None:
        groups = groups_of(self.posts.values())
        for group in groups:
            if not group.missing:
                self._whole(group, groups)
                for post in group.ordered:
                    self._drop(post)
                for post in group.others:
                    self._drop(post, "another mail came for its place in the series")

    def _whole(self, group: Group, groups: tuple[Group, ...]) -> None:
        """A series that is whole: queue it, or say why not; it is never looked at again."""
        new = KnownSeries.of(group, self.now)
        try:
            files: set[str] = set()
            for post in group.patches:
                with reading(post.raw, where := clean(post.place)):
                    files |= set(read_diff(post.text, where).files)
            names = clean(", ".join(sorted(files)))
            if group.conflict:
                self._leave_out(group.words, group.conflict)
            elif not touches(files, self.selection.paths):
                self.report.elsewhere += 1
            elif not of_kernel(tuple(files)):
                self._leave_out(
                    group.words, f"no path or folder of it is in a kernel's source: {names}"
                )
            else:
                self._queue(group, new, groups)
        except (OSError, StoreError):
            raise
        except Exception as error:  # as for a mail
            self._leave_out(group.words, error)
        self.series[new.key] = new
        for each, series in by_id([new]).items():
            self.known.setdefault(each, []).extend(series)

    def _queue(self, group: Group, new: KnownSeries, groups: tuple[Group, ...]) -> None:
        if is_remark(group, new, groups, self.series.values()):
            self._leave_out(group.words, "a patch by itself in the thread of a series")
            return
        entry_id = f"{slug(group.title).lower()[:40].strip('-.') or 'series'}-{group.id}"
        name = f"{entry_id}.mbox"
        mails = b""
        for post in group.ordered:
            quoted = re.sub(rb"^(>*From )", rb">\1", post.raw, flags=re.M)
            mails += POSTMARK + quoted + (b"\n" if quoted.endswith(b"\n") else b"\n\n")
        door.write(self.store.folder, f"{MAILS}/{name}", mails)
        entry = QueueEntry(
            id=entry_id,
            # The mails stand for the series; a name in the request would be a machine's path.
            question=replace(self.selection.request, series=(name,)),
            mailbox=name,
            title=group.title,
            author=group.author,
            version=group.version,
            origin=str(self.watch.place),
            priority=self.selection.priority,
            added=stamp(),
        )
        if self.store.add(entry):
            count = sum(len(post.attached) or 1 for post in group.patches)
            executed = host_code(read_diff(post.text, "") for post in group.patches)
            of_host = f"; its build executes {clean(', '.join(executed))}" if executed else ""
            self.report.queued.append(
                f"{entry_id}  {group.words}, {counted(count, 'patch')}{of_host}"
            )

    def _give_up(self, since: float) -> None:
        """Let go of series that stayed incomplete for too long, and of the oldest of too many."""
        groups = groups_of(self.posts.values())
        begun = {group: min(self.came[p.id] for p in group.members.values()) for group in groups}
        for group in sorted(begun, key=lambda each: begun[each]):
            size = sum(len(post.raw) for post in self.posts.values())
            too_many = len(self.posts) > MOST_PENDING or size > MOST_PENDING_BYTES
            if begun[group] >= since and not too_many:
                break
            why = "too many mails wait" if too_many else f"{self.selection.days:g} days"
            missing = f"{len(group.missing)} of {group.total} patches missing"
            self.report.given_up.append(f"{group.words}: {missing} ({why})")
            for post in (*group.ordered, *group.others):
                self._drop(post)

    def _save(self, positions: dict[str, str]) -> None:
        # Twice as long as a first look reaches back: what is read again is known.
        oldest = self.now - 2 * self.selection.days * DAY_S
        new = self.report.left_out[self.recorded :]
        self.recorded += len(new)
        left_out = (*self.state.left_out, *(LeftOut(at=self.now, what=line) for line in new))
        state = self.state.model_copy(
            update={
                "left_out": left_out[-MOST_LEFT_OUT:],
                "positions": positions,
                "pending": {post_id: self.came[post_id] for post_id in self.posts},
                "seen": tuple(series for series in self.series.values() if series.at >= oldest),
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


def _named(post: Mail) -> str:
    return clean(f'{post.place}: "{post.subject}" ({post.poster}), {post.message_id}')
