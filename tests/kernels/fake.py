"""A small kernel tree, and a checkout with series made for it."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from experiment.spec import KernelSpec, SeriesSpec
from kernels.build import KernelRequest
from kernels.intake import take_in
from kernels.series import read_folder
from tests.waiting import completed

FAKE_LINUX = Path(__file__).parent / "fakelinux"

BASE = "CONFIG_SMP=y\nCONFIG_NET=y\nCONFIG_NET_9P=y\nCONFIG_NR_CPUS=64\n"
PERF = "CONFIG_PERF_EVENTS=y\n"


class Where(TypedDict):
    """The keyword arguments that every door of ``kernels`` takes."""

    checkout: Path
    cache: Path


@dataclass(frozen=True)
class Lab:
    """Where a test's checkout, source and cache are."""

    checkout: Path
    source: Path
    cache: Path

    @property
    def spec(self) -> KernelSpec:
        return KernelSpec(source=f"dir:{self.source}")

    @property
    def where(self) -> Where:
        return {"checkout": self.checkout, "cache": self.cache}

    @classmethod
    def in_folder(cls, folder: Path) -> "Lab":
        """A new one: a checkout with two fragments, and a copy of the small kernel tree."""
        checkout = folder / "checkout"
        kconfig = checkout / "configs/kconfig"
        kconfig.mkdir(parents=True)
        (kconfig / "base.config").write_text(BASE)
        (kconfig / "perf.config").write_text(PERF)
        source = folder / "linux"
        shutil.copytree(FAKE_LINUX, source)
        return cls(checkout, source, folder / "cache")

    def request(
        self,
        patches: Sequence[Path] = (),
        *,
        spec: KernelSpec | None = None,
        cache: Path | None = None,
        boxed: bool = False,
    ) -> KernelRequest:
        """A kernel of this source, or of another; in the lab's cache, or in another."""
        return KernelRequest(
            spec or self.spec, tuple(patches), self.checkout, cache or self.cache, boxed
        )

    def series(self, name: str, *edits: Callable[[Path], None], subject: str = "") -> list[Path]:
        """Write a series with one patch for each edit of the fake tree."""
        folder = self.checkout / "configs/series" / name
        folder.mkdir(parents=True)
        key = (*state(self.source).items(), name, edits, subject)
        if key not in MADE:
            self._make(folder, edits, subject or f"mm: {name}, step {{}}")
            MADE[key] = {path.name: path.read_text() for path in folder.glob("*.patch")}
        for file, text in MADE[key].items():
            (folder / file).write_text(text)
        return sorted(folder.glob("*.patch"))

    def _make(self, folder: Path, edits: Sequence[Callable[[Path], None]], subject: str) -> None:
        scratch = self.checkout / "scratch"
        shutil.copytree(self.source, scratch)
        commit_all(scratch)
        for number, edit in enumerate(edits, 1):
            edit(scratch)
            git(scratch, "add", "-A")
            git(scratch, "commit", "-qm", subject.format(number))
        git(scratch, "format-patch", "-q", "-o", str(folder), f"-{len(edits)}")
        shutil.rmtree(scratch)


# Series that were made before, by the source, name, edits and subject that they are of.
MADE: dict[tuple[object, ...], dict[str, str]] = {}


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Files of a tree by their paths: contents, and whether each is executable."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode & 0o111)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".git" not in path.parts
    }


def commit_all(folder: Path) -> None:
    """Make a folder a repository with one commit; hooks of the host's are not in it."""
    git(folder, "init", "-q", "--template=", "-b", "topic")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "base", "--date=2026-01-01T00:00:00Z")


def keep(spec: SeriesSpec, *, checkout: Path, cache: Path, repository: str = "") -> SeriesSpec:
    """The spec of a series that is taken in."""
    return take_in(spec, checkout=checkout, cache=cache, repository=repository).spec


def patches_of(spec: SeriesSpec, *, checkout: Path, cache: Path) -> tuple[Path, ...]:
    """The patch files of a series that is taken in."""
    return take_in(spec, checkout=checkout, cache=cache).patches


def files_of(checkout: Path, path: str) -> tuple[Path, ...]:
    """The patch files of a folder, in their order."""
    return tuple(patch.path for patch in read_folder(checkout, path).patches)


def replace(name: str, old: str, new: str) -> Callable[[Path], None]:
    """An edit of one file, for ``Lab.series``."""

    def edit(tree: Path) -> None:
        text = (tree / name).read_text()
        assert old in text
        (tree / name).write_text(text.replace(old, new))

    return edit


FASTER = replace("mm/filemap.c", "index >> 4", "index >> 5")
COMMENT = replace("mm/filemap.c", "/* Add a folio. */", "/* Adds one folio. */")
GROWN = replace(
    "mm/filemap.c", "table[index & 15] += index;", "table[index & 15] += index * 37 + 11;"
)


def renamed(tree: Path) -> None:
    """An edit that gives a function, and so its callers, another name."""
    for name in ("include/folio.h", "init.c", "mm/slow.c"):
        replace(name, "slow(", "steady(")(tree)


BROKEN = replace("mm/filemap.c", "int order = index >> 4;", "int order = nothing >> 4;")


def git(folder: Path, *arguments: str) -> str:
    """What a git command of Ada's prints."""
    identity = ["-c", "user.name=Ada L", "-c", "user.email=ada@example.org"]
    argv = ["git", "-C", str(folder), *identity, "-c", "commit.gpgsign=false", *arguments]
    return completed(argv).stdout.strip()
