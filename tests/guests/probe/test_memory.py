"""The model of caches and TLBs, on machines whose misses follow from arithmetic."""

from pathlib import Path

import pytest

from experiment.load import load_machine
from experiment.machine import MACHINES, MachineSpec, names_in
from guests.probe import counts
from guests.probe.counts import Counts
from guests.probe.plugin import Probe, machine_words
from tests.guests.probe import machines
from tests.guests.probe.machines import symbols

# 128, 256 and 1,024 lines.
CACHES = "cache=l1d:64:2,cache=l1i:64:2,cache=l2:64:4,cache=llc:128:8"
# 64 pages of 4 KiB and 32 of 2 MiB before 128 of either.
TLBS = "tlb=d1:1:16:4,tlb=d1:2:8:4,tlb=i1:7:1:16,tlb=s2:3:32:4"
MEMORY = ["-machine", "pc,memory-backend=ram", "-m", "128M"]


def run(image: Path, probe: Probe, folder: Path, model: str = "", cpu: str = "Nehalem") -> Counts:
    ram = folder / "ram"
    ram.unlink(missing_ok=True)
    backend = f"memory-backend-file,id=ram,size=128M,mem-path={ram},share=on"
    options = ("-cpu", cpu, *MEMORY, "-object", backend)
    more = f",{model}" if model else ""
    return counts.parse(machines.run(image, probe, folder / "counts", *options, more=more))


def sums(counted: Counts, phase: int) -> dict[str, int]:
    rows = counted.misses[counted.misses["phase"] == phase]
    return {name: int(rows[name].sum()) for name in counts.MISSES}


def data(counted: Counts, phase: int) -> tuple[int, int, int]:
    """Misses of L1, L2 and LLC for data: those for code, each once, taken off."""
    here = sums(counted, phase)
    return here["l1d"], here["l2"] - here["l1i"], here["llc"] - here["l1i"]


def test_lines_that_fit_a_level_miss_once_and_others_each_time(
    images: Path, probe: Probe, tmp_path: Path
) -> None:
    counted = run(images / "caches", probe, tmp_path, f"{CACHES},prefetch=0")
    assert data(counted, 1) == (96, 96, 96)
    assert data(counted, 2) == (10 * 192, 192, 192)
    assert data(counted, 3) == (10 * 512, 10 * 512, 512)
    assert data(counted, 4) == (3 * 2048, 3 * 2048, 3 * 2048)
    assert data(counted, 5) == (2 * 192, 192, 192)
    assert data(counted, 7) == (2, 2, 2)
    every = [sums(counted, phase) for phase in range(1, 8)]
    assert {(each["prefetched"], each["tlb"], each["walks"]) for each in every} == {(0, 0, 0)}


def test_a_stream_is_fetched_from_its_third_line_on(
    images: Path, probe: Probe, tmp_path: Path
) -> None:
    counted = run(images / "caches", probe, tmp_path, f"{CACHES},prefetch=4")
    # 2,048 lines are 32 pages, of which two lines each are waited for, and fit nowhere.
    assert data(counted, 4) == (3 * 2048, 3 * 64, 3 * 64)
    assert sums(counted, 4)["prefetched"] == 3 * 62 * 32
    assert sums(counted, 5)["prefetched"] == 0
    assert data(counted, 6) == (64, 2, 2)
    assert sums(counted, 6)["prefetched"] == 62


def test_what_is_counted_is_counted_by_block_and_without_changing_the_probe(
    images: Path, probe: Probe, tmp_path: Path
) -> None:
    plain = run(images / "caches", probe, tmp_path)
    counted = run(images / "caches", probe, tmp_path, f"{CACHES},prefetch=4")
    assert (plain.modelled, counted.modelled) == (False, True)
    assert not len(plain.misses)
    assert (plain.rows == counted.rows).all()
    rows = counted.misses[counted.misses["phase"] == 4]
    loop = rows[rows["instructions"] == 4]
    assert int(loop["l1d"].sum()) == 3 * 2047
    again = run(images / "caches", probe, tmp_path, f"{CACHES},prefetch=4")
    assert (again.misses == counted.misses).all()


@pytest.fixture(scope="module")
def paged(images: Path, probe: Probe, tmp_path_factory: pytest.TempPathFactory) -> Counts:
    image = images / "pages"
    at = symbols(image)
    folder = tmp_path_factory.mktemp("pages")
    model = f"{CACHES},{TLBS},prefetch=0,root={at['top']},ram={folder / 'ram'}"
    return run(image, probe, folder, f"{model},spin={at['take']}-{at['read']}")


def tlb(counted: Counts, phase: int) -> tuple[int, int]:
    here = sums(counted, phase)
    return here["tlb"], here["walks"]


def test_pages_that_fit_a_tlb_are_walked_once_and_others_each_time(paged: Counts) -> None:
    assert paged.unmapped == 0
    # The page of the code is walked, too, before anything else.
    assert tlb(paged, 1) == (48, 48 + 1)
    # 48 of them are known.
    assert tlb(paged, 2)[1] == 96 - 48
    # And 96 of these, the first time.
    assert tlb(paged, 3) == (10 * 256, 10 * 256 - 96)


@pytest.mark.parametrize(
    "machine",
    [load_machine(Path(name)) for name in names_in(MACHINES)],
    ids=lambda machine: machine.name,
)
def test_a_machine_of_a_file_can_be_modelled(
    images: Path, probe: Probe, tmp_path: Path, machine: MachineSpec
) -> None:
    model = ",".join(machine_words(machine))
    root = symbols(images / "pages")["top"]
    counted = run(images / "pages", probe, tmp_path, f"{model},root={root},ram={tmp_path}/ram")
    assert counted.unmapped == 0
    # More pages than any first level of these holds, in turns.
    assert tlb(counted, 3)[0] > 0


def test_large_pages_are_walked_by_their_own_number(paged: Counts) -> None:
    assert tlb(paged, 4) == (1, 1)


def test_a_write_of_cr3_drops_what_is_not_global(paged: Counts) -> None:
    assert tlb(paged, 6) == (8, 8)
    assert tlb(paged, 7) == (0, 0)


def test_invlpg_drops_a_page_that_moved_and_no_other(paged: Counts) -> None:
    assert tlb(paged, 8) == (8, 8)
    assert tlb(paged, 9) == (0, 0)
    assert tlb(paged, 10) == (1, 1)
    # It reads another line of memory.
    assert data(paged, 9)[2] == 0
    assert data(paged, 10)[2] == 1


def test_what_is_missed_while_a_lock_is_held_counts_for_it(images: Path, paged: Counts) -> None:
    at = {int(word, 16): name for name, word in symbols(images / "pages").items()}
    locks = paged.locks[paged.locks["phase"] == 11]
    held = {
        (at[int(row["lock"])], at[int(row["site"])]): tuple(
            int(row[field]) for field in ("taken", "l2", "llc", "walks")
        )
        for row in locks
    }
    # 16 pages with the first alone, 8 with both, 4 with none.
    assert held == {("first", "outer"): (1, 24, 24, 24), ("second", "inner"): (1, 8, 8, 8)}
    here = sums(paged, 11)
    assert (here["l2"], here["llc"], here["walks"]) == (28, 28, 28)
    assert not paged.locks[paged.locks["phase"] < 11]["l2"].any()
