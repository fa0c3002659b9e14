"""From what a user names to patch files in order, and a record of where they came from.

A plain folder stays where it is.  Everything else is written into the cache as plain
patch files under a key of their content, so that a session can go on, and be repeated,
without the mailbox, the repository or a network.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from errors import InfraError, SeriesError, UsageError
from experiment.series_name import Kind, kind_of, message_id, split_mail
from experiment.spec import SeriesSpec
from host.process import run
from kernels import b4, git_range
from kernels.diff import MOST_FILES, MOST_LINES, read_diff
from kernels.git_range import as_patch, line_ends, plain, slug
from kernels.mail import BASE_COMMIT, BOMS, Mail, as_text, offers, read_mail, read_mails, unmet
from kernels.packed import LARGEST_MBOX, unpacked
from kernels.packed import too_large as mailbox_too_large
from kernels.patch_folder import ORDER, PatchFolder, read_folder
from kernels.series import LARGEST, Patch, host_code, patch_of, read_patch, reverted, too_large
from kernels.threads import MOST_PATCHES, Thread, select
from results import door
from results.record import PatchRecord, SeriesRecord
from text import clean

log = logging.getLogger(__name__)

RECORDS = "series.json"
GIT_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class _Part:
    """One series of a stack: its patches as bytes by name, or the files as they are.

    ``text`` is that of all its mails, in which they say what they need.
    """

    record: SeriesRecord
    patches: tuple[tuple[str, bytes], ...]
    files: tuple[Path, ...] = ()
    text: str = ""


@dataclass(frozen=True)
class Taken:
    """A series as it was taken in: its spec with the key it is kept under, and what it holds.

    ``patches`` are its files in the order they apply, ``records`` where each series of the stack
    came from.
    """

    spec: SeriesSpec
    patches: tuple[Path, ...]
    records: tuple[SeriesRecord, ...]


def take_in(spec: SeriesSpec, *, checkout: Path, cache: Path, repository: str = "") -> Taken:
    """Take a series in; ``repository`` is where a bare range ``A..B`` is looked for.

    A plain folder is only checked.

    Raises:
        UsageError: there is no such folder, file or range.
        SeriesError: a patch is missing, damaged, or does what no patch may.
        InfraError: a thread cannot be fetched, or the record of a kept series is damaged.
    """
    if spec.kept and kept_folder(cache, spec.kept).is_dir():
        return _kept(spec, cache)
    parts = _parts(spec.parts, checkout, cache, repository)
    if len(parts) == 1 and parts[0].files and not spec.revert:
        return Taken(spec, parts[0].files, (parts[0].record,))
    if spec.revert:
        parts = [_turned_around(part) for part in reversed(parts)]
    key = _write(parts, cache)
    if spec.kept and spec.kept != key:
        raise InfraError(
            "the series differs from the one this session started with",
            where=clean(spec.path),
            next_step="begin a new session; the runs on record stay readable",
        )
    return _kept(spec.model_copy(update={"kept": key}), cache)


def _kept(spec: SeriesSpec, cache: Path) -> Taken:
    folder = kept_folder(cache, spec.kept)
    try:
        records = TypeAdapter(tuple[SeriesRecord, ...]).validate_json(
            (folder / RECORDS).read_bytes()
        )
    except (OSError, ValidationError):
        raise InfraError(
            "the record of a series was damaged or is of another version of the lab",
            where=str(folder / RECORDS),
            next_step=f"remove {folder} to have the series taken in again",
        ) from None
    return Taken(spec, tuple(sorted(folder.glob("*.patch"))), records)


def keep(spec: SeriesSpec, *, checkout: Path, cache: Path, repository: str = "") -> SeriesSpec:
    """The spec of a series that is taken in; raises as :func:`take_in` does."""
    return take_in(spec, checkout=checkout, cache=cache, repository=repository).spec


def patches_of(spec: SeriesSpec, *, checkout: Path, cache: Path) -> tuple[Path, ...]:
    """The patch files of a series, in the order they apply; raises as :func:`take_in` does."""
    return take_in(spec, checkout=checkout, cache=cache).patches


def _parts(names: Sequence[str], checkout: Path, cache: Path, repository: str) -> list[_Part]:
    """The series of a stack; each says what it needs and those before it do not have."""
    parts: list[_Part] = []
    offered: set[str] = set()
    for name in names:
        part = _part(name, checkout, cache, repository)
        before = [content for each in parts for _, content in each.patches]
        findings = unmet(part.text, clean(name), offered, partial(_patch_ids, before))
        record = part.record
        offered |= offers(part.text, [record.message_id, *(p.message_id for p in record.patches)])
        update = {"findings": (*record.findings, *findings)}
        parts.append(replace(part, record=record.model_copy(update=update)))
    return parts


def _patch_ids(patches: Sequence[bytes]) -> set[str]:
    """Git's ids of changes, which are the same whoever mailed them."""
    ids = set()
    for content in patches:
        text = content.decode(errors="replace")
        done = run(["git", "patch-id", "--stable"], timeout_s=GIT_TIMEOUT_S, stdin_text=text)
        ids.add(done.stdout.partition(" ")[0])
    return ids


