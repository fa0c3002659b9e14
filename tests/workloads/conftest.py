"""Results as real guests sent them, and what those runs claim.

``filemap-4k.result`` is one run of the laptop guest on a 6.12 kernel with seed 1,
``filemap-thp.result`` one with seed 2, both of 64 MiB and times as in
configs/experiments/filemap-v4.toml.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from guests.channel import decode
from workloads.parse import GuestResult, guest_result
from workloads.spec import Phase, load_catalogue
from workloads.validity import Claim, problems

RECORDED = Path(__file__).parent / "recorded"
LIMIT = 64 << 20
CATALOGUE = load_catalogue()
BUILD_IDS = {
    "filemap-4k": "4dc6a058b44191bb76567f8b167d704456ec6021",
    "filemap-thp": "21b9ebc8fc99b31052350631584cd77595c440e0",
}
SEEDS = {"filemap-4k": 1, "filemap-thp": 2}
Change = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Run:
    """One recorded run; ``but`` gives it with some of its files changed."""

    workload: str
    files: dict[str, bytes]

    @property
    def phases(self) -> tuple[Phase, ...]:
        return CATALOGUE[self.workload].phases

    @property
    def result(self) -> GuestResult:
        return guest_result(self.files, tuple(phase.name for phase in self.phases))

    @property
    def claim(self) -> Claim:
        return Claim(self.phases, LIMIT, SEEDS[self.workload], BUILD_IDS[self.workload])

    @property
    def problems(self) -> tuple[str, ...]:
        return problems(self.result, self.claim)

    def but(self, name: str, change: Change) -> Run:
        assert change(self.files[name]) != self.files[name]
        return Run(self.workload, {**self.files, name: change(self.files[name])})

    def without(self, name: str) -> Run:
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
