"""Which mails are the series, by whoever sent what into its thread."""

from collections.abc import Sequence

import pytest

from errors import SeriesError
from kernels.mail import Mail, read_mail, read_mails
from kernels.threads import Thread, groups_of, select
from tests.kernels.posting import Post, mbox
from tests.queues.archive import diff, patch, series
from tests.values import data

OTTO = "Otto V <otto@example.net>"
COVER = "Why.\n\nbase-commit: adc218676eef25575469234709c2d87185ca223a\n"


def chosen(posts: Sequence[Post], named: str = "") -> Thread:
    mails = read_mails(mbox(list(posts)), "x.mbox")
    return select(mails, "x.mbox", f"{named}@example.org" if named else "", how)


def how(mail: Mail) -> str:
    return mail.message_id.partition("@")[0]


def version_of(thread: Thread) -> int:
    return max(mail.version for mail in (thread.cover, *thread.patches) if mail)


def names(thread: Thread) -> list[str]:
    return [how(mail) for mail in thread.patches]


def renamed(post: Post, old: str, new: str) -> Post:
    assert old in post.header("Subject")
    return post.with_header("Subject", post.header("Subject").replace(old, new))


def test_a_question_with_the_subject_of_the_cover_letter_is_no_cover_letter() -> None:
    posts = series("a", 2, version=2)
    for sender in (OTTO, "Ada L <ada@example.org>"):
        question = patch(
            posts[0].header("Subject"), "q", answers=["a-0"], sender=sender, body="> Why.\n\nWhy?\n"
        )
        thread = chosen([*posts, question])
        assert thread.cover is not None
        assert (how(thread.cover), thread.findings) == ("a-0", ())
    unquoted = patch(posts[0].header("Subject"), "q", answers=["a-0"], body="And on ARM?\n")
    assert chosen([*posts, unquoted]).cover == thread.cover


@pytest.mark.parametrize("sender", [OTTO, "Ada L <ada@example.org>"])
@pytest.mark.parametrize("answers", [["a-1"], ["a-0"], ["a-0", "a-1"]])
def test_a_reviewers_patch_with_the_title_of_a_member_is_left_out(
    sender: str, answers: list[str]
) -> None:
    posts = series("a", 2)
    body = f"> It has a reason.\n\nLike this?\n\n{diff('mm/filemap.c', 'a', 'b')}"
    theirs = patch(posts[1].header("Subject"), "r", answers=answers, sender=sender, body=body)
    for mails in ([*posts, theirs], [theirs, *posts]):
        thread = chosen(mails)
        assert names(thread) == ["a-1", "a-2"]
        assert len(thread.findings) == 1
        assert "r@example.org" in thread.findings[0] or thread.findings[0].endswith("--series r")
    assert names(chosen([*posts, theirs], "r")) in (["r"], ["r", "a-2"])


def test_a_patch_of_another_sender_fills_no_place() -> None:
    cover, first, second = series("a", 2)
    theirs = second.with_header("From", OTTO).with_header("Message-ID", "<r@example.org>")
    assert names(chosen([cover, first, theirs, second])) == ["a-1", "a-2"]
    with pytest.raises(SeriesError, match=r'2/2 is missing; .*"mm: step 2 of a" \(Otto V'):
        chosen([cover, first, theirs])


@pytest.mark.parametrize("tag", ["PATCH v2", "PATCH RESEND", "RFC PATCH v2"])
@pytest.mark.parametrize("on_cover", [True, False])
def test_a_version_on_the_cover_letter_or_on_the_patches_alone(tag: str, on_cover: bool) -> None:
    cover, *patches = series("a", 2)
    if on_cover:
        cover = renamed(cover, "PATCH", tag)
    else:
        patches = [renamed(post, "PATCH", tag) for post in patches]
    thread = chosen([*patches, Post(cover.headers, COVER)])
    assert thread.cover is not None
    assert names(thread) == ["a-1", "a-2"]
    assert version_of(thread) == (2 if "v2" in tag else 1)
    assert ("its mails say v1 and v2" in "".join(thread.findings)) == ("v2" in tag)


def test_a_version_that_is_missing_on_one_patch() -> None:
    cover, first, second = series("a", 2, version=3)
    thread = chosen([cover, first, renamed(second, " v3", "")])
    assert (names(thread), version_of(thread)) == (["a-1", "a-2"], 3)


def test_another_number_of_patches_on_the_cover_letter() -> None:
    cover, *patches = series("a", 2)
    thread = chosen([renamed(cover, "0/2", "0/3"), *patches])
    assert thread.cover is not None
    assert thread.findings == ("cover letter and patches differ in the number of patches: 2 and 3",)


