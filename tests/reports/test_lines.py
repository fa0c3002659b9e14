"""Lines that move between CPUs: per unit, in pairs, and with turns of another length beside."""

from __future__ import annotations

import json
from typing import Literal

import pytest

from reports import forms
from reports.lines import MOST_OBJECTS, MOST_PAIRS, compare_lines
from reports.lines_model import LinesComparison, MovedLines
from reports.model import Comparison
from reports.scaling import LINES
from reports.sections import lines as section
from results.profile import LineMove, LockSite, LockUse, Profile
from results.record import Manifest, RunRecord, TwinRecord
from tests.reports import counts_factory as counts
from tests.reports.factory import ExactSession
from tests.reports.measured import compare

FOLIOS = 1000.0
SEEDS = 2
SHORT, LONG = "lines", "lines-longer-turns"
Moves = dict[str, tuple[LineMove, ...] | None]


def move(
    name: str, taker: str, holder: str, reads: int, writes: int = 0, apart: int = 0, *,
    kind: Literal["variable", "of_cpu", "memory"] = "variable",
) -> LineMove:  # fmt: skip
    ends = {"mine": (0, 7), "theirs": (8, 15)} if kind == "variable" else {}
    return LineMove(kind=kind, object=name, taker=taker, holder=holder, reads=reads, writes=writes,
                    apart=apart, **ends)  # fmt: skip


COUNTER = move("limit", "filemap_fault", "__filemap_add_folio", 400, 0, 390)
LOCK = move("", "_raw_spin_lock", "_raw_spin_lock", 100, 500, kind="memory")
OF_CPU = move("pcpu_hot", "schedule", "wake_up", 10, kind="of_cpu")


def with_lines(manifest: Manifest, *names: str) -> Manifest:
    def twin(name: str) -> TwinRecord:
        guest = manifest.guest.model_copy(
            update={"vcpus": 4, "metronome_ns": 10_000 if name == SHORT else 20_000}
        )
        return TwinRecord(
            name=name, observe="lines", machine=counts.MACHINE, guest=guest,
            cases=("filemap-4k",), blocks=SEEDS,
        )  # fmt: skip

    return manifest.model_copy(update={"twins": tuple(map(twin, names))})


def runs(manifest: Manifest, twin: str, moves: Moves) -> tuple[list[RunRecord], list[Profile]]:
    records, profiles = [], []
    for arm, rows in moves.items():
        for block in range(SEEDS):
            run_id = f"filemap-4k.b{block:02}.{arm}.{twin}"
            seed = manifest.seeds[block]
            records.append(RunRecord(
                run_id=run_id, case="filemap-4k", arm=arm, block=block, seed=seed, twin=twin,
                kernel_key="x", samples={"4k.bw": 50.0}, fingerprint=run_id,
            ))  # fmt: skip
            phase = counts.phase_profile("4k", seed, "base", vcpus=4).model_copy(
                update={"lines": rows, "units": {"folio": FOLIOS}}
            )
            profiles.append(Profile(run_id=run_id, phases=(phase,)))
    return records, profiles


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return with_lines(counts.counted(ExactSession().manifest()), SHORT, LONG)


def compared(manifest: Manifest, short: Moves, long: Moves | None = None) -> LinesComparison:
    records, profiles = runs(manifest, SHORT, short)
    if long is not None:
        more = runs(manifest, LONG, long)
        records, profiles = records + more[0], profiles + more[1]
    (only,) = compare_lines(manifest, records, profiles)
    return only


@pytest.fixture(scope="module")
def lines(manifest: Manifest) -> LinesComparison:
    short: Moves = {"base": (COUNTER, LOCK, OF_CPU), "patched": (LOCK, OF_CPU)}
    half = LOCK.model_copy(update={"reads": 50, "writes": 250})
    return compared(manifest, short, {"base": (COUNTER, half), "patched": (half,)})


def row(rows: tuple[MovedLines, ...], name: str) -> MovedLines:
    return next(each for each in rows if each.object == name)


def test_lines_are_per_unit_and_by_object(lines: LinesComparison) -> None:
    assert (lines.unit_title, lines.vcpus) == ("folio added", 4)
    total = lines.total
    assert (total.all_lines.base, total.all_lines.patched) == pytest.approx((1.01, 0.61))
    assert (total.reads.base, total.writes.base, total.apart.base) == pytest.approx(
        (0.51, 0.5, 0.39)
    )
    # What moved most comes first, and one arm may have none of it.
    counter = lines.objects[0]
    assert (counter.object, counter.named, counter.only_in) == ("limit", True, "base")
    assert (counter.apart.base, counter.apart.patched) == (0.39, 0.0)
    assert row(lines.objects, "other kernel memory").all_lines.equal
    assert row(lines.objects, "pcpu_hot (of each CPU)").named
    assert lines.falsest == counter


