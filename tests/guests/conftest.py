"""What tests of guests build once: the plugin, and machines whose every instruction is known."""

import subprocess
from pathlib import Path

import pytest

from guests.probe import plugin
from guests.probe.plugin import Probe

SOURCES = Path(__file__).parent / "probe"


@pytest.fixture(scope="session")
def probe_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def probe(probe_cache: Path) -> Probe:
    return plugin.provide(probe_cache)


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the machines, each by its name."""
    folder = tmp_path_factory.mktemp("images")
    flags = ["-m32", "-nostdlib", "-static", "-Wl,-Ttext=0x100000", "-Wl,--build-id=none"]
    for source in SOURCES.glob("*.S"):
        out = ["-o", str(folder / source.stem)]
        subprocess.run(["gcc", *flags, *out, str(source)], check=True, timeout=300)
    return folder
