"""Kernels built on workers: a small tree, driven by the real make."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from errors import SeriesError, UsageError
from experiment.spec import KernelSpec
from kernels import build, cache
from kernels.build import KernelRequest
from kernels.cache import Kernel
from runs.fleet.artefacts import ArtefactStore
from runs.fleet.configured import _client
from runs.fleet.executor import DaskExecutor
from runs.fleet.members import Settings
from tests.kernels.conftest import lab as lab
from tests.kernels.fake import BROKEN, GROWN, Lab
from tests.runs.fleet.cluster import CHECKOUT, Cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

SOON = Settings()


@pytest.fixture
def builders(tmp_path: Path) -> Iterator[Cluster]:
    """Two workers, each with a cache of its own."""
    made = Cluster(tmp_path, preload="")
    try:
        made.start_scheduler()
        for name in ("one", "two"):
            made.start_worker(name)
        yield made
    finally:
        made.stop()


@pytest.fixture
def executor(builders: Cluster, tmp_path: Path) -> Iterator[DaskExecutor]:
    lines: list[str] = []

    def connect(stack: ExitStack) -> object:
        return _client(stack, f"tcp://127.0.0.1:{builders.port}")

    store = ArtefactStore(str(tmp_path / "store"))
    made = DaskExecutor("dask", connect, store, SOON, lines.append)
    with made:
        yield made


def here(lab: Lab, tmp_path: Path) -> Path:
    """A client's cache that holds nothing."""
    folder = tmp_path / f"client-{uuid.uuid4().hex[:6]}"
    folder.mkdir()
    return folder


def content(kernel: Kernel) -> dict[str, bytes]:
    """What is booted and read of a kernel."""
    names = ("bzImage", "System.map", "config", "symbols.json.gz", "identity.json")
    return {name: (kernel.folder / name).read_bytes() for name in names}


def test_both_arms_are_built_by_a_worker_and_are_those_of_a_local_build(
    lab: Lab, executor: DaskExecutor, builders: Cluster, tmp_path: Path
) -> None:
    patches = lab.series("grown", GROWN)
    client = here(lab, tmp_path)
    requests = [lab.request(each, cache=client) for each in ([], patches)]
    executor.expect_kernels(requests)
    made = [executor.provide_kernel(each) for each in requests]
    assert not (client / "trees").exists()
    local = [build.provide(lab.request(each)) for each in ([], patches)]
    assert [content(kernel) for kernel in made] == [content(kernel) for kernel in local]
    # The second arm went where the objects of the first are.
    trees = [name for name in ("one", "two") if (tmp_path / f"cache-{name}" / "trees").exists()]
    assert len(trees) == 1
    # Another client finds them in the store; nothing is built again.
    builders.stop("one", "two")
    other = here(lab, tmp_path)
    files = executor.store.kernel(made[1].identity.key, client)
    assert files is not None
    assert content(executor.store.fetch_kernel(files, other)) == content(made[1])


def test_a_series_that_does_not_build_is_the_series_fault(
    lab: Lab, executor: DaskExecutor, tmp_path: Path
) -> None:
    patches = lab.series("broken", BROKEN)
    with pytest.raises(SeriesError, match="nothing") as error:
        executor.provide_kernel(lab.request(patches, cache=here(lab, tmp_path)))
    assert error.value.exit_code == 4
    assert "broken" in str(error.value)


def test_a_worker_killed_in_the_middle_of_a_build(
    lab: Lab, executor: DaskExecutor, builders: Cluster, tmp_path: Path
) -> None:
    # The tree's own gate keeps a half-written object in the making.
    (lab.source / "gate").touch()
    executor.members.refresh(at_once=True)
    executor.expect_kernels([lab.request()])
    caches = {name: tmp_path / f"cache-{name}" for name in ("one", "two")}

    def building() -> list[str]:
        return [name for name, at in caches.items() if list(at.glob("trees/*/src/obj-*/init.o"))]

    wait_until(building, "build")
    (busy,) = building()
    builders.kill(busy)
    (other,) = set(caches) - {busy}
    executor.members.refresh()
    opened = threading.Thread(
        target=lambda: wait_until(lambda: opens(caches[other]), "build of the other")
    )
    opened.start()
    kernel = executor.provide_kernel(lab.request())
    opened.join()
    assert kernel.image.stat().st_size
    assert cache.load(caches[other], kernel.identity.key) is not None
    assert cache.load(caches[busy], kernel.identity.key) is None


def opens(cache_folder: Path) -> bool:
    """Open the gate of a tree once a build waits at it."""
    if not list(cache_folder.glob("trees/*/src/obj-*/init.o")):
        return False
    for gate in cache_folder.glob("trees/*/src/gate"):
        gate.unlink()
    return True


def test_what_no_worker_can_build_is_built_here(
    lab: Lab, builders: Cluster, tmp_path: Path
) -> None:
    lines: list[str] = []
    made = DaskExecutor(
        "dask",
        lambda stack: _client(stack, f"tcp://127.0.0.1:{builders.port}"),
        ArtefactStore(str(tmp_path / "store")),
        SOON,
        lines.append,
    )
    with made as executor:
        # Their compiler is none: another key would come of it.
        builders.stop("one", "two")
        fake = tmp_path / "bin"
        fake.mkdir()
        gcc = fake / "gcc"
        gcc.write_text('#!/bin/sh\necho "gcc (Other) 99.0"\n')
        gcc.chmod(0o755)
        builders.start_worker("other", PATH=f"{fake}:/usr/bin:/bin:/usr/sbin:/sbin")
        kernel = executor.provide_kernel(lab.request())
    assert kernel.image.stat().st_size
    assert any("cannot build kernel" in line and "compiler differ" in line for line in lines)
    assert any("it is built here" in line for line in lines)


def test_a_kernel_that_no_worker_boots_is_refused_before_it_is_built(tmp_path: Path) -> None:
    def nobody(stack: ExitStack) -> object:
        raise AssertionError("nothing is to be built, and nobody to be asked")

    made = DaskExecutor("dask", nobody, ArtefactStore(str(tmp_path / "store")), SOON, print)
    spec = KernelSpec(source="deb:linux-source-6.12", arch="arm64")
    kernel = KernelRequest(spec, (), CHECKOUT, tmp_path / "cache")
    with made as executor:
        with pytest.raises(UsageError, match="x86_64 only, and this kernel is for arm64"):
            executor.expect_kernels([kernel])
        with pytest.raises(UsageError, match="x86_64 only") as error:
            executor.provide_kernel(kernel)
    assert error.value.next_step == "--executor local"
