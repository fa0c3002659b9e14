import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from errors import Exit, InfraError
from runs.local import RESERVE_BYTES, workspace
from tests.values import data

CHECKOUT = Path(__file__).parents[2]
OWNER = data(__file__, "owner")


@contextmanager
def owner(cache: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another lab process that holds a workspace, and the workspace."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(cache)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    ) as process:
        try:
            assert process.stdout is not None
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


@pytest.mark.parametrize("raised", [None, KeyboardInterrupt])
def test_folder_is_there_within_the_block_only(
    tmp_path: Path, raised: type[BaseException] | None
) -> None:
    with pytest.raises(raised) if raised else nullcontext(), workspace(tmp_path, 0) as folder:
        assert folder.parent == tmp_path / "scratch"
        (folder / "run").mkdir()
        (folder / "run" / "memory").write_bytes(b"x")
        if raised:
            raise raised
    assert list((tmp_path / "scratch").iterdir()) == []


def test_folder_of_a_living_owner_is_kept(tmp_path: Path) -> None:
    with owner(tmp_path) as (process, theirs):
        with workspace(tmp_path, 0) as ours:
            assert ours != theirs
            assert (theirs / "memory").read_bytes() == b"x" * 1000
        assert theirs.exists()
        process.communicate(input="", timeout=300)
        assert not theirs.exists()


def test_a_session_without_a_lock_is_swept_and_nothing_else(tmp_path: Path) -> None:
    """Its owner was killed between making it and locking it."""
    left, other = (tmp_path / "scratch" / name for name in ("session-abc", "notes"))
    for folder in (left, other):
        folder.mkdir(parents=True)
    with workspace(tmp_path, 0):
        assert not left.exists()
        assert other.exists()


def test_two_in_one_process(tmp_path: Path) -> None:
    with workspace(tmp_path, 0) as first, workspace(tmp_path, 0) as second:
        assert first != second
        assert first.exists()
        assert second.exists()


def test_disk_too_small_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    needed = free + (1 << 40)
    with pytest.raises(InfraError) as caught, workspace(tmp_path, needed):
        pytest.fail("a workspace was given")
    assert caught.value.exit_code == Exit.INFRASTRUCTURE
    text = str(caught.value)
    assert f"{(needed + RESERVE_BYTES) >> 20} MiB needed" in text
    assert str(tmp_path / "scratch") in text
    assert "./lab.py clean" in text
    assert list((tmp_path / "scratch").glob("session-*")) == []


@pytest.mark.parametrize(
    ("free", "fits"), [(RESERVE_BYTES + 100, True), (RESERVE_BYTES + 99, False)]
)
def test_reserve_stays_free(
    free: int, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    if fits:
        with workspace(tmp_path, 100) as folder:
            assert folder.exists()
    else:
        with (
            pytest.raises(InfraError, match="1024 MiB free, 1024 MiB needed"),
            workspace(tmp_path, 100),
        ):
            pytest.fail("a workspace was given")


def test_folder_of_a_killed_owner_is_swept_and_its_space_counts_as_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with owner(tmp_path) as (process, left):
        assert (left / "memory").exists()
        process.kill()
        process.wait(timeout=300)
        present: list[bool] = []

        def usage(_: Path) -> SimpleNamespace:
            present.append(left.exists())
            return SimpleNamespace(free=1 << 50)

        monkeypatch.setattr(shutil, "disk_usage", usage)
        with workspace(tmp_path, 0):
            assert present == [False]
