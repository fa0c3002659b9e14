"""Counted, boxed, cold, or on a busy host: a run is the one that would have been without."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from experiment.load import load_experiment
from guests import channel, exact, initramfs
from guests.exact import Machine, Outcome, Snapshot
from guests.probe import counts, fold
from guests.probe.plugin import NAMES, PROGRAM, STATIC_AT, VDSO, Probe, user_map
from host import sandbox
from kernels.cache import Kernel
from results.profile import PhaseProfile
from runs.local import Options
from runs.prepare import Prepared, boot_of, parts_of, prepare
from runs.resolved import catalogue, resolve
from tests.integration.lab_process import SMALL, busy_host, processes
from tests.values import but, data, silent
from workloads import parse

pytestmark = pytest.mark.guest
# Page faults leave blocks in their middle; docs/notebook/probe.md has what was measured.
MOST_OVERCOUNT = 0.001
# Keeps the maps of a running fio; the phase is disturbed by it, and not looked at.
KEEP_MAPS = data(__file__, "keep_maps")


# A mode of seccomp(2): filters.
FILTERED = "2"


def prepared(options: Options) -> Prepared:
    experiment = load_experiment(Path(SMALL), overrides=(), catalogue=catalogue(options.checkout))
    experiment = but(experiment, twins=())
    made = resolve(experiment, checkout=options.checkout, cache=options.cache)
    return prepare(made, options, lambda arm, progress: None)


@pytest.fixture(scope="module")
def session(kernels: dict[str, Kernel], options: Options) -> Prepared:
    return prepared(options)


@pytest.fixture(scope="module")
def outcomes(
    session: Prepared, options: Options, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Outcome]:
    """The same run without the probe, out of its box, with the probe, and on a busy host.

    There it is restored, and from a cold boot, both with the probe.
    """
    top = tmp_path_factory.mktemp("runs")
    first = session.plan.runs[0]
    boot = boot_of(session, first, cold=False)
    machine, job, probe = boot.machine, boot.job_text, boot.probe
    assert probe is not None
    assert probe.locks
    snapshot = exact.take_snapshot(machine, top / "snapshot", top / "logs", silent)
    (top / "canary").write_text("of the host")
    looked: list[str] = []

    def watch(word: str) -> None:
        if not looked:
            require_boxed(top / "canary")
            looked.append(word)

    def run(name: str, of: Machine | Snapshot = snapshot, probe: Probe | None = probe) -> Outcome:
        watched = watch if name == "plain" else silent
        return exact.run(of, job, top / name, top / name / "logs", watched, probe=probe)

    ended = {"plain": run("plain", probe=None), "probed": run("probed")}
    assert looked
    result = top / "plain/logs/result"
    assert result.stat().st_uid == os.getuid()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sandbox, "available", lambda tools: None)
        ended["unboxed"] = run("unboxed", probe=None)
    with busy_host(top):
        ended |= {"again": run("again"), "cold": run("cold", machine)}
    return ended


def require_boxed(canary: Path) -> None:
    """The one QEMU of this process owns nothing and sees nothing of the host."""
    names = processes(os.getpid())
    (pid,) = (pid for pid in names if names[pid].startswith("qemu"))
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert not Path(f"/proc/{pid}/root{canary}").exists()
    assert Path(f"/proc/{pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
    assert status["Uid"].split()[1] == str(os.getuid() or sandbox.BOX_UID)
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert (status["Seccomp"], status["NoNewPrivs"]) == (FILTERED, "1")


def profile(session: Prepared, outcome: Outcome) -> PhaseProfile:
    run = session.plan.runs[0]
    parts = parts_of(session, run)
    phases = parts.phases
    assert outcome.files is not None
    assert outcome.counts is not None
    result = parse.guest_result(outcome.files, tuple(phase.name for phase in phases))
    kernel = parts.kernel
    (only,) = fold.profile(outcome.counts, kernel, outcome.files, phases, result)
    return only


def test_the_guest_notices_neither_probe_nor_box_nor_a_busy_host(
    outcomes: Mapping[str, Outcome],
) -> None:
    assert {outcome.ending.kind for outcome in outcomes.values()} == {"done"}
    results = {channel.fingerprint(outcome.files or {}) for outcome in outcomes.values()}
    assert len(results) == 1
    assert outcomes["plain"].counts is None
    assert outcomes["plain"].files == outcomes["unboxed"].files


def test_counts_are_the_same_bytes_each_time(outcomes: Mapping[str, Outcome]) -> None:
    first, second = outcomes["probed"].counts, outcomes["again"].counts
    assert first == second
    assert len(counts.parse(first or b"").rows) > 10_000


def test_a_restored_run_counts_what_a_cold_one_does(
    session: Prepared, outcomes: Mapping[str, Outcome]
) -> None:
    cold, restored = (profile(session, outcomes[name]) for name in ("cold", "probed"))
    probe = boot_of(session, session.plan.runs[0], cold=False).probe
    assert probe is not None
    if probe.api == 1:
        assert cold == restored
        return
    # Translations are shared by all addresses that a page has: of user code the sum is the same.
    assert sum(cold.user.values()) == sum(restored.user.values())
    shared: dict[str, object] = {"user": {}, "user_kinds": {}}
    assert but(cold, **shared) == but(restored, **shared)


def test_profile_adds_up_and_names_what_ran(
    session: Prepared, outcomes: Mapping[str, Outcome]
) -> None:
    counted = profile(session, outcomes["probed"])
    kernel = sum(function.instructions for function in counted.kernel)
    assert kernel + sum(counted.user.values()) == counted.instructions == sum(counted.by_vcpu)
    by_name = {function.name: function for function in counted.kernel}
    assert not {"[unknown]", "[module]"} & by_name.keys()
    assert by_name["__filemap_add_folio"].file == "mm/filemap.c"
    assert by_name["xas_load"].file == "lib/xarray.c"
    assert all(function.file for function in counted.kernel)
    assert counted.units["folio"] == by_name["__filemap_add_folio"].calls > 1000
    assert counted.units["fault"] > counted.units["folio"] > counted.units["io"] / 2
    assert counted.user["fio"] > 0.05 * counted.instructions
    assert "[unknown]" not in counted.user


def test_locks_are_distinguished_and_add_up(
    session: Prepared, outcomes: Mapping[str, Outcome]
) -> None:
    counted = profile(session, outcomes["probed"])
    assert counted.locks is not None
    assert counted.lost_locks == 0
    calls = {function.name: function.calls for function in counted.kernel}
    sites = [site for use in counted.locks for site in use.sites]
    # Whoever adds a folio takes the lock of the tree once, nobody else waits, and all is seen.
    adds = [site for site in sites if site.function == "__filemap_add_folio"]
    assert sum(site.taken for site in adds) == calls["__filemap_add_folio"]
    assert "[unknown]" not in {site.function for site in sites}
    spins = [use for use in counted.locks if not use.sleeps]
    assert not any(site.waits or site.waited for use in spins for site in use.sites)
    taken = sum(site.taken for use in spins for site in use.sites if not site.shared)
    entered = sum(calls.get(name, 0) for name in NAMES["locks"]["spin"] if "try" not in name)
    tried = sum(calls.get(name, 0) for name in NAMES["locks"]["spin"] if "try" in name)
    assert entered <= taken <= entered + tried
    # The tree's lock and the inode's are both taken in __remove_mapping, and are two.
    (tree,) = [
        use
        for use in spins
        if any(site in adds for site in use.sites)
        and any(site.function == "__remove_mapping" for site in use.sites)
    ]
    assert tree.instances == 1
    assert sum(site.held for site in tree.sites) < counted.instructions / 10
    assert "tasklist_lock" in {use.symbol for use in counted.locks}


def test_counts_and_the_guests_clock_agree(outcomes: Mapping[str, Outcome]) -> None:
    probed = outcomes["probed"]
    # The clock of an exact guest advances by one for each instruction.
    _, began, _, ended = (probed.files or {})["4k/clock"].split()
    parsed = counts.parse(probed.counts or b"")
    here = parsed.rows[parsed.rows["phase"] == 1]
    share = int((here["entries"] * here["instructions"]).sum()) / (int(ended) - int(began)) - 1
    exact = parsed.interrupted
    # Writing the clock is outside of the phase.
    assert -MOST_OVERCOUNT < share < (0 if exact else MOST_OVERCOUNT)


def test_interrupts_and_faults_are_those_of_the_guest(
    session: Prepared, outcomes: Mapping[str, Outcome]
) -> None:
    if not counts.parse(outcomes["probed"].counts or b"").interrupted:
        pytest.skip("this QEMU tells of none")
    counted = profile(session, outcomes["probed"])
    by_handler: dict[str, int] = {}
    for each in counted.interruptions or ():
        by_handler[each.handler] = by_handler.get(each.handler, 0) + each.count
    entries = {function.name: function.calls for function in counted.kernel}
    # A handler begins at its first instruction, and nobody else goes there; vectors of devices
    # are entries side by side.
    assert by_handler.pop("irq_entries_start") > 0
    assert {name: entries[name] for name in by_handler} == by_handler
    # The kernel counts those that it makes itself, too, and between its own two readings.
    assert 0.9 < by_handler["asm_exc_page_fault"] / counted.units["fault"] <= 1.1
    assert "[unknown]" not in {each.function for each in counted.interruptions or ()}


def test_files_of_the_guest_are_where_the_map_says(
    kernels: dict[str, Kernel], options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = tmp_path / "agent.sh"
    text = initramfs.AGENT.read_text()
    before = '    observe "$OUT/$1/before"\n'
    assert text.count(before) == 1
    agent.write_text(text.replace(before, before + KEEP_MAPS))
    monkeypatch.setattr(initramfs, "AGENT", agent)
    session = prepared(options)
    boot = boot_of(session, session.plan.runs[0], cold=True)
    done = exact.run(boot.machine, boot.job_text, tmp_path / "run", tmp_path / "logs", silent)
    assert done.files is not None, done.ending.message
    places = user_map(done.files["maps"].decode())
    expected = dict(zip(places.names, places.starts.tolist(), strict=True))
    real = starts(done.files["real-maps"].decode())
    assert real.pop(PROGRAM) == expected.pop(PROGRAM)
    assert real.pop("[vdso]") == expected.pop("vdso")
    assert (
        expected.pop("busybox")
        == STATIC_AT
        == starts(done.files["real-busybox"].decode())["busybox"]
    )
    assert real == expected
    assert len(real) > 2
    assert VDSO in done.files["maps"].decode()


def starts(maps: str) -> dict[str, int]:
    """File name → lowest address, of the files in a /proc/PID/maps that hold code."""
    lines = [line.split() for line in maps.splitlines()]
    code = {line[5] for line in lines if len(line) > 5 and "x" in line[1]}
    addresses: dict[str, int] = {}
    for line in lines:
        if len(line) > 5 and line[5] in code and not re.match(r"\[(?!vdso)", line[5]):
            addresses.setdefault(line[5].rpartition("/")[2], int(line[0].partition("-")[0], 16))
    return addresses
