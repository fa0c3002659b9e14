"""Runs that are kept: booted once, some shown to be the same, and none taken for another."""

import dataclasses
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import pytest

from errors import InfraError, UsageError
from experiment.load import load_guest
from experiment.plan import Size
from guests import kept
from guests.channel import Ending, Kind
from guests.exact import Machine, Outcome
from host.doctor import check_kept_runs
from runs import keeping
from runs.boots import Boot, KeepingJudge, KeptRuns, Place, Reporter
from tests.guests.framing import sent
from tests.runs.fleet.test_parcel import Unreachable
from tests.runs.made_up import CHECKOUT

GUEST = load_guest(CHECKOUT / "configs/guests/smoke.toml")
NAMES = ("c.b00.base", "c.b01.base", "c.b00.patched", "c.b01.patched")


@dataclasses.dataclass
class MadeUpHost:
    """A host, a session's folder, and a judge to whom all is good that is not in ``bad``."""

    folder: Path
    host: str = "first"
    session: str = "one"
    booted: list[str] = dataclasses.field(default_factory=list)
    received: dict[str, Outcome] = dataclasses.field(default_factory=dict)
    lines: list[str] = dataclasses.field(default_factory=list)
    endings: dict[str, Kind] = dataclasses.field(default_factory=dict)
    sends: dict[str, bytes] = dataclasses.field(default_factory=dict)
    cpu_s: dict[str, float] = dataclasses.field(default_factory=dict)
    bad: tuple[str, ...] = ()
    name: str = "made up"

    @property
    def good(self) -> set[str]:
        return {name for name, each in self.received.items() if each.files} - {*self.bad}

    def drawn_with(self, boot: Boot) -> str:
        return boot.group

    def before(self, boot: Boot, outcome: Outcome) -> tuple[str, ...]:
        return ()

    def receive(self, boot: Boot, outcome: Outcome, *, last: bool) -> bool:
        self.received[boot.name] = outcome
        return False

    @contextmanager
    def keeping(self) -> Iterator["MadeUpHost"]:
        yield self

    def boot(self, batches: Sequence[Sequence[Boot]], judge: KeepingJudge, place: Place) -> float:
        for boot in (each for batch in batches for each in batch):
            self.booted.append(boot.name)
            files = {"out": self.sends.get(boot.name, boot.job_text.encode())}
            logs = place.raw / boot.name
            logs.mkdir(parents=True, exist_ok=True)
            (logs / "result").write_bytes(sent(files))
            (logs / "console.log").write_text(f"console of {boot.name}")
            kind = self.endings.get(boot.name, "done")
            came = files if kind == "done" else None
            judge.receive(
                boot,
                Outcome(
                    came,
                    Ending(kind, kind),
                    self.cpu_s.get(boot.name, 1.0),
                    2.0,
                    b"counts",
                    host=self.host,
                ),
                last=True,
            )
        return 1.0

    def kept(self, **more: Any) -> KeptRuns:
        """The kept runs as a new call of the lab has them."""
        return KeptRuns(self.folder / "runs", **more)

    def measure(
        self, session: str, names: Sequence[str] = NAMES, runs: KeptRuns | None = None
    ) -> list[str]:
        """Boot runs of these names in a new session; return those that were."""
        self.booted, self.received, self.session = [], {}, session
        place = Place(self.folder, self.folder / session / "raw", self.reporter, 1)
        boots = [self.boot_of(name) for name in names]
        keeping.boot(runs or self.kept(), self, [boots], self, place)  # type: ignore[arg-type]
        assert set(self.received) == set(names)
        return self.booted

    @property
    def reporter(self) -> Reporter:
        reporter = Reporter()
        reporter.log = self.lines.append  # type: ignore[method-assign, assignment]
        return reporter

    def boot_of(self, name: str) -> Boot:
        machine = Machine(
            self.folder / "kernel",
            self.folder / "kernel",
            GUEST,
            Size(1, 2, 1, 1),
            "prepare",
            self.folder / "kernel",
        )
        return Boot(name, name.split(".")[-1], machine, f"job of {name}", cold=True)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeUpHost:
    monkeypatch.setattr(kept, "emulator", lambda path: {"QEMU": "one"})
    (tmp_path / "kernel").write_text("kernel")
    return MadeUpHost(tmp_path)


def test_what_is_not_exact_stands_for_its_day(
    lab: MadeUpHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab, "drawn_with", lambda boot: keeping.INEXACT)
    lab.measure("one")
    lab.sends = dict.fromkeys(NAMES, b"in another order")
    assert lab.measure("two") == []
    assert all(each.kept_at == keeping.today() for each in lab.received.values())
    assert lab.measure("again", runs=lab.kept(again=True)) == list(NAMES)
    monkeypatch.setattr(keeping, "today", lambda: "2030-01-01")
    assert lab.measure("tomorrow") == list(NAMES)
    assert lab.measure("later") == []
    assert {each.kept_at for each in lab.received.values()} == {"2030-01-01"}


