"""From what a user names to patch files in order, and a record of where they came from.

All but a plain folder is written into the cache under a key of its content: a session goes on
without mailbox, repository or network.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from errors import InfraError, SeriesError, UsageError
from experiment.series_name import Kind, kind_of, message_id, split_mail
from experiment.spec import SeriesSpec
from files import write_atomically
from host.process import run
from kernels import git_range
from kernels.diff import MOST_FILES, MOST_LINES, read_diff
from kernels.mail import (
    BASE_COMMIT,
    BOMS,
    CHANGE_ID,
    Mail,
    as_patch,
    as_text,
    line_ends,
    plain,
    read_mail,
    read_mails,
    slug,
    unmet,
)
from kernels.products import LARGEST_MBOX, mailbox_too_large, unpacked
from kernels.series import (
    LARGEST,
    ORDER,
    PLAIN_GIT,
    host_code,
    missing,
    patch_of,
    read_folder,
    read_patch,
    reverted,
    too_large,
    who_runs_it,
)
from kernels.threads import MOST_PATCHES, Thread, select
from results import door
from results.record import PatchRecord, SeriesRecord
from text import clean, enumerated

log = logging.getLogger(__name__)

RECORDS = "series.json"
GIT_TIMEOUT_S = 60.0
FETCH_TIMEOUT_S = 120.0
MESSAGE_CHARACTERS = 400
# What a fetch needs of the caller's environment to get out of some networks.
NETWORK = ("http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
STACK = TypeAdapter(tuple[SeriesRecord, ...])
# Of diff -c: the old file, the new one, and where a hunk begins.
CONTEXT_DIFF = re.compile(rb"^\*\*\* \S.*\n--- \S.*\n\*{15}", re.M)


@dataclass(frozen=True)
class Taken:
    """A series as taken in: its spec with its key, its files in order, and where each came from."""

    spec: SeriesSpec
    patches: tuple[Path, ...]
    records: tuple[SeriesRecord, ...]


@dataclass
class _Series:
    """One series of a stack as it was read: names and contents of patches, and their mails.

    ``levels`` are those of ``kernels.diff.read_diff``; ``files`` are the patches where they lie,
    if their names alone say what the series is.
    """

    kind: Kind
    patches: list[tuple[str, bytes]]
    mails: Sequence[Mail]
    cover: Mail | None = None
    findings: list[str] = field(default_factory=list)
    base_commit: str = ""
    levels: Sequence[int | None] = ()
    files: tuple[Path, ...] = ()


def take_in(spec: SeriesSpec, *, checkout: Path, cache: Path, repository: str = "") -> Taken:
    """Take a series in; ``repository`` is where a bare range ``A..B`` is looked for.

    A plain folder is only checked.
    Raises UsageError: there is no such folder, file or range; SeriesError: a patch is missing,
    damaged, or does what no patch may; InfraError: a thread cannot be fetched, or the record of a
    kept series is damaged.
    """
    if spec.kept and kept_folder(cache, spec.kept).is_dir():
        return _kept(spec, cache)
    parts: list[tuple[_Series, SeriesRecord]] = []
    offered: set[str] = set()

    def patch_ids() -> set[str]:
        """Git's ids of changes, which are the same whoever mailed them."""
        argv = ["git", "patch-id", "--stable"]
        texts = [text.decode(errors="replace") for part, _ in parts for _, text in part.patches]
        done = [run(argv, timeout_s=GIT_TIMEOUT_S, stdin_text=text).stdout for text in texts]
        return {output.partition(" ")[0] for output in done}

    for name in spec.parts:
        series = _read(name, checkout, cache, repository)
        record, asking = _vetted(series, name)
        text = "\n".join(mail.text for mail in (series.cover, *series.mails) if mail)
        series.findings += (*unmet(text, clean(name), offered, patch_ids), *asking)
        offered |= {record.message_id, *CHANGE_ID.findall(text)}
        offered |= {patch.message_id for patch in record.patches}
        parts.append((series, record.model_copy(update={"findings": tuple(series.findings)})))
    if len(parts) == 1 and parts[0][0].files and not spec.revert:
        return Taken(spec, parts[0][0].files, (parts[0][1],))
    key = _write(parts, cache, revert=spec.revert)
    if spec.kept and spec.kept != key:
        what = "the series differs from the one this session started with"
        step = "begin a new session; the runs on record stay readable"
        raise InfraError(what, where=clean(spec.path), next_step=step)
    return _kept(spec.model_copy(update={"kept": key}), cache)


