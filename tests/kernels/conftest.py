"""A small kernel tree, a checkout for it, and an empty cache."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.kernels.fake import BASE, FAKE_LINUX, PERF, Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    checkout = tmp_path / "checkout"
    kconfig = checkout / "configs/kconfig"
    kconfig.mkdir(parents=True)
    (kconfig / "base.config").write_text(BASE)
    (kconfig / "perf.config").write_text(PERF)
    source = tmp_path / "linux"
    shutil.copytree(FAKE_LINUX, source)
    return Lab(checkout, source, tmp_path / "cache")
