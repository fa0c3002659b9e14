"""A series leaves one cache and is taken into another, or is refused."""

import base64
import hashlib
import quopri
import re
import shutil
from pathlib import Path

import pytest

from errors import InfraError, SeriesError, UsageError
from experiment.spec import SeriesSpec
from kernels.build import provide
from kernels.diff import Diff, read_diff
from kernels.intake import RECORDS, adopt, copy_out, take_in
from kernels.series import apply, read_patch
from results.record import SeriesRecord
from tests.kernels.fake import COMMENT, FASTER, GROWN, Lab, git, keep, patches_of, replace
from tests.kernels.posting import Post, encoded_word, mbox, post, reply, repository
from tests.kernels.test_git_range import edit_slow
from tests.values import but, data


def file(lab: Lab, posts: list[Post] | bytes, name: str = "thread.mbox") -> SeriesSpec:
    path = lab.checkout / name
    path.write_bytes(posts if isinstance(posts, bytes) else mbox(posts))
    return SeriesSpec(path=name)


def taken(lab: Lab, spec: SeriesSpec) -> tuple[list[Path], SeriesRecord]:
    spec = keep(spec, **lab.where)
    (record,) = take_in(spec, **lab.where).records
    return list(patches_of(spec, **lab.where)), record


def applied(lab: Lab, patches: list[Path]) -> str:
    apply([read_patch(path) for path in patches], lab.source)
    return (lab.source / "mm/filemap.c").read_text()


def test_a_thread_with_cover_letter_and_replies(lab: Lab) -> None:
    posts = post(lab, FASTER, GROWN, cover="mm: make it fast")
    posts += [reply(posts[1], "Reviewed-by: Rev Iewer <rev@example.org>"), reply(posts[0], "Nice!")]
    patches, record = taken(lab, file(lab, posts))
    assert [path.name for path in patches] == [
        "0001-mm-change-number-1.patch",
        "0002-mm-change-number-2.patch",
    ]
    assert "Reviewed-by" not in patches[0].read_text()  # it changes nothing that is measured
    assert (record.kind, record.origin, record.title) == ("file", "thread.mbox", "mm: make it fast")
    assert record.author == "Ada L <ada@example.org>"
    assert f"<{record.message_id}>" == posts[0].header("Message-Id")
    assert [f"<{each.message_id}>" for each in record.patches] == [
        each.header("Message-Id") for each in posts[1:3]
    ]
    assert [each.files for each in record.patches] == [("mm/filemap.c",)] * 2
    assert record.findings == ()
    text = applied(lab, patches)
    assert "index >> 5" in text
    assert "index * 37" in text


def test_a_patch_is_read_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def read_and_noted(text: str, where: str, level: int | None = None) -> Diff:
        read.append(text)
        return read_diff(text, where, level)

    monkeypatch.setattr("kernels.series.read_diff", read_and_noted)
    patches, _ = taken(lab, file(lab, post(lab, FASTER, GROWN)))
    assert read == [path.read_text() for path in patches]


def test_the_same_thread_gives_the_same_kernel(lab: Lab) -> None:
    spec = file(lab, post(lab, FASTER, COMMENT))
    first = keep(spec, **lab.where)
    again = keep(spec, checkout=lab.checkout, cache=lab.cache.with_name("other"))
    assert first.kept == again.kept != ""
    kernel = provide(lab.request(patches_of(first, **lab.where)))
    folder = provide(lab.request(lab.series("faster", FASTER)))
    assert kernel.identity.code_key == folder.identity.code_key


def test_what_was_kept_needs_the_mailbox_no_more_and_is_no_other_series(lab: Lab) -> None:
    kept = keep(file(lab, post(lab, FASTER)), **lab.where)
    (lab.checkout / "thread.mbox").unlink()
    assert keep(kept, **lab.where) == kept
    assert take_in(kept, **lab.where).records[0].origin == "thread.mbox"
    file(lab, post(lab, GROWN))
    with pytest.raises(InfraError, match="differs from the one this session started with"):
        keep(kept, checkout=lab.checkout, cache=lab.cache.with_name("emptied"))


def test_an_incomplete_new_version_is_not_mended_with_the_old_one(lab: Lab) -> None:
    old = post(lab, FASTER, COMMENT, version=1)
    new = post(lab, FASTER, COMMENT, version=2)[1].with_header("Message-Id", "<v2@example.org>")
    with pytest.raises(SeriesError, match="v2: 1/2 is missing") as caught:
        keep(file(lab, [*old, new]), **lab.where)
    first = old[0].header("Message-Id").strip("<>")
    assert f"or measure v1: --series 'thread.mbox#{first}'" in caught.value.next_step
    patches, record = taken(lab, SeriesSpec(path=f"thread.mbox#{first}"))
    assert (len(patches), record.version) == (2, 1)


