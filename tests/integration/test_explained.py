"""Where a change came from: real counts of functions and locks, and a known cause named."""

from dataclasses import replace

import pytest

from analysis.explain.functions import Attribution
from analysis.explain.kinds import EXPLANATION as KINDS
from analysis.explain.locks import WAITS as LOCKS
from analysis.explain.locks import LockComparison
from analysis.explain.modelled import MEMORY
from analysis.explain.scaling import EXPLANATION as SCALING
from analysis.explain.stacks import EXPLANATION as STACKS
from analysis.model import Comparison
from kernels.cache import Kernel
from reports.forms import read_comparison
from results.session import open_session
from tests.integration.conftest import EndedSession, measured
from tests.integration.lab_process import CHECKOUT, records_of, run_lab
from tests.values import but

pytestmark = [pytest.mark.guest, pytest.mark.usefixtures("kept_runs")]
EXPLAINED = str(CHECKOUT / "tests/integration/explained.toml")
XA_LOCK = "i_pages.xa_lock"


@pytest.fixture(scope="module")
def explained(kernels: dict[str, Kernel], tmp_path_factory: pytest.TempPathFactory) -> EndedSession:
    """The series of filemap-v4 with the twin that needs no other kernel."""
    return measured(tmp_path_factory.mktemp("explained") / "session", EXPLAINED)


@pytest.fixture(scope="module")
def comparison(explained: EndedSession) -> Comparison:
    assert explained.status == 0, explained.err
    return read_comparison(explained.folder).comparisons[0]


@pytest.fixture(scope="module")
def text(explained: EndedSession) -> str:
    """The report as text, on one line."""
    return " ".join(run_lab("report", str(explained.folder)).stdout.split())


def headline(comparison: Comparison, unit: str) -> Attribution:
    return next(each for each in comparison.attributions if each.unit == unit)


def twin(comparison: Comparison, name: str) -> LockComparison:
    return next(each for each in LOCKS.of(comparison) if each.twin == name)


def test_every_run_is_valid_and_the_probe_is_not_felt(explained: EndedSession) -> None:
    records = records_of(explained.folder)
    assert len(records) == 3 + 2 + 2
    assert {record.failure for record in records.values()} == {None}
    assert {record.findings for record in records.values()} == {()}
    # One ran with the probe and restored, one without and from cold.
    names = ("filemap-4k.b00.patched", "filemap-4k.b00.patched.repeat")
    assert len({records[name].fingerprint for name in names}) == 1


def test_a_modelled_machine_is_not_felt_and_its_misses_are_counted(
    explained: EndedSession, comparison: Comparison, text: str
) -> None:
    records = records_of(explained.folder)
    for arm in ("base", "patched"):
        judged = records[f"filemap-4k.b00.{arm}"].fingerprint
        assert records[f"filemap-4k.b00.{arm}.memory"].fingerprint == judged
    (memory,) = MEMORY.of(comparison)
    assert (memory.machine, memory.seeds, memory.unmapped) == ("zen3-epyc", (7,), (0, 0))
    # The same instructions as in the judged run, to the last one.
    assert memory.instructions == headline(comparison, "work").total
    # A folio that is added is a page that brd copies: 64 lines read, and 64 written.
    per_folio = headline(comparison, "folio").total.base / memory.instructions.base
    brd = next(row for row in memory.rows if row.name == "brd_submit_bio")
    assert (brd.llc.base + brd.prefetched.base) * per_folio == pytest.approx(128, rel=0.03)
    assert memory.total.l2.base > memory.total.llc.base > 0
    assert memory.total.tlb.base > memory.total.walks.base > 0
    assert "Caches and TLBs, modelled" in text


def test_every_instruction_of_the_kernel_is_on_one_call_path(
    explained: EndedSession, comparison: Comparison
) -> None:
    profiles = {profile.run_id: profile for profile in open_session(explained.folder).profiles}
    for arm in ("base", "patched"):
        (modelled,) = profiles[f"filemap-4k.b00.{arm}.memory"].phases
        (judged,) = profiles[f"filemap-4k.b00.{arm}"].phases
        assert judged.stacks is None
        assert modelled.stacks is not None
        on_paths = sum(frame.instructions for frame in modelled.stacks)
        executed = sum(function.instructions for function in judged.kernel)
        # Not the first ones of a vector's entry, which belong to what it interrupted.
        assert on_paths == pytest.approx(executed, rel=1e-5)
        for name in ("filemap_add_folio", "brd_submit_bio", "__do_fault"):
            calls = sum(frame.calls for frame in modelled.stacks if frame.function == name)
            every = next(each.calls for each in judged.kernel if each.name == name)
            # A small path has no row.
            assert every * 0.999 < calls <= every
    (stacks,) = STACKS.of(comparison)
    below = {row.path for row in stacks.rows}
    assert any(path[-2:] == ("xas_load", "xas_start") for path in below)
    faults = next(row for row in stacks.rows if row.path == ("asm_exc_page_fault",))
    assert faults.total.base > stacks.total.base / 2
    # The walks that the series saves are those of one call, and what changed leads there; how far
    # most of it does depends on what else moves with one seed.
    gone = stacks.rows[stacks.listed[0]]
    assert len(stacks.focus) > 2
    assert gone.callers[: len(stacks.focus)] == stacks.focus
    assert (gone.function, gone.callers[-2:]) == (
        "xas_load",
        ("__filemap_add_folio", "xa_get_order"),
    )
    assert (explained.folder / "stacks.csv").is_file()


