import pytest

from tests.values import spaced
from tests.workloads.conftest import Change, Run, swap
from workloads import parse
from workloads.parse import ParseError, Side, guest_result


def test_whole_run(run_4k: Run) -> None:
    result = run_4k.result
    assert result.failure == ""
    assert result.build_id == "4dc6a058b44191bb76567f8b167d704456ec6021"
    assert result.release == "6.12.117"
    assert result.tainted == 0
    assert [phase.name for phase in result.phases] == ["4k"]


def test_fio_of_a_phase(run_4k: Run) -> None:
    phase = run_4k.result.phases[0]
    assert (phase.status, phase.output) == (0, "")
    assert phase.fio is not None
    assert (phase.fio.ios, phase.fio.io_bytes, phase.fio.iops) == (149571, 612642816, 74524.663677)
    assert (phase.fio.runtime_ms, phase.fio.ramp_ms, phase.fio.error) == (2007, 600, 0)
    assert phase.fio.options["randseed"] == "1"
    assert phase.fio.options["rw"] == "randread"


def test_observations_around_a_phase(run_4k: Run) -> None:
    phase = run_4k.result.phases[0]
    before, after = phase.before, phase.after
    assert (before.memory_stat["file"], after.memory_stat["file"]) == (0, 55767040)
    assert (before.memory_events["max"], after.memory_events["max"]) == (0, 2097)
    assert (before.memory_peak_bytes, after.memory_peak_bytes) == (0, 67108864)
    assert (before.memory_max, after.memory_max) == ("67108864", "67108864")
    assert after.vmstat["workingset_refault_file"] == 74206
    assert after.vmstat["pgmajfault"] == 114274
    assert (before.thp_enabled, after.thp_enabled) == ("never", "never")
    assert (before.device_read_bytes, after.device_read_bytes) == (0, 468045824)
    assert (before.device_written_bytes, after.device_written_bytes) == (0, 0)
    assert (before.cpu_ns, after.cpu_ns) == (0, 2773271000)


def test_phases_follow_each_other(run_thp: Run) -> None:
    thp, switch = run_thp.result.phases
    assert (thp.name, switch.name) == ("thp", "switch")
    assert thp.fio is not None
    assert switch.fio is not None
    assert (thp.fio.ios, switch.fio.ios) == (6758, 41163)
    assert (thp.fio.ramp_ms, switch.fio.ramp_ms) == (300, 0)
    assert (thp.before.thp_enabled, switch.before.thp_enabled) == ("always", "never")
    # Nothing happens between them: caches are kept.
    assert thp.after.memory_stat == switch.before.memory_stat
    assert thp.after.memory_stat["file_thp"] == 56623104
    assert switch.after.memory_stat["file_thp"] == 0


def test_build_id_among_other_notes() -> None:
    other = b"\4\0\0\0\3\0\0\0\1\1\0\0Xen\0abc\0"
    gnu = b"\4\0\0\0\4\0\0\0\3\0\0\0GNU\0\xde\xad\xbe\xef"
    assert parse.build_id(gnu) == "deadbeef"
    assert parse.build_id(other + gnu) == "deadbeef"
    assert parse.build_id(other) == ""
    assert parse.build_id(b"") == ""
    assert parse.build_id(gnu[:-1]) == ""


def test_thp_selected() -> None:
    assert parse.thp_selected("always [madvise] never\n") == "madvise"
    assert parse.thp_selected("nothing selected") == ""


def test_device_without_a_line_was_not_used() -> None:
    line = "1:0 rbytes=5 wbytes=6 rios=1 wios=1 dbytes=0 dios=0\n"
    assert parse.device_bytes(f"8:0 rbytes=1 wbytes=2\n{line}\n", "1:0") == (5, 6)
    assert parse.device_bytes("", "1:0") == (0, 0)


def test_fio_that_wrote_nothing_or_says_something_first(run_4k: Run) -> None:
    assert parse.fio_result("") is None
    assert parse.fio_result("fio: unable to open '/mnt/test.img'\n") is None
    text = run_4k.files["4k/fio.json"].decode()
    note = "note: both iodepth >= 1 and synchronous\n"
    assert parse.fio_result(note + text) == parse.fio_result(text)
    with pytest.raises(ParseError, match="RecursionError"):
        parse.fio_result('{"a":' * 100_000)


NEEDED = [
    f"4k/{name}"
    for name in spaced(
        "status fio.out before/cgroup/io.stat before/cgroup/memory.stat "
        "before/cgroup/memory.events before/cgroup/memory.peak before/cgroup/memory.max "
        "before/cgroup/cpu.stat before/proc/vmstat before/proc/enabled "
        "after/cgroup/memory.stat after/proc/vmstat"
    )
]


@pytest.mark.parametrize("name", [*NEEDED, "tainted"])
def test_missing_file_is_named(run_4k: Run, name: str) -> None:
    with pytest.raises(ParseError, match=f"^{name}: not among the files the guest sent$"):
        _ = run_4k.without(name).result


