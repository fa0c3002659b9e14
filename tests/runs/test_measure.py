"""The measuring stage with guests that are only told about: order, retries, blame, resume."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import runs.measure
from errors import SeriesError
from experiment.ad_hoc import from_kernels
from experiment.plan import PlannedRun
from guests import channel, exact, kept
from guests.channel import Ending, Kind
from guests.exact import BootError, Machine, Outcome, Snapshot
from results.record import Failure, RunRecord
from results.store import SessionStore
from runs import stages
from runs.boots import Reporter
from runs.local import LocalExecutor, Options
from runs.measure import Measurement, _base_of, measure
from runs.prepare import Prepared, parts_of
from runs.resolved import catalogue
from tests.runs.made_up import CHECKOUT, ToldGuests, prepared, shipped, sound_results
from tests.waiting import wait_until
from workloads import metrics, parse, validity


class ExactGuests(ToldGuests):
    """Those of exact mode, with their snapshots."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.snapshots: list[Path] = []
        self.snapshot_endings: dict[str, Kind] = {}
        self.files: dict[str, bytes] = {"out": b"the same bytes\n"}
        self.cold_files: dict[str, bytes] | None = None
        self.error: BaseException | None = None
        self.hostile = ""

    def take_snapshot(
        self, machine: Machine, folder: Path, logs: Path, watch: Callable[[str], None]
    ) -> Snapshot:
        arm = machine.kernel.parent.name
        if arm in self.snapshot_endings:
            raise BootError(Ending(self.snapshot_endings[arm], "told"))
        folder.mkdir()
        self.snapshots.append(folder)
        return Snapshot(machine, folder / "memory", folder / "state", 1.0)

    def run(self, booted: Machine | Snapshot, *arguments: Any, **more: Any) -> Outcome:
        if isinstance(booted, Snapshot):
            assert booted.memory.parent.is_dir(), "restored after its snapshot was dropped"
            return self._run("restored", self.files, *arguments, **more)
        files = self.files if self.cold_files is None else self.cold_files
        return self._run("cold", files, *arguments, **more)

    def _run(
        self,
        how: str,
        files: dict[str, bytes],
        text: str,
        folder: Path,
        logs: Path,
        watch: Callable[[str], None],
        *,
        probe: object = None,
        **more: object,
    ) -> Outcome:
        watch("phase 4k")
        kind = self.boot(folder.name, f"{how} ")
        if self.error is not None and "patched" in folder.name:
            raise self.error
        if kind != "done":
            return Outcome(None, Ending(kind, f"told {kind}"), 1.0, 2.0)
        if self.hostile and folder.name.startswith(self.hostile):
            files = {"out": b"hostile"}
        folder.mkdir(parents=True)
        logs.mkdir(parents=True, exist_ok=True)
        for place in (folder, logs):
            (place / "result").write_bytes(files["out"])
        return Outcome(files, Ending("done", "the agent finished"), 1.0, 2.0)

    def measure(
        self,
        blocks: int = 2,
        *,
        slots: int = 2,
        unbuilt: Mapping[tuple[str, str], SeriesError] = {},
        same_code: bool = False,
        **chosen: Any,
    ) -> dict[str, RunRecord]:
        """Make what is not on record of so many blocks; all that is on record then."""
        where = self.cache / "kernels"
        session = prepared(blocks, kernels=where, unbuilt=unbuilt, same_code=same_code)
        options = Options(CHECKOUT, self.cache, guests_at_once=slots, **chosen)
        measure(session, options, self.store, Reporter())
        return {record.run_id: record for record in self.store.records()}

    def keep_lines(self, is_kept: Callable[[str], bool]) -> None:
        """Forget the records of the other runs, as if the lab had been killed before them."""
        records = self.store.folder / "runs.jsonl"
        lines = records.read_text().splitlines(keepends=True)
        records.write_text("".join(line for line in lines if is_kept(json.loads(line)["run_id"])))


@pytest.fixture
def guests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExactGuests:
    stand_in = ExactGuests(tmp_path)
    for name in ("take_snapshot", "run"):
        monkeypatch.setattr(exact, name, getattr(stand_in, name))
    monkeypatch.setattr(
        kept, "provide", lambda machine, cache, *more: exact.take_snapshot(machine, *more)
    )
    sound_results(monkeypatch)
    monkeypatch.setattr(channel, "decode", lambda data: {"out": data})
    return stand_in


def failed(records: Mapping[str, RunRecord]) -> dict[str, Failure]:
    return {run_id: r.failure for run_id, r in records.items() if r.failure is not None}


