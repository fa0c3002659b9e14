"""Any bytes are a mail, a thread, a diff or an error of the lab: soon, and in little memory."""

import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import example, given, settings
from hypothesis import strategies as st

from errors import SeriesError
from kernels.mail import diff_of, read_mails
from kernels.threads import groups_of, select
from tests.kernels.posting import Post, mbox
from tests.queues.archive import diff, patch

# Of one example, whose input has a few kB; a slow host takes a fifth of a second.
MOST_CPU_S = 3.0
MOST_BYTES = 32 << 20


@contextmanager
def bounded() -> Iterator[None]:
    """No more CPU time and memory than the reading of a few kB may take."""
    tracemalloc.start()
    started = time.process_time()
    try:
        yield
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.process_time() - started < MOST_CPU_S
    assert used < MOST_BYTES


ADA, OTTO = "Ada L <ada@example.org>", "Otto V <otto@example.net>"
POSTS = st.builds(
    lambda prefix, tags, place, title, sender, to, body: (
        prefix,
        tags,
        place,
        title,
        sender,
        to,
        body,
    ),
    st.sampled_from(["", "", "", "Re: "]),
    st.sampled_from(["PATCH", "PATCH", "PATCH v2", "RFC,v2", "PATCH RESEND", "", "bug"]),
    st.sampled_from(["0/2", "1/2", "2/2", "1/2", "2/2", "3/2", "1.5/2", "1/3", "", "0/0", "0/1"]),
    st.sampled_from(["mm: a", "mm: b", "fs: c"]),
    st.sampled_from([ADA, ADA, OTTO]),
    st.lists(st.integers(0, 7), max_size=2),
    st.sampled_from([None, None, "> it\n\n", ""]),
)


def thread_of(drawn: list[tuple[str, str, str, str, str, list[int], str | None]]) -> list[Post]:
    posts = []
    for number, (prefix, tags, place, title, sender, to, body) in enumerate(drawn):
        bracket = f"[{tags} {place}] " if tags or place else ""
        made = patch(
            f"{prefix}{bracket}{title}",
            f"m{number}",
            sender=sender,
            answers=[f"m{each}" for each in to],
            body="" if body == "" else f"{body or ''}{diff('mm/x.c', str(number), 'y')}",
        )
        posts.append(made.with_header("Date", f"Wed, 18 Nov 2026 10:{59 - number:02d}:00 +0000"))
    return posts


@settings(max_examples=80)
@given(st.lists(POSTS, min_size=1, max_size=8), st.integers(-1, 7))
@example(  # the cover letter alone has a diff, and one of its answers is named
    [("", "PATCH", "0/0", "mm: a", ADA, [], None), ("", "PATCH", "1/2", "mm: a", ADA, [0], "")], 1
)
def test_every_diff_of_any_thread_is_measured_or_named(
    drawn: list[tuple[str, str, str, str, str, list[int], str | None]], named: int
) -> None:
    mails = read_mails(mbox(thread_of(drawn)), "x")
    identifier = f"m{named}@example.org" if 0 <= named < len(mails) else ""
    try:
        with bounded():
            thread = select(mails, "x", identifier, lambda mail: mail.message_id)
    except SeriesError:
        return
    assert thread.patches
    assert all(mail.has_diff for mail in thread.patches)
    texts = "\n".join(thread.findings)
    senders = {mail.sender for mail in thread.patches if mail.references}
    assert len(senders) <= 1
    for mail in mails:
        versions = f"v{mail.version}" in texts.partition("the newest, is taken")[0]
        assert not mail.has_diff or (
            mail in thread.patches
            or mail.message_id in texts
            or versions
            or any(diff_of(mail.text) == diff_of(other.text) for other in thread.patches)
            or _group_is_named(mail.message_id, texts, mails)
        )


def _group_is_named(message_id: str, texts: str, mails: object) -> bool:
    groups = groups_of([mail for mail in mails if mail.is_patch])  # type: ignore[attr-defined]
    return any(
        message_id in ids and any(each in texts for each in ids)
        for group in groups
        for ids in [{mail.message_id for mail in (*group.ordered, *group.others)}]
    )


def _placed(
    place: str, *answers: int, tag: str = "PATCH"
) -> tuple[str, str, str, str, str, list[int], str | None]:
    return ("", tag, place, "mm: a", ADA, [*answers], None)


# Two mails that answer each other, and a third that answers one of them.
CIRCLE = [
    *(_placed("0/2"), _placed("1.5/2", 2), _placed("2/2", 1)),
    *(_placed("0/2"), _placed("0/2"), _placed("1/2", 1)),
]
# A cover letter below which patches of two totals hang.
TWO_TOTALS = [
    *(_placed("0/2"), _placed("0/2")),
    *(_placed("1/2", 0, tag="PATCH v2"), _placed("1/3", 0, tag="PATCH v2")),
]


@settings(max_examples=80)
@example(case=(CIRCLE, [2, 1, 0, 3, 4, 5]))
@example(case=(TWO_TOTALS, [3, 1, 2, 0]))
@given(
    st.lists(POSTS, min_size=1, max_size=8).flatmap(
        lambda drawn: st.tuples(st.just(drawn), st.permutations(range(len(drawn))))
    )
)
def test_groups_do_not_depend_on_the_order_of_mails(
    case: tuple[list[tuple[str, str, str, str, str, list[int], str | None]], list[int]],
) -> None:
    drawn, order = case
    posts = [mail for mail in read_mails(mbox(thread_of(drawn)), "x") if mail.is_patch]
    shuffled = [posts[number] for number in order if number < len(posts)]

    def sets(mails: list[object]) -> set[tuple[tuple[float, str], ...]]:
        return {
            tuple(sorted((number, mail.id) for number, mail in group.members.items()))
            for group in groups_of(mails)  # type: ignore[arg-type]
        }

    assert sets(list(posts)) == sets(list(shuffled))
