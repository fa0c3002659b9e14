"""The gate with guests that are only told about: what is booted, what is measured after it."""

import dataclasses
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from errors import SeriesError
from experiment.spec import CheckSpec
from guests import exact
from guests.channel import Ending
from guests.exact import Machine, Outcome
from guests.initramfs import Initramfs
from results.record import Check
from results.store import SessionStore
from runs import check as gate
from runs.boots import KeptRuns, Reporter
from runs.keeping import today
from runs.local import Options
from runs.prepare import Prepared
from tests.guests.framing import sent
from tests.runs.made_up import CHECKOUT, SMALL, ToldGuests, kernels_in, prepared, shipped
from tests.values import but
from tests.workloads.test_check_job import fio, sound
from workloads import check

BROKEN = "[    2.1] kernel BUG at mm/filemap.c:3377!\n[    2.2] RIP: 0010:filemap_fault+0x1/0x2\n"
SLEEPS = "[    1.9] BUG: sleeping function called from invalid context at lib/xarray.c:300\n"


class CheckGuests(ToldGuests):
    """Those that check, which say what each kernel was told to say beforehand."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        (folder / "initramfs").write_bytes(b"root")
        self.machines: dict[str, Machine] = {}
        self.jobs: dict[str, str] = {}
        self.says: dict[str, str] = {}

    def run(
        self,
        machine: Machine,
        text: str,
        folder: Path,
        logs: Path,
        watch: Callable[[str], None],
        *,
        console_bytes: int,
    ) -> Outcome:
        name = folder.name
        self.machines[name], self.jobs[name] = machine, text
        kind = self.boot(name)
        logs.mkdir(parents=True, exist_ok=True)
        output = next((text for word, text in self.says.items() if word in name), "")
        (logs / "console.log").write_text(f"XArray: 9 of 9 tests passed\n{output}twinboot: x\n")
        watch("check whole")
        if len(output) > console_bytes:
            kind = "hung"
        files = sound() if kind == "done" else None
        for step in ("1-4k", "2-4k", *check.OWN_STEPS):
            files = files and files | {f"{step}/status": b"0\n", f"{step}/fio.json": fio(9)}
        (logs / "result").write_bytes(sent(files or {}))
        return Outcome(files, Ending(kind, f"told {kind}"), 1.0, 2.0)

    def check(
        self,
        key: str = "1",
        unbuilt: dict[tuple[str, str], SeriesError] | None = None,
        kept: KeptRuns | None = None,
        **settings: Any,
    ) -> Prepared:
        """Make the checks of a session whose kernels have this key; what is left of it."""
        spec, kernels = CheckSpec(**settings), self.cache / "kernels"
        session = prepared(
            but(shipped(SMALL, "blocks=2"), check=spec),
            kernels=kernels,
            initramfs=Initramfs(self.folder / "initramfs", "0"),
            unbuilt=unbuilt or {},
        )
        checked = {
            flavour: kernels_in(kernels, ("base", "patched"), f"-{flavour}-{key}")
            for flavour in spec.flavours
        }
        session = dataclasses.replace(session, kernels={**session.kernels, **checked})
        options = Options(checkout=CHECKOUT, cache=self.cache, guests_at_once=2, kept=kept)
        return gate.run_gate(session, options, self.store, Reporter())

    @property
    def standings(self) -> dict[str, str]:
        return {check.run_id: check.status for check in self.store.checks()}


@pytest.fixture
def guests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CheckGuests:
    stand_in = CheckGuests(tmp_path)
    monkeypatch.setattr(exact, "run", stand_in.run)
    return stand_in


def test_every_arm_is_checked_on_every_kernel_before_it_is_measured(guests: CheckGuests) -> None:
    left = guests.check()
    assert set(guests.standings) == {
        f"check.{arm}.{rest}"
        for arm in ("base", "patched")
        for rest in ("lockdep.v1", "lockdep.v4", "selftest.v1")
    }
    assert set(guests.standings.values()) == {"green"}
    assert {run.arm for run in left.plan.runs} == {"base", "patched"}
    assert len(guests.store.costs()) == 6
    assert guests.machines["check.base.lockdep.v4"].guest.vcpus == 4
    assert guests.store.records() == []


def test_of_several_vcpus_an_answer_stands_for_the_day_with_its_date(
    guests: CheckGuests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = KeptRuns(tmp_path / "runs")
    # The kernels are none, so that each is known by its name.
    monkeypatch.setattr(
        "guests.kept.run_key",
        lambda machine, *_, **__: sha256(f"{machine.kernel} {machine.guest}".encode()).hexdigest(),
    )
    guests.check(kept=kept, selftests=())
    assert {check.kept_at for check in guests.store.checks()} == {""}
    guests.machines.clear()
    monkeypatch.setattr(guests, "store", SessionStore(tmp_path / "second"))
    (tmp_path / "second").mkdir()
    guests.check(kept=dataclasses.replace(kept, drawn={"checks"}), selftests=())
    assert not guests.machines
    assert {check.kept_at for check in guests.store.checks()} == {today()}
    assert len(guests.store.checks()) == 4


def test_self_tests_run_in_their_own_kernel_only(guests: CheckGuests) -> None:
    guests.check(selftests=("xarray",), vcpus=(1,))
    left_out = {
        name: next(w for w in machine.cmdline if w.startswith("initcall_blacklist="))
        for name, machine in guests.machines.items()
    }
    assert "xarray_checks" in left_out["check.patched.lockdep.v1"]
    assert "xarray_checks" not in left_out["check.patched.selftest.v1"]


def test_a_broken_arm_is_not_measured(guests: CheckGuests) -> None:
    guests.says["patched.lockdep"] = BROKEN
    left = guests.check(vcpus=(1,))
    assert left.plan.runs == ()
    assert left.plan.seeds
    broken = next(c for c in guests.store.checks() if c.status == "red")
    assert broken.run_id == "check.patched.lockdep.v1"
    assert broken.problems[0].where == "filemap_fault"


def test_what_the_base_says_too_is_not_the_series(guests: CheckGuests) -> None:
    guests.says["lockdep"] = BROKEN
    left = guests.check(vcpus=(1,))
    assert left.plan.runs
    assert {c.arm for c in guests.store.checks() if c.status == "red"} == {"base", "patched"}


def test_what_the_patched_arm_says_besides_is_the_series(guests: CheckGuests) -> None:
    guests.says["patched.lockdep"] = SLEEPS + "</TASK>\n" + BROKEN
    guests.says["base.lockdep"] = BROKEN
    assert guests.check(vcpus=(1,)).plan.runs == ()


def test_an_arm_that_does_not_build_for_the_checks_is_not_checked_and_the_others_are(
    guests: CheckGuests,
) -> None:
    error = SeriesError("does not build: x.c:1: error", where="0001-p.patch")
    session = guests.check(unbuilt={("lockdep", "patched"): error}, vcpus=(1,))
    assert {name.split(".")[1] for name in guests.machines} == {"base", "patched"}
    assert not any(name.startswith("check.patched.lockdep") for name in guests.machines)
    lost = [check for check in guests.store.checks() if check.status == "not run"]
    assert [check.run_id for check in lost] == ["check.patched.lockdep.v1"]
    assert lost[0].reason == "0001-p.patch: does not build: x.c:1: error"
    assert session.plan.runs == ()


def test_a_lost_guest_is_tried_again_and_then_is_no_green(guests: CheckGuests) -> None:
    guests.endings["check.base.lockdep.v1"] = ["lost"]
    guests.endings["check.patched.lockdep.v1"] = ["lost", "silent"]
    left = guests.check(vcpus=(1,), selftests=())
    assert guests.standings == {
        "check.base.lockdep.v1": "green",
        "check.patched.lockdep.v1": "not run",
    }
    assert left.plan.runs == ()
    guests.check(vcpus=(1,), selftests=())
    assert set(guests.standings.values()) == {"green"}


def test_a_guest_that_crashed_is_red_and_not_lost(guests: CheckGuests) -> None:
    guests.endings["check.patched.lockdep.v1"] = ["lost"]
    guests.says["patched.lockdep"] = BROKEN
    guests.check(vcpus=(1,), selftests=())
    assert guests.standings["check.patched.lockdep.v1"] == "red"


def test_a_guest_that_says_the_same_for_ever_is_ended_and_red(guests: CheckGuests) -> None:
    guests.says["patched"] = "[   29.1] BUG at check_get_order:1998\n </TASK>\n" * 20000
    guests.check(vcpus=(), selftests=("xarray",))
    (broken,) = [check for check in guests.store.checks() if check.arm == "patched"]
    assert broken.status == "red"
    assert broken.problems[0].title == "BUG at check_get_order:1998"
    assert len(broken.problems) == 1


def test_what_is_on_record_is_not_made_again_unless_the_kernel_changed(guests: CheckGuests) -> None:
    guests.check(vcpus=(1,), selftests=())
    guests.machines.clear()
    guests.check(vcpus=(1,), selftests=())
    assert guests.machines == {}
    guests.check("2", vcpus=(1,), selftests=())
    assert set(guests.machines) == {"check.base.lockdep.v1", "check.patched.lockdep.v1"}


def test_without_a_gate_nothing_is_booted_and_everything_is_left() -> None:
    session = prepared(2)
    options = Options(checkout=CHECKOUT, cache=Path("/nowhere"))
    assert gate.run_gate(session, options, SessionStore(Path("/nowhere")), Reporter()) is session


def test_a_torn_record_is_dropped(guests: CheckGuests) -> None:
    guests.check(vcpus=(1,), selftests=())
    path = guests.store.folder / "checks.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert [type(each) for each in guests.store.checks()] == [Check]