def test_every_planned_run_once_and_the_repeat_from_cold(guests: ExactGuests) -> None:
    records = guests.measure(2)
    assert failed(records) == {}
    assert sorted(guests.booted) == [
        "cold filemap-4k.b00.patched.repeat",
        "restored filemap-4k.b00.base",
        "restored filemap-4k.b00.patched",
        "restored filemap-4k.b01.base",
        "restored filemap-4k.b01.patched",
    ]
    assert len(guests.store.costs()) == 5
    assert list((guests.cache / "scratch").iterdir()) == []


def test_without_snapshots_every_run_is_cold(guests: ExactGuests) -> None:
    guests.measure(1, snapshot=False)
    assert {word.split()[0] for word in guests.booted} == {"cold"}


def test_the_same_code_is_not_booted(guests: ExactGuests) -> None:
    assert guests.measure(1, same_code=True) == {}
    assert guests.booted == []


def test_nothing_is_made_twice(guests: ExactGuests, capsys: pytest.CaptureFixture[str]) -> None:
    guests.measure(1)
    guests.booted.clear()
    guests.measure(1)
    assert guests.booted == []
    assert capsys.readouterr().err.endswith("every planned run is on record\n")
    guests.measure(2)
    assert sorted(guests.booted) == [
        "restored filemap-4k.b01.base",
        "restored filemap-4k.b01.patched",
    ]


def test_snapshots_are_kept_from_look_to_look_and_gone_after_the_last(guests: ExactGuests) -> None:
    with LocalExecutor().keeping() as executor:
        guests.measure(1, executor=executor)
        assert [folder.is_dir() for folder in guests.snapshots] == [True, True]
        assert failed(guests.measure(2, executor=executor)) == {}
        assert len(guests.booted) == 5
        # One a machine, as in a session that had both seeds from the beginning.
        assert len(guests.snapshots) == 2
    assert list((guests.cache / "scratch").iterdir()) == []
    guests.measure(3)
    assert len(guests.snapshots) == 4


def test_a_snapshot_that_the_host_lost_is_taken_again_at_the_next_look(guests: ExactGuests) -> None:
    with LocalExecutor().keeping() as executor:
        guests.snapshot_endings = {"base": "lost"}
        assert failed(guests.measure(1, executor=executor))["filemap-4k.b00.base"].blame == "host"
        guests.snapshot_endings = {}
        assert failed(guests.measure(2, executor=executor)) == {}
        assert len(guests.snapshots) == 2


def test_a_repeat_of_a_run_of_another_day_is_compared_with_its_result(guests: ExactGuests) -> None:
    guests.measure(1)
    guests.keep_lines(lambda run_id: "repeat" not in run_id)
    guests.cold_files = {"out": b"other bytes\n"}
    failure = failed(guests.measure(1))["filemap-4k.b00.patched.repeat"]
    assert (failure.kind, failure.blame) == ("inexact", "lab")


def test_a_repeat_that_differs_names_what_does(guests: ExactGuests) -> None:
    guests.cold_files = {"out": b"other bytes\n"}
    failures = failed(guests.measure(1))
    assert list(failures) == ["filemap-4k.b00.patched.repeat"]
    assert failures["filemap-4k.b00.patched.repeat"].evidence == (
        "out: line 1: 'the same bytes' against 'other bytes'",
    )


def test_a_lost_guest_is_booted_once_more_and_no_more(guests: ExactGuests) -> None:
    guests.endings = {"filemap-4k.b00.base": ["lost"], "filemap-4k.b00.patched": ["lost"] * 3}
    failures = failed(guests.measure(1))
    assert guests.booted.count("restored filemap-4k.b00.base") == 2
    assert guests.booted.count("restored filemap-4k.b00.patched") == 2
    # Its repeat has nothing to be compared with.
    assert set(failures) == {"filemap-4k.b00.patched", "filemap-4k.b00.patched.repeat"}
    # Twice, and the base never: that is no accident of the host.
    assert failures["filemap-4k.b00.patched"].blame == "series"


def test_what_the_host_broke_is_made_again_when_resumed(guests: ExactGuests) -> None:
    guests.endings = {"filemap-4k.b00.base": ["lost"] * 2, "filemap-4k.b00.patched": ["panic"]}
    assert failed(guests.measure(1))["filemap-4k.b00.base"].blame == "host"
    guests.booted.clear()
    assert "filemap-4k.b00.base" not in failed(guests.measure(1))
    assert guests.booted == ["restored filemap-4k.b00.base"]


