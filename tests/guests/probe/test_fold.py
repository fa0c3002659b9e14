import shutil
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from errors import InfraError
from guests.probe import counts, fold, plugin
from kernels import addresses
from kernels.addresses import KERNEL_HALF, Origin
from kernels.cache import Kernel
from results.profile import (
    KINDS,
    FunctionCount,
    FunctionMisses,
    LockSite,
    LockUse,
    MemoryUse,
    Misses,
    PhaseProfile,
    Profile,
)
from tests.guests.probe.test_counts import Row, written
from tests.kernels.test_btf import types_of
from tests.values import but, data, identity
from workloads.parse import FioResult, GuestResult, Observation, PhaseResult, Side
from workloads.spec import IO, Cost, Phase, Ratio, Unit

START = 0xFFFFFFFF81000000
NO_KINDS = (0,) * len(KINDS)
SYSTEM_MAP = data(__file__, "system_map")
FILES = {
    "kallsyms": b"ffffffff81000000 T _stext\nffffffff81000500 T walk\n",
    "maps": b"\tlibc.so.6 => /lib/libc.so.6 (0x00007ffff7c00000)\n",
    "4k/clock": b"1 1000\n0 2000\n",
}
# Of kernels whose map has no walk.
ADDING = {**FILES, "kallsyms": b"ffffffff81000100 T add_folio\n"}
FIO = 0x555555554000
UNITS = (
    IO,
    Unit(name="folio", title="folio", calls=("add_folio", "__add_folio")),
    Unit(name="fault", title="fault", counter="pgfault"),
)
PHASE = Phase(name="4k", drop_caches=True, thp="never", fio=("--name=x",), units=UNITS)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    at = {0x100: "mm/filemap.c", 0x180: "mm/filemap.c", 0x200: "mm/filemap.c"}
    at |= {0x300: "fs/a.c", 0x400: "mm/b.c", 0x500: "lib/xarray.c"}
    table = {START + offset: Origin(file, 7) for offset, file in at.items()}
    return placed(tmp_path_factory.mktemp("kernel"), SYSTEM_MAP, table)


def placed(folder: Path, system_map: str, table: Mapping[int, Origin]) -> Kernel:
    addresses.save(table, folder / "origins.json.gz")
    return kernel_in(folder, system_map)


def kernel_in(folder: Path, system_map: str = SYSTEM_MAP) -> Kernel:
    (folder / "System.map").write_text(system_map)
    return Kernel(folder, identity(build_id="abcd"))


def observation(faults: int) -> Observation:
    return Observation(
        memory_stat={},
        memory_events={},
        memory_peak_bytes=0,
        memory_max="max",
        vmstat={"pgfault": faults},
        thp_enabled="never",
        device_read_bytes=0,
        device_written_bytes=0,
        cpu_ns=0,
        memory_stall_ns=0,
    )


def phase_result(name: str = "4k") -> PhaseResult:
    fio = FioResult(
        ios=200,
        io_bytes=4096 * 200,
        iops=100.0,
        runtime_ms=2000,
        planned_ms=2000,
        ramp_ms=500,
        error=0,
        options={},
        read=Side(200, 4096 * 200),
        write=Side(0, 0),
        sync_ns=(),
    )
    return PhaseResult(name, 0, fio, "", observation(1000), observation(1300))


def result(*phases: PhaseResult, build_id: str = "") -> GuestResult:
    return GuestResult("", build_id, "6.12", 0, phases or (phase_result(),))


def folded(
    kernel: Kernel,
    *rows: Row,
    files: Mapping[str, bytes] = FILES,
    phase: Phase = PHASE,
    **more: Any,
) -> PhaseProfile:
    """The profile of one phase, with ``more`` tables in the probe's file."""
    (only,) = fold.profile(written(list(rows), **more), kernel, files, [phase], result())
    return only


def row(
    offset: int, entries: int, *, n: int = 5, vcpu: int = 0, phase: int = 1, kinds: int = 0
) -> Row:
    return (phase, 0, vcpu, n, kinds, START + offset, entries)


