"""Which mails are a series: those of a thread, a mailbox or a list.  Pure.

``groups_of`` is the one answer to that, for whoever follows a list and whoever names a mailbox;
``select`` chooses one of the series of a mailbox, and names every diff that it leaves out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from errors import SeriesError
from kernels.mail import DIFF, Mail, diff_of, digest
from text import clean, counted

MOST_PATCHES = 1000
MOST_NAMED = 5
MOST_FINDINGS = 20
# So many series that lack mails are looked at for the place of a mail without a thread.
MOST_GAPS = 20
THREAD = "check which thread it is"


@dataclass(eq=False)
class Group:
    """The mails of one posting of a series that are there, by number; 0 is the cover letter.

    ``others`` are those whose place another one has; ``conflict`` says which two cannot both be
    members.  ``root`` is where its thread begins, as far as that is known.  ``ordered`` has the
    cover letter first, ``patches`` does not have it; ``total`` is how many patches it says it has.
    Title, author and sender are those of its first mail, ``date`` is when the oldest was sent.
    ``id`` is the same whenever its mails are read again, ``words`` are
    ``v2 of "mm: make it fast" (A <a@example.org>)``.
    """

    members: Mapping[float, Mail]
    others: tuple[Mail, ...] = field(default=(), repr=False)
    conflict: str = ""
    root: str = ""

    def __post_init__(self) -> None:
        mails = self.ordered = tuple(self.members[number] for number in sorted(self.members))
        self.patches = tuple(mail for mail in mails if mail.number)
        self.total = max(mail.total for mail in self.patches or mails)
        self.version = max(mail.version for mail in mails)
        self.is_resent = any(mail.is_resent for mail in mails)
        self.is_tagged = any(mail.is_tagged for mail in mails)
        self.date = min(mail.date for mail in mails)
        self.title, self.author, self.sender = mails[0].subject, mails[0].poster, mails[0].sender
        self.id = digest("\n".join(mail.id for mail in self.patches or mails))[:8]
        self.words = f'v{self.version} of "{self.title}" ({self.author})'

    @property
    def missing(self) -> tuple[int, ...]:
        """The numbers of the patches that are not there."""
        return tuple(number for number in range(1, self.total + 1) if number not in self.members)


@dataclass(frozen=True)
class Thread:
    """The series that was chosen: patches in order, and what is to be said of the choice."""

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
        elif parent is not None and _goes_on(parent, post) and parent.id in way:
            circle = list(way)  # of answers: the same one of it, whichever mail came first
            heads[post.id] = min(circle[circle.index(parent.id) :])
        elif parent is not None and _goes_on(parent, post):
            post = parent
        elif post.total == 1:  # by itself, whatever it answers
            heads[post.id] = post.id
        elif parent is not None:
            heads[post.id] = parent.id
        else:
            heads[post.id] = post.references[-1] if post.references else post.stem or post.id
    heads |= dict.fromkeys(way, heads[post.id])
    return heads[post.id]


def _parent(mail: Mail, known: Mapping[str, Mail]) -> Mail | None:
    """The nearest of the mails that it answers which is known."""
    return next((known[each] for each in reversed(mail.references) if each in known), None)


def _goes_on(parent: Mail, post: Mail) -> bool:
    """Whether a mail is a later one of the series of the mail that it answers."""
    # One that was forgotten, 1.5/2, may answer any of them.
    is_later = parent.number < post.number or not (post.number.is_integer() or post.total == 1)
    if parent.sender != post.sender or not is_later:
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
    # No two parts are equal in all three, so that it does not matter which mail came first.
    newest = attrgetter("version", "is_resent", "total")
    for part in sorted(parts, key=lambda part: newest(part[0]), reverse=True):
        first, numbers = part[0], {mail.number for mail in part}
        # A cover letter belongs to the patches of which it says how many they are.
        for other in sorted(whole, key=lambda other: other[0].total != part[0].total):
            more = {mail.number for mail in other}
            covers = numbers == {0} or more == {0}
            equal = first.total == other[0].total
            one_again = (
                equal
                and first.version == other[0].version
                and not set(range(1, first.total + 1)) <= min(numbers, more, key=len)
            )
            same = equal or (covers and min(first.total, other[0].total) > 1)
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
    ranks = {mail.id: (mail.id == preferred, not _is_answer(mail), mail.date) for mail in mails}
    for number in sorted({mail.number for mail in mails}):
        there = [mail for mail in mails if mail.number == number]
        best = there[0]
        for mail in there[1:]:
            if ranks[mail.id] >= ranks[best.id] and not _same(mail, best):
                best = mail
        members[number] = best
        for mail in there:
            if mail is best:
                continue
            others.append(mail)
            alike = _same(mail, best) or _plain(mail.subject) == _plain(best.subject)
            if preferred != best.id and not alike and not _is_answer(mail):
                conflict = f'two mails are {best.place}: "{mail.subject}" and "{best.subject}"'
    top = members[min(members)]
    visited = {top.id}
    while top.references and top.references[0] in known and top.references[0] not in visited:
        top = known[top.references[0]]
        visited.add(top.id)
    root = top.references[0] if top.references else top.stem or top.id
    return Group(members, tuple(others), conflict, root)


def _is_answer(mail: Mail) -> bool:
    """Whether a mail quotes another one before its diff: it is no first posting."""
    diff = DIFF.search(mail.text)
    words = mail.text[: diff.start()] if diff else mail.text
    return bool(mail.references) and re.search(r"^>", words, re.M) is not None


def _same(mail: Mail, other: Mail) -> bool:
    return diff_of(mail.text) == diff_of(other.text)


def _plain(title: str) -> str:
    return " ".join(title.lower().split())


def _joined(groups: Sequence[Group]) -> list[Group]:
    """The groups, those of no thread joined that fill each other's gaps; bare files in order."""
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