@pytest.mark.parametrize("total", [2, 3])
@pytest.mark.parametrize("cover", [True, False])
def test_a_series_below_a_series_is_another_one(total: int, cover: bool) -> None:
    posts = series("a", 2)
    other = series("b", total, title="fstests: new", under=["a-0"], cover=cover, file="mm/slub.c")
    if total == 2 and not cover:
        with pytest.raises(SeriesError, match="two mails are v1 2/2"):
            chosen([*posts, *other])
        return
    for mails in ([*posts, *other], [*other, *posts]):
        thread = chosen(mails)
        assert names(thread) == ["a-1", "a-2"]
        assert len(thread.findings) == 1
    assert names(chosen([*posts, *other], "a-2")) == ["a-1", "a-2"]
    if cover:
        assert names(chosen([*posts, *other], "b-0")) == [f"b-{n + 1}" for n in range(total)]


def test_the_version_that_is_named_is_taken() -> None:
    old, new = series("a", 2), series("b", 3, version=2, under=["a-0"])
    assert chosen([*old, *new]).findings == ("holds v1 and v2; v2, the newest, is taken",)
    thread = chosen([*new, *old], "a-1")
    assert (names(thread), version_of(thread)) == (["a-1", "a-2"], 1)
    assert thread.findings[0].startswith("another version is left out: v2 of")
    question = patch("Re: [PATCH] x", "q", answers=["a-0", "a-2"], body="> x\n\nWhy?\n")
    assert names(chosen([*old, *new, question], "q")) == ["a-1", "a-2"]


def test_a_second_version_without_a_cover_letter_below_the_first_ones() -> None:
    old, new = series("a", 2), series("b", 2, version=2, cover=False, under=["a-0"])
    loose = [
        post.with_header("References", "<a-0@example.org>").with_header(
            "In-Reply-To", "<a-0@example.org>"
        )
        for post in new
    ]
    for posts in (new, loose):
        thread = chosen([*old, *posts])
        assert (names(thread), version_of(thread), thread.cover) == (["b-1", "b-2"], 2, None)


def test_a_new_version_of_one_patch_stands_for_no_series() -> None:
    posts = series("a", 2)
    again = patch("[PATCH v2] mm: step 2 of a", "r", answers=["a-0", "a-2"])
    thread = chosen([*posts, again])
    assert (names(thread), version_of(thread)) == (["a-1", "a-2"], 1)
    assert "--series r" in thread.findings[-1]


@pytest.mark.parametrize(
    ("number", "order"),
    [("3/2", [1, 2, 9]), ("1.5/2", [1, 9, 2]), ("0.5/2", [9, 1, 2]), ("4/2", [1, 2, 9])],
)
@pytest.mark.parametrize("answers", [["a-0"], ["a-0", "a-2"]])
def test_one_more_patch_has_a_place(number: str, order: list[int], answers: list[str]) -> None:
    more = patch(f"[PATCH {number}] mm: more", "a-9", answers=answers)
    thread = chosen([*series("a", 2), more])
    assert names(thread) == [f"a-{n}" for n in order]
    assert thread.findings[0].startswith(f"{number} was sent besides the series of 2")
    theirs = more.with_header("From", OTTO)
    thread = chosen([*series("a", 2), theirs])
    assert names(thread) == ["a-1", "a-2"]
    assert thread.findings[0].endswith("--series a-9")


@pytest.mark.parametrize("tags", data(__file__, "tags_as_people_and_patchwork_write_them"))
def test_tags_as_people_and_patchwork_write_them(tags: str) -> None:
    posts = [patch(f"{tags.format(n=n)} mm: x{n}", f"a-{n}", answers=["a-0"]) for n in (0, 1, 2)]
    thread = chosen([posts[2], Post(posts[0].headers, COVER), posts[1]])
    assert (names(thread), version_of(thread), thread.findings) == (["a-1", "a-2"], 6, ())
    assert [mail.subject for mail in thread.patches] == ["mm: x1", "mm: x2"]
    assert thread.cover is not None
    assert all(read_mail(post.encoded()).is_posted for post in posts)


@pytest.mark.parametrize("prefix", ["Re: ", "RE:", "AW: ", "[linux-mm] Re: ", "Fwd: ", "答复: "])
def test_answers_are_known_by_their_subjects(prefix: str) -> None:
    assert read_mail(patch(f"{prefix}[PATCH] mm: x", "a").encoded()).is_reply


def test_mails_in_any_order_and_twice() -> None:
    cover, *patches = series("a", 4)
    thread = chosen([patches[3], patches[1], cover, patches[0], patches[1], patches[2]])
    assert (names(thread), thread.findings) == (["a-1", "a-2", "a-3", "a-4"], ())
    footer = Post(patches[0].headers, f"{patches[0].body}\n___\nlinux-mm mailing list\n")
    assert chosen([cover, footer, *patches]).findings == ()
    other = Post(patches[0].headers, diff("mm/slub.c"))
    thread = chosen([cover, *patches, other])
    assert "two mails have the id <a-1@example.org> and different diffs" in thread.findings[0]
    assert "mm/filemap.c" in thread.patches[0].text