def test_functions_with_files_instructions_and_calls(kernel: Kernel) -> None:
    profile = folded(
        kernel,
        row(0x100, 7, kinds=1),
        row(0x120, 2, n=10, kinds=1),
        row(0x200, 3, n=1),
        row(0x300, 1, kinds=1),
        row(0x410, 1, n=4),
        row(0x500, 9, n=2),
    )
    assert [astuple(each) for each in profile.kernel] == [
        ("add_folio", "mm/filemap.c", 58, 7, (27, 18, 9, 0, 9, 0), 7),
        ("twin@a.c", "fs/a.c", 5, 1, (3, 2, 1, 0, 1, 0), 7),
        ("twin@b.c", "mm/b.c", 4, 0, NO_KINDS, 7),
        ("walk", "lib/xarray.c", 18, 9, NO_KINDS, 7),
    ]
    assert profile.instructions == 58 + 18 + 5 + 4


def test_kernel_and_user_and_vcpus_each_add_up_to_the_whole(kernel: Kernel) -> None:
    user: list[Row] = [(1, 0, 1, 3, 0, FIO + 8, 11), (1, 0, 0, 1, 1, 0x7FFFF7C00010, 5)]
    profile = folded(kernel, row(0x100, 7), row(0x500, 2, vcpu=1), *user)
    assert profile.user == {"fio": 33, "libc.so.6": 5}
    assert profile.user_kinds == {"fio": NO_KINDS, "libc.so.6": (15, 10, 5, 0, 5, 0)}
    assert profile.by_vcpu == (35 + 5, 10 + 33)
    kernel_sum = sum(function.instructions for function in profile.kernel)
    assert kernel_sum + sum(profile.user.values()) == profile.instructions == sum(profile.by_vcpu)


def test_units_are_counted_each_in_its_way(kernel: Kernel) -> None:
    profile = folded(kernel, row(0x100, 7), row(0x180, 4), row(0x200, 50))
    # 200 I/Os in 2 s, and a ramp of half a second before them.
    assert profile.units == {"io": 250.0, "folio": 11.0, "fault": 300.0}
    assert folded(kernel, row(0x500, 1)).units["folio"] == 0.0


def test_work_is_added_up_from_what_was_counted(kernel: Kernel) -> None:
    """250 I/Os and 11 folios, of 100 and 2000 ns, and a start of 3000: 50 times 1,000 ns."""
    io, folio = (
        Cost(**unit.model_dump(), ns=ns) for unit, ns in ((UNITS[0], 100), (UNITS[1], 2000))
    )
    costed = but(PHASE, costs=(io, folio), start_ns=3000.0)
    profile = folded(kernel, row(0x100, 7), row(0x180, 4), phase=costed)
    assert profile.work == {"io": 250.0, "folio": 11.0}
    assert list(profile.units) == ["work", "io", "folio", "fault"]
    assert profile.units["work"] == 50.0
    gone = but(folio, calls=("inlined_away",))
    lacking = but(PHASE, costs=(io, gone))
    profile = folded(kernel, row(0x100, 7), row(0x180, 4), phase=lacking)
    assert profile.work == {"io": 250.0}
    assert "work" not in profile.units


@pytest.mark.parametrize(
    ("unit", "done"),
    [
        (Unit(name="page", title="page", pages_read=True), 3.0),
        (Unit(name="scan", title="scan", cgroup_counter="pgscan"), 7.0),
        (Unit(name="lost", title="lost", cgroup_counter="no_such_counter"), None),
        (Unit(name="lost", title="lost", counter="no_such_counter"), None),
        (Unit(name="gone", title="gone", calls=("inlined_away",)), None),
    ],
)
def test_units_of_the_cgroup(kernel: Kernel, unit: Unit, done: float | None) -> None:
    phase = but(PHASE, units=(unit,))
    measured = phase_result()
    after = replace(
        measured.after,
        device_read_bytes=measured.before.device_read_bytes + 3 * 4096,
        memory_stat={"pgscan": 9},
    )
    before = replace(measured.before, memory_stat={"pgscan": 2})
    data = written([row(0x100, 7)])
    whole = result(replace(measured, before=before, after=after))
    (profile,) = fold.profile(data, kernel, FILES, [phase], whole)
    assert profile.units == ({} if done is None else {unit.name: done})


