"""A userland that travels: exported, verified, imported, and what is refused on the way."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from errors import InfraError, UsageError
from guests import initramfs, native, userland
from runs.archive import pack
from runs.userland import export, import_

pytestmark = pytest.mark.slow

Files = dict[str, bytes]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This host's own userland in an archive."""
    folder = tmp_path_factory.mktemp("exported")
    export(folder / "cache", folder / "userland.tar.gz")
    return folder / "userland.tar.gz"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A whole userland of programs that are a word each."""
    record = userland.UserlandRecord(
        distribution="Some 1",
        tools={"fio": "3.39"},
        files={path: digest(path.encode()) for path in (userland.BUSYBOX, *userland.PROGRAMS)},
        helpers={
            source.stem: userland.Helper(
                source_sha256=native.digest(source), sha256=digest(source.stem.encode())
            )
            for source in userland.HELPERS
        },
    )
    files = {f"files{path}": path.encode() for path in record.files}
    files |= {f"native/{name}": name.encode() for name in record.helpers}
    pack({userland.HEAD: userland.head_text(record).encode(), **files}, tmp_path / "small.tar.gz")
    return tmp_path / "small.tar.gz"


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def contents(archive: Path) -> Files:
    with tarfile.open(archive) as tar:
        opened = {each.name: tar.extractfile(each) for each in tar}
        return {name: file.read() for name, file in opened.items() if file is not None}


def test_the_same_userland_is_the_same_archive(exported: Path, tmp_path: Path) -> None:
    export(tmp_path / "cache", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == exported.read_bytes()


def test_an_imported_userland_is_what_guests_get(exported: Path, tmp_path: Path) -> None:
    own = initramfs.provide(tmp_path)
    record = import_(exported, tmp_path)
    imported = userland.in_use(tmp_path)
    assert imported is not None
    assert imported.record == record == userland.current(tmp_path)
    # Of one host it is the same root to the last bit, made without running its programs.
    again = initramfs.provide(tmp_path)
    assert again.path != own.path
    assert again.path.read_bytes() == own.path.read_bytes()
    assert userland.versions(tmp_path)["fio"] == record.tools["fio"]
    userland.use(tmp_path, "")
    assert userland.in_use(tmp_path) is None
    assert userland.versions(tmp_path) == {}
    assert initramfs.provide(tmp_path) == own


def test_another_fio_is_another_userland_and_another_root(exported: Path, tmp_path: Path) -> None:
    own = initramfs.provide(tmp_path)
    archive = changed(exported, tmp_path, with_fio(b"\x7fELF another fio"))
    record = import_(archive, tmp_path)
    assert record.key != head_of(exported).key
    assert initramfs.provide(tmp_path).sha256 != own.sha256
    # What was imported goes out again as it came.
    assert export(tmp_path, tmp_path / "on") == record
    assert contents(tmp_path / "on") == contents(archive)


def head_of(archive: Path) -> userland.UserlandRecord:
    return userland.UserlandRecord.model_validate_json(contents(archive)[userland.HEAD])


def changed(archive: Path, folder: Path, change: Callable[[Files], None]) -> Path:
    files = contents(archive)
    change(files)
    pack(files, folder / "changed.tar.gz")
    return folder / "changed.tar.gz"


def with_head(**update: Any) -> Callable[[Files], None]:
    def change(files: Files) -> None:
        head = json.loads(files[userland.HEAD])
        for key, value in update.items():
            head[key] = {**head[key], **value} if isinstance(value, dict) else value
        files[userland.HEAD] = (json.dumps(head, indent=1, sort_keys=True) + "\n").encode()

    return change


def with_fio(content: bytes) -> Callable[[Files], None]:
    """Another fio, rightly named by the head."""

    def change(files: Files) -> None:
        files["files/usr/bin/fio"] = content
        with_head(files={"/usr/bin/fio": digest(content)})(files)

    return change


def other_bytes(files: Files) -> None:
    files["files/usr/bin/fio"] += b"\0"


def one_more(files: Files) -> None:
    files["files/usr/bin/more"] = b"x"


def one_less(files: Files) -> None:
    del files["native/mark"]


def no_head(files: Files) -> None:
    del files[userland.HEAD]


def no_json(files: Files) -> None:
    files[userland.HEAD] = b"\xff{"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_bytes, r"files/usr/bin/fio: SHA-256 is [0-9a-f]{64}, and userland.json has"),
        (one_more, r"files/usr/bin/more: is only in it"),
        (one_less, r"native/mark: is only in userland.json"),
        (no_head, r"has no userland.json"),
        (no_json, r"userland.json: "),
        (with_head(files={"/etc/passwd": "ab" * 32}), r"no place of a program"),
        (with_head(files={"/usr/bin/../../init": "ab" * 32}), r"no place of a program"),
        (with_head(files={"/init": "ab" * 32}), r"no place of a program"),
        (with_head(helpers={"other": {"source_sha256": "ab" * 32, "sha256": "ab" * 32}}),
         r"helpers that the lab has not"),
        (with_head(tools={"fio": "3.39\x1b[2J"}), r"tools.fio"),
        (with_head(more=1), r"more"),
        (with_head(schema_version=2), r"schema_version"),
    ],
)  # fmt: skip
def test_what_is_not_as_its_head_says_is_refused(
    small: Path, tmp_path: Path, change: Callable[[Files], None], message: str
) -> None:
    archive = changed(small, tmp_path, change)
    with pytest.raises(UsageError, match=message) as caught:
        import_(archive, tmp_path / "cache")
    assert "userland export" in caught.value.next_step
    assert userland.in_use(tmp_path / "cache") is None
    assert list((tmp_path / "cache/userland").iterdir()) == []


def member(name: str, **fields: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(info, key, value)
    return info


@pytest.mark.parametrize(
    "info",
    [
        member("files/usr/bin/fio", type=tarfile.SYMTYPE, linkname="/etc/shadow"),
        member("files/usr/bin/fio", type=tarfile.LNKTYPE, linkname="../../x"),
        member("files/dev/null", type=tarfile.CHRTYPE),
        member("../outside"),
        member("/absolute"),
    ],
)
def test_an_archive_with_more_than_files_below_its_top_is_refused(
    tmp_path: Path, info: tarfile.TarInfo
) -> None:
    with tarfile.open(tmp_path / "hostile.tar.gz", "w:gz") as tar:
        tar.addfile(info, io.BytesIO())
    with pytest.raises(UsageError):
        import_(tmp_path / "hostile.tar.gz", tmp_path / "cache")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "hostile.tar.gz"]
    assert list((tmp_path / "cache/userland").iterdir()) == []


def test_one_that_unpacks_to_more_than_any_userland_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runs.userland.MOST_BYTES", 1 << 16)
    pack({"files/usr/bin/fio": bytes(1 << 20)}, tmp_path / "bomb.tar.gz")
    with pytest.raises(UsageError, match="unpacks to more"):
        import_(tmp_path / "bomb.tar.gz", tmp_path / "cache")


def test_another_than_the_expected_one_is_refused(small: Path, tmp_path: Path) -> None:
    key = head_of(small).key
    with pytest.raises(UsageError, match=f"is userland {key}, and 0123 is expected"):
        import_(small, tmp_path, key="0123")
    assert import_(small, tmp_path, key=key[:12]).key == key


def test_helpers_of_another_version_of_the_lab_are_refused(small: Path, tmp_path: Path) -> None:
    def older(files: Files) -> None:
        head = json.loads(files[userland.HEAD])
        head["helpers"]["mark"]["source_sha256"] = "ab" * 32
        files[userland.HEAD] = (json.dumps(head, indent=1, sort_keys=True) + "\n").encode()

    with pytest.raises(InfraError, match=r"mark.c of another version of the lab"):
        import_(changed(small, tmp_path, older), tmp_path / "cache")


def test_a_damaged_import_is_named_and_a_new_one_mends_it(small: Path, tmp_path: Path) -> None:
    record = import_(small, tmp_path)
    place = tmp_path / "userland" / record.key
    (place / "files/usr/bin/fio").unlink()
    with pytest.raises(InfraError, match="is gone") as caught:
        userland.files_of(tmp_path)
    assert "userland import" in caught.value.next_step
    (place / userland.HEAD).write_text("{")
    with pytest.raises(InfraError, match="cannot be read"):
        userland.in_use(tmp_path)
    import_(small, tmp_path)
    assert userland.files_of(tmp_path)["/usr/bin/fio"].read_text() == "/usr/bin/fio"