def test_a_patch_that_was_sent_again_takes_the_place_of_the_first() -> None:
    cover, first, second = series("a", 2)
    again = Post(first.headers, diff("mm/slub.c")).with_header("Message-ID", "<b@example.org>")
    again = again.with_header("Date", "Wed, 18 Nov 2026 12:00:00 +0000")
    for posts in ([cover, first, again, second], [again, cover, first, second]):
        thread = chosen(posts)
        assert names(thread) == ["b", "a-2"]
        assert thread.findings == (
            "v1 1/2 was sent twice with different diffs: <a-1@example.org> is left out",
        )


def test_two_mails_for_one_place_are_refused() -> None:
    cover, first, second = series("a", 2)
    other = Post(first.headers, diff("mm/slub.c")).with_header("Message-ID", "<b@example.org>")
    other = other.with_header("Subject", "[PATCH 1/2] mm: other")
    with pytest.raises(SeriesError, match="two mails are v1 1/2"):
        chosen([cover, first, other, second])
    assert names(chosen([cover, first, other, second], "b")) == ["b", "a-2"]


def test_a_diff_in_an_answer_is_taken_where_it_is_the_only_one() -> None:
    report = patch("[linux-next] regression", "a", body="It is slow.\n")
    fix = patch("Re: [linux-next] regression", "b", answers=["a"])
    more = patch("Re: [linux-next] regression", "c", answers=["a"], body=diff("mm/slub.c"))
    thread = chosen([report, fix])
    assert (names(thread), thread.findings) == (["b"], ("the diff of a reply is taken",))
    with pytest.raises(
        SeriesError, match=r"no series, and 2 replies with a diff: .*series b;.*series c\n"
    ):
        chosen([report, fix, more])
    assert names(chosen([report, fix, more], "c")) == ["c"]


def test_every_diff_that_is_left_is_named() -> None:
    posts = series("a", 2)
    reply = patch("Re: [PATCH 1/2] x", "r", answers=["a-1"], sender=OTTO, body=diff("mm/slub.c"))
    bot = patch("[PATCH] mm: fix semicolon", "s", answers=["a-2"], sender="Bot <bot@example.com>")
    plain = patch("mm: no tag", "t", answers=["a-2"], sender=OTTO)
    thread = chosen([*posts, reply, bot, plain])
    assert names(thread) == ["a-1", "a-2"]
    assert [line.rpartition(" ")[2] for line in thread.findings] == ["s", "t", "r"]


def test_series_that_have_nothing_to_do_with_each_other_are_listed() -> None:
    posts = [*series("a", 2), *series("b", 2, title="fs: other", sender=OTTO, version=2)]
    with pytest.raises(SeriesError, match=r"holds 2 series or more.*a-0; .*fs: other.*b-0\n"):
        chosen(posts)
    assert names(chosen(posts, "b-2")) == ["b-1", "b-2"]
    with pytest.raises(SeriesError, match=r"holds no mail <c@example.org>") as caught:
        chosen(posts, "c")
    assert "<a-0@example.org>" in caught.value.next_step


def test_mails_that_no_thread_holds_together() -> None:
    plain = [patch(f"[PATCH {n}/3] mm: x{n}", f"a-{n}") for n in (0, 3, 1, 2)]
    assert names(chosen(plain)) == ["a-1", "a-2", "a-3"]
    named = chosen(plain, "a-2")
    assert names(named) == ["a-1", "a-2", "a-3"]


def test_what_git_wrote_without_numbers_is_in_the_order_of_the_file() -> None:
    posts = [patch(f"[PATCH] mm: {name}", name, file=f"mm/{name}.c") for name in ("b", "a", "c")]
    bare = [Post(tuple(h for h in p.headers if h[0] != "Message-ID"), p.body) for p in posts]
    thread = chosen(bare)
    assert [mail.subject for mail in thread.patches] == ["mm: b", "mm: a", "mm: c"]
    assert thread.findings == ("its patches have no numbers: they are in the mailbox's order",)


def test_grouping_takes_linear_time() -> None:
    import time

    started = time.process_time()
    loose = [patch(f"[PATCH 1/900] mm: {n}", f"l{n}", body="") for n in range(2000)]
    deep = [
        patch(f"[PATCH {n}/900] mm: {n}", f"d{n}", answers=[f"d{n - 1}"]) for n in range(1, 900)
    ]
    mails = [read_mail(post.encoded()) for post in [*loose, *deep]]
    assert len(groups_of([mail for mail in mails if mail.is_patch])) == 1
    with pytest.raises(SeriesError):
        select(mails, "x")
    assert time.process_time() - started < 10