def test_a_second_session_boots_one_of_each_arm_and_has_the_same_bytes(lab: MadeUpHost) -> None:
    assert lab.measure("one") == list(NAMES)
    assert {each.kept_at for each in lab.received.values()} == {""}
    before = {name: outcome.files for name, outcome in lab.received.items()}
    lab.host = "second"
    drawn = lab.measure("two")
    assert sorted(name.split(".")[-1] for name in drawn) == ["base", "patched"]
    assert {name: outcome.files for name, outcome in lab.received.items()} == before
    for name, outcome in lab.received.items():
        assert outcome.counts == b"counts"
        assert (outcome.host, bool(outcome.kept_at)) == (
            ("second", False) if name in drawn else ("first", True)
        )
        for file in ("result", "console.log"):
            assert (lab.folder / f"one/raw/{name}/{file}").read_bytes() == (
                lab.folder / f"two/raw/{name}/{file}"
            ).read_bytes()
    # Which are drawn is another session's own.
    assert len({tuple(lab.measure(f"session {n}")) for n in range(12)}) > 1


def test_a_run_is_drawn_as_often_as_it_is_cheap(lab: MadeUpHost) -> None:
    names = NAMES[:2]
    lab.cpu_s = dict(zip(names, (60.0, 20.0), strict=True))
    lab.measure("one", names)
    drawn = [name for n in range(200) for name in lab.measure(f"session {n}", names)]
    assert len(drawn) == 200
    # 50 of 200 are expected; outside of this by chance once in 10,000.
    assert 28 <= drawn.count(names[0]) <= 76


def test_a_call_of_the_lab_draws_once_of_each_arm(lab: MadeUpHost) -> None:
    lab.measure("one")
    of_this_call = lab.kept()
    assert len(lab.measure("two", NAMES[:2], runs=of_this_call)) == 1
    assert [name.split(".")[-1] for name in lab.measure("two", runs=of_this_call)] == ["patched"]


def test_measuring_again_boots_every_run_and_compares_it(lab: MadeUpHost) -> None:
    lab.measure("one")
    assert sorted(lab.measure("two", runs=lab.kept(again=True))) == sorted(NAMES)
    lab.sends["c.b01.base"] = b"other"
    with pytest.raises(InfraError, match=r"c\.b01\.base has other bytes on first"):
        lab.measure("three", runs=lab.kept(again=True))


def test_failures_and_what_is_of_no_kind_are_not_kept(lab: MadeUpHost) -> None:
    lab.bad, lab.endings = (NAMES[0],), {NAMES[2]: "panic"}
    lab.measure("one")
    assert len(list((lab.folder / "runs").iterdir())) == 2
    lab.bad, lab.endings = (), {}
    assert {NAMES[0], NAMES[2]} <= set(lab.measure("two"))
    lab.drawn_with = lambda boot: ""  # type: ignore[method-assign]
    assert lab.measure("three") == list(NAMES)


@pytest.mark.parametrize("bit", [0, 100, 8 * 64, -1])
def test_a_kept_run_with_a_bit_flipped_is_discarded_and_booted(lab: MadeUpHost, bit: int) -> None:
    lab.measure("one", NAMES[:1])
    (path,) = (lab.folder / "runs").iterdir()
    whole = path.read_bytes()
    data = bytearray(whole)
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    call = lab.kept()
    call.drawn.add("base")
    assert lab.measure("two", NAMES[:1], runs=call) == [NAMES[0]]
    assert any(f"{path} is discarded and booted again" in line for line in lab.lines)
    assert path.read_bytes() == whole
    # Nor is it one of other inputs, whoever put it there.
    path.rename(path.with_name("0" * 32))
    assert lab.measure("three", NAMES[:1], runs=call) == [NAMES[0]]


