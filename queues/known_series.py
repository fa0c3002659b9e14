"""What a watch remembers of series that were whole, and how a new one stands to them.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kernels.mail import Mail
from kernels.threads import Group
from results.record import Record


class KnownSeries(Record):
    """A series that was whole; ``entry`` is its id in the queue, or empty; ids are hashes.

    ``attested`` is what vouches for its sender (``kernels.b4``), or empty.
    """

    key: str
    entry: str
    sender: str
    title: str
    version: int
    total: int
    resent: bool
    root: str
    change_id: str
    ids: tuple[str, ...]
    at: float
    attested: str = ""


def known_of(group: Group, now: float) -> KnownSeries:
    """What is remembered of a series that is not queued, or not yet."""
    return KnownSeries(
        key=group.id,
        entry="",
        sender=group.sender,
        title=_plain(group.title),
        version=group.version,
        total=group.total,
        resent=group.is_resent,
        root=group.root,
        change_id=next((post.change_id for post in group.ordered if post.change_id), ""),
        # The mail that the first patch answers, where the cover letter is not there.
        ids=(
            *(mail.id for mail in group.ordered),
            *(() if 0 in group.members else group.ordered[0].references[-1:]),
        ),
        at=now,
    )


def by_id(known: Iterable[KnownSeries]) -> dict[str, list[KnownSeries]]:
    """The series that each id is a member or the root of."""
    by_member: dict[str, list[KnownSeries]] = {}
    for series in known:
        for member in {series.root, *series.ids}:
            by_member.setdefault(member, []).append(series)
    return by_member


def is_late(post: Mail, known: Mapping[str, Sequence[KnownSeries]]) -> bool:
    """Whether a mail belongs to a series that was whole without it: a copy, or a cover letter."""
    here = (post.sender, post.total, post.is_resent)
    return any(
        post.id in series.ids
        or (
            post.number
            and post.version <= series.version
            and (series.sender, series.total, series.resent) == here
        )
        for series in _near(post, known)
    )


def is_copy(post: Mail, known: Mapping[str, Sequence[KnownSeries]]) -> bool:
    """Whether a mail is one that a whole series has."""
    return any(post.id in series.ids for series in _near(post, known))


def _near(post: Mail, known: Mapping[str, Sequence[KnownSeries]]) -> Iterator[KnownSeries]:
    for each in {post.id, post.stem or post.id, *post.references[-1:]}:
        yield from known.get(each, ())


def aside(
    group: Group, new: KnownSeries, groups: Iterable[Group], older: Iterable[KnownSeries]
) -> str:
    """Why a series that is whole is not queued, or nothing.

    Either a newer version of it is queued already, both vouched for, or it is a patch by itself
    that somebody sent into the thread of a series.
    """
    older = tuple(older)
    for other in older:
        newer = other.entry and other.version > new.version
        if newer and _related(new, other) and _vouched(new, other):
            return f"v{other.version} is queued"
    references = set(group.ordered[0].references)
    if group.total > 1 or group.version > 1 or not references:
        return ""
    is_reply = any(
        series.total > 1 and (series.root == new.root or references.intersection(series.ids))
        for series in older
    )
    waiting = any(
        other.total > 1
        and (
            other.root == new.root
            or not references.isdisjoint(post.id for post in other.members.values())
        )
        for other in groups
    )
    return "a patch by itself in the thread of a series" if is_reply or waiting else ""


def replaced_by(new: KnownSeries, known: Iterable[KnownSeries]) -> tuple[KnownSeries, ...]:
    """The queued series that this one is a newer version of, or was sent again for.

    Both have to be vouched for: who may write a name into ``From:`` must not empty a queue.
    """
    return tuple(old for old in _before(new, known) if _vouched(new, old))


def beside(new: KnownSeries, known: Iterable[KnownSeries]) -> tuple[KnownSeries, ...]:
    """The queued series that look like other versions of this one, with nothing that proves it."""
    known = tuple(known)
    later = (
        other
        for other in known
        if other.entry and other.version > new.version and _related(new, other)
    )
    return tuple(other for other in (*_before(new, known), *later) if not _vouched(new, other))


def _before(new: KnownSeries, known: Iterable[KnownSeries]) -> Iterator[KnownSeries]:
    for old in known:
        older = old.version < new.version or (new.resent and old.version == new.version)
        if old.entry and old.key != new.key and older and _related(new, old):
            yield old


def _vouched(series: KnownSeries, other: KnownSeries) -> bool:
    return series.attested != "" != other.attested


def _related(series: KnownSeries, other: KnownSeries) -> bool:
    """Whether two are postings of the same series: one sender, and thread, title or change-id."""
    if series.sender != other.sender:
        return False
    same_change = series.change_id == other.change_id != ""
    return series.root == other.root or series.title == other.title or same_change


def _plain(title: str) -> str:
    return " ".join(title.lower().split())