def test_pairs_of_functions_have_the_bytes_that_each_touched(lines: LinesComparison) -> None:
    counter = row(lines.pairs, "limit")
    assert (counter.taker, counter.holder) == ("filemap_fault", "__filemap_add_folio")
    assert (counter.mine, counter.theirs) == ((0, 7), (8, 15))
    assert row(lines.pairs, "other kernel memory").mine is None
    assert lines.pair_count == len(lines.pairs) == 3


def test_what_the_turns_make_is_marked(lines: LinesComparison) -> None:
    assert (lines.metronome_ns, lines.other_ns) == (10_000, 20_000)
    marks = {each.object: each.by_turns for each in lines.objects}
    assert marks == {"limit": False, "other kernel memory": True, "pcpu_hot (of each CPU)": True}
    assert row(lines.objects, "other kernel memory").other == pytest.approx((0.3, 0.3))
    assert lines.by_turns
    assert "the number depends on the turns" in section.sentence(lines)


def test_a_line_that_moves_often_is_listed_though_it_depends_on_the_turns(
    manifest: Manifest,
) -> None:
    rare = tuple(move(f"rare.{n}", "schedule", "wake_up", 1 + n % 3) for n in range(2 * MOST_PAIRS))
    short: Moves = {"base": (COUNTER, *rare), "patched": (COUNTER, *rare[1:])}
    doubled = move("limit", "filemap_fault", "__filemap_add_folio", 800, 0, 390)
    long: Moves = {"base": (doubled, *rare), "patched": (doubled, *rare[1:])}
    lines = compared(manifest, short, long)
    assert (len(lines.objects), len(lines.pairs)) == (MOST_OBJECTS, MOST_PAIRS)
    assert row(lines.objects, "limit").by_turns
    assert lines.objects[-1].object == lines.pairs[-1].object == "limit"


def test_without_other_turns_nothing_is_marked(manifest: Manifest) -> None:
    alone = with_lines(manifest, SHORT)
    lines = compared(alone, {"base": (LOCK,), "patched": (LOCK,)})
    assert (lines.other_ns, lines.other, lines.by_turns) == (0, None, False)
    assert not any(each.by_turns for each in lines.objects)
    assert "unchanged" in section.sentence(lines)
    assert "nothing known by name with false sharing" in section.sentence(lines)


def test_equal_arms_have_no_difference(manifest: Manifest) -> None:
    every = (COUNTER, LOCK, OF_CPU)
    lines = compared(manifest, {"base": every, "patched": every})
    assert lines.total.all_lines.equal
    assert all(each.all_lines.equal and each.apart.equal for each in (*lines.objects, *lines.pairs))


def test_runs_whose_lines_nobody_followed_have_no_comparison(manifest: Manifest) -> None:
    records, profiles = runs(manifest, SHORT, {"base": None, "patched": (LOCK,)})
    assert compare_lines(manifest, records, profiles) == ()


def test_lines_that_come_while_a_lock_is_held_are_for_many_cpus(manifest: Manifest) -> None:
    session = ExactSession()
    records, profiles = session.records(), counts.profiles(session)
    for twin, moved in ((SHORT, 2), (LONG, 3)):
        more = runs(manifest, twin, {"base": (LOCK,), "patched": (LOCK,)})
        site = LockSite(function="__filemap_add_folio", file="", shared=False, taken=4, held=9,
                        moved=moved)  # fmt: skip
        held = (LockUse(instances=1, sleeps=False, symbol="", sites=(site,)),)
        records = records + more[0]
        profiles = profiles + [
            p.model_copy(update={"phases": (p.phases[0].model_copy(update={"locks": held}),)})
            for p in more[1]
        ]
    counted, chosen = compare(manifest, records, profiles).scaling[:2]
    assert (counted.lock, counted.lines, counted.lines_counted) == (
        "i_pages.xa_lock", (0.5, 0.75), True,
    )  # fmt: skip
    assert (chosen.lines, chosen.lines_counted) == (LINES, False)


@pytest.fixture(scope="module")
def comparison(manifest: Manifest) -> Comparison:
    session = ExactSession()
    records, profiles = session.records(), counts.profiles(session)
    for twin in (SHORT, LONG):
        more = runs(manifest, twin, {"base": (COUNTER, LOCK), "patched": (LOCK,)})
        records, profiles = records + more[0], profiles + more[1]
    return compare(manifest, records, profiles)


def test_every_form_names_the_object(comparison: Comparison) -> None:
    for form in ("text", "markdown", "html"):
        text = " ".join(forms.render(comparison, form).split())
        assert "false sharing changed most: limit 0.39" in text
    letter = " ".join(forms.render(comparison, "letter").split())
    assert "Modelled lines between 4 virtual CPUs per folio added: " in letter
    (pair,) = json.loads(forms.render(comparison, "json"))["comparisons"]
    assert pair["lines"][0]["objects"][0]["object"] == "limit"
