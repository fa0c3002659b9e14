"""What a watch remembers of series that were whole, and how a new one stands to them.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

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

    @classmethod
    def of(cls, group: Group, now: float) -> KnownSeries:
        """What is remembered of a series that is not queued, or not yet."""
        # The mail that the first patch answers, where the cover letter is not there.
        cover = () if 0 in group.members else group.ordered[0].references[-1:]
        return cls(
            key=group.id,
            entry="",
            sender=group.sender,
            title=" ".join(group.title.lower().split()),
            version=group.version,
            total=group.total,
            resent=group.is_resent,
            root=group.root,
            change_id=next((post.change_id for post in group.ordered if post.change_id), ""),
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


def other_versions(
    new: KnownSeries, known: Iterable[KnownSeries]
) -> Iterator[tuple[Literal["older", "newer", "unproven"], KnownSeries]]:
    """The queued series that are other postings of this one: a sender's, and thread, title or id.

    ``older`` ones this one replaces, ``newer`` ones make it needless.  Both have to be vouched
    for: who may write a name into ``From:`` must not empty a queue.
    """
    for other in known:
        is_same = (
            new.root == other.root
            or new.title == other.title
            or new.change_id == other.change_id != ""
        )
        older = other.version < new.version or (new.resent and other.version == new.version)
        is_another = other.version > new.version or (older and other.key != new.key)
        if other.entry and new.sender == other.sender and is_same and is_another:
            if new.attested == "" or other.attested == "":
                yield "unproven", other
            else:
                yield "older" if older else "newer", other
