"""A modelled machine's misses: per unit, in pairs, and never where arms do not differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiment.load import load_machine
from reports.memory import compare_memory, weights
from reports.memory_model import MemoryComparison, MissedIn
from reports.sections import memory as section
from results.profile import FunctionMisses, MemoryUse, Misses, Profile
from results.record import Manifest, RunRecord, TwinRecord
from tests.reports import counts_factory as counts
from tests.reports.factory import ExactSession

MACHINE = load_machine(Path("ice-lake-sp"))
SEEDS, FOLIOS = 2, 1000.0


def modelled(manifest: Manifest) -> Manifest:
    twin = TwinRecord(
        name="memory", observe="memory", machine=MACHINE, guest=manifest.guest,
        cases=("filemap-4k",), blocks=SEEDS,
    )  # fmt: skip
    return manifest.model_copy(update={"twins": (twin,)})


def use(llc: int, walks: int, *, unmapped: int = 0) -> MemoryUse:
    return MemoryUse(
        kernel=(
            FunctionMisses(name="xas_load", file="lib/xarray.c", l1d=9000, llc=llc, l2=llc + 500),
            FunctionMisses(name="zap_pte_range", file="mm/memory.c", tlb=300, walks=walks),
        ),
        user={"fio": Misses(l2=70, llc=70, prefetched=5000), "busybox": Misses(llc=10**9)},
        unmapped=unmapped,
    )


def runs(
    manifest: Manifest, uses: dict[str, list[MemoryUse | None]]
) -> tuple[list[RunRecord], list[Profile]]:
    """A run of the twin for each arm and seed."""
    records, profiles = [], []
    for arm, each in uses.items():
        for block, memory in enumerate(each):
            run_id = f"filemap-4k.b{block:02}.{arm}.memory"
            seed = manifest.seeds[block]
            records.append(RunRecord(
                run_id=run_id, case="filemap-4k", arm=arm, block=block, seed=seed, twin="memory",
                kernel_key="x", samples={"4k.bw": 50.0}, fingerprint=run_id,
            ))  # fmt: skip
            phase = counts.phase_profile("4k", seed, "base").model_copy(
                update={"memory": memory, "units": {"folio": FOLIOS}}
            )
            profiles.append(Profile(run_id=run_id, phases=(phase,)))
    return records, profiles


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return modelled(counts.counted(ExactSession().manifest()))


def compared(manifest: Manifest, **uses: list[MemoryUse | None]) -> MemoryComparison:
    (result,) = compare_memory(manifest, *runs(manifest, uses))
    return result


@pytest.fixture(scope="module")
def misses(manifest: Manifest) -> MemoryComparison:
    return compared(
        manifest,
        base=[use(2000, 400), use(2200, 400)],
        patched=[use(1900, 400, unmapped=3), use(2060, 400)],
    )


def row(result: MemoryComparison, name: str) -> MissedIn:
    return next(row for row in result.rows if row.name == name)


def test_events_are_per_unit_and_paired_by_seed(misses: MemoryComparison) -> None:
    llc = misses.total.llc
    assert (llc.base, llc.patched, llc.n) == pytest.approx((2.17, 2.05, 2))
    assert llc.difference_range == pytest.approx((-0.14, -0.10))
    assert misses.total.prefetched.base == 5.0
    assert misses.total.walks.equal
    assert (misses.machine, misses.unit_title, misses.unmapped) == (
        "ice-lake-sp", "folio added", (0, 3)
    )  # fmt: skip


def test_functions_stand_in_the_order_of_what_they_moved(misses: MemoryComparison) -> None:
    assert [each.name for each in misses.rows] == ["xas_load", "fio", "zap_pte_range"]
    assert row(misses, "xas_load").llc.difference == pytest.approx(-0.12)
    assert (row(misses, "xas_load").file, row(misses, "fio").user) == ("lib/xarray.c", True)
    assert row(misses, "zap_pte_range").walks.base == 0.4
    assert (misses.others, misses.other_count) == (None, 0)


def test_what_idles_is_in_no_sum(misses: MemoryComparison) -> None:
    assert "busybox" not in [each.name for each in misses.rows]
    assert misses.total.llc.base < 3


def test_the_estimate_weighs_every_event_once(misses: MemoryComparison) -> None:
    cycles = MACHINE.cycles
    # Found in L2, in the last level and in memory: the ways add up.
    assert sum(weights(MACHINE)[name] for name in ("l1d", "l2", "llc")) == cycles.memory
    assert row(misses, "zap_pte_range").cycles.base == pytest.approx(0.4 * cycles.walk)
    assert misses.cycles.base == pytest.approx(misses.instructions.base + misses.total.cycles.base)
    assert misses.total.cycles.difference == pytest.approx(
        -0.12 * (weights(MACHINE)["llc"] + weights(MACHINE)["l2"])
    )


def test_the_same_runs_on_both_arms_differ_in_nothing(manifest: Manifest) -> None:
    same = compared(
        manifest, base=[use(2000, 400), use(2200, 4)], patched=[use(2000, 400), use(2200, 4)]
    )
    assert same.total.equal
    assert all(each.equal for each in same.rows)
    assert section.sentence(same).count("unchanged") == 2


def test_without_counts_on_both_arms_there_is_nothing_to_compare(manifest: Manifest) -> None:
    some: list[MemoryUse | None] = [use(1, 1), use(1, 1)]
    none: list[MemoryUse | None] = [use(1, 1), None]
    assert compare_memory(manifest, *runs(manifest, {"base": some, "patched": none})) == ()
    assert compare_memory(manifest, *runs(manifest, {"base": some})) == ()
    plain = manifest.model_copy(update={"twins": ()})
    both = runs(manifest, {"base": some, "patched": some})
    assert compare_memory(plain, *both) == ()


def test_many_functions_are_summed_behind_those_that_are_listed(manifest: Manifest) -> None:
    many = MemoryUse(
        kernel=tuple(FunctionMisses(name=f"f{n}", file="", llc=n + 1) for n in range(100)), user={}
    )
    result = compared(manifest, base=[many, many], patched=[many, many])
    assert (len(result.rows), result.other_count) == (60, 40)
    assert result.others is not None
    listed = sum(each.llc.base for each in result.rows)
    assert listed + result.others.llc.base == pytest.approx(result.total.llc.base)


def test_a_letter_names_the_machine_and_says_that_it_is_modelled(misses: MemoryComparison) -> None:
    assert section.brief(misses) == (
        "Modelled ice-lake-sp: LLC misses 2.170 -> 2.050 per folio added (-5.53 %), "
        "page walks unchanged"
    )
