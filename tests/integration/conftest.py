"""What the tests with real guests share: kernels, and sessions measured once."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from filelock import FileLock

from experiment.load import load_experiment
from experiment.spec import KernelSpec
from host import facts
from kernels import build, cache
from kernels.cache import Kernel
from runs import keeping, resolved
from runs.building import build_arms
from runs.local import Options
from tests.conftest import Terminal
from tests.integration.lab_process import CHECKOUT, SMALL, SMALL_SESSION, run_lab

SOURCE = "deb:linux-source-6.12"
KERNELS_VARIABLE = "TWINBOOT_TEST_KERNELS"


@dataclass(frozen=True)
class EndedSession:
    """A session that ended: its folder, the lab's status and words, and how long it took."""

    folder: Path
    status: int
    out: str
    err: str
    elapsed_s: float


def measured(folder: Path, *arguments: str, verb: str = "run") -> EndedSession:
    """Run ``lab.py run`` into ``folder`` to its end; ``measure`` draws no last report."""
    began = time.monotonic()
    done = run_lab(verb, *arguments, "--session", str(folder))
    return EndedSession(folder, done.returncode, done.stdout, done.stderr, time.monotonic() - began)


def once(
    tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], EndedSession]
) -> EndedSession:
    """A session that all workers of this test run read: the first to ask measures it.

    Nobody may write into its folder.
    """
    workers = tmp_path_factory.getbasetemp()
    place = workers.parent if "PYTEST_XDIST_WORKER" in os.environ else workers
    kept = place / f"{name}.json"
    with FileLock(place / f"{name}.lock"):
        if not kept.exists():
            made = make(place / name / "session")
            kept.write_text(json.dumps({**asdict(made), "folder": str(made.folder)}))
        saved = json.loads(kept.read_text())
    return EndedSession(**{**saved, "folder": Path(saved["folder"])})


@pytest.fixture(scope="module")
def kept_runs() -> Iterator[None]:
    """Let what is told of runs come from kept ones: their bytes, read anew.

    A session of this process boots no sample of them: whether a guest gives the same bytes again is
    what other files are about, which boot every run.  ``make test-all`` keeps none.
    """
    with pytest.MonkeyPatch.context() as patched:
        if os.environ.get(KERNELS_VARIABLE) != "all":
            patched.setenv("TWINBOOT_MEASURE_AGAIN", "")
            patched.setattr(keeping, "SAMPLE", 0)
        yield


@pytest.fixture(scope="session")
def options() -> Options:
    return Options(checkout=CHECKOUT, cache=facts.cache_folder(), guests_at_once=2)


@pytest.fixture(scope="session")
def kernels(options: Options) -> dict[str, Kernel]:
    """Both arms of filemap-v4; on a fresh machine this is where ten minutes go."""
    catalogue = resolved.catalogue(CHECKOUT)
    experiment = load_experiment(Path(SMALL), overrides=(), catalogue=catalogue)
    made = resolved.resolve(experiment, checkout=options.checkout, cache=options.cache)
    return build_arms(made, options, lambda arm, progress: None, "perf")


@pytest.fixture(scope="session")
def wall_kernel(options: Options) -> Kernel:
    """The source as it is, with what wall guests need besides: network, virtio, 9p."""
    spec = KernelSpec(source=SOURCE, flavour="perf", mode="wall")
    return build.provide(options.kernel(spec, ()))


@pytest.fixture(scope="session")
def small(kernels: dict[str, Kernel], tmp_path_factory: pytest.TempPathFactory) -> EndedSession:
    """The small experiment, two blocks, uninterrupted."""
    return once(tmp_path_factory, "small", lambda folder: measured(folder, *SMALL_SESSION))


def _want(flavour: str, options: Options) -> None:
    """Skip where a kernel that few tests need would first have to be built from nothing."""
    plan = build._Plan.of(options.kernel(KernelSpec(source=SOURCE, flavour=flavour), ()))
    has_objects = plan.beginning(plan.objects)[0] == "next"
    there = has_objects or cache.load(options.cache, plan.key) is not None
    if os.environ.get(KERNELS_VARIABLE) != "all" and not there:
        pytest.skip(
            f"no {flavour} kernel is in the cache, and it takes ten minutes to build: "
            f"{KERNELS_VARIABLE}=all builds it"
        )


@pytest.fixture(scope="session")
def selftest(options: Options) -> None:
    """The kernel with its own tests."""
    _want("selftest", options)


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Terminal]:
    """``lab.main`` in this process and with the real cache, for what is broken from inside."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    before = signal.getsignal(signal.SIGTERM)
    yield Terminal(capsys)
    signal.signal(signal.SIGTERM, before)