def _kept(spec: SeriesSpec, cache: Path) -> Taken:
    folder = kept_folder(cache, spec.kept)
    try:
        records = STACK.validate_json((folder / RECORDS).read_bytes())
    except (OSError, ValidationError):
        what = "the record of a series was damaged or is of another version of the lab"
        step = f"remove {folder} to have the series taken in again"
        raise InfraError(what, where=str(folder / RECORDS), next_step=step) from None
    return Taken(spec, tuple(sorted(folder.glob("*.patch"))), records)


def _read(name: str, checkout: Path, cache: Path, repository: str) -> _Series:
    kind = kind_of(name)
    file, mail = (name, "") if kind == "range" else split_mail(name)
    place = checkout / Path(file).expanduser()
    if kind not in ("range", "link") and place.is_file() and place.name != ORDER:
        size = place.stat().st_size
        if size > LARGEST_MBOX:
            raise mailbox_too_large(size, clean(name))
        return _from_mails(name, "file", place.read_bytes(), mail)
    if kind == "folder":
        return _from_folder(name, checkout)
    if kind == "range":
        return _from_range(name, checkout, repository)
    if kind == "file":
        raise missing(name, checkout)
    if kind == "link":
        raise UsageError(
            "only archives of mails are fetched, by the message-id in their link",
            where=clean(name),
            next_step="save the file (of a forge: PULL.patch), and name it; or fetch the branch, "
            "and name its range git:REPOSITORY@A..B",
        )
    identifier = message_id(name)
    return _from_mails(name, "thread", thread_of(identifier, cache), identifier)


def thread_of(identifier: str, cache: Path) -> bytes:
    """The thread of a message-id as an mbox, fetched once; InfraError: not to be had."""
    fetched = cache / "threads" / f"{hashlib.sha256(identifier.encode()).hexdigest()[:32]}.mbox"
    if fetched.exists():
        log.info("the thread is taken as it was fetched before: %s", fetched)
        return fetched.read_bytes()
    with tempfile.TemporaryDirectory(prefix="twinboot-b4-") as name:
        folder = Path(name)
        (folder / "home").mkdir()
        variables = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(folder / "home"),
            "GIT_CEILING_DIRECTORIES": str(folder.parent),
            **PLAIN_GIT,
            "LC_ALL": "C.UTF-8",
        }
        variables |= {key: os.environ[key] for key in NETWORK if key in os.environ}
        assigned = [f"{key}={value}" for key, value in variables.items()]
        # -I: neither PYTHONPATH nor a file in the folder can stand in for a module.
        b4 = ["env", "-i", *assigned, sys.executable, "-I", "-m", "b4.command"]
        quiet = ["--no-interactive", "--no-stdin", "-c", "b4.attestation-policy=off"]
        argv = [*b4, *quiet, "mbox", "-o", name, "-n", "thread", identifier]
        result = run(argv, timeout_s=FETCH_TIMEOUT_S, cwd=folder, check=False)
        if "No module named" in result.stderr:
            raise InfraError("b4 is not installed", where="b4", next_step="make setup")
        files = sorted(folder.glob("thread*"))
        if result.returncode != 0 or not files:
            what = f"the thread cannot be fetched: {clean(result.tail(), MESSAGE_CHARACTERS)}"
            step = "save the thread as an mbox file where there is a network, and name it"
            raise InfraError(what, where=clean(identifier), next_step=step)
        content = files[0].read_bytes()
    write_atomically(fetched, content)
    return content


