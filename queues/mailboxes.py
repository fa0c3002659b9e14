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
from collections.abc import Callable, Iterator, Mapping
from email.parser import BytesHeaderParser
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pygit2
from pygit2.enums import SortMode

from errors import InfraError, SeriesError, UsageError
from kernels.mail import HEAD, POSTMARK, header_of, reading, split_mbox
from kernels.products import ENDINGS as PACKED
from kernels.products import LARGEST_MBOX, is_packed, unpacked
from kernels.series import LARGEST
from text import clean

Positions = Mapping[str, str]


class Arrival(NamedTuple):
    """A mail as it came; ``at`` is when, in seconds since 1970, ``place`` where in the mailbox.

    ``deleted`` is a mail that was taken out of the mailbox.
    """

    raw: bytes
    at: float
    place: str
    deleted: bool = False


class MailBatch(NamedTuple):
    """Some new mails, where the mailbox is after them, and what is to be said of it."""

    arrivals: tuple[Arrival, ...]
    positions: Positions
    notes: tuple[str, ...] = ()


# From positions, which are empty at the first look, the moment before which a first look hands
# on nothing, and now: what came since.  Raises InfraError where the mailbox cannot be read;
# batches before it are good.
Mailbox: TypeAlias = Callable[[Positions, float, float], Iterator[MailBatch]]

ENDINGS = tuple(f"{kind}{packed}" for packed in ("", *PACKED) for kind in (".mbox", ".mbx", ".eml"))
TAIL = 4096
# A file younger than this may be in the middle of a delivery.
QUIET_S = 2.0
# What a file of mails has near its beginning.
OF_MAILS = re.compile(rb"^(?:From |(?:message-id|subject|from|date|received):)", re.M | re.I)
EPOCH = re.compile(r"(\d{1,6})\.git")
BATCH = 500
# A link of which a path keeps one slash.
LINK = re.compile(r"(\w+):/+(.+)")
SHORT = 12


def mailbox_of(place: Path) -> Mailbox:
    """The mailbox at a place: an archive, a maildir, an mbox or a folder of them.

    Raises UsageError: none of these.
    """
    if place.is_file():
        with place.open("rb") as file:
            begin = file.read(HEAD)
        if not begin or is_packed(begin) or OF_MAILS.search(begin):
            return partial(_mboxes, place)
    if place.is_dir():
        if epochs := _epochs(place):
            return partial(_archive, epochs)
        if (place / "cur").is_dir() and (place / "new").is_dir():
            return partial(_maildir, place)
        if any(path.name.endswith(ENDINGS) for path in place.iterdir()):
            return partial(_mboxes, place)
    what = "no mailbox" if place.exists() else "no such mailbox"
    if link := LINK.fullmatch(str(place)):
        what = f"{link[1]}:// is read by git and browsers: mirror or save it, and name the copy"
        place = Path(link[2])
    raise UsageError(
        what,
        where=clean(str(place)),
        next_step="name a public-inbox archive (N.git, format v2), a maildir, an mbox or a folder "
        f"of files that end in {', '.join(ENDINGS[:3])}, packed or not",
    )


def _mboxes(place: Path, positions: Positions, since: float, now: float) -> Iterator[MailBatch]:
    """A batch for each file that changed; a position is that of a file by name."""
    files = [place]
    if place.is_dir():
        files = sorted(p for p in place.iterdir() if p.name.endswith(ENDINGS) and p.is_file())
    at = dict(positions)
    for path in files:
        try:
            grown, note, position = _grown(path, at.get(path.name, ""))
        except OSError as error:
            raise _unreadable(path, error) from None
        if note or position != at.get(path.name):
            at[path.name] = position
            mails = [(raw, clean(path.name)) for raw in split_mbox(grown)]
            arrivals, notes = _dated(path.name, mails, 0.0 if positions else since, now)
            yield MailBatch(arrivals, dict(at), (*filter(None, [note]), *notes))


def _grown(path: Path, position: str) -> tuple[bytes, str, str]:
    """What a file has gained since ``position``, what is to be said, and where it is now."""
    size = path.stat().st_size
    if size > LARGEST_MBOX:
        words = f"{path.name}: has {size >> 20} MiB, more than {LARGEST_MBOX >> 20}; left out"
        return b"", "" if position == f"{size}:too large" else words, f"{size}:too large"
    read, _, tail = position.partition(":")
    offset = int(read) if read.isdecimal() else 0
    with path.open("rb") as file:
        file.seek(max(0, offset - TAIL))
        if _hash(file.read(min(offset, TAIL))) != tail:
            offset = 0
    if offset and offset == size:
        return b"", "", position
    before = path.stat()
    young = min(QUIET_S - (time.time() - before.st_mtime), QUIET_S)
    if young > 0:
        time.sleep(young)
    after = path.stat()
    is_changing = (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size)
    data = path.read_bytes()
    if is_packed(data):
        if is_changing:
            return b"", f"{path.name}: is being written; the next look has it", position
        try:
            return unpacked(data, path.name), "", f"{size}:{_hash(data)}"
        except SeriesError as error:
            return b"", f"{error.where}: {error.what}; left out", f"{size}:{_hash(data)}"
    if not POSTMARK.match(data[offset:].lstrip(b"\r\n")):
        # The last mail went on where it seemed to end.
        offset = 0
    if not is_changing:
        return data[offset:], "", f"{len(data)}:{_hash(data)}"
    starts = [match.start() for match in POSTMARK.finditer(data[offset:])]
    end = offset + (starts[-1] if starts else 0)
    words = f"{path.name}: is being written; its last mail waits for the next look"
    return data[offset:end], words, f"{end}:{_hash(data[:end])}"


