"""Sessions of native mode: what is refused before a build, and the order of what is booted."""

from collections.abc import Collection
from pathlib import Path

import pytest

from errors import InfraError, SeriesError, SpecError, UsageError
from guests import uml
from guests.channel import Ending
from guests.uml import NativeResult, TimedPhase
from kernels import make
from kernels.cache import Kernel
from results import door, native
from results.store import SessionStore
from runs.boots import Reporter
from runs.local import Options
from runs.native import in_native_form, make_rounds
from runs.request import Request
from runs.resolved import guest_of
from runs.session import start
from tests.analysis.native_factory import head_of
from tests.runs.test_resolve import CHECKOUT, whole
from tests.values import identity

FOLIO_ADD = ("configs/series/slow-add-256",)


def test_what_cannot_be_measured_is_left_out_and_named(tmp_path: Path) -> None:
    settled = whole(Request(name="filemap-v4", mode="native"), tmp_path)
    experiment = settled.experiment
    assert [case.name for case in experiment.cases] == ["filemap-4k"]
    assert settled.left_out == {"filemap-thp": "needs huge pages, which User-Mode Linux lacks"}
    assert (experiment.twins, experiment.check, experiment.blocks) == ((), None, 24)
    specs = [arm.kernels[settled.flavours[0]] for arm in settled.arms]
    assert {(spec.mode, spec.flavour, spec.additions) for spec in specs} == {
        ("native", "um", ("loops",))
    }
    assert specs[0].architecture.build.make == ("ARCH=um",)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request(series=FOLIO_ADD, workloads="redis", mode="native"), "redis: has no phase"),
        (
            Request(series=FOLIO_ADD, workloads="filemap-4k,vmalloc", mode="native"),
            "vmalloc: needs a page table",
        ),
        (Request(name="thp-matrix", mode="native"), "needs huge pages"),
        (Request(name="reclaim-contention", mode="native"), r"guest\.vcpus = 4: .* one CPU"),
        (Request(name="filemap-v4", mode="native", max_seeds=32), "in exact mode only"),
    ],
)
def test_what_is_named_and_not_there_is_refused(
    request_: Request, words: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=words):
        whole(request_, tmp_path)


def test_there_are_no_checks(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no correctness checks"):
        whole(Request(name="filemap-v4", mode="native", check=True), tmp_path)


def test_no_other_session_is_begun_by_it(tmp_path: Path) -> None:
    settled = whole(Request(name="filemap-v4", mode="native"), tmp_path)
    options = Options(checkout=CHECKOUT, cache=tmp_path)
    with pytest.raises(UsageError, match="made in one go"):
        start(settled, options, tmp_path / "s", (), lambda name, progress: None)
    native.begin(tmp_path, head_of(9))
    with pytest.raises(door.StoreError, match="which report and sessions alone read"):
        SessionStore(tmp_path).manifest()


def test_an_exact_experiment_is_not_touched(tmp_path: Path) -> None:
    experiment = whole(Request(name="filemap-v4"), tmp_path).experiment
    changed = in_native_form(experiment, guest_of(experiment), ())
    assert experiment.kernel.flavour == "perf"
    assert changed.kernel.flavour == "um"


@pytest.fixture
def booted(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Executables in the order they are booted; one that is called ``broken`` panics."""
    order: list[Path] = []

    def boot(
        executable: Path, archive: Path, folder: Path, phases: Collection[str], cpu: int | None
    ) -> tuple[NativeResult | None, Ending, str]:
        order.append(executable)
        if executable.parent.name.startswith("broken"):
            return None, Ending("panic", "the kernel panicked"), "Kernel panic - not syncing\n"
        timed = {name: TimedPhase(64, 2, (100, 101)) for name in ("crossing", *phases)}
        return NativeResult(timed, 1e9), Ending("done", "measured"), ""

    monkeypatch.setattr(uml, "boot", boot)
    monkeypatch.setattr(uml, "root", lambda folder, cache, modules: folder / "root.cpio")
    return order


def made(folder: Path, *broken: str) -> None:
    """The rounds of a session; the kernels of the arms ``broken`` panic."""
    door.make_folder(folder, "raw")
    kernels = {}
    for arm in ("base", "patched"):
        place = folder / (f"broken-{arm}" if arm in broken else arm)
        for number in range(1, make.ORDERS + 1):
            door.write(door.make_folder(place), f"order-{number:02}", "")
        kernels[arm] = Kernel(place, identity(arm))
    make_rounds(head_of(9), kernels, folder / "cache", folder, Reporter())


def test_the_arms_of_a_round_have_the_same_order_and_rounds_go_through_all(
    booted: list[Path], tmp_path: Path
) -> None:
    native.begin(tmp_path, head_of(9))
    made(tmp_path)
    boots = native.read(tmp_path)[1]
    assert [(path.parent.name, path.name) for path in booted] == [
        (boot.arm, f"order-{boot.order + 1:02}") for boot in boots
    ]
    rounds = [[b for b in boots if b.round == number] for number in range(9)]
    assert all(
        {(b.arm, b.again) for b in each} == {("base", False), ("base", True), ("patched", False)}
        for each in rounds
    )
    assert [{boot.order for boot in each} for each in rounds] == [{n} for n in range(9)]
    assert len({tuple((b.arm, b.again) for b in each) for each in rounds}) > 2


@pytest.mark.parametrize(("broken", "kind"), [("patched", SeriesError), ("base", InfraError)])
def test_an_arm_that_does_not_boot_is_blamed_and_its_console_kept(
    broken: str, kind: type[Exception], booted: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(kind, match="does not boot and measure: the kernel panicked"):
        made(tmp_path, broken)
    (console,) = (tmp_path / "raw").glob("1.*.txt")
    assert "Kernel panic" in console.read_text()
    assert sum(path.parent.name.startswith("broken") for path in booted) == 2


def test_what_no_arm_boots_is_not_the_series_failure(booted: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="does not boot") as caught:
        made(tmp_path, "base", "patched")
    # The first round of this seed begins with the patched arm.
    assert booted[0].parent.name == "broken-patched"
    assert caught.value.where == "base"
