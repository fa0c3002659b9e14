"""Which mails are a series: those of a thread, a mailbox or a list.  Pure.

``groups_of`` is the one answer to that, for whoever follows a list and whoever names a mailbox;
``select`` chooses one of the series of a mailbox, and names every diff that it leaves out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from errors import SeriesError
from kernels.mail import DIFF, Mail, diff_of, digest
from text import clean

MOST_PATCHES = 1000
MOST_NAMED = 5
MOST_FINDINGS = 20
# So many series that lack mails are looked at for the place of a mail without a thread.
MOST_GAPS = 20


@dataclass(frozen=True, eq=False)
class Group:
    """The mails of one posting of a series that are there, by number; 0 is the cover letter.

    ``others`` are those whose place another one has; ``conflict`` says which two cannot both be
    members.  ``root`` is where its thread begins, as far as that is known.
    """

    members: Mapping[float, Mail]
    others: tuple[Mail, ...] = field(default=(), repr=False)
    conflict: str = ""
    root: str = ""

    @property
    def ordered(self) -> tuple[Mail, ...]:
        """Its mails, the cover letter first."""
        return tuple(self.members[number] for number in sorted(self.members))

    @property
    def patches(self) -> tuple[Mail, ...]:
        """Its mails without the cover letter, in order."""
        return tuple(mail for mail in self.ordered if mail.number)

    @property
    def total(self) -> int:
        """How many patches it says it has."""
        return max(mail.total for mail in self.patches or self.ordered)

    @property
    def version(self) -> int:
        """Which posting it is, by any of its mails."""
        return max(mail.version for mail in self.members.values())

    @property
    def is_resent(self) -> bool:
        """Whether it was posted before."""
        return any(mail.is_resent for mail in self.members.values())

    @property
    def is_tagged(self) -> bool:
        """Whether its subjects say that it is posted."""
        return any(mail.is_tagged for mail in self.members.values())

    @property
    def missing(self) -> tuple[int, ...]:
        """The numbers of the patches that are not there."""
        return tuple(number for number in range(1, self.total + 1) if number not in self.members)

    @property
    def title(self) -> str:
        """What it is called: by its cover letter, else by its first patch."""
        return self.ordered[0].subject

    @property
    def author(self) -> str:
        """Who posted it."""
        return self.ordered[0].poster

    @property
    def sender(self) -> str:
        """From which address."""
        return self.ordered[0].sender

    @property
    def date(self) -> float:
        """When the first of its mails was sent."""
        return min(mail.date for mail in self.members.values())

    @property
    def id(self) -> str:
        """A short hash of what it is: the same whenever its mails are read again."""
        return digest("\n".join(mail.id for mail in self.patches or self.ordered))[:8]

    @property
    def words(self) -> str:
        """``v2 of "mm: make it fast" (A <a@example.org>)``."""
        return f'v{self.version} of "{self.title}" ({self.author})'


@dataclass(frozen=True)
class Thread:
    """The series that was chosen: patches in order, and what is to be said of the choice."""

    version: int
    patches: tuple[Mail, ...]
    cover: Mail | None
    findings: tuple[str, ...]


def groups_of(posts: Iterable[Mail], preferred: str = "") -> tuple[Group, ...]:
    """The postings that mails are members of, in the order of their first mails.

    Members have one sender and hang below one mail, cover letter or first patch.  Of two for one
    place the one whose hash is ``preferred`` counts, else one that does not quote, else the later.
    """
    known = {post.id: post for post in posts}
    heads: dict[str, str] = {}
    by_head: dict[tuple[str, str], dict[tuple[int, int, bool], list[Mail]]] = {}
    for post in known.values():
        head = by_head.setdefault((post.sender, _head(post, known, heads)), {})
        head.setdefault((post.version, post.total, post.is_resent), []).append(post)
    return tuple(
        _group(mails, known, preferred)
        for parts in by_head.values()
        for mails in _reconciled(parts.values())
    )


def _head(post: Mail, known: Mapping[str, Mail], heads: dict[str, str]) -> str:
    """The mail that a series hangs below, the same for all of its mails."""
    way: dict[str, None] = {}
    while post.id not in heads:
        way[post.id] = None
        parent = _parent(post, known)
        if post.number == 0:
            heads[post.id] = post.id
        elif parent is not None and parent.id not in way and _goes_on(parent, post):
            post = parent
        elif post.total == 1:  # by itself, whatever it answers
            heads[post.id] = post.id
        elif parent is not None:
            heads[post.id] = parent.id
        else:
            heads[post.id] = post.references[-1] if post.references else post.stem or post.id
    for each in way:
        heads[each] = heads[post.id]
    return heads[post.id]


def _parent(mail: Mail, known: Mapping[str, Mail]) -> Mail | None:
    """The nearest of the mails that it answers which is known."""
    return next((known[each] for each in reversed(mail.references) if each in known), None)


def _goes_on(parent: Mail, post: Mail) -> bool:
    """Whether a mail is a later one of the series of the mail that it answers."""
    if parent.sender != post.sender:
        return False
    # One that was forgotten, 1.5/2, may answer any of them.
    if parent.number >= post.number and (post.number.is_integer() or post.total == 1):
        return False
    if parent.number == 0:
        return post.total > 1 or parent.total == 1
    return (parent.version, parent.total) == (post.version, post.total)


def _reconciled(parts: Iterable[list[Mail]]) -> list[list[Mail]]:
    """Parts below one mail that differ in what they say of themselves, put together.

    A version, or a word such as RESEND, may stand on the cover letter alone, or on all but it, or
    on the one patch that was sent again.  Patches of two versions are two series.
    """
    whole: list[list[Mail]] = []
    for part in sorted(parts, key=lambda part: (part[0].version, part[0].is_resent), reverse=True):
        numbers = {mail.number for mail in part}
        for other in whole:
            more = {mail.number for mail in other}
            covers = numbers == {0} or more == {0}
            same = part[0].total == other[0].total or (
                covers and min(part[0].total, other[0].total) > 1
            )
            one_again = (
                part[0].version == other[0].version
                and part[0].total == other[0].total
                and not set(range(1, part[0].total + 1)) <= min(numbers, more, key=len)
            )
            if one_again or (same and numbers.isdisjoint(more) and (covers or 0 in more)):
                other += part
                break
        else:
            whole.append(list(part))
    return whole


def _group(mails: Sequence[Mail], known: Mapping[str, Mail], preferred: str) -> Group:
    members: dict[float, Mail] = {}
    others: list[Mail] = []
    conflict = ""
    for number in sorted({mail.number for mail in mails}):
        there = [mail for mail in mails if mail.number == number]
        best = there[0]
        for mail in there[1:]:
            if _rank(mail, preferred) >= _rank(best, preferred) and not _same(mail, best):
                best = mail
        others += [mail for mail in there if mail is not best]
        members[number] = best
        for mail in there:
            if preferred != best.id and not _is_answer(mail) and not _alike(mail, best):
                conflict = f'two mails are {best.place}: "{mail.subject}" and "{best.subject}"'
    return Group(members, tuple(others), conflict, _root(members[min(members)], known))


def _rank(mail: Mail, preferred: str) -> tuple[bool, bool, float]:
    return mail.id == preferred, not _is_answer(mail), mail.date


def _is_answer(mail: Mail) -> bool:
    """Whether a mail quotes another one before its diff: it is no first posting."""
    diff = DIFF.search(mail.text)
    words = mail.text[: diff.start()] if diff else mail.text
    return bool(mail.references) and re.search(r"^>", words, re.M) is not None


def _same(mail: Mail, other: Mail) -> bool:
    return diff_of(mail.text) == diff_of(other.text)


def _alike(mail: Mail, other: Mail) -> bool:
    return _same(mail, other) or _plain(mail.subject) == _plain(other.subject)


def _root(mail: Mail, known: Mapping[str, Mail]) -> str:
    """Where a mail's thread begins, as far as it is known."""
    visited = {mail.id}
    while mail.references:
        first = mail.references[0]
        if first not in known or first in visited:
            return first
        visited.add(first)
        mail = known[first]
    return mail.stem or mail.id