def _hash(data: bytes) -> str:
    return hashlib.sha256(data[-TAIL:]).hexdigest()[:24]


def _unreadable(path: Path | str, error: OSError) -> InfraError:
    return InfraError(
        f"cannot be read: {error.strerror}", where=str(path), next_step="see its rights"
    )


def _dated(
    name: str, mails: list[tuple[bytes, str]], since: float, now: float
) -> tuple[tuple[Arrival, ...], tuple[str, ...]]:
    """Mails, each with its place, from ``since`` on by their dates; how many are older."""
    arrivals = []
    for raw, place in mails:
        date = now
        if since:
            try:
                with reading(raw):
                    header = header_of(BytesHeaderParser().parsebytes(raw[:HEAD]), "Date")
                    date = parsedate_to_datetime(header).timestamp()
            except SeriesError:  # it says none, and is a mail all the same
                pass
        if date >= since:
            arrivals.append(Arrival(raw, now, place))
    older = len(mails) - len(arrivals)
    return tuple(arrivals), (f"{clean(name)}: {older} mails are older (--days)",) if older else ()


def _maildir(folder: Path, positions: Positions, since: float, now: float) -> Iterator[MailBatch]:
    """Everything new in one batch; what was read is known by the unique part of its name."""
    try:
        files = {
            path.name.partition(":")[0]: path
            for place in ("new", "cur")
            for path in sorted((folder / place).iterdir())
            if not path.name.startswith(".") and path.is_file()
        }
        new = [name for name in files if name not in positions]
        if not new and len(files) == len(positions):
            return
        mails = []
        for name in new:
            try:
                with files[name].open("rb") as file:
                    mails.append((file.read(LARGEST + 1), clean(files[name].name)))
            except FileNotFoundError:  # moved to cur/ meanwhile: the next look has it
                del files[name]
    except OSError as error:
        raise _unreadable(error.filename or folder, error) from None
    arrivals, notes = _dated(folder.name, mails, 0.0 if positions else since, now)
    yield MailBatch(arrivals, dict.fromkeys(files, ""), notes)


def _epochs(folder: Path) -> dict[str, Path]:
    """The epochs by number, in order: of an archive, of its ``git/``, or the one named."""
    for place in (folder / "git", folder):
        paths = [path for path in place.glob("*.git") if EPOCH.fullmatch(path.name)]
        if paths:
            return {path.stem: path for path in sorted(paths, key=lambda path: int(path.stem))}
    is_epoch = (folder / "HEAD").is_file() and (folder / "objects").is_dir()
    return {folder.stem: folder} if is_epoch else {}


def _archive(
    epochs: Mapping[str, Path], positions: Positions, since: float, now: float
) -> Iterator[MailBatch]:
    """Epoch after epoch, by the hundred; a position is the last commit of an epoch."""
    at = dict(positions)
    for name, path in epochs.items():
        try:
            last = at.get(name, "")
            for arrivals, reached, notes in _epoch(path, last, since, now, first=not positions):
                at[name] = reached
                yield MailBatch(arrivals, dict(at), notes)
        except (pygit2.GitError, KeyError, ValueError) as error:
            raise InfraError(
                f"cannot be read: {error}", where=str(path), next_step=f"git -C {path} fsck"
            ) from None


def _epoch(
    path: Path, last: str, since: float, now: float, *, first: bool
) -> Iterator[tuple[tuple[Arrival, ...], str, tuple[str, ...]]]:
    """Mails, the commit that they reach, and what is to be said."""
    # Whose repository it is was decided by who named it.
    pygit2.settings.owner_validation = False
    repository = pygit2.Repository(str(path))
    if repository.head_is_unborn or (head := str(repository.head.target)) == last:
        return
    walk = repository.walk(repository.head.target, SortMode.TOPOLOGICAL)
    met, oldest = "", since if first else 0.0
    notes: tuple[str, ...] = ()
    if last:
        try:
            met = str(repository.merge_base(last, head) or "")
        except pygit2.GitError:  # collected since
            met = ""
    if met:
        walk.hide(met)
    if met != last:
        what = f"{path.name}: its history was rewritten: commit {last[:SHORT]} is no longer in it"
        again = f"; mails since commit {met[:SHORT]} are read again"
        if not met:
            oldest = since
            again = ", nor anything before it; its newest mails are read again (--days)"
        notes = (what + again,)
    newest_first = itertools.takewhile(lambda commit: commit.commit_time >= oldest, walk)
    commits = [commit.id for commit in newest_first][::-1]
    for begin in range(0, max(1, len(commits)), BATCH):
        some = commits[begin : begin + BATCH]
        arrivals = [_arrival(repository, commit, now, path.name) for commit in some]
        reached = str(some[-1]) if begin + BATCH < len(commits) else head
        yield tuple(arrival for arrival in arrivals if arrival), reached, notes
        notes = ()


def _arrival(
    repository: pygit2.Repository, commit_id: pygit2.Oid, now: float, epoch: str
) -> Arrival | None:
    commit = repository[commit_id]
    assert isinstance(commit, pygit2.Commit)
    name = next((name for name in ("m", "d") if name in commit.tree), None)
    entry = commit.tree[name] if name else None
    if not isinstance(entry, pygit2.Blob):
        return None
    _, size = repository.odb.read_header(entry.id)
    # One byte more than may be read, so that whoever reads it sees that.
    raw = entry.data if size <= LARGEST else b"\0" * (LARGEST + 1)
    at = min(float(commit.commit_time), now)
    return Arrival(raw, at, f"{epoch} {str(commit_id)[:SHORT]}", deleted=name == "d")