@pytest.mark.parametrize("encoding", ["quoted-printable", "base64"])
@pytest.mark.parametrize("charset", ["utf-8", "iso-8859-1"])
def test_encodings_are_undone(lab: Lab, encoding: str, charset: str) -> None:
    edit = replace("mm/filemap.c", "/* Add a folio. */", "/* Añadir = sí. */")
    (mail,) = post(lab, edit)
    encode = quopri.encodestring if encoding == "quoted-printable" else base64.encodebytes
    body = encode(mail.body.encode(charset)).decode()
    mail = mail.with_header("Content-Transfer-Encoding", encoding)
    mail = mail.with_header("Content-Type", f"text/plain; charset={charset}")
    mail = mail.with_header("From", f"{encoded_word('José Ñandú', charset)} <jose@example.org>")
    mail = mail.with_header("Subject", encoded_word("[PATCH] mm: ¡más rápido!", charset))
    posts = [Post(mail.headers, body)]
    patches, record = taken(lab, file(lab, posts))
    assert "/* Añadir = sí. */" in applied(lab, patches)
    assert record.title == "mm: ¡más rápido!"
    assert record.author == "José Ñandú <jose@example.org>"


def test_eight_bit_names_without_any_encoding(lab: Lab) -> None:
    (mail,) = post(lab, FASTER)
    raw = mbox([mail.with_header("From", "José <jose@example.org>")])
    assert taken(lab, file(lab, raw))[1].author == "José <jose@example.org>"
    latin = raw.replace("José".encode(), "José".encode("latin-1"))
    assert taken(lab, file(lab, latin, "latin.mbox"))[1].author == "José <jose@example.org>"


def test_line_ends_of_a_mailer_are_made_plain_with_a_note(lab: Lab) -> None:
    raw = mbox(post(lab, FASTER, COMMENT)).replace(b"\n", b"\r\n")
    patches, record = taken(lab, file(lab, raw))
    assert b"\r" not in patches[0].read_bytes()
    assert record.findings == ("line ends of a mailer (CRLF) were made plain in 2 patches",)
    applied(lab, patches)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (r"\n(\+\ttable)", r"\n\1\nwrapped", r"damaged on its way: line \d+ of the patch"),
        (r"\n\+\ttable.*", "\n", "ends in the middle of a hunk"),
        (r"\t", "        ", "it would if white space did not count"),
    ],
)
def test_what_a_mailer_damaged_is_refused(lab: Lab, old: str, new: str, message: str) -> None:
    (mail,) = post(lab, GROWN)
    body = re.sub(old, new, mail.body, flags=re.S)
    with pytest.raises(SeriesError, match=message):
        applied(lab, taken(lab, file(lab, [Post(mail.headers, body)]))[0])


def test_a_mailbox_as_git_writes_it_without_ids(lab: Lab) -> None:
    folder = lab.series("two", FASTER, COMMENT)
    signed = b"".join(path.read_bytes() for path in folder)
    # Without git's signature there is no blank line between two mails.
    raw = re.sub(rb"-- \n[0-9.]+\n\n", b"", signed)
    assert len(raw) < len(signed)
    patches, record = taken(lab, file(lab, raw))
    assert len(patches) == 2
    assert record.message_id == ""
    assert "index >> 5" in applied(lab, patches)


def test_a_stack_is_applied_in_order_and_recorded_by_series(lab: Lab) -> None:
    lab.series("first", FASTER)
    second = post(lab, FASTER, GROWN, cover="second")[2]
    file(lab, [second.with_header("Subject", "[PATCH] mm: on top")], "second.mbox")
    spec = keep(SeriesSpec(path="configs/series/first", stack=("second.mbox",)), **lab.where)
    patches = patches_of(spec, **lab.where)
    assert [path.name for path in patches] == ["0001-mm-first-step-1.patch", "0002-mm-on-top.patch"]
    records = take_in(spec, **lab.where).records
    assert [record.title for record in records] == ["mm: first, step 1", "mm: on top"]
    assert [each.name for each in records[1].patches] == ["0002-mm-on-top.patch"]
    text = applied(lab, list(patches))
    assert "index >> 5" in text
    assert "index * 37" in text