def _plain(title: str) -> str:
    return " ".join(title.lower().split())


def select(
    mails: Sequence[Mail], where: str, named: str = "", how: Callable[[Mail], str] = repr
) -> Thread:
    """The series that a user means: that of the mail whose id is ``named``, else the newest.

    ``how`` says what to name instead, to have another mail's diff measured.

    Raises:
        SeriesError: no patch, a patch that is missing, two that claim one place, or several series
            of which none is meant.
    """
    return _Choice(mails, where, named, how).thread()


class _Choice:
    """One mailbox, and what is said of it while a series is chosen."""

    def __init__(
        self, mails: Sequence[Mail], where: str, named: str, how: Callable[[Mail], str]
    ) -> None:
        self.where, self.how = where, how
        self.findings: list[str] = []
        self.versions: list[Group] = []
        self.mails: dict[str, Mail] = {}
        for mail in mails:  # copies by several lists are one
            there = self.mails.setdefault(mail.id, mail)
            if there is not mail and not _same(there, mail):
                self.findings.append(
                    f"two mails have the id <{mail.message_id}> and different diffs; the first in "
                    "the mailbox is taken"
                )
        self.named = self.mails.get(digest(named)) if named else None
        if named and self.named is None and self.mails:
            ids = ", ".join(f"<{mail.message_id}>" for mail in mails[:MOST_NAMED])
            raise SeriesError(
                f"holds no mail <{clean(named)}>", where=where, next_step=f"it has {ids}"
            )
        posts = [mail for mail in self.mails.values() if mail.is_patch]
        self.groups = _joined(groups_of(posts, self.named.id if self.named else ""))
        self.groups_by_mail = {m.id: group for group in self.groups for m in group.members.values()}

    def thread(self) -> Thread:
        """The series, with its findings."""
        chosen = self._named_group() if self.named else None
        alone = self.named if self.named and self.named.has_diff and chosen is None else None
        if chosen is None and alone is None:
            chosen = self._newest()
            alone = None if chosen else self._only_reply()
        if chosen is None:
            assert alone is not None
            self.findings.append(
                "the diff of a reply is taken"
                if alone.is_reply
                else "the diff of one mail is taken"
            )
            self._leave_out({alone.id}, None)
            return self._done((alone,), None, alone.version)
        self._check(chosen)
        self._describe(chosen)
        self._leave_out({mail.id for mail in chosen.members.values()}, chosen)
        return self._done(chosen.patches, chosen.members.get(0), chosen.version)

    def _done(self, patches: tuple[Mail, ...], cover: Mail | None, version: int) -> Thread:
        if len(patches) == 1 and patches[0].attached:
            cover, patches = patches[0], patches[0].attached
        self.findings += [
            f'"{mail.subject}" (<{mail.message_id}>) {mail.unread}; the one in its text is taken'
            for mail in patches
            if mail.unread and mail.has_diff
        ]
        more = len(self.findings) - MOST_FINDINGS
        cut = [f"and {more} more"] if more > 0 else []
        return Thread(version, patches, cover, (*self.findings[:MOST_FINDINGS], *cut))

    def _named_group(self) -> Group | None:
        """The posting that the named mail is of, or answers, or None."""
        by_mail, mail = self.groups_by_mail, self.named
        assert mail is not None
        group = by_mail.get(mail.id)
        if mail.has_diff and (
            group is None or not group.patches or (group.missing and self._above(group))
        ):
            return None  # of no series, or by itself in the thread of one
        ancestors = [by_mail[each] for each in reversed(mail.references) if each in by_mail]
        return group or next(iter(ancestors), None)

    def _newest(self) -> Group | None:
        """The newest posting of the one series that a mailbox is about."""
        groups = [group for group in self.groups if group.patches]
        groups = [group for group in groups if group.is_tagged] or groups
        tops = [group for group in groups if self._above(group) is None] or groups
        # A patch by itself beside a series is somebody's idea of it.
        tops = [group for group in tops if group.total > 1] or tops
        family = self._family(tops[0], groups) if tops else []
        rest = [group for group in tops if group not in family]
        if rest:
            listed = "; ".join(
                f"{group.words}: {self.how(group.ordered[0])}"
                for group in [tops[0], *rest][:MOST_NAMED]
            )
            raise SeriesError(
                f"holds {len(rest) + 1} series or more, and none of them is named: {listed}",
                where=self.where,
                next_step=f"name one: --series {self.how(tops[0].ordered[0])}",
            )
        whole = [group for group in family if not self._mends_one(group)] or family
        newest = max(whole, key=lambda group: (group.version, group.is_resent, group.date),
                     default=None)  # fmt: skip
        self.versions = whole
        if newest is not None and len(whole) > 1:
            versions = sorted({group.version for group in whole})
            listed = " and ".join(filter(None, [
                ", ".join(f"v{version}" for version in versions[:-1]), f"v{versions[-1]}"
            ]))  # fmt: skip
            listed += "" if len(versions) > 1 else f", posted {len(whole)} times"
            self.findings.append(f"holds {listed}; v{newest.version}, the newest, is taken")
        return newest

    def _above(self, group: Group) -> Group | None:
        """The posting in whose thread another one stands."""
        first = group.ordered[0]
        above = (self.groups_by_mail.get(each) for each in reversed(first.references))
        return next((other for other in above if other is not None and other is not group), None)

    def _mends_one(self, group: Group) -> bool:
        """Whether a posting is a new version of the one patch of a series that it answers."""
        parent = _parent(group.ordered[0], self.mails)
        return (
            group.total == 1 and parent is not None and parent.total > 1 and parent.number > 0
            and _plain(parent.subject) == _plain(group.title)
        )  # fmt: skip

    def _family(self, group: Group, groups: Sequence[Group]) -> list[Group]:
        """The postings of one series: of one sender, with a title or a change-id, or as answers."""
        by_key: dict[tuple[str, str], list[Group]] = {}
        answers: dict[str, list[Group]] = {}
        for each in groups:
            for key in _keys(each):
                by_key.setdefault(key, []).append(each)
            if above := self._above(each):
                answers.setdefault(above.id, []).append(each)
        family = {group.id: group}
        waiting = [group]
        while waiting:
            member = waiting.pop()
            near = [*answers.get(member.id, []), *filter(None, [self._above(member)])]
            near += [other for key in _keys(member) for other in by_key.pop(key, [])]
            for other in near:
                same = other.sender == member.sender and bool(other.patches)
                if same and other.id not in family and _is_other(member, other):
                    family[other.id] = other
                    waiting.append(other)
        return list(family.values())

    def _only_reply(self) -> Mail:
        """The one mail with a diff where nothing was posted.

        Raises:
            SeriesError: there is none, or there are several; says what was seen.
        """
        answers: dict[str, Mail] = {}
        for mail in self.mails.values():
            if mail.has_diff:
                answers.setdefault(diff_of(mail.text), mail)
        if len(answers) == 1:
            return next(iter(answers.values()))
        if answers:
            listed = "; ".join(map(self._name, list(answers.values())[:MOST_NAMED]))
            first = next(iter(answers.values()))
            raise SeriesError(
                f"no series, and {len(answers)} replies with a diff: {listed}", where=self.where,
                next_step=f"name one: --series {self.how(first)}",
            )  # fmt: skip
        unread = [
            f'"{mail.subject}" (<{mail.message_id}>): {mail.unread}'
            for mail in self.mails.values() if mail.unread
        ]  # fmt: skip
        reasons = f": {'; '.join(unread[:MOST_NAMED])}" if unread else ""
        count = "1 mail" if len(self.mails) == 1 else f"{len(self.mails)} mails"
        raise SeriesError(
            f"no patch in {count}{reasons}", where=self.where,
            next_step="have the diff sent as text, or save it as a .patch file and name that"
            if unread else "check which thread it is",
        )  # fmt: skip

    def _check(self, group: Group) -> None:
        if group.conflict:
            raise SeriesError(
                group.conflict,
                where=self.where,
                next_step="put each series into an mbox of its own, or name one of the two mails",
            )
        if max(group.total, len(group.members)) > MOST_PATCHES:
            raise SeriesError(
                f"has {max(group.total, len(group.members))} patches, more than {MOST_PATCHES}",
                where=self.where,
                next_step="split it",
            )
        if not group.patches:
            with_diff = [mail for mail in group.ordered if mail.has_diff]
            raise SeriesError(
                f'"{clean(group.title)}" has no patch that is numbered from 1 on',
                where=self.where,
                next_step=f"name the mail with a diff: --series {self.how(with_diff[0])}"
                if with_diff
                else "check which thread it is",
            )
        if not group.missing:
            return
        numbers = ", ".join(f"{number}/{group.total}" for number in group.missing)
        claims = [
            mail for other in self.groups for mail in other.patches
            if other is not group and mail.total == group.total and mail.number in group.missing
            and other.version == group.version
        ]  # fmt: skip
        claimed = "; of other threads or senders: " + "; ".join(map(self._name, claims[:3]))
        older = [
            other for other in self._family(group, self.groups)
            if other is not group and not other.missing
        ]  # fmt: skip
        hint = ""
        if older:
            best = max(older, key=lambda other: other.version)
            hint = f", or measure v{best.version}: --series {self.how(best.ordered[0])}"
        raise SeriesError(
            f"v{group.version}: {clean(numbers)} {'is' if len(group.missing) == 1 else 'are'} "
            f"missing{claimed if claims else ''}",
            where=self.where,
            next_step=f"add what is missing{hint}",
        )

    def _describe(self, group: Group) -> None:
        """What a reader has to know of the series that was put together."""
        versions = sorted({mail.version for mail in group.members.values()})
        if len(versions) > 1:
            listed = " and ".join(f"v{number}" for number in versions)
            self.findings.append(
                f"its mails say {listed}; they are one series, taken for v{versions[-1]}"
            )
        totals = sorted({mail.total for mail in group.members.values()})
        if len(totals) > 1:
            counts = " and ".join(map(str, totals))
            self.findings.append(
                f"cover letter and patches differ in the number of patches: {counts}"
            )
        if 0 in group.members and group.members[0].has_diff:
            self.findings.append(
                f"the diff in the cover letter (<{group.members[0].message_id}>) is not measured"
            )
        extra = [
            f"{mail.number:g}/{mail.total}" for mail in group.patches
            if mail.number > group.total or mail.number % 1
        ]  # fmt: skip
        if extra:
            self.findings.append(
                f"{', '.join(extra)} was sent besides the series of {group.total}, and is applied "
                "at that place"
            )
        self.findings += [
            f"{mail.number:g}/{mail.total} is of another sender, {mail.poster}"
            for mail in group.members.values() if mail.sender != group.sender and mail.has_id
        ]  # fmt: skip
        if {mail.number for mail in group.patches} == {1} and len(group.patches) > 1:
            self.findings.append("its patches have no numbers: they are in the mailbox's order")
        self.findings += [
            f"{mail.place} was sent twice with different diffs: <{mail.message_id}> is left out"
            for mail in group.others if not _same(mail, group.members[mail.number])
        ]  # fmt: skip

    def _leave_out(self, taken: set[str], chosen: Group | None) -> None:
        """Name every diff that is in the mailbox and not measured."""
        numbered = {mail.id for mail in chosen.others} if chosen else set()
        taken = taken | numbered
        family = self._family(chosen, self.groups) if chosen else []
        for group in self.groups:
            ids = {mail.id for mail in group.members.values()}
            if not group.patches or not ids.isdisjoint(taken):
                continue
            taken |= ids
            if group in self.versions and not group.missing:
                continue  # said with the versions
            if group.total == 1 and chosen is not None:
                self.findings.append(
                    f"a patch outside of the series is left out: {self._name(group.patches[0])}"
                )
            else:
                kind = "version" if group in family else "series"
                self.findings.append(
                    f"another {kind} is left out: {group.words}, {len(group.patches)} of "
                    f"{group.total} patches: --series {self.how(group.ordered[0])}"
                )
        self.findings += [
            f"a diff in {'a reply' if mail.is_reply else 'another mail'} is left out: "
            f"{self._name(mail)}"
            for mail in self.mails.values()
            if mail.has_diff and mail.id not in taken
        ]

    def _name(self, mail: Mail) -> str:
        return f'"{mail.subject}" ({mail.poster}): --series {self.how(mail)}'