def _part(name: str, checkout: Path, cache: Path, repository: str) -> _Part:
    kind = kind_of(name)
    file, mail = (name, "") if kind == "range" else split_mail(name)
    place = checkout / Path(file).expanduser()
    if kind not in ("range", "link") and place.is_file() and place.name != ORDER:
        if place.stat().st_size > LARGEST_MBOX:
            raise mailbox_too_large(place.stat().st_size, clean(name))
        return _from_mails(name, "file", place.read_bytes(), mail)
    readers: dict[Kind, Callable[[], _Part]] = {
        "folder": lambda: _from_folder(name, checkout),
        "file": lambda: _no_file(name),
        "thread": lambda: _from_thread(name, cache),
        "link": lambda: _no_archive(name),
        "range": lambda: _from_range(name, checkout, repository),
    }
    return readers[kind]()


def _no_file(name: str) -> _Part:
    raise UsageError("no such file", where=clean(name), next_step="name an mbox or patch file")


def _no_archive(name: str) -> _Part:
    raise UsageError(
        "only archives of mails are fetched, by the message-id in their link",
        where=clean(name),
        next_step="save the file (of a forge: PULL.patch), and name it; or fetch the branch, and "
        "name its range git:REPOSITORY@A..B",
    )


def _from_folder(name: str, checkout: Path) -> _Part:
    folder = read_folder(checkout, name)
    _bounded([path.stat().st_size for path in folder.files], name)
    mails = [read_mail(path.read_bytes(), clean(path.name)) for path in folder.files]
    cover = None
    if folder.covers:
        cover = read_mail(folder.covers[0].read_bytes(), clean(folder.covers[0].name))
    order, findings = _order(folder, mails)
    files = [folder.patches[number] for number in order]
    mails = [mails[number] for number in order]
    contents = [mail.raw for mail in mails]
    decoded = [plain(mail.raw, mail) for mail in mails]
    findings += _changed_on_its_way([file.path for file in files], contents, decoded)
    is_plain = folder.is_plain and order == sorted(order)
    pairs = []
    for number, (file, content) in enumerate(zip(files, decoded, strict=True), 1):
        path = file.path
        if file.reverse:
            text = read_diff(content.decode(errors="surrogateescape"), path.name, file.level).text
            content = reverted(text, path.name).encode(errors="surrogateescape")
        pairs.append((path.name if is_plain else f"{number:04d}-{slug(path.stem)}.patch", content))
    levels = [None if file.reverse else file.level for file in files]
    part = _vetted("folder", name, pairs, mails, cover, findings, levels)
    if folder.base_commit and not part.record.base_commit:
        record = part.record.model_copy(update={"base_commit": folder.base_commit})
        part = replace(part, record=record)
    is_plain = is_plain and [content for _, content in part.patches] == contents
    return replace(part, files=tuple(file.path for file in files)) if is_plain else part


