"""A userland as one file: exported on one host, verified and imported on another."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from pydantic import ValidationError

from errors import UsageError
from files import sha256_of
from guests import userland
from guests.userland import FILES, HEAD, HELPERS, NATIVE, UserlandRecord
from runs.archive import pack, unpack
from text import clean

# fio, mkfs, busybox and some thirty libraries are 20 to 40 MiB.
MOST_BYTES = 256 << 20
MADE_BY = "./lab.py userland export"


def export(cache: Path, archive: Path) -> UserlandRecord:
    """Write the userland that guests of this host get into ``archive``; return its head.

    Raises:
        InfraError: a program is missing, or the archive cannot be written.
    """
    files = userland.files_of(cache)
    helpers = {source: userland.helper(source, cache) for source in HELPERS}
    imported = userland.in_use(cache)
    record = imported.record if imported else userland.record_of(files, helpers)
    packed = {f"{FILES}{path}": file.read_bytes() for path, file in files.items()}
    packed |= {f"{NATIVE}/{source.stem}": file.read_bytes() for source, file in helpers.items()}
    pack({HEAD: userland.head_text(record).encode(), **packed}, archive)
    return record


def import_(archive: Path, cache: Path, *, key: str = "") -> UserlandRecord:
    """Verify an exported userland, keep it, and give it to guests from now on.

    ``key`` is the one that is expected, or its beginning; empty accepts any.  Nothing of the
    archive is run here: its programs run in guests alone.

    Raises:
        UsageError: no such archive, one that holds other than what its head says, or
            another userland than the expected one.
        InfraError: a helper in it is of another version of the lab.
    """
    top = cache / userland.FOLDER
    top.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".new-", dir=top))
    try:
        names = unpack(archive, folder, most_bytes=MOST_BYTES, made_by=MADE_BY)
        record = _verified(archive, folder, names)
        if key and not record.key.startswith(key):
            raise _refused(archive, f"is userland {record.key}, and {clean(key)} is expected")
        for source in HELPERS:
            userland.Imported(folder, record).helper(source)
        target = top / record.key
        # The same contents: what is there may be damaged, which is why it is imported again.
        shutil.rmtree(target, ignore_errors=True)
        folder.rename(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    userland.use(cache, record.key)
    return record


def _verified(archive: Path, folder: Path, names: tuple[str, ...]) -> UserlandRecord:
    """The head of an unpacked archive, every file in it having the digest that it says."""
    if HEAD not in names:
        raise _refused(archive, f"has no {HEAD}")
    try:
        record = UserlandRecord.model_validate_json((folder / HEAD).read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise _refused(archive, clean(f"{HEAD}: {where}: {first['msg']}"[:300])) from None
    expected = {f"{FILES}{path}": digest for path, digest in record.files.items()}
    expected |= {f"{NATIVE}/{name}": helper.sha256 for name, helper in record.helpers.items()}
    for name in sorted(expected.keys() ^ (set(names) - {HEAD})):
        raise _refused(archive, f"{clean(name)}: is only in {'it' if name in names else HEAD}")
    for name, digest in expected.items():
        file = folder / name
        actual = sha256_of(file)
        if actual != digest:
            raise _refused(archive, f"{clean(name)}: SHA-256 is {actual}, and {HEAD} has {digest}")
        file.chmod(0o755)
    return record


def _refused(archive: Path, what: str) -> UsageError:
    return UsageError(what, where=clean(str(archive)), next_step=f"name a file made by {MADE_BY}")
