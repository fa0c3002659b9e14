"""A QEMU is tried by real guests on a busy host, and a lab that does not tame it is caught."""

from pathlib import Path
from typing import Any

import pytest

import runs.exactness
from errors import InfraError
from experiment.spec import ShapeSpec
from guests import exact
from guests.argv import qemu_argv
from host import exactness
from kernels.cache import Kernel
from runs.exactness import try_exactness
from runs.local import Options

pytestmark = pytest.mark.guest


@pytest.fixture
def cache(kernels: dict[str, Kernel], options: Options, tmp_path: Path) -> Path:
    """A cache with one kernel in it, that remembers nothing."""
    kernel = kernels["patched"].folder
    (tmp_path / "cache/kernels").mkdir(parents=True)
    (tmp_path / "cache/locks").mkdir()
    (tmp_path / "cache/kernels" / kernel.name).symlink_to(kernel)
    return tmp_path / "cache"


@pytest.mark.long
def test_this_qemu_is_exact_and_that_is_remembered(cache: Path, options: Options) -> None:
    lines: list[str] = []
    tried = try_exactness(cache, options.checkout, lines.append)
    assert tried.differences == ()
    assert tried.vcpus == (1, 4)
    assert len(lines) == 2
    standing = exactness.standing(cache)
    assert (standing.status, standing.binary_sha256) == ("exact", tried.binary_sha256)


def test_guests_that_are_not_exact_are_recognised(
    cache: Path, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_a_seed(*arguments: Any, **more: Any) -> list[str]:
        argv = qemu_argv(*arguments, **more)
        at = argv.index("-seed")
        return argv[:at] + argv[at + 2 :]

    # What RDRAND gives is the host's then, which has to be busy for nothing else.
    monkeypatch.setattr(runs.exactness, "LOOPS_PER_CORE", 0)
    monkeypatch.setattr(exact, "qemu_argv", without_a_seed)
    monkeypatch.setattr(runs.exactness, "SHAPES", (ShapeSpec(cpu="Nehalem,+rdrand"),))
    tried = try_exactness(cache, options.checkout, lambda text: None)
    assert tried.differences
    assert exactness.standing(cache).status == "inexact"


def test_without_a_kernel_the_next_step_is_to_build_one(tmp_path: Path, options: Options) -> None:
    with pytest.raises(InfraError, match="no kernel to boot") as caught:
        try_exactness(tmp_path, options.checkout, lambda text: None)
    assert caught.value.next_step.startswith("./lab.py build")