def test_unit_by_an_alias_is_counted_and_its_name_is_the_one_used(kernel: Kernel) -> None:
    ratio = Ratio(name="walks", title="walks", calls=("also_walk",), unit="io")
    phase = but(PHASE, ratios=(ratio,))
    profile = folded(kernel, row(0x500, 9), phase=phase)
    assert [(function.name, function.calls) for function in profile.kernel] == [("also_walk", 9)]


def test_unit_of_static_functions_of_one_name_takes_both(kernel: Kernel) -> None:
    unit = Unit(name="twin", title="twin", calls=("twin",))
    phase = but(PHASE, units=(unit,))
    profile = folded(kernel, row(0x300, 2), row(0x400, 3), phase=phase)
    assert profile.units == {"twin": 5.0}


def test_phases_by_their_number(kernel: Kernel) -> None:
    second = but(PHASE, name="switch")
    data = written([row(0x100, 7), row(0x100, 2, phase=2), row(0x500, 1, phase=2)])
    whole = result(phase_result(), phase_result("switch"))
    profiles = fold.profile(data, kernel, FILES, [PHASE, second], whole)
    assert [(each.phase, each.instructions) for each in profiles] == [("4k", 35), ("switch", 15)]


def test_phase_that_was_not_counted_is_named(kernel: Kernel) -> None:
    with pytest.raises(InfraError, match=r"phase 4k \(number 1\) was not counted"):
        folded(kernel, row(0x100, 7, phase=2))


def test_modules_are_one_entry(kernel: Kernel) -> None:
    files = {**FILES, "modules": b"brd 16384 1 - Live 0xffffffffa0000000\n"}
    module: Row = (1, 0, 0, 4, 1, 0xFFFFFFFFA0000010, 3)
    profile = folded(kernel, row(0x100, 1), module, files=files)
    assert profile.kernel[0] == FunctionCount(
        name="[module]", file="", instructions=12, calls=0, kinds=(9, 6, 3, 0, 3, 0)
    )


def test_a_module_that_comes_and_goes_in_a_phase_is_one_too(kernel: Kernel) -> None:
    """The agent lists modules before the first phase; a test of the kernel's is gone by then."""
    module: Row = (1, 0, 0, 4, 1, 0xFFFFFFFFA0000010, 3)
    with pytest.raises(InfraError, match="most at ffffffffa0000010"):
        folded(kernel, row(0x100, 1), module)
    (kernel.folder / "test_walk.ko").write_text("")
    profile = folded(kernel, row(0x100, 1), module)
    assert (profile.kernel[0].name, profile.kernel[0].instructions) == ("[module]", 12)


def test_a_little_code_where_no_symbol_is_is_shown(kernel: Kernel) -> None:
    profile = folded(kernel, row(0x100, 1_000_000), row(0x2000, 1))
    assert profile.kernel[0] == FunctionCount(
        name="[unknown]", file="", instructions=5, calls=0, kinds=NO_KINDS
    )


def test_much_code_where_no_symbol_is_is_another_kernels_map(kernel: Kernel) -> None:
    with pytest.raises(InfraError, match=r"1\.0% of .*most at ffffffff81002000") as caught:
        folded(kernel, row(0x100, 990), row(0x2000, 10))
    assert "System.map" in str(caught.value)


def test_map_that_the_running_kernel_contradicts(kernel: Kernel) -> None:
    files = {**FILES, "kallsyms": b"ffffffff81000540 T walk\n"}
    with pytest.raises(InfraError, match="walk is at ffffffff81000540 in the running kernel"):
        folded(kernel, row(0x100, 1), files=files)


def test_without_kallsyms_the_build_id_is_the_proof(kernel: Kernel) -> None:
    files = {**FILES, "kallsyms": b""}
    data = written([row(0x100, 1)])
    assert fold.profile(data, kernel, files, [PHASE], result(build_id="abcd"))
    # Where kallsyms agrees it may be another one's.
    assert fold.profile(data, kernel, FILES, [PHASE], result(build_id="ef01"))
    for build_id in ("", "ef01"):
        with pytest.raises(InfraError, match="neither /proc/kallsyms nor a build id"):
            fold.profile(data, kernel, files, [PHASE], result(build_id=build_id))