def _is_other(group: Group, other: Group) -> bool:
    """Whether two of one series are different postings of it, and not two series."""
    if (group.version, group.is_resent) != (other.version, other.is_resent):
        return True
    return (_plain(group.title), group.total) == (_plain(other.title), other.total)


def _joined(groups: Sequence[Group]) -> list[Group]:
    """The groups, those put together that fill each other's gaps and that no thread holds together.

    What git wrote into a file without numbers or ids is a series in the file's order.
    """
    bare = all(group.total == 1 and not group.ordered[0].has_id for group in groups)
    if bare and len(groups) > 1:
        members = {float(n): group.ordered[0] for n, group in enumerate(groups, 1)}
        return [Group(members, root=groups[0].root)]
    joined: list[Group] = []
    gaps: dict[tuple[int, int, bool], list[int]] = {}
    for group in groups:
        key = (group.version, group.total, group.is_resent)
        loose = not any(mail.references for mail in group.ordered)
        near = gaps.setdefault(key, []) if loose and group.missing else []
        for at in near[-MOST_GAPS:]:
            other = joined[at]
            if other.missing and group.members.keys().isdisjoint(other.members):
                members = {**other.members, **group.members}
                joined[at] = Group(members, (*other.others, *group.others), "", other.root)
                break
        else:
            near.append(len(joined))
            joined.append(group)
    return joined


def _keys(group: Group) -> set[tuple[str, str]]:
    mails = group.members.values()
    words = {_plain(mail.subject) for mail in mails} | {mail.change_id for mail in mails} - {""}
    return {(group.sender, word) for word in words}