def select(
    mails: Sequence[Mail], where: str, named: str = "", how: Callable[[Mail], str] = repr
) -> Thread:
    """The series that a user means: that of the mail whose id is ``named``, else the newest.

    ``how`` says what to name instead, to have another mail's diff measured.
    Raises SeriesError: no patch, a patch that is missing, two that claim one place, or several
    series of which none is meant.
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
            raise self._error(f"holds no mail <{clean(named)}>", f"it has {ids}")
        posts = [mail for mail in self.mails.values() if mail.is_patch]
        self.groups = _joined(groups_of(posts, self.named.id if self.named else ""))
        self.group_of = {m.id: group for group in self.groups for m in group.members.values()}

    def _error(self, what: str, next_step: str) -> SeriesError:
        return SeriesError(what, where=self.where, next_step=next_step)

    def _name(self, mail: Mail) -> str:
        return f'"{mail.subject}" ({mail.poster}): --series {self.how(mail)}'

    def _above(self, group: Group) -> Group | None:
        """The posting in whose thread another one stands."""
        above = (self.group_of.get(each, group) for each in reversed(group.ordered[0].references))
        return next((other for other in above if other is not group), None)

    def thread(self) -> Thread:
        """The series, with its findings."""
        chosen = alone = None
        if (mail := self.named) is not None:
            chosen = self.group_of.get(mail.id)
            if mail.has_diff and (
                chosen is None or not chosen.patches or (chosen.missing and self._above(chosen))
            ):  # of no series, or by itself in the thread of one
                chosen, alone = None, mail
            elif chosen is None:
                above = (self.group_of.get(each) for each in reversed(mail.references))
                chosen = next(filter(None, above), None)
        if chosen is None and alone is None:
            chosen = self._newest()
        if chosen is not None:
            self._check(chosen)
            self._describe(chosen)
            patches, cover = chosen.patches, chosen.members.get(0)
        else:
            alone = alone or self._only_diff()
            kind = "a reply" if alone.is_reply else "one mail"
            self.findings.append(f"the diff of {kind} is taken")
            patches, cover = (alone,), None
        self._leave_out(chosen, alone)
        if len(patches) == 1 and patches[0].attached:
            cover, patches = patches[0], patches[0].attached
        self.findings += [
            f'"{mail.subject}" (<{mail.message_id}>) {mail.unread}; the one in its text is taken'
            for mail in patches
            if mail.unread and mail.has_diff
        ]
        more = len(self.findings) - MOST_FINDINGS
        cut = [f"and {more} more"] if more > 0 else []
        return Thread(patches, cover, (*self.findings[:MOST_FINDINGS], *cut))

    def _newest(self) -> Group | None:
        """The newest posting of the one series that a mailbox is about."""
        groups = [group for group in self.groups if group.patches]
        groups = [group for group in groups if group.is_tagged] or groups
        tops = [group for group in groups if self._above(group) is None] or groups
        # A patch by itself beside a series is somebody's idea of it.
        tops = [group for group in tops if group.total > 1] or tops
        if not tops:
            return None
        family = self._family(tops[0], groups)
        rest = [group for group in tops if group not in family]
        if rest:
            shown = [tops[0], *rest][:MOST_NAMED]
            listed = "; ".join(f"{each.words}: {self.how(each.ordered[0])}" for each in shown)
            raise self._error(
                f"holds {len(rest) + 1} series or more, and none of them is named: {listed}",
                f"name one: --series {self.how(tops[0].ordered[0])}",
            )
        # A new version of the one patch that it answers stands for no series.
        self.versions = [
            group
            for group in family
            if group.total > 1
            or (parent := _parent(group.ordered[0], self.mails)) is None
            or parent.total == 1
            or parent.number == 0
            or _plain(parent.subject) != _plain(group.title)
        ] or family
        newest = max(self.versions, key=lambda each: (each.version, each.is_resent, each.date))
        if len(self.versions) > 1:
            *older, last = (f"v{n}" for n in sorted({each.version for each in self.versions}))
            listed = f"{', '.join(older)} and {last}" if older else last
            times = "" if older else f", posted {len(self.versions)} times"
            self.findings.append(f"holds {listed}{times}; v{newest.version}, the newest, is taken")
        return newest

    def _family(self, group: Group, groups: Sequence[Group]) -> list[Group]:
        """The postings of one series: of one sender, with a title or a change-id, or as answers."""
        by_key: dict[str, list[Group]] = {}
        answers: dict[str, list[Group]] = {}
        for each in (each for each in groups if each.sender == group.sender and each.patches):
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
                # Two of one series are different postings of it, and not two series.
                is_other = (member.version, member.is_resent) != (
                    other.version,
                    other.is_resent,
                ) or (_plain(member.title), member.total) == (_plain(other.title), other.total)
                same = other.sender == group.sender and bool(other.patches)
                if same and is_other and other.id not in family:
                    family[other.id] = other
                    waiting.append(other)
        return list(family.values())

    def _only_diff(self) -> Mail:
        """The one mail with a diff where nothing was posted; SeriesError: none, or several."""
        mails: dict[str, Mail] = {}
        for mail in self.mails.values():
            if mail.has_diff:
                mails.setdefault(diff_of(mail.text), mail)
        if len(mails) == 1:
            return next(iter(mails.values()))
        if mails:
            first, *_ = shown = list(mails.values())[:MOST_NAMED]
            listed = "; ".join(map(self._name, shown))
            raise self._error(
                f"no series, and {len(mails)} replies with a diff: {listed}",
                f"name one: --series {self.how(first)}",
            )
        unread = [
            f'"{mail.subject}" (<{mail.message_id}>): {mail.unread}'
            for mail in self.mails.values()
            if mail.unread
        ]
        if not self.mails:
            raise self._error("holds no mail", "name a mail, a mailbox or a patch")
        reasons = f": {'; '.join(unread[:MOST_NAMED])}" if unread else ""
        as_text = "have the diff sent as text, or save it as a .patch file and name that"
        raise self._error(
            f"no patch in {counted(len(self.mails), 'mail')}{reasons}",
            as_text if unread else THREAD,
        )

    def _check(self, group: Group) -> None:
        count = max(group.total, len(group.members))
        if group.conflict:
            step = "put each series into an mbox of its own, or name one of the two mails"
            raise self._error(group.conflict, step)
        if count > MOST_PATCHES:
            raise self._error(f"has {count} patches, more than {MOST_PATCHES}", "split it")
        if not group.patches:
            mail = next((mail for mail in group.ordered if mail.has_diff), None)
            raise self._error(
                f'"{group.title}" has no patch that is numbered from 1 on',
                f"name the mail with a diff: --series {self.how(mail)}" if mail else THREAD,
            )
        missing = group.missing
        if not missing:
            return
        numbers = ", ".join(f"{number}/{group.total}" for number in missing)
        claims = [
            self._name(mail)
            for other in self.groups
            if other is not group and other.version == group.version
            for mail in other.patches
            if mail.total == group.total and mail.number in missing
        ]
        claimed = f"; of other threads or senders: {'; '.join(claims[:3])}" if claims else ""
        family = self._family(group, self.groups)
        older = [other for other in family if other is not group and not other.missing]
        best = max(older, key=lambda other: other.version, default=None)
        hint = f", or measure v{best.version}: --series {self.how(best.ordered[0])}" if best else ""
        verb = "is" if len(missing) == 1 else "are"
        raise self._error(
            f"v{group.version}: {clean(numbers)} {verb} missing{claimed}",
            f"add what is missing{hint}",
        )

    def _describe(self, group: Group) -> None:
        """What a reader has to know of the series that was put together."""
        versions, totals = (
            [str(n) for n in sorted({getattr(mail, name) for mail in group.ordered})]
            for name in ("version", "total")
        )
        if len(versions) > 1:
            listed = " and ".join(f"v{number}" for number in versions)
            self.findings.append(
                f"its mails say {listed}; they are one series, taken for v{group.version}"
            )
        if len(totals) > 1:
            counts = " and ".join(totals)
            self.findings.append(
                f"cover letter and patches differ in the number of patches: {counts}"
            )
        if 0 in group.members and group.members[0].has_diff:
            self.findings.append(
                f"the diff in the cover letter (<{group.members[0].message_id}>) is not measured"
            )
        extra = ", ".join(
            f"{mail.number:g}/{mail.total}"
            for mail in group.patches
            if mail.number > group.total or mail.number % 1
        )
        if extra:
            self.findings.append(
                f"{extra} was sent besides the series of {group.total}, and is applied at that "
                "place"
            )
        self.findings += [
            f"{mail.number:g}/{mail.total} is of another sender, {mail.poster}"
            for mail in group.ordered
            if mail.sender != group.sender and mail.has_id
        ]
        if {mail.number for mail in group.patches} == {1} and len(group.patches) > 1:
            self.findings.append("its patches have no numbers: they are in the mailbox's order")
        self.findings += [
            f"{mail.place} was sent twice with different diffs: <{mail.message_id}> is left out"
            for mail in group.others
            if not _same(mail, group.members[mail.number])
        ]

    def _leave_out(self, chosen: Group | None, alone: Mail | None) -> None:
        """Name every diff that is in the mailbox and not measured."""
        taken = {alone.id} if alone else set()
        family: list[Group] = []
        if chosen:
            taken = {mail.id for mail in (*chosen.ordered, *chosen.others)}
            family = self._family(chosen, self.groups)
        for group in self.groups:
            ids = {mail.id for mail in group.ordered}
            if not group.patches or not ids.isdisjoint(taken):
                continue
            taken |= ids
            if group in self.versions and not group.missing:
                continue  # said with the versions
            if group.total == 1 and chosen is not None:
                what = f"a patch outside of the series is left out: {self._name(group.patches[0])}"
            else:
                kind = "version" if group in family else "series"
                what = (
                    f"another {kind} is left out: {group.words}, {len(group.patches)} of "
                    f"{group.total} patches: --series {self.how(group.ordered[0])}"
                )
            self.findings.append(what)
        self.findings += [
            f"a diff in {'a reply' if mail.is_reply else 'another mail'} is left out: "
            f"{self._name(mail)}"
            for mail in self.mails.values()
            if mail.has_diff and mail.id not in taken
        ]


def _keys(group: Group) -> set[str]:
    words = {_plain(mail.subject) for mail in group.ordered}
    return words | {mail.change_id for mail in group.ordered} - {""}