@pytest.mark.parametrize("kind", ["panic", "oops", "oom", "hung", "boot"])
def test_only_the_patched_kernel_breaks(guests: ExactGuests, kind: Kind) -> None:
    guests.endings = {"filemap-4k.b00.patched": [kind]}
    failure = failed(guests.measure(1))["filemap-4k.b00.patched"]
    assert (failure.kind, failure.blame) == (kind, "series")
    # A function of its inputs: it would only be the same again.
    assert guests.booted.count("restored filemap-4k.b00.patched") == 1


@pytest.mark.parametrize("slots", [1, 2, 4])
@pytest.mark.parametrize("snapshot", [True, False])
def test_a_kernel_that_breaks_as_the_base_does_is_not_the_series_fault(
    guests: ExactGuests, snapshot: bool, slots: int
) -> None:
    if snapshot:
        guests.snapshot_endings = {"base": "boot", "patched": "boot"}
    guests.endings = {
        f"filemap-4k.b0{block}.{arm}": ["boot"]
        for block in (0, 1)
        for arm in ("base", "patched", "patched.repeat")
    }
    failures = failed(guests.measure(2, slots=slots, snapshot=snapshot))
    assert len(failures) == 5
    assert {(f.kind, f.blame) for f in failures.values()} == {("boot", "lab")}


def test_a_base_that_broke_on_another_day_counts_too(guests: ExactGuests) -> None:
    guests.endings = {"filemap-4k.b00.base": ["hung"]}
    guests.measure(1)
    guests.keep_lines(lambda run_id: run_id.endswith(".base"))
    guests.endings = {"filemap-4k.b00.patched": ["hung"]}
    assert failed(guests.measure(1))["filemap-4k.b00.patched"].blame == "lab"


def test_a_repeat_that_is_planned_alone_has_the_base_of_what_it_repeats() -> None:
    """Repeats are made after the judged runs, whose plan is another one by then."""
    session = prepared(2)
    repeats = stages.of_twins(session, ("",), repeats=True)
    (repeat,) = repeats.plan.runs
    assert repeat.run_id == "filemap-4k.b00.patched.repeat"
    assert _base_of(repeats, repeat) == "filemap-4k.b00.base"
    assert not any(run.repeat for run in stages.of_twins(session, ("",)).plan.runs)


