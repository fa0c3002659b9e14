"""Mailboxes that are files: an mbox, a folder of them, a maildir.

An mbox only grows, or is another: its position is how many bytes were read and a hash of the
last of these.  Where that no longer fits, all of it is read again; mails that were seen before are
told by their ids.  One that is packed is read whole whenever it is another.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from email.utils import parsedate_to_datetime
from pathlib import Path

from errors import InfraError, SeriesError
from kernels.mail import HEAD, POSTMARK, header_of, reading, split_mbox
from kernels.packed import ENDINGS as PACKED
from kernels.packed import LARGEST_MBOX, is_packed, unpacked
from kernels.series import LARGEST
from queues.arrivals import Arrival, MailBatch, Positions
from text import clean

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