def test_misses_are_counted_by_lock_and_are_in_the_range(
    explained: EndedSession, comparison: Comparison, text: str
) -> None:
    profiles = {profile.run_id: profile for profile in open_session(explained.folder).profiles}
    for arm in ("base", "patched"):
        (judged,), (modelled,) = (
            profiles[f"filemap-4k.b00.{arm}{twin}"].phases for twin in ("", ".memory")
        )
        assert judged.locks is not None
        assert modelled.locks is not None
        # The locks of the judged run, each taken and held as long as there.
        assert judged.locks == tuple(
            but(use, sites=tuple(replace(s, l2=0, llc=0, walks=0) for s in use.sites))
            for use in modelled.locks
        )
    (scaling,) = SCALING.of(comparison)
    assert (scaling.machine, scaling.lock) == ("zen3-epyc", XA_LOCK)
    assert scaling.missed is not None
    assert scaling.missed_held is not None
    assert 0 < scaling.missed_held.l2[0] < scaling.missed.l2[0]
    for event in type(scaling.missed).model_fields:
        for held, everything in zip(
            getattr(scaling.missed_held, event), getattr(scaling.missed, event), strict=True
        ):
            assert 0 <= held <= everything
    assert "counted by diagnostic runs per" in text


def test_the_walks_that_the_series_saves_are_counted(comparison: Comparison) -> None:
    folios = headline(comparison, "folio")
    (walks,) = headline(comparison, "work").ratios
    assert walks.title == "tree walks per folio added"
    # Two are saved where the folio was there before, none on its first time.
    assert -2 < walks.calls.difference < -1
    moved = [row.name for row in folios.rows[:6]]
    assert {"xas_load", "xas_start", "xa_get_order"} <= set(moved)
    gone = next(row for row in folios.rows if row.name == "xa_get_order")
    assert (gone.file, gone.only_in, gone.instructions.patched) == ("lib/xarray.c", "base", 0)


def test_kinds_of_instructions_are_those_of_the_code(comparison: Comparison) -> None:
    (kinds,) = KINDS.of(comparison)
    functions = {each.name: each for each in headline(comparison, "work").functions}
    rows = {each.name: each for each in kinds.rows}
    # One CMPXCHG and one RET each time; the kernel of one CPU has patched the LOCK away.
    taken = functions["_raw_spin_lock"].calls
    assert taken is not None
    assert rows["_raw_spin_lock"].atomics == taken == rows["_raw_spin_lock"].stores
    assert rows["_raw_spin_lock"].loads.base == pytest.approx(2 * taken.base)
    # A page is copied in words of eight bytes.
    bios = functions["brd_submit_bio"].calls
    assert bios is not None
    assert 512 < rows["brd_submit_bio"].stores.base / bios.base < 512 * 1.1
    assert kinds.total.atomics.base > kinds.total.barriers.base > 0


def test_nothing_hides(comparison: Comparison) -> None:
    for each in comparison.attributions:
        rows = sum(row.instructions.difference for row in each.functions)
        assert rows == pytest.approx(each.total.difference, abs=1e-6)
        assert each.movement is not None
        assert each.movement > 0.7


def test_several_vcpus_wait_and_say_where(comparison: Comparison) -> None:
    contended = twin(comparison, "contended")
    assert contended.dropped == (0, 0)
    assert {"__remove_mapping", "__filemap_add_folio"} <= {wait.caller for wait in contended.waits}
    assert contended.slow_entries is not None
    assert contended.slow_entries.base > 10


def test_the_reports_say_so(explained: EndedSession, text: str) -> None:
    assert "what it says" in text
    assert "tree walks" in text
    page = (explained.folder / "report.html").read_text()
    assert "what it says" in page
    assert "__remove_mapping" in page