def _order(folder: PatchFolder, mails: Sequence[Mail]) -> tuple[list[int], list[str]]:
    """The order of a folder's patches, as indices, and what is to be said of it.

    Mails that are saved by their subjects have their numbers in these, and not in their names.
    """
    findings = []
    order = list(range(len(mails)))
    if folder.ordered_by is not None:
        findings.append(f"in the order of {clean(str(folder.ordered_by))}")
    elif order:
        numbers = [mail.number for mail in mails]
        total = mails[0].total
        is_numbered = {mail.total for mail in mails} == {total} and len(set(numbers)) == len(
            numbers
        )
        if is_numbered and total > 1:
            order.sort(key=numbers.__getitem__)
            if order != sorted(order):
                findings.append("in the order of the subjects' numbers, which is not that of names")
            missing = sorted(set(range(1, total + 1)) - set(numbers))
            if missing:
                places = ", ".join(f"{number}/{total}" for number in missing[:5])
                findings.append(f"{len(missing)} of {total} patches are not in it: {places}")
    if folder.left_out:
        names = ", ".join(folder.left_out[:5])
        more = f" and {len(folder.left_out) - 5} more" if len(folder.left_out) > 5 else ""
        findings.append(f"left out: {clean(names)}{more}")
    return order, findings


def _bounded(sizes: Sequence[int], name: str) -> None:
    """Refuse a series that is larger than any real one, before it is read.

    Raises:
        SeriesError: too many patches, or too many bytes.
    """
    if len(sizes) > MOST_PATCHES:
        raise SeriesError(
            f"has {len(sizes)} patches, more than {MOST_PATCHES}",
            where=clean(name),
            next_step="split it",
        )
    if sum(sizes) > LARGEST:
        raise too_large(sum(sizes), clean(name))


def _from_thread(name: str, cache: Path) -> _Part:
    identifier = message_id(name)
    fetched = cache / "threads" / f"{hashlib.sha256(identifier.encode()).hexdigest()[:32]}.mbox"
    if not fetched.exists():
        b4.fetch_thread(identifier, fetched)
    else:
        log.info("the thread is taken as it was fetched before: %s", fetched)
    return _from_mails(name, "thread", fetched.read_bytes(), identifier)


def _from_mails(name: str, kind: Kind, data: bytes, named: str = "") -> _Part:
    where = clean(name)
    series = read_series(data, name, kind, named)
    if isinstance(series, bytes):
        file = f"0001-{slug(Path(name).name.partition('.')[0])}.patch"
        return _vetted(kind, name, ((file, series),), [read_mail(series, where)], None)
    pairs = tuple(
        (f"{number:04d}-{slug(mail.subject)}.patch", as_patch(mail, number, len(series.patches)))
        for number, mail in enumerate(series.patches, 1)
    )
    findings = list(series.findings)
    bodies = [mail.text.encode() for mail in series.patches]
    crlf = sum(line_ends(body) != body for body in bodies)
    if crlf:
        findings.append(f"line ends of a mailer (CRLF) were made plain in {crlf} patches")
    part = _vetted(kind, name, pairs, series.patches, series.cover, findings)
    update = {"version": series.version}
    return replace(part, record=part.record.model_copy(update=update))


def read_series(
    data: bytes, name: str, kind: Kind = "file", named: str = "", *, alone: bool = False
) -> Thread | bytes:
    """The series in a file of mails, or the one diff that has no mail around it.

    ``named`` is the message-id of a mail of the series that is meant.  With ``alone`` one patch of
    a series is taken without the others, where it is by itself.

    Raises:
        SeriesError: none, or none that can be told.
    """
    where, file = clean(name), split_mail(name)[0]
    data = unpacked(data, where)
    mails = read_mails(data, where)
    if len(mails) == 1 and not mails[0].poster:
        marked = data.startswith(tuple(mark for mark, _ in BOMS))
        return line_ends(as_text(data).encode() if marked else data)
    if alone and len(mails) == 1 and mails[0].has_diff:
        return Thread(mails[0].version, mails, None, ())

    def how(mail: Mail) -> str:
        if not mail.has_id:
            return "MAILBOX (with that series alone)"
        return f"mid:{mail.message_id}" if kind == "thread" else f"'{file}#{mail.message_id}'"

    return select(mails, where, named, how)


