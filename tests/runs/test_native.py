"""Sessions of native mode: what is refused before a build, and the order of what is booted."""

import os
import signal
import threading
import time
from collections.abc import Collection
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest

from errors import InfraError, SeriesError, SpecError, UsageError
from guests import programs, uml
from guests.channel import Ending
from guests.uml import NativeResult
from host import sandbox
from host.fitness import Cpu
from kernels import make
from kernels.cache import IDENTITY, Kernel, kernels_folder, load, staged
from results import door, native
from results.native import NativeHead, NativePhase
from results.store import SessionStore
from runs import native as of_runs
from runs.boots import Reporter
from runs.local import LocalExecutor, Options
from runs.native import (
    Undecided,
    in_native_form,
    make_rounds,
    measure_native,
    on_this_cpu,
    resume_native,
)
from runs.request import Request
from runs.resolved import guest_of
from runs.session import start
from tests.analysis.native_factory import head_of
from tests.runs.test_resolve import CHECKOUT, whole
from tests.values import but, identity
from tests.waiting import wait_until

FOLIO_ADD = ("configs/series/slow-add-256",)


def test_what_cannot_be_measured_is_left_out_and_named(tmp_path: Path) -> None:
    settled = whole(Request(name="filemap-v4", mode="native"), tmp_path)
    experiment = settled.experiment
    assert [case.name for case in experiment.cases] == ["filemap-4k"]
    assert settled.left_out == {"filemap-thp": "needs huge pages, which User-Mode Linux lacks"}
    assert (experiment.twins, experiment.check) == ((), None)
    assert experiment.looks().seeds == (24, 32, 48, 64, 96)
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
        (Request(name="filemap-v4", mode="native", max_seeds=40), "max_seeds: found 40"),
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
    with pytest.raises(UsageError, match="made by this host alone"):
        start(settled, options, tmp_path / "s", (), lambda name, progress: None)
    native.begin(tmp_path, head_of(9))
    with pytest.raises(door.StoreError, match="which report and sessions alone read"):
        SessionStore(tmp_path).manifest()


def test_without_a_box_nothing_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "available", lambda: None)
    settled = whole(Request(name="filemap-v4", mode="native"), tmp_path)
    options, folder = Options(checkout=CHECKOUT, cache=tmp_path / "cache"), tmp_path / "s"
    with pytest.raises(InfraError, match="no sandbox can be made"):
        measure_native(settled, options, folder, Reporter(), tuple, created="2026-01-01T00:00:00Z")
    assert not folder.exists()


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
        executable: Path, archive: Path, folder: Path, phases: Collection[str], *of: object
    ) -> tuple[NativeResult | None, Ending, str]:
        order.append(executable)
        if executable.parent.name.startswith("broken"):
            return None, Ending("panic", "the kernel panicked"), "Kernel panic - not syncing\n"
        timed = {
            name: NativePhase(folios=64, calls=2, ticks=(100, 101))
            for name in ("crossing", *phases)
        }
        return NativeResult(timed, 1e9), Ending("done", "measured"), ""

    # One at a time: of two that run at once either may be the first.
    monkeypatch.setattr(of_runs, "LANES", 1)
    monkeypatch.setattr(uml, "boot", boot)
    monkeypatch.setattr(uml, "root", lambda folder, cache, modules: folder / "root.cpio")
    return order


def made(folder: Path, *broken: str, head: NativeHead | None = None) -> None:
    """The rounds of a session; the kernels of the arms ``broken`` panic."""
    door.make_folder(folder, "raw")
    native.begin(folder, head := head or head_of(9))
    kernels = {}
    for arm in ("base", "patched"):
        place = folder / "kernels" / (f"broken-{arm}" if arm in broken else arm)
        for number in range(1, make.ORDERS + 1):
            door.write(door.make_folder(place), f"order-{number:02}", "")
        kernels[arm] = Kernel(place, identity(arm))
    make_rounds(head, kernels, folder / "cache", folder, Reporter(), tuple)


def test_the_arms_of_a_round_have_the_same_order_and_rounds_go_through_all(
    booted: list[Path], tmp_path: Path
) -> None:
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