def _from_folder(name: str, checkout: Path) -> _Series:
    folder = read_folder(checkout, name)
    _require_bounds(name, [file.path.stat().st_size for file in folder.patches])
    cover = None
    if folder.covers:
        cover = read_mail(folder.covers[0].read_bytes(), clean(folder.covers[0].name))
    named = [
        (file, read_mail(file.path.read_bytes(), clean(file.path.name))) for file in folder.patches
    ]
    findings = []
    files = named
    if folder.ordered_by is not None:
        findings.append(f"in the order of {clean(str(folder.ordered_by))}")
    else:
        # Mails that are saved by their subjects have their numbers in these, and not in names.
        numbers = {mail.number for _, mail in named}
        total = named[0][1].total if named else 0
        if total > 1 and len(numbers) == len(named) and {m.total for _, m in named} == {total}:
            files = sorted(named, key=lambda pair: pair[1].number)
            if files != named:
                findings.append("in the order of the subjects' numbers, which is not that of names")
            missing = [f"{n}/{total}" for n in range(1, total + 1) if n not in numbers]
            if missing:
                places = ", ".join(missing[:5])
                findings.append(f"{len(missing)} of {total} patches are not in it: {places}")
    if folder.left_out:
        findings.append(f"left out: {clean(enumerated(folder.left_out))}")
    contents = [plain(mail.raw, mail) for _, mail in files]
    decoded = [
        clean(file.path.name)
        for (file, mail), content in zip(files, contents, strict=True)
        if content != mail.raw
    ]
    if decoded:
        findings.append(f"saved by a mailer, and decoded first: {', '.join(decoded)}")
    is_plain = folder.is_plain and files == named
    patches = []
    for number, ((file, _), content) in enumerate(zip(files, contents, strict=True), 1):
        path = file.path
        if file.reverse:
            text = read_diff(content.decode(errors="surrogateescape"), path.name, file.level).text
            content = reverted(text, path.name).encode(errors="surrogateescape")
        patches.append((path.name if is_plain else _numbered(number, path.stem), content))
    return _Series(
        "folder",
        patches,
        [mail for _, mail in files],
        cover,
        findings,
        folder.base_commit,
        [None if file.reverse else file.level for file, _ in files],
        tuple(file.path for file, _ in files) if is_plain else (),
    )


def _from_mails(name: str, kind: Kind, data: bytes, named: str) -> _Series:
    thread = read_series(data, name, kind, named)
    findings = list(thread.findings)
    crlf = sum(line_ends(body) != body for body in (m.text.encode() for m in thread.patches))
    if crlf:
        findings.append(f"line ends of a mailer (CRLF) were made plain in {crlf} patches")
    patches = [
        (
            _numbered(number, mail.subject or Path(name).name.partition(".")[0]),
            as_patch(mail, number, len(thread.patches)),
        )
        for number, mail in enumerate(thread.patches, 1)
    ]
    return _Series(kind, patches, thread.patches, thread.cover, findings)


def _numbered(number: int, subject: str) -> str:
    return f"{number:04d}-{slug(subject)}.patch"


def read_series(data: bytes, name: str, kind: Kind = "file", named: str = "") -> Thread:
    """The series in a file of mails, or the one diff that has no mail around it.

    ``named`` is the message-id of a mail of the series that is meant.
    Raises SeriesError: none, or none that can be told.
    """
    where, file = clean(name), split_mail(name)[0]
    data = unpacked(data, where)
    mails = read_mails(data, where)
    if len(mails) == 1 and not mails[0].poster:
        if data.startswith(tuple(BOMS)):
            mails = (read_mail(as_text(data).encode(), where),)
        return Thread(mails, None, ())

    def how(mail: Mail) -> str:
        if not mail.has_id:
            return "MAILBOX (with that series alone)"
        return f"mid:{mail.message_id}" if kind == "thread" else f"'{file}#{mail.message_id}'"

    return select(mails, where, named, how)


def _from_range(name: str, checkout: Path, repository: str) -> _Series:
    with tempfile.TemporaryDirectory(prefix="twinboot-series-") as temporary:
        folder = Path(temporary)
        base = git_range.write_patches(name, folder, checkout=checkout, repository=repository)
        files = sorted(folder.glob("*.patch"))
        _require_bounds(name, [path.stat().st_size for path in files])
        patches = [(path.name, path.read_bytes()) for path in files]
    mails = [read_mail(content, clean(name)) for _, content in patches]
    return _Series("range", patches, mails, base_commit=base)


def _require_bounds(name: str, sizes: Sequence[int], lines: int = 0, files: int = 0) -> None:
    """Refuse a series larger than any real one; SeriesError: says of what there is too much."""
    for count, most, what in (
        (len(sizes), MOST_PATCHES, "patches"),
        (lines, MOST_LINES, "lines"),
        (files, MOST_FILES, "changed files"),
    ):
        if count > most:
            what = f"has {count} {what}, more than {most}"
            raise SeriesError(what, where=clean(name), next_step="split it")
    if sum(sizes) > LARGEST:
        raise too_large(sum(sizes), clean(name))


