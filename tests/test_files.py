"""A file is there whole or not at all."""

import hashlib
from pathlib import Path

import pytest

from files import digest, sha256_of, write_atomically, written_beside


def test_a_file_that_fails_while_it_is_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "made" / "kept.json"
    write_atomically(path, "old é")
    with pytest.raises(ZeroDivisionError), written_beside(path) as beside:  # noqa: PT012
        beside.write_text("half")
        assert path.read_text() == "old é"
        raise ZeroDivisionError
    assert path.read_text() == "old é"
    assert list(path.parent.iterdir()) == [path]


def test_a_name_that_is_as_long_as_names_get(tmp_path: Path) -> None:
    write_atomically(tmp_path / ("x" * 255), b"whole")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"whole"]


def test_digests(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a\0b")
    assert sha256_of(tmp_path / "file") == digest("a", b"b") == hashlib.sha256(b"a\0b").hexdigest()
    # Bytes of a name that are no UTF-8, and half of a pair that comes from nowhere.
    assert digest("\udcff") != digest("\ud800")