def _from_range(name: str, checkout: Path, repository: str) -> _Part:
    with _scratch() as folder:
        base = git_range.write_patches(name, folder, checkout=checkout, repository=repository)
        files = sorted(folder.glob("*.patch"))
        _bounded([path.stat().st_size for path in files], name)
        contents = [path.read_bytes() for path in files]
        mails = [read_mail(content, clean(name)) for content in contents]
        pairs = tuple(zip((path.name for path in files), contents, strict=True))
        part = _vetted("range", name, pairs, mails, None)
        return replace(part, record=part.record.model_copy(update={"base_commit": base}))


def _vetted(
    kind: Kind,
    name: str,
    patches: Sequence[tuple[str, bytes]],
    mails: Sequence[Mail],
    cover: Mail | None,
    findings: Sequence[str] = (),
    levels: Sequence[int | None] = (),
) -> _Part:
    """Read every patch as the build will, which refuses what it must, and describe it.

    Their contents get the prefixes that ``git apply`` wants.
    """
    _bounded([len(content) for _, content in patches], name)
    read, contents = [], []
    for (file, content), level in zip(patches, levels or [None] * len(patches), strict=True):
        patch, spelled = patch_of(Path(file), content, level)
        if not patch.files:
            raise SeriesError(
                "changes no file", where=patch.name, next_step="take it out of the series"
            )
        read.append(patch)
        contents.append(spelled)
    _bounded_in_all(read, contents, name)
    respelled = [
        file
        for (file, content), spelled in zip(patches, contents, strict=True)
        if content != spelled
    ]
    if respelled:
        names = ", ".join(respelled[:5])
        more = f" and {len(respelled) - 5} more" if len(respelled) > 5 else ""
        findings = [*findings, f"other prefixes of paths than git's a/ and b/: {names}{more}"]
    patches = [(file, content) for (file, _), content in zip(patches, contents, strict=True)]
    head = cover or mails[0]
    text = "\n".join(mail.text for mail in ([cover] if cover else []) + list(mails))
    base = BASE_COMMIT.search(text)
    return _Part(
        SeriesRecord(
            kind=kind,
            origin=clean(name),
            title=clean(head.subject) or read[0].subject,
            author=head.poster if cover else head.author,
            message_id=head.message_id if head.has_id else "",
            version=max(mail.version for mail in mails),
            base_commit=base[1] if base else "",
            patches=tuple(
                _patch_record(patch, mail, content)
                for patch, mail, (_, content) in zip(read, mails, patches, strict=True)
            ),
            findings=tuple(findings),
            host_code=host_code(content.decode(errors="replace") for content in contents),
        ),
        tuple(patches),
        text=text,
    )


def _bounded_in_all(patches: Sequence[Patch], contents: Sequence[bytes], name: str) -> None:
    """Refuse a series whose patches are each of a real size, and all of them together are not.

    Raises:
        SeriesError: too many lines, or changed files.
    """
    lines = sum(content.count(b"\n") for content in contents)
    files = sum(len(patch.files) for patch in patches)
    for count, most, what in ((lines, MOST_LINES, "lines"), (files, MOST_FILES, "changed files")):
        if count > most:
            raise SeriesError(
                f"has {count} {what}, more than {most}", where=clean(name), next_step="split it"
            )


def _patch_record(patch: Patch, mail: Mail, content: bytes) -> PatchRecord:
    return PatchRecord(
        name=patch.name,
        subject=patch.subject,
        sha256=hashlib.sha256(content).hexdigest(),
        files=patch.files,
        author=mail.author,
        message_id=mail.message_id if mail.has_id else "",
    )


def _changed_on_its_way(
    files: Sequence[Path], before: Sequence[bytes], after: Sequence[bytes]
) -> list[str]:
    names = [path.name for path, old, new in zip(files, before, after, strict=True) if old != new]
    if not names:
        return []
    return [f"saved by a mailer, and decoded first: {', '.join(clean(name) for name in names)}"]