DAMAGE: tuple[tuple[str, Change, str], ...] = (
    ("tainted", swap("0", "no"), "tainted: "),
    ("4k/status", swap("0", ""), "4k/status: "),
    ("4k/before/cgroup/memory.peak", swap("0", "max"), "4k/before/cgroup/memory.peak: "),
    ("4k/after/proc/vmstat", swap("pgmajfault ", "pgmajfault x"), "4k/after/proc/vmstat: "),
    (
        "4k/after/proc/vmstat",
        swap("pgmajfault ", "other "),
        "4k/after/proc/vmstat: no counter pgmajfault",
    ),
    (
        "4k/after/cgroup/memory.stat",
        swap("file_thp", "thp"),
        "4k/after/cgroup/memory.stat: no counter file_thp",
    ),
    (
        "4k/after/cgroup/memory.events",
        swap("oom_kill 0", ""),
        "4k/after/cgroup/memory.events: no counter oom_kill",
    ),
    (
        "4k/after/cgroup/cpu.stat",
        swap("usage_usec", "usage"),
        "4k/after/cgroup/cpu.stat: no counter usage_usec",
    ),
    ("4k/after/cgroup/io.stat", swap("rbytes=", "rbytes:"), "4k/after/cgroup/io.stat: "),
    ("4k/fio.json", swap('"jobs"', '"job"'), "4k/fio.json: "),
    ("4k/fio.json", lambda content: content[:-50], "4k/fio.json: "),
    # Neither a time nor a number: rates would be over no time at all.
    (
        "4k/fio.json",
        swap('"runtime" : "2000ms"', '"other" : "2000ms"'),
        "4k/fio.json: KeyError('runtime')",
    ),
)


@pytest.mark.parametrize(("name", "change", "message"), DAMAGE)
def test_damaged_file_is_named(run_4k: Run, name: str, change: Change, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        _ = run_4k.but(name, change).result
    assert str(caught.value).startswith(message)


def test_agent_that_stopped_before_the_phases() -> None:
    result = guest_result({"failure": b"layout: no space\n", "tainted": b"0\n"}, ("4k",))
    assert (result.failure, result.phases, result.build_id) == ("layout: no space", (), "")


def test_agent_that_stopped_between_phases(run_thp: Run) -> None:
    files = {name: run_thp.files[name] for name in run_thp.files if "switch/" not in name}
    result = guest_result({**files, "failure": b"switch: THP state never"}, ("thp", "switch"))
    assert result.failure == "switch: THP state never"
    assert [phase.name for phase in result.phases] == ["thp"]


def test_pressure() -> None:
    lines = "some avg10=0.00 avg60=1.00 avg300=0.00 total=1234\nfull avg10=0.00 total=99\n"
    assert parse.stalled_us(lines) == 1234
    for text in (
        "",
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
        "some avg10=0.00 avg60=0.00 avg300=0.00\n",
        "some total=-7\n",
        "some total=seven\n",
    ):
        with pytest.raises(ParseError, match="no total"):
            parse.stalled_us(text)


def test_directions_of_fio_and_how_long_syncs_took(run_matrix: Run, run_dirty: Run) -> None:
    mixed, written = run_matrix.result.phases[0].fio, run_dirty.result.phases[0].fio
    assert mixed is not None
    assert written is not None
    assert (mixed.read, mixed.write) == (Side(45022, 184410112), Side(45730, 187310080))
    assert (mixed.ios, mixed.io_bytes) == (90752, 371720192)
    assert (written.read, written.write.ios) == (Side(0, 0), 66804)
    assert (mixed.syncs, mixed.sync_ns) == (0, ())
    # The last one of 0.1 % waited for the other three jobs' turns of 4 ms.
    assert (written.syncs, written.sync_ns) == (66802, (22144.0, 22144.0, 11993088.0))


def test_what_is_mounted(run_matrix: Run, run_dirty: Run, run_4k: Run) -> None:
    assert run_matrix.result.phases[0].mounted == "tmpfs rw,relatime,huge=always"
    assert run_dirty.result.phases[0].mounted.startswith("xfs rw,noatime,")
    # Recorded before it was sent.
    assert run_4k.result.phases[0].mounted == ""
    assert parse.mounted("none /mnt\nproc /proc proc rw 0 0\n") == ""


HUGE = "9" * 401


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("4k/fio.json", '"total_ios" : ', '"total_ios" : 1' + "0" * 400),
        ("4k/fio.json", '"total_ios" : ', '"total_ios" : -'),
        ("4k/fio.json", '"iops" : ', '"iops" : 1e999'),
        ("4k/fio.json", '"runtime" : "', '"runtime" : "0ms", "x" : "'),
        ("4k/fio.json", '"ramp_time" : "', '"ramp_time" : "-'),
        ("4k/after/proc/vmstat", "pgmajfault ", f"pgmajfault {HUGE}"),
        ("4k/after/cgroup/cpu.stat", "usage_usec ", f"usage_usec {HUGE}"),
        ("4k/after/cgroup/memory.pressure", "total=", f"total={HUGE}"),
        ("4k/after/cgroup/io.stat", "rbytes=", f"rbytes={HUGE}"),
        ("tainted", "0", HUGE),
    ],
)
def test_numbers_of_guests_are_bounded(run_4k: Run, name: str, old: str, new: str) -> None:
    with pytest.raises(ParseError, match=name):
        _ = run_4k.but(name, swap(old, new)).result