def test_counts_cut_short_and_damaged_map(kernel: Kernel, tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="the probe: cut short"):
        fold.profile(written([row(0x100, 1)])[:-1], kernel, FILES, [PHASE], result())
    with pytest.raises(InfraError, match="line 1 is no symbol"):
        folded(kernel_in(tmp_path, "nothing of the kind\n"), row(0x100, 1))


def test_kernel_without_origins_has_no_files(tmp_path: Path) -> None:
    profile = folded(kernel_in(tmp_path), row(0x300, 1), row(0x400, 2))
    assert profile.kernel == (
        FunctionCount(name="twin", file="", instructions=15, calls=3, kinds=NO_KINDS),
    )


def test_whole_numbers_stay_whole(kernel: Kernel) -> None:
    many = (1 << 55) + 1
    profile = folded(kernel, row(0x100, many, n=1), row(0x120, 1, n=1))
    assert profile.instructions == many + 1 == profile.kernel[0].instructions == profile.by_vcpu[0]


BLOCK = st.tuples(
    st.just(1),
    st.just(0),
    st.integers(0, 1),
    st.integers(1, 512),
    st.integers(0, 1),
    st.one_of(st.integers(START, START + 0xFFF), st.integers(0, 1 << 47), st.just(FIO)),
    st.integers(1, 1 << 40),
)


