import os
import shutil
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from errors import Exit, InfraError
from experiment.load import load_guest
from experiment.plan import Size
from guests import kept
from guests.channel import Ending
from guests.exact import Machine, Outcome
from runs import keeping, local
from runs.boots import Boot, KeptRuns, Place, Reporter
from runs.local import RESERVE_BYTES, LocalExecutor, workspace
from tests.guests.framing import sent
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


@dataclass
class MadeUpGuests:
    """Guests of a local executor: what each waits for and sends, and which ended in what order."""

    folder: Path
    waits_for: dict[str, str] = field(default_factory=dict)
    sends: dict[str, bytes] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)
    follows: dict[str, tuple[str, ...]] = field(default_factory=dict)
    begun: dict[str, threading.Event] = field(default_factory=lambda: defaultdict(threading.Event))

    @property
    def good(self) -> list[str]:
        return self.ended

    def drawn_with(self, boot: Boot) -> str:
        return self.kinds.get(boot.name, boot.name)

    def before(self, boot: Boot, outcome: Outcome) -> tuple[str, ...]:
        return self.follows.get(boot.name, ())

    def receive(self, boot: Boot, outcome: Outcome, *, last: bool) -> bool:
        self.ended.append(boot.name)
        return False

    def boot_guest(
        self, boot: Boot, snapshot: object, folder: Path, logs: Path, watch: object
    ) -> Outcome:
        self.begun[boot.name].set()
        if name := self.waits_for.get(boot.name):
            assert self.begun[name].wait(60), f"{name} did not begin beside {boot.name}"
        logs.mkdir(parents=True, exist_ok=True)
        files = {"out": self.sends.get(boot.name, b"")}
        (logs / "result").write_bytes(sent(files))
        return Outcome(files, Ending("done", "done"), 1.0, 1.0, b"counts")

    def measure(self, *batches: str, runs: KeptRuns | None = None) -> None:
        """Boot batches of guests, their names parted by blanks, on two slots."""
        self.ended.clear()
        reporter = Reporter()
        place = Place(self.folder / "cache", self.folder / "session/raw", reporter, 2)
        kernel = self.folder / "kernel"
        kernel.write_text("kernel")
        guest = load_guest(CHECKOUT / "configs/guests/smoke.toml")
        machine = Machine(kernel, kernel, guest, Size(1, 2, 1, 1), "prepare", kernel)
        boots = [
            [Boot(name, "base", machine, f"job of {name}", cold=True) for name in batch.split()]
            for batch in batches
        ]
        keeping.boot(runs, LocalExecutor(), boots, self, place)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeUpGuests:
    host = MadeUpGuests(tmp_path)
    monkeypatch.setattr(local, "boot_guest", host.boot_guest)
    monkeypatch.setattr(kept, "emulator", lambda path: {"QEMU": "one"})
    return host


@pytest.mark.parametrize("batches", [("slow", "next"), ("first slow", "next last")])
def test_the_next_batch_begins_when_a_slot_is_free(
    host: MadeUpGuests, batches: tuple[str, ...]
) -> None:
    host.waits_for = {"slow": "next"}
    host.measure(*batches)
    assert sorted(host.ended) == sorted(" ".join(batches).split())


def test_a_third_batch_begins_when_the_first_has_ended(host: MadeUpGuests) -> None:
    """So that the snapshots of two batches are on disk, and no more."""
    host.waits_for = {"slow": "next"}
    host.measure("slow", "next", "third")
    assert host.ended.index("slow") < host.ended.index("third")


def test_other_runs_follow_the_kept_ones_that_are_booted_anew(
    host: MadeUpGuests, tmp_path: Path
) -> None:
    runs = KeptRuns(tmp_path / "runs")
    host.kinds = dict.fromkeys(("one", "two"), "same")
    host.measure("one two", runs=runs)
    # What is left runs beside what is drawn.
    host.waits_for = dict.fromkeys(("one", "two"), "new")
    host.measure("one two new", runs=KeptRuns(tmp_path / "runs"))
    assert sorted(host.ended) == ["new", "one", "two"]
    assert host.ended[-1] == "new"


def test_a_kept_run_that_is_booted_anew_waits_for_no_other(
    host: MadeUpGuests, tmp_path: Path
) -> None:
    """The base of its block, which decides who is blamed, is not kept and waits for it."""
    host.measure("patched", runs=KeptRuns(tmp_path / "runs"))
    host.follows = {"patched": ("base",)}
    host.measure("base patched", runs=KeptRuns(tmp_path / "runs"))
    assert host.ended == ["patched", "base"]


def test_a_kept_run_with_other_bytes_ends_the_session(host: MadeUpGuests, tmp_path: Path) -> None:
    host.measure("one", runs=KeptRuns(tmp_path / "runs"))
    host.sends = {"one": b"other"}
    with pytest.raises(InfraError, match="one has other bytes"):
        host.measure("one new", runs=KeptRuns(tmp_path / "runs"))
    assert host.ended == []