def _turned_around(part: _Part) -> _Part:
    """The same series taken out: each patch reverted, the last one first."""
    patches, records = [], []
    pairs = zip(part.patches, part.record.patches, strict=True)
    for (name, content), record in reversed(list(pairs)):
        back = reverted(content.decode(errors="surrogateescape"), name)
        # Only the diffs: what the mail around them says is not what this patch does.
        text = f"Subject: revert: {record.subject}\n\n{back}".encode(errors="surrogateescape")
        patches.append((f"0000-revert-{re.sub(r'^[0-9]{4}-', '', name)}", text))
        digest = hashlib.sha256(text).hexdigest()
        records.append(record.model_copy(update={"sha256": digest}))
    turned = part.record.model_copy(update={"patches": tuple(records)})
    return _Part(turned, tuple(patches))


def kept_folder(cache: Path, key: str) -> Path:
    """Where a series is kept: its patches, and their record in a file ``RECORDS``."""
    return cache / "series" / key


def key_of(patches: Sequence[tuple[str, bytes]]) -> str:
    """The key of patches by name and content, in the order they apply."""
    digest = hashlib.sha256()
    for name, content in patches:
        digest.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()[:32]


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="twinboot-series-") as folder:
        yield Path(folder)


def _write(parts: Sequence[_Part], cache: Path) -> str:
    """Put the patches into the cache, numbered through the whole stack; return their key."""
    patches: list[tuple[str, bytes]] = []
    records = []
    for part in parts:
        names = []
        for (name, content), record in zip(part.patches, part.record.patches, strict=True):
            numbered = f"{len(patches) + 1:04d}-{re.sub(r'^[0-9]{4}-', '', name)}"
            patches.append((numbered, content))
            names.append(record.model_copy(update={"name": numbered}))
        records.append(part.record.model_copy(update={"patches": tuple(names)}))
    key = key_of(patches)
    top = cache / "series"
    top.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".new-", dir=top))
    for name, content in patches:
        (beside / name).write_bytes(content)
    listed = TypeAdapter(tuple[SeriesRecord, ...]).dump_json(tuple(records), indent=1)
    (beside / RECORDS).write_bytes(listed)
    try:
        beside.rename(top / key)
    except OSError:  # there already, with the same patches; the record may be of other mails
        (beside / RECORDS).replace(top / key / RECORDS)
        shutil.rmtree(beside)
    return key


def copy_out(series: Taken, into: Path, *, cache: Path) -> None:
    """Copy the patches of a series, and their record where they were kept, into a folder."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    for patch in series.patches:
        shutil.copyfile(patch, into / patch.name)
    if series.spec.kept:
        shutil.copyfile(kept_folder(cache, series.spec.kept) / RECORDS, into / RECORDS)


def adopt(spec: SeriesSpec, folder: Path, *, cache: Path) -> SeriesSpec:
    """The same series, with the patches that lie in ``folder`` under its key in the cache.

    A series that is a plain folder is this folder from now on.  What is in the cache
    already stays.

    Raises:
        SeriesError: the patches are not those of the key, or one does what no patch may.
        StoreError: a file in the folder, which may be a stranger's, is a link or no plain file.
    """
    names = [name for name in door.names(folder) if name.endswith(".patch")]
    files = [(name, door.read(folder, name, LARGEST)) for name in names]
    for name in names:
        read_patch(folder / name)
    if not spec.kept:
        return spec.model_copy(update={"path": str(folder.resolve())})
    place = kept_folder(cache, spec.kept)
    if place.is_dir():
        return spec
    if key_of(files) != spec.kept or not door.exists(folder, RECORDS):
        raise SeriesError(
            f"holds another series than that of key {spec.kept}",
            where=clean(str(folder)),
            next_step="name the series again, in a new session",
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".new-", dir=place.parent))
    try:
        for name, content in (*files, (RECORDS, door.read(folder, RECORDS))):
            door.write(beside, name, content)
        beside.rename(place)
    except OSError:
        # Another lab process was first, with the same patches.
        if not place.is_dir():
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return spec