@given(st.lists(BLOCK, min_size=1, max_size=40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_is_lost_in_folding(kernel: Kernel, rows: list[Row]) -> None:
    profile = folded(kernel, *rows)
    whole = sum(block[3] * block[6] for block in rows)
    assert profile.instructions == whole == sum(profile.by_vcpu)
    parts = sum(function.instructions for function in profile.kernel) + sum(profile.user.values())
    assert parts == whole
    loads = sum(function.kinds[0] for function in profile.kernel)
    loads += sum(kinds[0] for kinds in profile.user_kinds.values())
    assert loads == sum(3 * block[4] * block[6] for block in rows)
    assert list(profile.user) == sorted(profile.user)


LOCKS_MAP = data(__file__, "locks_map")
FIRST, SECOND, THIRD, FOURTH = (0xFFFF888000001000 + 64 * n for n in range(4))


@pytest.fixture(scope="module")
def locking_kernel(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    table = {START + 0x100: Origin("mm/filemap.c")}
    return placed(tmp_path_factory.mktemp("locking"), LOCKS_MAP, table)


def test_functions_of_locks_by_kind(locking_kernel: Kernel) -> None:
    assert fold.locks_of(locking_kernel) == (
        ("spin", START + 0x300, START + 0x340),
        ("spin_shared", START + 0x340, START + 0x380),
        ("sleep", START + 0x380, START + 0x3C0),
        ("free", START + 0x3C0, START + 0x400),
    )


def test_locks_that_the_same_functions_took_are_one_entry(locking_kernel: Kernel) -> None:
    """Two calls of a function are one site, and so are two locks with the same sites."""
    adds, again, removes = START + 0x120, START + 0x140, START + 0x210
    profile = folded(
        locking_kernel,
        row(0x100, 1),
        files=ADDING,
        locks=[
            (1, 0, FIRST, adds, 0, 5, 500, 0, 0, 4),
            (1, 0, FIRST, again, 0, 1, 7, 2, 90, 0),
            (1, 0, SECOND, adds, 0, 2, 20, 0, 0, 0),
            (1, 0, THIRD, removes, 0, 1, 4000, 0, 0, 0),
            (1, 0, THIRD, adds, 0, 1, 1, 0, 0, 0),
            (1, 2, FOURTH, 0, 0, 1, 3, 1, 0, 0),
            (1, 3, FOURTH, adds, 0, 1, 2, 0, 0, 0),
            (1, 0, 0xFFFFFFFF82000010, adds, 0, 1, 1, 0, 0, 0),
            (2, 0, FIRST, adds, 0, 99, 99, 0, 0, 0),
        ],
        lost=4,
    )

    def add(shared: bool, *numbers: int) -> LockSite:
        return site("add_folio", shared, *numbers, file="mm/filemap.c")

    assert profile.lost_locks == 4
    assert profile.locks == (
        use(1, add(False, 1, 1), site("remove_folio", False, 1, 4000)),
        use(2, add(False, 8, 527, 2, 90, 4)),
        use(1, site("[unknown]", False, 1, 3, 1), add(True, 1, 2), sleeps=True),
        use(1, add(False, 1, 1), symbol="pool_lock"),
    )


def test_who_waited_for_whom_is_by_function(locking_kernel: Kernel) -> None:
    adds, again, removes = START + 0x120, START + 0x140, START + 0x210
    profile = folded(
        locking_kernel,
        row(0x100, 1),
        files=ADDING,
        locks=[
            (1, 0, FIRST, adds, 0, 5, 500, 3, 80, 0),
            (1, 0, SECOND, adds, 0, 2, 20, 1, 20, 0),
            (1, 1, THIRD, adds, 0, 1, 9, 1, 0, 0),
            (1, 0, THIRD, removes, 0, 1, 9, 0, 0, 0),
            (1, counts.PAIR, FIRST, adds, removes, 2, 0, 3, 80, 0),
            (1, counts.PAIR, FIRST, again, removes, 1, 0, 0, 7, 0),
            (1, counts.PAIR, SECOND, adds, 0, 1, 0, 1, 20, 0),
            (1, counts.PAIR | plugin.SHARED, THIRD, adds, removes, 0, 0, 1, 0, 0),
            (2, counts.PAIR, FIRST, adds, removes, 99, 0, 99, 99, 0),
        ],
    )

    assert profile.locks is not None
    same, other = profile.locks
    assert (same.instances, other.instances) == (2, 1)
    shown = [[tuple(each.model_dump().values()) for each in use.pairs] for use in (same, other)]
    unknown, removed = ("add_folio", "[unknown]", False), ("add_folio", "remove_folio")
    assert shown == [
        [(*unknown, 1, 1, 20), (*removed, False, 3, 3, 87)],
        [(*removed, True, 1, 0, 0)],
    ]


def site(function: str, shared: bool, *numbers: int, file: str = "") -> LockSite:
    fields = dict(zip(fold.SPENT, numbers, strict=False))
    return LockSite(function=function, file=file, shared=shared, **fields)


def use(instances: int, *sites: LockSite, sleeps: bool = False, symbol: str = "") -> LockUse:
    return LockUse(instances=instances, sleeps=sleeps, symbol=symbol, sites=sites)


def test_a_kernel_whose_locks_are_not_watched_has_unknown_locks_and_not_none(
    kernel: Kernel, locking_kernel: Kernel
) -> None:
    arm64 = replace(locking_kernel, identity=but(locking_kernel.identity, arch="arm64"))
    assert fold.locks_of(arm64) == ()
    assert folded(arm64, row(0x100, 1), files=ADDING).locks is None
    debugged = LOCKS_MAP.replace("T last", "T do_raw_spin_lock")
    assert plugin.places(addresses.parse(debugged), "x86_64") == ()
    assert plugin.places(addresses.parse(LOCKS_MAP), "x86_64") == fold.locks_of(locking_kernel)
    assert folded(locking_kernel, row(0x100, 1), files=ADDING).locks == ()
    assert folded(kernel, row(0x100, 1)).locks is None


def test_misses_are_summed_by_function_and_by_file(kernel: Kernel) -> None:
    rows = [row(0x100, 1)]
    misses = [
        (1, 5, START + 0x100, 9, 8, 7, 6, 5, 4, 3),
        (1, 2, START + 0x140, 1, 0, 0, 0, 0, 0, 0),
        (1, 2, 0x400000, 0, 0, 2, 1, 0, 0, 0),
        (2, 2, START + 0x100, 99, 0, 0, 0, 0, 0, 0),
    ]
    profile = folded(kernel, *rows, misses=misses, unmapped=7)
    numbers = {"l1d": 10, "l1i": 8, "l2": 7, "llc": 6, "prefetched": 5, "tlb": 4, "walks": 3}
    of_kernel = FunctionMisses(name="add_folio", file="mm/filemap.c", **numbers)
    user = {"busybox": Misses(l2=2, llc=1)}
    assert profile.memory == MemoryUse(kernel=(of_kernel,), user=user, unmapped=7)
    assert folded(kernel, *rows).memory is None


def test_lines_are_by_object_and_functions(locking_kernel: Kernel) -> None:
    adds, again, removes = START + 0x120, START + 0x140, START + 0x210
    pool, of_cpu = 0xFFFFFFFF82000000, counts.OF_CPU + 0x100
    moves = [
        (1, 0, pool, adds, removes, 5, 1, 2, 0xFF, 0xFF00),
        (1, 0, pool, again, removes, 1, 0, 0, 0x10000, 0xFF00),
        (1, 0, of_cpu, adds, 0x400000, 3, 0, 0, 0xF0, 0xF0),
        (1, 0, counts.OF_MEMORY, removes, adds, 9, 9, 0, 1, 1),
        (1, 0, counts.OF_USER, 0x400000, adds, 1, 0, 0, 1, 1),
        (2, 0, pool, adds, removes, 99, 0, 0, 1, 1),
    ]
    profile = folded(locking_kernel, row(0x100, 1), files=ADDING, moves=moves)

    assert profile.lines is not None
    names = ("kind", "object", "taker", "holder", *counts.MOVED, "mine", "theirs")
    assert [tuple(getattr(each, name) for name in names) for each in profile.lines] == [
        ("memory", "", "remove_folio", "add_folio", 9, 9, 0, None, None),
        ("variable", "pool_lock", "add_folio", "remove_folio", 6, 1, 2, (0, 16), (8, 15)),
        ("of_cpu", "a_lock_of_each_cpu", "add_folio", "[user]", 3, 0, 0, (4, 7), (4, 7)),
        ("user", "", "[user]", "add_folio", 1, 0, 0, None, None),
    ]
    assert folded(locking_kernel, row(0x100, 1), files=ADDING).lines is None


def slab(number: int, begins: int) -> int:
    """A line of an object of this slab cache."""
    return counts.OF_SLAB + (number << counts.SLAB_BITS) + begins + counts.LINE_BYTES


STRUCTURES = """\
struct page { unsigned long flags; void *mapping; int count; } page;
struct xfs_inode { long number; struct { int lock; int state; } vnode; long words[12]; } inode;
"""


@pytest.fixture
def typed_kernel(locking_kernel: Kernel, tmp_path: Path) -> Kernel:
    """One that knows its types, of some files."""
    folder = tmp_path / "typed"
    shutil.copytree(locking_kernel.folder, folder)
    (folder / "slub.btf").write_bytes(types_of(STRUCTURES, tmp_path))
    return Kernel(folder, locking_kernel.identity)


def test_lines_of_slab_caches_and_pages_are_of_members(
    typed_kernel: Kernel, locking_kernel: Kernel
) -> None:
    adds, removes = START + 0x120, START + 0x210

    moves = [
        # The line begins 56 bytes into the inode before, and 8 bytes in front of this one.
        (1, 0, slab(0, -8), adds, removes, 5, 0, 5, 0xF << 16, 0xF << 20),
        (1, 0, slab(0, 64), adds, removes, 2, 0, 0, 0xFF, 0xFF),
        (1, 0, slab(1, 0), adds, removes, 3, 0, 0, 0xFF00, 0xFF00),
        (1, 0, slab(2, 0), adds, removes, 1, 0, 0, 0xFF, 0xFF),
        (1, 0, slab(9, 0), adds, removes, 1, 0, 0, 0xFF, 0xFF),
        (1, 0, counts.OF_PAGES, adds, removes, 4, 0, 0, 0xFF00, 0xFF),
    ]
    slabs = [(b"xfs_inode", 112, 1), (b"kmalloc-64", 64, 1), (b"xfs_ili", 56, 2)]
    profile = folded(typed_kernel, row(0x100, 1), files=ADDING, moves=moves, slabs=slabs)
    assert profile.lines is not None
    rows = [(move.kind, move.object, move.mine, move.theirs) for move in profile.lines]
    assert rows == [
        ("slab", "xfs_inode.vnode.lock", (8, 11), (12, 15)),
        ("pages", "page.mapping", (8, 15), (0, 7)),
        ("slab", "kmalloc-64", (8, 15), (8, 15)),
        ("slab", "xfs_inode.words", (64, 71), (64, 71)),
        ("slab", "", None, None),
        ("slab", "xfs_ili and caches merged with it", (0, 7), (0, 7)),
    ]
    # Of a kernel without types page structures have no members, and caches still have names.
    profile = folded(locking_kernel, row(0x100, 1), files=ADDING, moves=moves, slabs=slabs)
    assert profile.lines is not None
    merged = "xfs_ili and caches merged with it"
    assert {move.object for move in profile.lines} == {"xfs_inode", "kmalloc-64", merged, ""}


def test_a_lock_in_an_object_of_a_known_type_has_its_members_name(typed_kernel: Kernel) -> None:
    adds = START + 0x120
    inode, other = 0xFFFF888000001000, 0xFFFF888000002000

    uses = [
        (1, 0, inode + 8, adds, 0, 5, 500, 0, 0, 0, slab(0, 0)),
        (1, 0, inode + 12, adds, 0, 4, 400, 0, 0, 0, slab(0, 0)),
        (1, 0, other + 8, adds, 0, 3, 300, 0, 0, 0, slab(1, 0)),
        (1, 0, other + 64, adds, 0, 2, 200, 0, 0, 0, 0),
    ]
    slabs = [(b"xfs_inode", 112, 1), (b"kmalloc-64", 64, 1)]
    profile = folded(typed_kernel, row(0x100, 1), files=ADDING, locks=uses, slabs=slabs)
    assert profile.locks is not None
    # What is not known is one row for all that were taken alike.
    assert [(use.member, use.instances) for use in profile.locks] == [
        ("", 2),
        ("vnode.lock", 1),
        ("vnode.state", 1),
    ]


WAITING_MAP = data(__file__, "waiting_map")


@pytest.fixture(scope="module")
def waiting_kernel(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    return placed(tmp_path_factory.mktemp("waiting"), WAITING_MAP, {})


def test_places_to_wait_in_end_where_the_next_function_begins(
    kernel: Kernel, waiting_kernel: Kernel
) -> None:
    assert fold.spans_of(kernel) == ()
    assert fold.spans_of(waiting_kernel) == tuple(
        (START + start, START + end)
        for start, end in ((0x200, 0x280), (0x280, 0x300), (0x300, 0x310), (0x310, 0x340))
    )


def test_waits_are_by_kind_and_vcpu(waiting_kernel: Kernel) -> None:
    def span(number: int, vcpu: int, spent: int) -> Row:
        return (1, 0, vcpu, 0, 0, counts.SPAN + number, spent)

    rows = [row(0x100, 7), row(0x200, 3, vcpu=1)]
    spent = [span(0, 0, 11), span(1, 0, 5), span(0, 1, 2), span(2, 1, 20), span(3, 1, 4)]
    profile = folded(waiting_kernel, *rows, *spent, files=ADDING, spans=4)
    assert profile.waits == {"spinning": (16, 2), "idle": (0, 24)}
    # Spans are no instructions: they were executed elsewhere.
    assert profile.instructions == 35 + 15
    assert profile.spinning_share == pytest.approx(18 / (2 * 50 - 24))
    nobody_waited = folded(waiting_kernel, *rows, files=ADDING, spans=4)
    assert nobody_waited.waits == {"spinning": (0, 0), "idle": (0, 0)}
    assert nobody_waited.spinning_share == 0
    nobody_looked = folded(waiting_kernel, *rows, files=ADDING)
    assert (nobody_looked.waits, nobody_looked.spinning_share) == ({}, None)


def test_interruptions_are_by_handler_and_by_what_was_interrupted(kernel: Kernel) -> None:
    rows = [
        (1, 1, START + 0x300, FIO + 0x10, 5),
        (1, 1, START + 0x300, FIO + 0x99, 2),
        (1, 0, START + 0x400, START + 0x520, 3),
        (1, 1, START + 0x300, START + 0x210, 1),
        (2, 1, START + 0x300, START + 0x210, 9),
    ]
    phases = [PHASE, but(PHASE, name="8k")]
    files = dict(FILES) | {"8k/clock": b"1 1\n0 2\n"}
    data = written([row(0x100, 7), row(0x500, 1, phase=2)], interruptions=rows)
    first, second = fold.profile(
        data, kernel, files, phases, result(phase_result(), phase_result("8k"))
    )
    assert first.interruptions is not None
    assert second.interruptions is not None
    assert [tuple(each.model_dump().values()) for each in first.interruptions] == [
        ("interrupt", "twin@b.c", "walk", False, 3),
        ("exception", "twin@a.c", "add_folio", False, 1),
        ("exception", "twin@a.c", "fio", True, 7),
    ]
    assert [each.count for each in second.interruptions] == [9]
    assert folded(kernel, row(0x100, 7)).interruptions is None


# By number: none, walk, add_folio from walk, its part that was split off, twin from that.
PATHS: list[tuple[int, ...]] = [
    (0, 0, 0),
    (0, 0, START + 0x500),
    (1, 0, START + 0x100),
    (1, 0, START + 0x200),
    (3, 0, START + 0x300),
    (2, 0, START + 0x400),
]


def stacks_of(
    kernel: Kernel, spent: Sequence[tuple[int, ...]], paths: Sequence[tuple[int, ...]] = PATHS
) -> list[tuple[object, ...]]:
    only = folded(kernel, row(0x100, 7), paths=paths, stacks=spent)
    assert only.stacks is not None
    return [tuple(frame.model_dump().values()) for frame in only.stacks]


def test_stacks_are_by_name_and_a_split_function_is_one(kernel: Kernel) -> None:
    spent = [
        (1, 0, 99, 0),
        (1, 1, 50, 2),
        (1, 2, 10, 3),
        (1, 3, 4, 0),
        (1, 4, 20, 1),
        (1, 5, 30, 1),
        (2, 1, 77, 1),
    ]
    assert stacks_of(kernel, spent) == [
        (0, "walk", 50, 2),
        (1, "add_folio", 14, 3),
        (2, "twin@a.c", 20, 1),
        (2, "twin@b.c", 30, 1),
    ]


def test_small_paths_are_put_together_where_they_were_called(kernel: Kernel) -> None:
    spent = [(1, 1, 10**6, 1), (1, 2, 30, 1), (1, 5, 9, 1), (1, 4, 3, 1)]
    assert stacks_of(kernel, spent) == [(0, "walk", 10**6, 1), (1, "[smaller]", 42, 0)]


@pytest.mark.parametrize(
    ("paths", "spent", "why"),
    [
        ([*PATHS, (7, 0, START)], [(1, 1, 5, 1)], "path 6 is called from path 7"),
        (PATHS, [(1, 6, 5, 1)], "path 6 of 6"),
    ],
)
def test_stacks_of_paths_that_are_none_are_refused(
    kernel: Kernel, paths: list[tuple[int, ...]], spent: list[tuple[int, ...]], why: str
) -> None:
    with pytest.raises(InfraError, match=why):
        stacks_of(kernel, spent, paths)


def test_blocks_are_kept_of_the_files_that_are_named(kernel: Kernel) -> None:
    rows = [row(0x100, 7), row(0x120, 2), row(0x120, 3, vcpu=1), row(0x120, 1, n=2), row(0x500, 9)]
    user: Row = (1, 0, 0, 3, 0, FIO + 8, 11)
    data = written([*rows, row(0x500, 1, phase=2), user])
    for sources, offsets in (
        ((), []),
        (("mm/filemap.c",), [(0x100, 5, 7), (0x120, 2, 1), (0x120, 5, 5)]),
        (("lib/xarray.c", "mm/none.c"), [(0x500, 5, 9)]),
    ):
        (only,) = fold.profile(data, kernel, FILES, [PHASE], result(), sources)
        assert only.blocks == tuple(
            (START - KERNEL_HALF + at, n, entries) for at, n, entries in offsets
        )
    assert not Profile(run_id="r", phases=(only,)).of_functions.phases[0].blocks