def _vetted(series: _Series, name: str) -> tuple[SeriesRecord, tuple[str, ...]]:
    """Read and describe every patch as the build will; contents get git's prefixes.

    Returns the record, and the findings of ``who_runs_it``.
    """
    patches = series.patches
    lines = sum(content.count(b"\n") for _, content in patches)
    _require_bounds(name, [len(content) for _, content in patches], lines)
    levels = series.levels or [None] * len(patches)
    read = [
        patch_of(Path(file), content, level)
        for (file, content), level in zip(patches, levels, strict=True)
    ]
    for patch, content, _ in read:
        if not patch.files:
            what, step = "changes no file", "take it out of the series"
            if CONTEXT_DIFF.search(content):
                what, step = "is a context diff, which git does not read", "make it with diff -u"
            raise SeriesError(what, where=patch.name, next_step=step)
    contents = [content for _, content, _ in read]
    _require_bounds(name, [], files=sum(len(patch.files) for patch, _, _ in read))
    respelled = [
        file for (file, given), content in zip(patches, contents, strict=True) if given != content
    ]
    if respelled:
        names = enumerated(respelled)
        series.findings.append(f"other prefixes of paths than git's a/ and b/: {names}")
    series.patches = [(patch.name, content) for patch, content, _ in read]
    if contents != [mail.raw for mail in series.mails]:
        series.files = ()
    cover, mails = series.cover, series.mails
    bases = (BASE_COMMIT.search(mail.text) for mail in (cover, *mails) if mail)
    base = next((match[1] for match in bases if match), series.base_commit)
    head = cover or mails[0]
    diffs = [diff for _, _, diff in read]
    record = SeriesRecord(
        kind=series.kind,
        origin=clean(name),
        title=clean(head.subject) or read[0][0].subject,
        author=head.poster if cover else head.author,
        message_id=head.message_id if head.has_id else "",
        version=max(mail.version for mail in (cover, *mails) if mail),
        base_commit=series.base_commit if series.kind == "range" else base,
        patches=tuple(
            PatchRecord(
                name=patch.name,
                subject=patch.subject,
                sha256=hashlib.sha256(content).hexdigest(),
                files=patch.files,
                author=mail.author,
                message_id=mail.message_id if mail.has_id else "",
            )
            for (patch, content, _), mail in zip(read, mails, strict=True)
        ),
        host_code=host_code(diffs),
    )
    return record, who_runs_it(diffs)


def kept_folder(cache: Path, key: str) -> Path:
    """Where a series is kept: its patches, and their record in a file ``RECORDS``."""
    return cache / "series" / key


def key_of(patches: Sequence[tuple[str, bytes]]) -> str:
    """The key of patches by name and content, in the order they apply."""
    digest = hashlib.sha256()
    for name, content in patches:
        digest.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()[:32]


def _write(parts: Sequence[tuple[_Series, SeriesRecord]], cache: Path, *, revert: bool) -> str:
    """Put the patches into the cache, numbered (with ``revert`` turned around); return the key."""
    step = -1 if revert else 1
    patches: list[tuple[str, bytes]] = []
    records = []
    for series, record in parts[::step]:
        described = []
        pairs = list(zip(series.patches, record.patches, strict=True))
        for (name, content), patch in pairs[::step]:
            bare = re.sub(r"^[0-9]{4}-", "", name)
            if revert:
                back = reverted(content.decode(errors="surrogateescape"), name)
                # Only the diffs: what the mail around them says is not what this patch does.
                back = f"Subject: revert: {patch.subject}\n\n{back}"
                bare, content = f"revert-{bare}", back.encode(errors="surrogateescape")
            numbered = f"{len(patches) + 1:04d}-{bare}"
            patches.append((numbered, content))
            digest = hashlib.sha256(content).hexdigest()
            described.append(patch.model_copy(update={"name": numbered, "sha256": digest}))
        records.append(record.model_copy(update={"patches": tuple(described)}))
    key = key_of(patches)
    _keep(patches, STACK.dump_json(tuple(records), indent=1), kept_folder(cache, key))
    return key


def _keep(patches: Sequence[tuple[str, bytes]], records: bytes, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".new-", dir=place.parent))
    try:
        for name, content in (*patches, (RECORDS, records)):
            (beside / name).write_bytes(content)
        try:
            beside.rename(place)
        except OSError:  # there already, with the same patches; the record may be of other mails
            (beside / RECORDS).replace(place / RECORDS)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


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

    A series that is a plain folder is this folder from now on.  What is in the cache already stays.
    Raises SeriesError: the patches are not those of the key, or one does what no patch may;
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
        what = f"holds another series than that of key {spec.kept}"
        step = "name the series again, in a new session"
        raise SeriesError(what, where=clean(str(folder)), next_step=step)
    _keep(files, door.read(folder, RECORDS), place)
    return spec
