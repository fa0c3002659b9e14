"""Results as real guests sent them, and what those runs claim.

``filemap-4k.result`` is one run of the laptop guest on a 6.12 kernel with seed 1,
``filemap-thp.result`` one with seed 2, both of 64 MiB and times as in
configs/experiments/filemap-v4.toml.  ``iomap-dirty.result`` is one of that experiment's
base arm with seed 1, ``thp-matrix.result`` one of mmap-randrw with huge=always; neither
has a limit.  ``reclaim-overwrite.result`` is one of reclaim-contention's vanilla arm with
seed 1, in a guest that leaves 128 MiB for the cache of a file of 376 MiB.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from guests.channel import decode
from tests.values import data
from workloads.parse import GuestResult, guest_result
from workloads.spec import Phase, load_catalogue
from workloads.validity import Claim, problems

RECORDED = Path(__file__).parent / "recorded"
LIMIT = 64 << 20
CATALOGUE = load_catalogue()
BUILD_IDS = data(__file__, "build_ids")
SEEDS = {"filemap-thp": 2}
LIMITS = {"filemap-4k": LIMIT, "filemap-thp": LIMIT}
# Of all files together, and what is left for their cache.
SIZES_MIB = {"reclaim-overwrite": (376, 128)}
VARIANTS = {"thp-matrix": "mmap-randrw"}
Change = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Run:
    """One recorded run; ``but`` gives it with some of its files changed."""

    workload: str
    files: dict[str, bytes]

    @property
    def phases(self) -> tuple[Phase, ...]:
        return CATALOGUE[self.workload].phases_of(VARIANTS.get(self.workload, "default"))

    @property
    def result(self) -> GuestResult:
        return guest_result(self.files, tuple(phase.name for phase in self.phases))

    @property
    def claim(self) -> Claim:
        file_mib, memory_mib = SIZES_MIB.get(self.workload, (32, 0))
        return Claim(
            self.phases,
            LIMITS.get(self.workload, 0),
            SEEDS.get(self.workload, 1),
            BUILD_IDS[self.workload],
            mount_options="huge=always" if self.workload == "thp-matrix" else "noatime",
            file_bytes=file_mib << 20,
            memory_bytes=memory_mib << 20,
        )

    @property
    def problems(self) -> tuple[str, ...]:
        return problems(self.result, self.claim)

    def but(self, name: str, change: Change) -> "Run":
        assert change(self.files[name]) != self.files[name]
        return Run(self.workload, {**self.files, name: change(self.files[name])})

    def without(self, name: str) -> "Run":
        return Run(self.workload, {key: self.files[key] for key in self.files if key != name})


def counter(name: str, value: int) -> Change:
    """Give one ``name value`` line another value."""

    def change(content: bytes) -> bytes:
        changed, count = re.subn(
            rf"^{name} \d+$".encode(), f"{name} {value}".encode(), content, flags=re.MULTILINE
        )
        assert count == 1, name
        return changed

    return change


def swap(old: str, new: str) -> Change:
    """Replace one text, which must be there."""

    def change(content: bytes) -> bytes:
        assert old.encode() in content
        return content.replace(old.encode(), new.encode())

    return change


def recorded(workload: str) -> Run:
    return Run(workload, decode((RECORDED / f"{workload}.result").read_bytes()))


@pytest.fixture(scope="session")
def run_4k() -> Run:
    return recorded("filemap-4k")


@pytest.fixture(scope="session")
def run_thp() -> Run:
    return recorded("filemap-thp")


@pytest.fixture(scope="session")
def run_dirty() -> Run:
    return recorded("iomap-dirty")


@pytest.fixture(scope="session")
def run_overwrite() -> Run:
    return recorded("reclaim-overwrite")


@pytest.fixture(scope="session")
def run_matrix() -> Run:
    return recorded("thp-matrix")