def test_a_posted_series_that_the_source_holds_is_taken_out(lab: Lab) -> None:
    posts = post(lab, FASTER, GROWN, cover="c")
    spec = file(lab, posts)
    before = (lab.source / "mm/filemap.c").read_text()
    applied(lab, list(patches_of(spec, **lab.where)))
    out = keep(but(spec, reverse=True, revert=True), **lab.where)
    patches = list(patches_of(out, **lab.where))
    assert [path.name for path in patches] == [
        "0001-revert-mm-change-number-2.patch",
        "0002-revert-mm-change-number-1.patch",
    ]
    assert read_patch(patches[0]).subject == "revert: mm: change number 2"
    (record,) = take_in(out, **lab.where).records
    assert [each.name for each in record.patches] == [path.name for path in patches]
    assert record.patches[0].sha256 == hashlib.sha256(patches[0].read_bytes()).hexdigest()
    assert applied(lab, patches) == before


def test_a_folder_is_turned_around_in_the_cache_only(lab: Lab) -> None:
    (path,) = lab.series("faster", FASTER)
    spec = SeriesSpec(path="configs/series/faster", reverse=True, revert=True)
    (back,) = patches_of(spec, **lab.where)
    assert back.parent != path.parent
    before = (lab.source / "mm/filemap.c").read_text()
    apply([read_patch(path), read_patch(back)], lab.source)
    assert (lab.source / "mm/filemap.c").read_text() == before


def test_a_folder_stays_where_it_is(lab: Lab) -> None:
    paths = lab.series("faster", FASTER)
    cover = paths[0].with_name("0000-cover-letter.patch")
    cover.write_text("From: B <b@example.org>\nSubject: [PATCH 0/1] why\n\nBecause.\n")
    spec = SeriesSpec(path="configs/series/faster")
    assert keep(spec, **lab.where) == spec
    assert patches_of(spec, **lab.where) == tuple(paths)
    (record,) = take_in(spec, **lab.where).records
    assert (record.kind, record.title, record.author) == ("folder", "why", "B <b@example.org>")
    assert not (lab.cache / "series").exists()


def test_an_encoded_patch_in_a_folder_is_decoded_first(lab: Lab) -> None:
    (path,) = lab.series("faster", FASTER)
    head, _, body = path.read_text().partition("\n\n")
    encoded = quopri.encodestring(body.encode()).decode()
    path.write_text(f"{head}\nContent-Transfer-Encoding: quoted-printable\n\n{encoded}")
    patches, record = taken(lab, SeriesSpec(path="configs/series/faster"))
    assert patches[0].parent != path.parent
    assert record.findings == (f"saved by a mailer, and decoded first: {path.name}",)
    assert "index >> 5" in applied(lab, patches)


def test_a_single_patch_and_a_bare_diff(lab: Lab) -> None:
    (path,) = lab.series("faster", FASTER)
    (lab.checkout / "one.patch").write_bytes(path.read_bytes())
    diff = path.read_text()
    (lab.checkout / "bare.diff").write_text(diff[diff.index("diff --git") :])
    for name in ("one.patch", "bare.diff"):
        patches, _ = taken(lab, SeriesSpec(path=name))
        assert len(patches) == 1
        assert read_patch(patches[0]).files == ("mm/filemap.c",)


def test_a_context_diff_is_named_for_what_it_is(lab: Lab) -> None:
    text = "*** mm/filemap.c\n--- mm/filemap.c\n***************\n*** 1 ****\n! x\n--- 1 ----\n! y\n"
    (lab.checkout / "context.diff").write_text(text)
    with pytest.raises(SeriesError, match="is a context diff") as caught:
        taken(lab, SeriesSpec(path="context.diff"))
    assert "diff -u" in caught.value.next_step


def test_a_range_of_a_repository(lab: Lab) -> None:
    folder = repository(lab, FASTER, GROWN)
    (folder / ".git/config").open("a").write("[diff]\n\tnoprefix = true\n[format]\n\tattach = x\n")
    patches, record = taken(lab, SeriesSpec(path=f"git:{folder}@base..topic"))
    assert [path.name[:4] for path in patches] == ["0001", "0002"]
    assert record.kind == "range"
    assert record.base_commit == git(folder, "rev-parse", "base")
    assert "index * 37" in applied(lab, patches)
    bare = keep(SeriesSpec(path="base..topic"), **lab.where, repository=str(folder))
    assert patches_of(bare, **lab.where) == tuple(patches)


