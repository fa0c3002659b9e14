"""Where mails come from: an mbox, a folder of them, a maildir, a mirror of a public-inbox archive.

An mbox only grows, or is another: its position is how many bytes were read and a hash of the last
of these.  Where that no longer fits, all of it is read again; mails that were seen before are told
by their ids.  One that is packed is read whole whenever it is another.

An archive (format v2) is a git repository for each epoch.  A commit holds one mail, in its file
``m``, or takes one out again, then in ``d``.  A mail that is purged or edited is taken out of
history, so that every commit after it is another.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Protocol

import pygit2
from pygit2.enums import SortMode

from errors import InfraError, SeriesError
from kernels.mail import HEAD, POSTMARK, header_of, reading, split_mbox
from kernels.packed import ENDINGS as PACKED
from kernels.packed import LARGEST_MBOX, is_packed, unpacked
from kernels.series import LARGEST
from text import clean

Positions = Mapping[str, str]


@dataclass(frozen=True)
class Arrival:
    """A mail as it came; ``at`` is when, in seconds since 1970, ``place`` where in the mailbox.

    ``deleted`` is a mail that was taken out of the mailbox.
    """

    raw: bytes
    at: float
    place: str
    deleted: bool = False


@dataclass(frozen=True)
class MailBatch:
    """Some new mails, where the mailbox is after them, and what is to be said of it."""

    arrivals: tuple[Arrival, ...]
    positions: Positions
    notes: tuple[str, ...] = ()


class Mailbox(Protocol):
    """Anything that mails come from."""

    def new(self, positions: Positions, *, since: float, now: float) -> Iterator[MailBatch]:
        """What came after ``positions``, which are empty at the first look.

        A first look hands on no mails from before ``since``.

        Raises:
            InfraError: the mailbox cannot be read; batches before it are good.
        """
        ...


ENDINGS = tuple(f"{kind}{packed}" for packed in ("", *PACKED) for kind in (".mbox", ".mbx", ".eml"))
TAIL = 4096
# A file younger than this may be in the middle of a delivery.
QUIET_S = 2.0


@dataclass(frozen=True)
class MboxFiles:
    """An mbox file, or a folder of them; a position is that of a file by name."""

    place: Path
    quiet_s: float = QUIET_S

    def new(self, positions: Positions, *, since: float, now: float) -> Iterator[MailBatch]:
        """As of ``Mailbox``: a batch a file that changed."""
        at = dict(positions)
        for path in self._files():
            name = path.name
            try:
                grown, notes, position = _grown(path, at.get(name, ""), self.quiet_s)
            except OSError as error:
                raise InfraError(
                    f"cannot be read: {error.strerror}", where=str(path), next_step="see its rights"
                ) from None
            if position == at.get(name):
                continue
            at[name] = position
            mails = [(raw, clean(name)) for raw in split_mbox(grown)]
            arrivals, older = _arrivals(mails, 0.0 if positions else since, now)
            yield MailBatch(arrivals, dict(at), (*notes, *_older(name, older)))

    def _files(self) -> list[Path]:
        if self.place.is_file():
            return [self.place]
        return sorted(p for p in self.place.iterdir() if p.name.endswith(ENDINGS) and p.is_file())


@dataclass(frozen=True)
class Maildir:
    """A maildir; what was read is known by the unique part of its name."""

    folder: Path

    def new(self, positions: Positions, *, since: float, now: float) -> Iterator[MailBatch]:
        """As of ``Mailbox``: everything new is one batch."""
        try:
            yield from self._new(positions, since, now)
        except OSError as error:
            raise InfraError(
                f"cannot be read: {error.strerror}", where=str(error.filename or self.folder),
                next_step="see its rights",
            ) from None  # fmt: skip

    def _new(self, positions: Positions, since: float, now: float) -> Iterator[MailBatch]:
        files = {
            path.name.partition(":")[0]: path
            for place in ("new", "cur")
            for path in sorted((self.folder / place).iterdir())
            if not path.name.startswith(".") and path.is_file()
        }
        new = [name for name in files if name not in positions]
        if not new and len(files) == len(positions):
            return
        raw = []
        for name in new:
            try:
                raw.append((_cut(files[name]), clean(files[name].name)))
            except FileNotFoundError:  # moved to cur/ meanwhile: the next look has it
                del files[name]
        arrivals, older = _arrivals(raw, 0.0 if positions else since, now)
        yield MailBatch(arrivals, dict.fromkeys(files, ""), _older(self.folder.name, older))


def _grown(path: Path, position: str, quiet_s: float) -> tuple[bytes, tuple[str, ...], str]:
    """What a file has gained since ``position``, what is to be said, and where it is now."""
    size = path.stat().st_size
    if size > LARGEST_MBOX:
        words = f"{path.name}: has {size >> 20} MiB, more than {LARGEST_MBOX >> 20}; left out"
        return b"", (words,), f"{size}:too large"
    read, _, tail = position.partition(":")
    offset = int(read) if read.isdecimal() else 0
    if offset and not _ends(path, offset, tail):
        offset = 0
    if offset == size:
        return b"", (), position
    changing = _is_changing(path, quiet_s)
    data = path.read_bytes()
    if offset and not POSTMARK.match(data[offset:].lstrip(b"\r\n")):
        # The last mail went on where it seemed to end.
        offset = 0
    notes: tuple[str, ...] = ()
    if changing and is_packed(data):
        return b"", (f"{path.name}: is being written; the next look has it",), position
    if not offset:
        try:
            content = unpacked(data, path.name)
        except SeriesError as error:
            return b"", (f"{error.where}: {error.what}; left out",), f"{size}:{_hash(data)}"
        if is_packed(data):
            return content, notes, f"{size}:{_hash(data)}"
    end = len(data)
    if changing:
        starts = [match.start() for match in POSTMARK.finditer(data[offset:])]
        end = offset + (starts[-1] if starts else 0)
        notes = (f"{path.name}: is being written; its last mail waits for the next look",)
    return data[offset:end], notes, f"{end}:{_hash(data[:end])}"


def _ends(path: Path, offset: int, tail: str) -> bool:
    """Whether the first ``offset`` bytes of a file still end as they did."""
    with path.open("rb") as file:
        file.seek(max(0, offset - TAIL))
        return _hash(file.read(min(offset, TAIL))) == tail


def _is_changing(path: Path, quiet_s: float) -> bool:
    """Whether somebody writes to a file; waits where somebody did just now."""
    before = path.stat()
    young = quiet_s - (time.time() - before.st_mtime)
    if young <= 0:
        return False
    time.sleep(min(young, quiet_s))
    after = path.stat()
    return (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data[-TAIL:]).hexdigest()[:24]


def _cut(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LARGEST + 1)


def _arrivals(
    mails: list[tuple[bytes, str]], since: float, now: float
) -> tuple[tuple[Arrival, ...], int]:
    """Mails, each with its place, from ``since`` on by their dates; how many are older."""
    kept = [(raw, place) for raw, place in mails if not since or _date(raw, now) >= since]
    return tuple(Arrival(raw, now, place) for raw, place in kept), len(mails) - len(kept)


def _date(raw: bytes, now: float) -> float:
    """The date a mail says, or ``now``: one that says none is a mail all the same."""
    try:
        with reading(raw):
            header = header_of(BytesHeaderParser().parsebytes(raw[:HEAD]), "Date")
            return parsedate_to_datetime(header).timestamp()
    except SeriesError:
        return now


def _older(name: str, count: int) -> tuple[str, ...]:
    return (f"{clean(name)}: {count} mails are older (--days)",) if count else ()


EPOCH = re.compile(r"(\d{1,6})\.git")
BATCH = 500
SHORT = 12


def epochs(folder: Path) -> dict[str, Path]:
    """The epochs by number, in order: of an archive, of its ``git/``, or the one named."""
    for place in (folder / "git", folder):
        paths = [path for path in place.glob("*.git") if EPOCH.fullmatch(path.name)]
        if paths:
            paths.sort(key=lambda path: int(path.stem))
            return {path.stem: path for path in paths}
    is_epoch = (folder / "HEAD").is_file() and (folder / "objects").is_dir()
    return {folder.stem: folder} if is_epoch else {}


@dataclass(frozen=True)
class PublicInbox:
    """An archive; a position is the last commit of an epoch that was read."""

    folder: Path

    def new(self, positions: Positions, *, since: float, now: float) -> Iterator[MailBatch]:
        """As of ``Mailbox``: epoch after epoch, by the hundred."""
        at = dict(positions)
        for name, path in epochs(self.folder).items():
            try:
                for batch in _epoch(path, at.get(name, ""), since, now, first=not positions):
                    at[name] = batch.positions[""]
                    yield MailBatch(batch.arrivals, dict(at), batch.notes)
            except (pygit2.GitError, KeyError, ValueError) as error:
                raise InfraError(
                    f"cannot be read: {error}", where=str(path), next_step=f"git -C {path} fsck"
                ) from None


def _epoch(path: Path, last: str, since: float, now: float, *, first: bool) -> Iterator[MailBatch]:
    # Whose repository it is was decided by who named it.
    pygit2.settings.owner_validation = False
    repository = pygit2.Repository(str(path))
    if repository.head_is_unborn:
        return
    head = repository.head.target
    if str(head) == last:
        return
    walk = repository.walk(head, SortMode.TOPOLOGICAL)
    met = _met(repository, last, str(head)) if last else ""
    if met:
        walk.hide(met)
    notes = (_rewritten(path, last, met),) if met != last else ()
    oldest = since if first or (last and not met) else 0.0
    newest_first = itertools.takewhile(lambda commit: commit.commit_time >= oldest, walk)
    commits = [commit.id for commit in newest_first][::-1]
    for begin in range(0, max(1, len(commits)), BATCH):
        some = commits[begin : begin + BATCH]
        arrivals = [_arrival(repository, commit, now, path.name) for commit in some]
        reached = str(some[-1]) if begin + BATCH < len(commits) else str(head)
        yield MailBatch(tuple(arrival for arrival in arrivals if arrival), {"": reached}, notes)
        notes = ()


def _met(repository: pygit2.Repository, last: str, head: str) -> str:
    """The newest commit that what was read and what is there have in common, or nothing."""
    try:
        common = repository.merge_base(last, head)
    except pygit2.GitError:  # collected since
        return ""
    return str(common) if common else ""


def _rewritten(path: Path, last: str, met: str) -> str:
    what = f"{path.name}: its history was rewritten: commit {last[:SHORT]} is no longer in it"
    if met:
        return f"{what}; mails since commit {met[:SHORT]} are read again"
    return f"{what}, nor anything before it; its newest mails are read again (--days)"


def _arrival(
    repository: pygit2.Repository, commit_id: pygit2.Oid, now: float, epoch: str
) -> Arrival | None:
    commit = repository[commit_id]
    assert isinstance(commit, pygit2.Commit)
    at = min(float(commit.commit_time), now)
    for name in ("m", "d"):
        if name in commit.tree:
            entry = commit.tree[name]
            _, size = repository.odb.read_header(entry.id)
            if not isinstance(entry, pygit2.Blob):
                return None
            # One byte more than may be read, so that whoever reads it sees that.
            raw = entry.data if size <= LARGEST else b"\0" * (LARGEST + 1)
            return Arrival(raw, at, f"{epoch} {str(commit_id)[:SHORT]}", deleted=name == "d")
    return None