def test_two_guests_run_at_once_each_on_a_cpu_of_its_own(
    booted: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, both, pairs = uml.boot, threading.Barrier(2, timeout=300), list[object]()

    def boot(*of: object) -> tuple[NativeResult | None, Ending, str]:
        # Six rounds of three boots are nine pairs.
        both.wait()
        pairs.append(of[4])
        both.wait()
        return plain(*of)  # type: ignore[arg-type]

    monkeypatch.setattr(uml, "boot", boot)
    monkeypatch.setattr(of_runs, "LANES", 2)
    monkeypatch.setattr(of_runs, "host_cpus", lambda: (Cpu(0, 0, 0, 0), Cpu(0, 0, 1, 1)))
    head = but(head_of(6), rounds=6)
    made(tmp_path, head=head)
    assert [set(pairs[at : at + 2]) for at in range(0, 18, 2)] == [{0, 1}] * 9
    boots = native.read(tmp_path)[1]
    assert [boot.round for boot in boots] == [number for number in range(6) for _ in range(3)]


def test_a_boot_that_fails_ends_the_other(
    booted: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, running, ended = uml.boot, threading.Event(), list[str]()

    def boot(*of: object) -> tuple[NativeResult | None, Ending, str]:
        executable, watch = of[0], of[5]
        assert isinstance(executable, Path)
        assert callable(watch)
        if executable.parent.name.startswith("broken"):
            running.wait(60)
            return plain(*of)  # type: ignore[arg-type]
        running.set()
        try:
            while True:
                watch()
                time.sleep(0.01)
        finally:
            ended.append(executable.parent.name)

    monkeypatch.setattr(uml, "boot", boot)
    monkeypatch.setattr(of_runs, "LANES", 2)
    monkeypatch.setattr(of_runs, "host_cpus", lambda: (Cpu(0, 0, 0, 0), Cpu(0, 0, 1, 1)))
    with pytest.raises(InfraError, match="the kernel panicked"):
        made(tmp_path, "base")
    assert ended == ["patched"]


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


class Interruptible:
    """A session in a folder, whose two kernels are in a cache, and a host that stops when told."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.options = Options(checkout=CHECKOUT, cache=tmp_path / "cache")
        self.folder = tmp_path / "session"
        self.folder.mkdir()
        self.boots_until: float = float("inf")
        self.interrupts = True
        self.head = but(head_of(9), program=programs.digest(uml.PHASES), host=on_this_cpu())
        arms = [but(arm, kernel=arm.name) for arm in self.head.arms]
        self.head = but(self.head, arms=tuple(arms))
        for arm in self.head.arms:
            with staged(self.options.cache, arm.kernel) as place:
                (place / IDENTITY).write_text(identity(arm.kernel).model_dump_json())
                for number in range(1, make.ORDERS + 1):
                    (place / f"order-{number:02}").write_text("")
        native.begin(self.folder, self.head)
        plain = uml.boot

        def boot(*of: object) -> tuple[NativeResult | None, Ending, str]:
            self.boots_until -= 1
            if self.boots_until < 0:
                if self.interrupts:
                    raise KeyboardInterrupt
                time.sleep(600)
            return plain(*of)  # type: ignore[arg-type]

        monkeypatch.setattr(uml, "boot", boot)

    def begin(self, boots: int) -> None:
        """Make so many boots of a new session; in the next one the user or the kernel ends it."""
        self.boots_until = boots
        loaded = {arm.name: load(self.options.cache, arm.kernel) for arm in self.head.arms}
        kernels = {name: kernel for name, kernel in loaded.items() if kernel}
        make_rounds(self.head, kernels, self.options.cache, self.folder, Reporter(), tuple)

    def resume(
        self, boots: float = float("inf"), undecided: Undecided = tuple, most: int | None = None
    ) -> list[tuple[int, str, bool, int]]:
        """Go on with it, and which boots are on record then."""
        self.boots_until = boots
        resume_native(self.folder, self.options, Reporter(), undecided, most)
        return self.made()

    def made(self) -> list[tuple[int, str, bool, int]]:
        boots = native.read(self.folder)[1] if (self.folder / native.BOOTS).exists() else ()
        return [(boot.round, boot.arm, boot.again, boot.order) for boot in boots]


@pytest.fixture
def world(tmp_path: Path, booted: list[Path], monkeypatch: pytest.MonkeyPatch) -> Interruptible:
    return Interruptible(tmp_path, monkeypatch)


@pytest.fixture
def whole_schedule(
    tmp_path: Path, booted: list[Path], monkeypatch: pytest.MonkeyPatch
) -> list[tuple[int, str, bool, int]]:
    """The boots of the same session that nobody interrupts."""
    other = tmp_path / "uninterrupted"
    other.mkdir()
    return Interruptible(other, monkeypatch).resume()


@pytest.mark.parametrize("boots", [0, 3, 4, 5, 26])
def test_an_interrupted_session_goes_on_with_the_schedule_it_was_begun_with(
    boots: int, world: Interruptible, whole_schedule: list[tuple[int, str, bool, int]]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        world.begin(boots)
    before = world.made()
    assert before == whole_schedule[:boots]
    # A round that was begun is made anew, and what it had stays on record.
    assert world.resume() == before + whole_schedule[boots - boots % 3 :]
    assert len(whole_schedule) == 27
    assert len(world.resume()) == 27 + boots % 3


def test_rounds_are_added_until_no_phase_is_undecided(world: Interruptible) -> None:
    """Of looks after 8, 10, 12 and 16 rounds the third decides."""
    native.begin(world.folder, but(world.head, first=8, rounds=16))
    answers = iter([("readahead", "pread"), ("pread",), ()])
    boots_at = list[int]()

    def undecided() -> tuple[str, ...]:
        boots_at.append(len(world.made()))
        return next(answers)

    # Three boots a round; an interruption is no look.
    with pytest.raises(KeyboardInterrupt):
        world.resume(28, undecided)
    assert len(world.resume(undecided=undecided)) == 3 * 12 + 1
    assert boots_at == [24, 31, 37]
    assert len(world.resume()) == 3 * 12 + 1


def test_a_larger_budget_goes_on_and_one_without_a_look_is_refused(world: Interruptible) -> None:
    with pytest.raises(UsageError, match="fixed number of 0 rounds"):
        world.resume(most=16)
    native.begin(world.folder, but(world.head, first=8, rounds=8))
    assert len(world.resume()) == 3 * 8
    for most in (7, 9):
        with pytest.raises(UsageError, match="is judged after 8, 10, 12, 16"):
            world.resume(most=most)
    assert native.head_of(world.folder).rounds == 8
    assert len(world.resume(undecided=lambda: ("pread",), most=12)) == 3 * 12
    assert native.head_of(world.folder).rounds == 12


def test_a_round_that_is_interrupted_twice_is_whole_only_with_boots_of_one_try(
    world: Interruptible, whole_schedule: list[tuple[int, str, bool, int]]
) -> None:
    """Two boots of one try and one of another would be three arms of a round."""
    with pytest.raises(KeyboardInterrupt):
        world.begin(2)
    with pytest.raises(KeyboardInterrupt):
        world.resume(1)
    assert world.resume() == whole_schedule[:2] + whole_schedule[:1] + whole_schedule


def test_a_killed_session_loses_no_boot_and_goes_on(
    world: Interruptible, whole_schedule: list[tuple[int, str, bool, int]]
) -> None:
    world.interrupts = False
    lab = get_context("fork").Process(target=world.begin, args=(7,))
    lab.start()
    # The eighth boot does not end; a boot is on record a little after the next one has begun.
    wait_until(lambda: len(world.made()) == 7 or not lab.is_alive(), "seven boots on record")
    assert lab.pid
    os.kill(lab.pid, signal.SIGKILL)
    lab.join()
    assert lab.exitcode == -signal.SIGKILL
    assert world.made() == whole_schedule[:7]
    with (world.folder / native.BOOTS).open("a") as stream:
        stream.write('{"round": 2, "arm": "ba')
    assert world.resume() == whole_schedule[:7] + whole_schedule[6:]
    scratch = [path for path in (world.options.cache / "scratch").iterdir() if path.is_dir()]
    assert scratch == []


def of_another_host(world: Interruptible) -> NativeHead:
    return but(world.head, host={**world.head.host, "model": "another"})


def of_another_program(world: Interruptible) -> NativeHead:
    return but(world.head, program="")


def of_no_phase(world: Interruptible) -> NativeHead:
    return but(world.head, phases={"filemap-4k": ("readahead", "crossing")})


def of_many_orders(world: Interruptible) -> NativeHead:
    return but(world.head, orders=make.ORDERS + 1)


def of_another_cache(world: Interruptible) -> NativeHead:
    kernels_folder(world.options.cache).joinpath("base", IDENTITY).unlink()
    return world.head


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (of_another_host, r"the host's model: now .*, then another"),
        (of_another_program, r"the program that times phases: now \w+, then unknown"),
        (of_no_phase, "this lab has no phase crossing"),
        (of_many_orders, "the kernel of base is not linked in 25 orders"),
        (of_another_cache, "the kernel of base is not in the cache any more"),
    ],
)
def test_boots_that_would_measure_something_else_are_refused(
    change: object, why: str, world: Interruptible
) -> None:
    with pytest.raises(KeyboardInterrupt):
        world.begin(4)
    assert callable(change)
    native.begin(world.folder, change(world))
    text = (world.folder / native.BOOTS).read_bytes()
    with pytest.raises(InfraError, match=why) as caught:
        world.resume()
    assert f"./lab.py report {world.folder} shows what is on record" in caught.value.next_step
    assert (world.folder / native.BOOTS).read_bytes() == text


def test_another_host_does_not_go_on_with_it(world: Interruptible) -> None:
    world.options = replace(world.options, executor=LocalExecutor(name="dask://host:1"))
    with pytest.raises(UsageError, match="measured on the host it was started on"):
        world.resume()


@pytest.mark.parametrize("field", ["name", "kernel"])
def test_a_name_that_leads_out_of_the_folder_is_no_arm(field: str, world: Interruptible) -> None:
    (world.folder / native.NATIVE).write_text(
        but(
            world.head, arms=(but(world.head.arms[0], **{field: "/../../x"}), world.head.arms[1])
        ).model_dump_json()
    )
    with pytest.raises(door.StoreError, match="no session of native mode"):
        world.resume()