@pytest.mark.parametrize(("name", "message"), data(__file__, "a_range_that_is_none"))
def test_a_range_that_is_none(lab: Lab, name: str, message: str) -> None:
    folder = repository(lab, FASTER)
    with pytest.raises(UsageError, match=message):
        keep(SeriesSpec(path=name.format(folder)), **lab.where)


def test_merges_are_no_patches(lab: Lab) -> None:
    folder = repository(lab, FASTER)
    git(folder, "checkout", "-qb", "side", "base")
    COMMENT(folder)
    git(folder, "commit", "-qam", "side")
    git(folder, "merge", "-q", "-m", "merge", "topic")
    with pytest.raises(UsageError, match="there are merges in the range"):
        keep(SeriesSpec(path=f"git:{folder}@base..side"), **lab.where)


def test_the_users_home_is_left_alone(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    config = home / ".gitconfig"
    config.write_text(
        f"[b4]\n\tattestation-policy = hardfail\n[core]\n\tpager = touch {tmp_path}/ran\n"
    )
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
    monkeypatch.setenv("HOME", str(home))
    taken(lab, file(lab, post(lab, FASTER)))
    assert {path: path.stat().st_mtime_ns for path in home.rglob("*")} == before
    assert not (tmp_path / "ran").exists()


def test_a_thread_that_was_fetched_is_not_fetched_again(lab: Lab) -> None:
    posts = post(lab, FASTER)
    name = posts[0].header("Message-Id").strip("<>")
    folder = lab.cache / "threads"
    folder.mkdir(parents=True)
    (folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.mbox").write_bytes(mbox(posts))
    for source in (
        name,
        f"<{name}>",
        f"mid:{name}",
        f"https://lore.kernel.org/linux-mm/{name}/T/#u",
    ):
        _, record = taken(lab, SeriesSpec(path=source))
        assert (record.kind, record.message_id) == ("thread", name)


@pytest.fixture
def spec(lab: Lab) -> SeriesSpec:
    """A series of one patch, taken out of a source that holds it: kept in the cache."""
    lab.series("mine", edit_slow)
    series = SeriesSpec(path="configs/series/mine", reverse=True, revert=True)
    return keep(series, **lab.where)


@pytest.fixture
def out(lab: Lab, spec: SeriesSpec, tmp_path: Path) -> Path:
    """Its patches in a folder in which another one lay."""
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "9999-old.patch").write_text("old")
    copy_out(take_in(spec, **lab.where), folder, cache=lab.cache)
    return folder


def test_a_kept_series_is_the_same_in_another_cache(
    lab: Lab, spec: SeriesSpec, out: Path, tmp_path: Path
) -> None:
    shutil.rmtree(lab.checkout / "configs/series/mine")
    other = tmp_path / "other"
    assert adopt(spec, out, cache=other) == spec
    before, after = (take_in(spec, checkout=lab.checkout, cache=c) for c in (lab.cache, other))
    assert before.records == after.records
    assert [(path.name, path.read_bytes()) for path in before.patches] == [
        (path.name, path.read_bytes()) for path in after.patches
    ]
    assert [path.name for path in (other / "series").iterdir()] == [spec.kept]


def test_a_plain_folder_is_this_folder_from_now_on(lab: Lab, tmp_path: Path) -> None:
    lab.series("mine", edit_slow)
    plain = SeriesSpec(path="configs/series/mine", title="t")
    copy_out(take_in(plain, **lab.where), tmp_path / "out", cache=lab.cache)
    adopted = adopt(plain, tmp_path / "out", cache=tmp_path / "other")
    assert adopted == SeriesSpec(path=str(tmp_path / "out"), title="t")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("damage", ["changed", "another", "none", "no record", "outside"])
def test_other_patches_do_not_get_into_the_cache_under_this_key(
    spec: SeriesSpec, out: Path, tmp_path: Path, damage: str
) -> None:
    (patch,) = out.glob("*.patch")
    text = patch.read_text()
    if damage == "changed":
        patch.write_text(f"{text}\n")
    elif damage == "outside":
        patch.write_text(text.replace("mm/slow.c", "../slow.c"))
    elif damage == "another":
        shutil.copyfile(patch, out / "0002-more.patch")
    else:
        (patch if damage == "none" else out / RECORDS).unlink()
    message = (
        "outside the kernel tree" if damage == "outside" else "another series than that of key"
    )
    with pytest.raises(SeriesError, match=message):
        adopt(spec, out, cache=tmp_path / "other")
    assert not (tmp_path / "other/series" / spec.kept).exists()