def test_the_next_guest_is_booted_while_the_result_of_one_is_read(
    guests: ExactGuests, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = runs.measure.record_of
    booted = []

    def slowly(session: Prepared, planned: PlannedRun, *rest: Any) -> Any:
        if planned.run_id == "filemap-4k.b00.base":
            wait_until(lambda: len(guests.booted) >= 2, "second guest")
            booted.extend(guests.booted)
        return read(session, planned, *rest)

    monkeypatch.setattr(runs.measure, "record_of", slowly)
    assert failed(guests.measure(2, slots=1)) == {}
    assert booted[:2] == ["restored filemap-4k.b00.base", "restored filemap-4k.b00.patched"]


def test_an_error_ends_all_and_keeps_what_is_on_record(guests: ExactGuests) -> None:
    guests.error = OSError(28, "No space left on device")
    with pytest.raises(OSError, match="No space left"):
        guests.measure(3, slots=1)
    kept = [record.run_id for record in guests.store.records()]
    # Before the error is heard of, runs of the other arm may still begin.
    assert kept[0] == "filemap-4k.b00.base"
    assert {run_id.rpartition(".")[2] for run_id in kept} == {"base"}
    assert list((guests.cache / "scratch").iterdir()) == []
    guests.error = None
    assert failed(guests.measure(3, slots=1)) == {}


@pytest.mark.parametrize("raised", [ZeroDivisionError(), OverflowError("x"), RecursionError()])
def test_whatever_a_result_has_a_reader_raise_is_one_failure(
    guests: ExactGuests, monkeypatch: pytest.MonkeyPatch, raised: Exception
) -> None:
    read = parse.guest_result

    def reader(files: Mapping[str, bytes], names: tuple[str, ...]) -> parse.GuestResult:
        if files["out"] == b"hostile":
            raise raised
        return read(files, names)

    monkeypatch.setattr(parse, "guest_result", reader)
    guests.hostile = "filemap-4k.b00.patched"
    records = guests.measure(2)
    broken = failed(records)
    assert (broken[guests.hostile].kind, broken[guests.hostile].blame) == ("unreadable", "series")
    assert type(raised).__name__ in broken[guests.hostile].message
    assert records["filemap-4k.b01.patched"].failure is None
    assert guests.booted.count(f"restored {guests.hostile}") == 2


@pytest.mark.parametrize("slots", [1, 2, 4])
@pytest.mark.parametrize(
    ("hostile", "blames"),
    [
        ("filemap-4k.b00.patched", {"filemap-4k.b00.patched": "series"}),
        ("filemap-4k.b01.base", {"filemap-4k.b01.base": "workload"}),
        ("filemap-4k.b01", {f"filemap-4k.b01.{arm}": "workload" for arm in ("base", "patched")}),
    ],
)
def test_a_workload_that_fails_on_the_patched_kernel_alone_is_the_series_doing(
    guests: ExactGuests,
    monkeypatch: pytest.MonkeyPatch,
    hostile: str,
    blames: Mapping[str, str],
    slots: int,
) -> None:
    monkeypatch.setattr(parse, "guest_result", lambda files, _: SimpleNamespace(phases=(), **files))
    monkeypatch.setattr(
        validity,
        "problems",
        lambda result, _: ("4k: fio ended with 1",) if result.out == b"hostile" else (),
    )
    monkeypatch.setattr(validity, "of_user", lambda *_: False)
    guests.hostile = hostile
    broken = failed(guests.measure(2, slots=slots))
    of_runs = {name: failure for name, failure in broken.items() if "repeat" not in name}
    assert {name: failure.blame for name, failure in of_runs.items()} == blames
    assert {failure.kind for failure in of_runs.values()} == {"invalid"}
    by_base = [failure for failure in of_runs.values() if "base arm's run" in failure.message]
    assert {failure.blame for failure in by_base} <= {"series"}


@pytest.mark.parametrize(
    ("says", "blames"),
    [
        ("kernel: lacks CONFIG_FW_CFG_SYSFS: the guest reads its job through it", ["user"] * 2),
        ("mkfs: too small", ["series", "workload"]),
    ],
)
def test_a_prebuilt_kernel_that_lacks_something_is_whose_it_is_that_named_it(
    says: str, blames: list[str], tmp_path: Path
) -> None:
    sources = ["deb:linux-source-6.12", "image:/x/bzImage"]
    known = catalogue(CHECKOUT)
    session = prepared(from_kernels(sources, workloads=["syscalls"], catalogue=known))
    store = SessionStore(tmp_path)
    measurement = Measurement(session, store, Reporter(), {})
    base, other = (run for run in session.plan.runs if not run.repeat and "b00" in run.run_id)
    blame = []
    for good in ({base.run_id}, set[str]()):
        measurement.good = good
        record = runs.measure.failed(
            session, other, Ending("failed", f"the agent stopped: twinboot: failed: {says}")
        )
        assert record.failure
        blame.append(measurement._blamed(other, record.failure, killed=False).blame)
    assert blame == blames


def test_a_run_with_a_sample_that_is_not_finite_is_no_record(
    guests: ExactGuests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "samples", lambda *_, **__: {"4k.bw": float("inf")})
    assert set(failed(guests.measure(1))) >= {"filemap-4k.b00.base", "filemap-4k.b00.patched"}
    assert len(guests.store.records()) == 3


def test_a_phase_with_a_program_is_given_no_arguments_of_fio() -> None:
    """Such a case has no times, and a run of it was invalid for the lack of them."""
    session = prepared(shipped("workloads"))
    run = next(run for run in session.plan.runs if run.case == "memory")
    assert runs.measure._claim(session, parts_of(session, run)).fio == {}


def test_runs_of_a_kernel_that_does_not_build_are_failed_and_the_others_measured(
    guests: ExactGuests,
) -> None:
    error = SeriesError("does not build: x.c:1: error", where="0002-p.patch", next_step="see x")
    unbuilt = {("perf", "patched"): error}
    records = guests.measure(2, unbuilt=unbuilt)
    assert sorted(guests.booted) == ["restored filemap-4k.b00.base", "restored filemap-4k.b01.base"]
    failures = failed(records)
    assert {name for name in records if ".patched" in name} == set(failures)
    (failure,) = set(failures.values())
    assert (failure.kind, failure.blame) == ("not built", "series")
    assert failure.message == "0002-p.patch: does not build: x.c:1: error (see x)"
    # Nothing of it is tried again.
    assert guests.measure(2, unbuilt=unbuilt) == records
    assert len(guests.booted) == 2
