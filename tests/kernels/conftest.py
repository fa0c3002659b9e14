"""A small kernel tree, a checkout for it, and a cache: empty, or with the source's kernel."""

import subprocess
from pathlib import Path

import pytest

from kernels.build import provide
from kernels.cache import Kernel
from tests.kernels.fake import Lab
from tests.kernels.shipped import Archive


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab.in_folder(tmp_path)


@pytest.fixture(scope="session")
def built_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of a lab that has built its source, once for all tests."""
    lab = Lab.in_folder(tmp_path_factory.mktemp("built"))
    provide(lab.request())
    return lab.cache


@pytest.fixture
def base(lab: Lab, built_cache: Path) -> Kernel:
    """The kernel of the source alone, as if this lab had just built it."""
    subprocess.run(["cp", "-a", "--reflink=auto", built_cache, lab.cache], check=True)
    return provide(lab.request())


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    """All that apt knows: nothing at first."""
    made = Archive(tmp_path / "archive")
    monkeypatch.setenv("APT_CONFIG", str(made.config))
    return made