@pytest.mark.parametrize("kind", ["a pipe", "a link to no end", "a hole of a TiB", "a folder"])
def test_what_is_no_kept_run_in_a_shared_folder_is_neither_waited_for_nor_read(
    lab: MadeUpHost, tmp_path: Path, kind: str
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    lab.measure("one", NAMES[:1], runs=KeptRuns(tmp_path / "mine", str(shared)))
    (path,) = shared.iterdir()
    path.unlink()
    match kind:
        case "a pipe":
            os.mkfifo(path)
        case "a link to no end":
            path.symlink_to("/dev/zero")
        case "a folder":
            path.mkdir()
        case _:
            with path.open("wb") as sink:
                sink.truncate(1 << 40)
    yours = KeptRuns(tmp_path / "yours", str(shared))
    assert lab.measure("two", NAMES[:1], runs=yours) == [NAMES[0]]
    assert any(f"{path} is discarded and booted again" in line for line in lab.lines)


def test_a_difference_ends_the_session_and_sets_the_host_aside(lab: MadeUpHost) -> None:
    lab.measure("one")
    lab.host, lab.sends = "second", dict.fromkeys(NAMES, b"other bytes")
    with pytest.raises(InfraError) as raised:
        lab.measure("two")
    for part in ("on second than when it was kept, on first", "line 1", "no run kept from first"):
        assert part in str(raised.value)
    # The doctor names the run, when it was kept, and the other host.
    check = check_kept_runs(lab.folder)
    assert (check.status, check.found) == ("warn", "not used from first")
    assert re.search(
        r"first: c\.b0\d\.\w+, kept on 20\d\d-\d\d-\d\d \([0-9a-f]+\), had other bytes on second "
        r"on 20.*, in session two: .*line 1",
        check.why,
    )
    # Before what is drawn was the same, nobody was told of a kept run.
    assert lab.received == {}
    assert sorted(lab.measure("three")) == sorted(NAMES)
    # What the other host gives is kept, and what the first gives is not, until it is cleared.
    assert len(lab.measure("four")) == 2
    lab.host = "first"
    (lab.folder / "runs" / keeping.ASIDE).write_text("first\nsecond\n")
    assert len(lab.measure("five")) == len(NAMES)
    (lab.folder / "runs" / keeping.ASIDE).write_text("")
    assert check_kept_runs(lab.folder).status == "ok"
    assert len(lab.measure("six")) == 2


def test_a_kept_run_that_panics_now_is_a_difference(lab: MadeUpHost) -> None:
    lab.measure("one", NAMES[:1])
    lab.endings = {NAMES[0]: "lost"}
    assert lab.measure("two", NAMES[:1]) == [NAMES[0]]
    lab.endings = {NAMES[0]: "panic"}
    with pytest.raises(InfraError, match="it ended: panic"):
        lab.measure("three", NAMES[:1])


def test_a_shared_folder_serves_other_hosts_and_may_be_read_only(
    lab: MadeUpHost, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    lab.measure("one", runs=KeptRuns(tmp_path / "mine", str(shared)))
    assert len(list(shared.iterdir())) == len(NAMES)
    assert len(lab.measure("two", runs=KeptRuns(tmp_path / "yours", str(shared)))) == 2
    shared.chmod(0o777)
    with pytest.raises(UsageError, match="everybody can write"):
        keeping.shared_at(f"{shared}")
    with pytest.raises(UsageError, match="no such folder"):
        keeping.shared_at(f"{tmp_path}/nowhere")
    with pytest.raises(UsageError, match="Protocol not known"):
        keeping.shared_at("nothing://bucket")


def test_a_url_serves_other_hosts_and_one_that_is_away_costs_kept_runs_alone(
    lab: MadeUpHost, tmp_path: Path
) -> None:
    url = keeping.shared_at("memory://kept-runs")
    lab.measure("one", runs=KeptRuns(tmp_path / "mine", url))
    files = fsspec.filesystem("memory")
    names = [Path(each).name for each in files.ls("/kept-runs", detail=False)]
    assert sorted(names) == sorted(path.name for path in (tmp_path / "mine").iterdir())
    assert len(lab.measure("two", runs=KeptRuns(tmp_path / "yours", url))) == 2
    # One bit of each is another's: booted, and what is kept takes its place.
    whole = {name: files.cat(f"/kept-runs/{name}") for name in names}
    for name, data in whole.items():
        files.pipe(f"/kept-runs/{name}", bytes([data[0] ^ 1]) + data[1:])
    assert sorted(lab.measure("three", runs=KeptRuns(tmp_path / "theirs", url))) == sorted(NAMES)
    assert {name: files.cat(f"/kept-runs/{name}") for name in names} == whole
    fsspec.register_implementation("unreachable", Unreachable, clobber=True)
    with pytest.raises(InfraError, match="could not connect"):
        keeping.shared_at("unreachable://bucket")
    away = KeptRuns(tmp_path / "ours", "unreachable://bucket")
    assert sorted(lab.measure("four", runs=away)) == sorted(NAMES)
    assert len(list((tmp_path / "ours").iterdir())) == len(NAMES)


def test_what_was_not_used_for_longest_goes_first(
    lab: MadeUpHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.measure("one", NAMES[:3])
    sizes = [path.stat().st_size for path in (lab.folder / "runs").iterdir()]
    lab.measure("two", NAMES[:2])
    os.utime(lab.folder / "runs" / lab.received[NAMES[0]].inputs, (2e9, 2e9))
    os.utime(lab.folder / "runs" / lab.received[NAMES[1]].inputs, (2e9, 2e9))
    monkeypatch.setattr(keeping, "MOST_BYTES", sum(sizes) - 1)
    keeping.bound(lab.kept())
    call = lab.kept()
    call.drawn.update(("base", "patched"))
    assert lab.measure("three", NAMES[:3], runs=call) == [NAMES[2]]
