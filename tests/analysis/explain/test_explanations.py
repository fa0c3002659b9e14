"""What every explanation promises: per unit, in pairs, in every form; and a new one is one file."""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from analysis import explain
from analysis.counts import Recorded
from analysis.explain import (
    Explanation,
    by_name,
    explanations,
    kinds,
    locks,
    modelled,
    stacks,
)
from analysis.explain.scaling import EXPLANATION as SCALING
from analysis.explain.scaling import LINES
from analysis.model import Comparison
from reports import forms
from reports.sections import counted as sections
from reports.sections import locks as of_locks
from results.profile import (
    KINDS,
    SMALLER,
    FunctionMisses,
    Interruption,
    LineMove,
    LockSite,
    LockUse,
    MemoryUse,
    Misses,
    PhaseProfile,
    Profile,
    StackFrame,
    with_names,
)
from results.record import Manifest, RunRecord, TriageRecord
from tests.analysis import counts_factory as counts
from tests.analysis.counts_factory import FOLIOS
from tests.analysis.factory import ExactSession
from tests.analysis.measured import compare, render
from tests.values import but, data, there

FAULT, TIMER = "asm_exc_page_fault", "asm_sysvec_apic_timer_interrupt"
ENTRY, READ, ADD, LOAD = "entry_SYSCALL_64", "filemap_read", "filemap_add_folio", "xas_load"
SHORT, LONG = "lines", "lines-longer-turns"
Counts = dict[str, object]
Runs = tuple[list[RunRecord], list[Profile]]


def with_kinds(phase: PhaseProfile, arm: str, block: int) -> Counts:
    """A load each third instruction; xas_load has an atomic each call on base alone."""
    functions = tuple(
        replace(
            function,
            kinds=(
                function.instructions // 3,
                function.instructions // 6,
                function.calls if function.name == LOAD and arm == "base" else 0,
                7,
                0,
                block,
            ),
        )
        for function in phase.kernel
    )
    user = {name: (count // 4, 0, 5, 0, 0, 0) for name, count in phase.user.items()}
    return {"kernel": functions, "user_kinds": user | {"busybox": (10**12,) * len(KINDS)}}


def interrupted(phase: PhaseProfile, arm: str, block: int) -> Counts:
    """A fault of fio each four I/Os, a fifth less on patched, and each hundredth elsewhere."""
    ios = int(phase.units["io"])
    faults = ios // 4 if arm == "base" else ios // 5
    moved = "copy_page_to_iter" if arm == "base" else "copy_folio_to_iter"
    rows = (
        ("interrupt", TIMER, False, "filemap_fault", 200),
        ("interrupt", TIMER, False, moved, 10 + block),
        ("exception", FAULT, True, "fio", faults - ios // 100),
        ("exception", FAULT, False, moved, ios // 100),
    )
    names = ("kind", "handler", "user", "function", "count")
    every = (Interruption.model_validate(dict(zip(names, row, strict=True))) for row in rows)
    return {"interruptions": tuple(every)}


def use(llc: int, walks: int = 400, *, unmapped: int = 0) -> Counts:
    kernel = (
        FunctionMisses(name=LOAD, file="lib/xarray.c", l1d=9000, llc=llc, l2=llc + 500),
        FunctionMisses(name="zap_pte_range", file="mm/memory.c", tlb=300, walks=walks),
    )
    user = {"fio": Misses(l2=70, llc=70, prefetched=5000), "busybox": Misses(llc=10**9)}
    return {"memory": MemoryUse(kernel=kernel, user=user, unmapped=unmapped)}


def frames(load: int, *, again: int = 0, seed: int = 0) -> Counts:
    """A read that adds folios, with ``load`` instructions in xas_load, and a fault beside it."""
    below = [(3, LOAD, load, load // 10)] if load else []
    below += [(3, "xas_store", again, 5)] if again else []
    rows = (
        (0, FAULT, 700 + seed, 10),
        (0, ENTRY, 1000, 20),
        (1, READ, 5000 + 100 * seed, 20),
        (2, SMALLER, 30 + 5 * again, 0),
        (2, ADD, 2000, 20),
        *below,
    )
    return {
        "stacks": tuple(
            StackFrame(depth=depth, function=name, instructions=instructions, calls=calls)
            for depth, name, instructions, calls in rows
        )
    }


def move(name: str, taker: str, holder: str, *numbers: int, kind: str = "variable") -> LineMove:
    reads, writes, apart = (*numbers, 0, 0)[:3]
    ends = {"mine": (0, 7), "theirs": (8, 15)} if kind == "variable" else {}
    return LineMove.model_validate(
        {
            "kind": kind,
            "object": name,
            "taker": taker,
            "holder": holder,
            "reads": reads,
            "writes": writes,
            "apart": apart,
            **ends,
        }
    )


COUNTER = move("limit", "filemap_fault", "__filemap_add_folio", 400, 0, 390)
LOCK = move("", "_raw_spin_lock", "_raw_spin_lock", 100, 500, kind="memory")
OF_CPU = move("pcpu_hot", "schedule", "wake_up", 10, kind="of_cpu")


def moves(*each: LineMove) -> Counts:
    return {"lines": each}


@pytest.fixture(scope="module")
def session() -> ExactSession:
    return ExactSession(seeds=(1, 2, 3))


@pytest.fixture(scope="module")
def manifest(session: ExactSession) -> Manifest:
    counted = counts.counted(session.manifest())
    turns = {SHORT: 10_000, LONG: 20_000}
    twins = (
        counts.twin(counted, "memory", "memory"),
        *(
            counts.twin(counted, name, "lines", vcpus=4, metronome_ns=ns)
            for name, ns in turns.items()
        ),
    )
    return but(counted, twins=twins)


def of_twins(manifest: Manifest, twins: Mapping[str, Mapping[str, list[Counts]]]) -> Runs:
    records: list[RunRecord] = []
    profiles: list[Profile] = []
    for name, arms in twins.items():
        more = counts.of_twin(manifest, name, arms, vcpus=1 if name == "memory" else 4)
        records, profiles = records + more[0], profiles + more[1]
    return records, profiles


MODELLED = {
    "base": [use(2000) | frames(400), use(2200) | frames(410, seed=1)],
    "patched": [
        use(1900, unmapped=3) | frames(0, again=40),
        use(2060) | frames(0, again=41, seed=1),
    ],
}
HALF = but(LOCK, reads=50, writes=250)
FOLLOWED = {
    SHORT: {"base": [moves(COUNTER, LOCK, OF_CPU)] * 2, "patched": [moves(LOCK, OF_CPU)] * 2},
    LONG: {"base": [moves(COUNTER, HALF)] * 2, "patched": [moves(HALF)] * 2},
}


def judged(phase: PhaseProfile, arm: str, block: int) -> Counts:
    return with_kinds(phase, arm, block) | interrupted(phase, arm, block)


@pytest.fixture(scope="module")
def comparison(session: ExactSession, manifest: Manifest) -> Comparison:
    """Everything counted: in the judged runs, on a modelled machine, and with several vCPUs."""
    records, profiles = of_twins(manifest, {"memory": MODELLED, **FOLLOWED})
    own = counts.of_runs(session, judged)
    return compare(manifest, [*session.records(), *records], [*own, *profiles])


def test_functions_of_another_name_are_compared_with_themselves(
    session: ExactSession, manifest: Manifest, comparison: Comparison
) -> None:
    records, profiles = of_twins(manifest, {"memory": MODELLED, **FOLLOWED})
    records, profiles = (
        [*session.records(), *records],
        [*counts.of_runs(session, judged), *profiles],
    )
    base = {record.run_id for record in records if record.arm == manifest.base}
    known = {count.name for each in profiles for phase in each.phases for count in phase.kernel}
    former = {name: f"{name}_of_before" for name in known | {"filemap_fault"}}
    profiles = [with_names(each, former) if each.run_id in base else each for each in profiles]
    renamed = tuple((old, new) for new, old in former.items())
    triage = TriageRecord(verdict="data or layout", renamed=renamed)
    again = compare(but(manifest, triage=triage), records, profiles)
    assert dict(again.explained) == dict(comparison.explained)
    assert sum(map(bool, again.explained.values())) > 4


@dataclass(frozen=True)
class CountCase:
    """An explanation, its instrument, and what it says of arms that do not differ."""

    explanation: Explanation[Any]
    instrument: Any
    same: str
    rows: str = "rows"


EVERY = {
    each.explanation.name: each
    for each in (
        CountCase(kinds.EXPLANATION, sections.KINDS, "none of 6 changed"),
        CountCase(kinds.INTERRUPTED, sections.INTERRUPTIONS, "none of 2 changed"),
        CountCase(modelled.MEMORY, sections.MEMORY, "none of 5 changed"),
        CountCase(stacks.EXPLANATION, sections.STACKS, "no path changed"),
        CountCase(modelled.LINES, sections.LINES, "", "objects"),
        CountCase(locks.EXPLANATION, of_locks.LOCKS, "none of "),
    )
}
OF_EACH = pytest.mark.parametrize("counted", EVERY.values(), ids=EVERY)


def first(explanation: Explanation[Any], comparison: Comparison) -> Any:
    return explanation.of(comparison)[0]


def paired(record: Any) -> list[Any]:
    """Every quantity of a record and of its rows."""
    values = [getattr(record, name) for name in type(record).model_fields]
    return [value for value in values if hasattr(value, "difference")]


@OF_EACH
def test_equal_arms_differ_in_nothing(
    counted: CountCase, session: ExactSession, manifest: Manifest
) -> None:
    same = {
        name: {"base": arms["base"], "patched": arms["base"]}
        for name, arms in {"memory": MODELLED, **FOLLOWED}.items()
    }
    records, profiles = of_twins(manifest, same)
    own = counts.of_runs(session, judged, same=True)
    recorded = Recorded(manifest, [*session.records(), *records], [*own, *profiles])
    for each in counted.explanation.compare(recorded):
        rows = getattr(each, counted.rows)
        assert all(pair.equal for row in (each, *rows) for pair in paired(row))
        assert not getattr(each, "listed", 0) or counted.explanation is locks.EXPLANATION
        (line,) = counted.instrument.lines(each)
        assert (line.change, line.faint) == ("unchanged", True)
        assert counted.same in line.says


@OF_EACH
def test_nothing_is_compared_unless_every_run_was_counted(
    counted: CountCase, session: ExactSession, manifest: Manifest
) -> None:
    def half(phase: PhaseProfile, arm: str, block: int) -> Counts:
        return {"locks": None} if (arm, block) == ("base", 1) else judged(phase, arm, block)

    missing = {
        name: {"base": [arms["base"][0], {}], "patched": arms["patched"]}
        for name, arms in {"memory": MODELLED, **FOLLOWED}.items()
    }
    records, profiles = of_twins(manifest, missing)
    for own in (counts.of_runs(session, half), counts.profiles(session, locks=False)):
        recorded = Recorded(manifest, [*session.records(), *records], [*own, *profiles])
        assert not tuple(counted.explanation.compare(recorded))
    assert not tuple(counted.explanation.compare(Recorded(manifest, session.records(), [])))


def test_every_form_has_each(comparison: Comparison) -> None:
    page, text = render(comparison, "html"), render(comparison, "text").upper()
    (pair,) = json.loads(render(comparison, "json"))["comparisons"]
    for name, counted in EVERY.items():
        title = counted.explanation.title
        assert f"<summary>{title}</summary>" in page
        assert title.upper() in text
        whole = map(counted.explanation.shortened, counted.explanation.of(comparison))
        shown = [len(getattr(each, counted.rows)) for each in whole]
        assert [len(each[counted.rows]) for each in pair[name]] == shown


def test_a_session_without_counts_has_no_section(session: ExactSession, manifest: Manifest) -> None:
    plain = compare(manifest, session.records())
    assert not any(plain.explained.values())
    written = render(plain, "text")
    assert not any(each.title.upper() in written.upper() for each in explanations()[1:])


NEW = data(__file__, "new")


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "made_up_lengths.py").write_text(NEW, encoding="utf-8")
    monkeypatch.setattr(explain, "__path__", [*explain.__path__, str(tmp_path)])
    by_name.cache_clear()
    yield
    by_name.cache_clear()


@pytest.mark.usefixtures("made_up")
def test_a_new_count_is_one_file(session: ExactSession, manifest: Manifest) -> None:
    counted = compare(manifest, session.records(), counts.profiles(session))
    text = " ".join(render(counted, "text").split())
    assert "LETTERS OF WHAT WAS CALLED" in text.upper()
    assert re.search(r" 4k: .* letters [\d.]+ [\d.]+ ", text)
    page = render(counted, "html")
    section = re.sub("<[^>]*>", "", page.partition("<summary>Letters of what was called")[2])
    assert "__filemap_add_folio" in section
    table = csv.DictReader(io.StringIO(forms.counts_table(counted)))
    mine = [each["number"] for each in table if each["instrument"] == "made_up_lengths"]
    assert set(mine) == {"letters"}
    (pair,) = json.loads(render(counted, "json"))["comparisons"]
    assert any(row["letters"]["base"] > 0 for row in pair["made_up_lengths"][0]["rows"])
    assert list(pair).index("kinds") < list(pair).index("made_up_lengths")


def row(rows: Any, **fields: object) -> Any:
    return next(
        each for each in rows if all(getattr(each, name) == value for name, value in fields.items())
    )


def test_kinds_are_per_the_first_unit_without_what_idles(comparison: Comparison) -> None:
    counted = first(kinds.EXPLANATION, comparison)
    here = row(comparison.headlines[0].functions, name="filemap_fault").instructions
    fault = row(counted.rows, name="filemap_fault")
    assert (counted.unit, counted.seeds) == ("io", (1, 2, 3))
    assert fault.loads.base == pytest.approx(here.base / 3, rel=1e-4)
    assert fault.stores.patched == pytest.approx(here.patched / 6, rel=1e-4)
    for kind in KINDS:
        total = getattr(counted.total, kind)
        assert sum(getattr(each, kind).base for each in counted.rows) == pytest.approx(total.base)
    assert "busybox" not in [each.name for each in counted.rows]
    assert row(counted.rows, name="fio").user
    # What moved the largest share of a kind is first, and what one arm has says so.
    assert (counted.rows[0].name, counted.rows[0].atomics.patched) == (LOAD, 0)
    assert 1 <= counted.listed < len(counted.rows)
    assert row(counted.rows, name="filemap_range_has_entry").only_in == "base"
    assert row(counted.rows, name="xas_get_order").only_in == "patched"
    (line,) = sections.KINDS.lines(counted)
    assert (line.label, line.change) == ("atomics", "-100.00 %")


def test_kinds_are_in_the_table_of_functions_per_the_first_unit(comparison: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(forms.functions_table(comparison))))
    mine = [each for each in rows if (each["function"], each["case"]) == (LOAD, "filemap-4k")]
    of_io = next(each for each in mine if each["unit"] == "io")
    counted = row(first(kinds.EXPLANATION, comparison).rows, name=LOAD)
    assert float(of_io["atomics_base"]) == counted.atomics.base
    assert float(of_io["atomics_patched"]) == 0
    assert {each["atomics_base"] for each in mine if each["unit"] != "io"} == {""}


def test_faults_add_up_to_their_handler_and_interrupts_have_no_place(
    comparison: Comparison,
) -> None:
    counted = first(kinds.INTERRUPTED, comparison)
    assert list(counted.kinds) == ["interrupt", "exception"]
    faults = counted.kinds["exception"]
    assert (faults.base, faults.patched) == pytest.approx((1 / 4, 1 / 5), rel=1e-2)
    assert [each.handler for each in counted.handlers] == [TIMER, FAULT]
    handler = row(counted.handlers, kind="exception").count
    assert {each.handler for each in counted.rows} == {FAULT}
    assert sum(each.count.base for each in counted.rows) == pytest.approx(handler.base)
    assert sum(each.count.patched for each in counted.rows) == pytest.approx(handler.patched)
    assert (counted.rows[0].function, counted.rows[0].user, counted.listed) == ("fio", True, 3)
    assert row(counted.rows, function="copy_page_to_iter").only_in == "base"
    assert row(counted.rows, function="copy_folio_to_iter").only_in == "patched"
    (line,) = sections.INTERRUPTIONS.lines(counted)
    assert (line.label, line.change[:4], line.says) == ("exceptions", "-20.", "largest change of 2")


def test_a_phase_without_interruptions_has_no_line(
    session: ExactSession, manifest: Manifest
) -> None:
    profiles = counts.of_runs(session, lambda *_: {"interruptions": ()})
    recorded = Recorded(manifest, session.records(), profiles)
    (each, *_) = kinds.compare_interruptions(recorded)
    assert (each.kinds, each.rows, each.listed) == ({}, (), 0)
    assert sections.INTERRUPTIONS.lines(each) == []


def test_misses_are_per_unit_in_the_order_of_what_they_moved(comparison: Comparison) -> None:
    misses = first(modelled.MEMORY, comparison)
    llc = misses.total.llc
    assert (llc.base, llc.patched, llc.n) == pytest.approx((2.17, 2.05, 2))
    assert llc.difference_range == pytest.approx((-0.14, -0.10))
    assert misses.total.prefetched.base == 5.0
    assert misses.total.walks.equal
    where = misses.machine, misses.unit_title, misses.unmapped
    assert where == ("ice-lake-sp", "folio added", (0, 3))
    assert [each.name for each in misses.rows] == [LOAD, "fio", "zap_pte_range"]
    load, zap = misses.rows[0], misses.rows[2]
    assert (load.file, misses.rows[1].user, zap.walks.base) == ("lib/xarray.c", True, 0.4)
    assert (misses.others, misses.other_count) == (None, 0)
    # Found in L2, in the last level and in memory: the ways add up.
    weights, cycles = modelled.weights(counts.MACHINE), counts.MACHINE.cycles
    assert sum(weights[name] for name in ("l1d", "l2", "llc")) == cycles.memory
    assert zap.cycles.base == pytest.approx(0.4 * cycles.walk)
    assert misses.cycles.base == pytest.approx(misses.instructions.base + misses.total.cycles.base)
    moved = -0.12 * (weights["llc"] + weights["l2"])
    assert misses.total.cycles.difference == pytest.approx(moved)
    assert sections.memory_brief(misses) == (
        "ice-lake-sp: LLC misses 2.170 -> 2.050 per folio added (-5.53 %), page walks unchanged"
    )


def test_many_functions_are_summed_behind_those_that_are_listed(manifest: Manifest) -> None:
    kernel = tuple(FunctionMisses(name=f"f{n}", file="", llc=n + 1) for n in range(100))
    many: dict[str, object] = {"memory": MemoryUse(kernel=kernel, user={})}
    runs = counts.of_twin(manifest, "memory", {"base": [many] * 2, "patched": [many] * 2})
    (result,) = modelled.compare_memory(Recorded(manifest, *runs))
    assert (len(result.rows), result.other_count) == (60, 40)
    listed = sum(each.llc.base for each in result.rows)
    assert listed + there(result.others).llc.base == pytest.approx(result.total.llc.base)


def test_a_path_has_its_own_and_all_that_it_called(comparison: Comparison) -> None:
    followed = first(stacks.EXPLANATION, comparison)
    assert (followed.unit_title, len(followed.seeds)) == ("folio added", 2)
    add = row(followed.rows, path=(ENTRY, READ, ADD))
    assert add.instructions.equal
    assert (add.total.base, add.total.patched) == pytest.approx((2.405, 2.0405))
    load = row(followed.rows, path=(ENTRY, READ, ADD, LOAD))
    assert (load.instructions.base, load.instructions.patched) == pytest.approx((0.405, 0))
    assert (load.calls.base, load.calls.patched) == pytest.approx((0.0405, 0))
    read = row(followed.rows, path=(ENTRY, READ))
    assert read.total.base == pytest.approx((5050 + 30 + 2000 + 405) / FOLIOS)
    outermost = [each for each in followed.rows if not each.callers]
    total = pytest.approx(followed.total.base)
    assert sum(each.total.base for each in outermost) == total
    assert sum(each.instructions.base for each in followed.rows) == total
    before: set[tuple[str, ...]] = {()}
    for each in followed.rows:
        assert each.callers in before
        before.add(each.path)


def test_paths_that_changed_are_listed_and_the_focus_has_most_of_it(comparison: Comparison) -> None:
    followed = first(stacks.EXPLANATION, comparison)
    assert [followed.rows[number].function for number in followed.listed] == [LOAD, "xas_store"]
    assert not row(followed.rows, path=(ENTRY, READ, SMALLER)).instructions.equal
    # xas_load alone has 0.405 of 0.645; what the small ones moved is above.
    assert followed.focus == (ENTRY, READ)
    assert followed.focus_share == pytest.approx(1.0)
    assert f"{LOAD} < {ADD}" in render(comparison, "text").partition("Call stacks")[2]
    rows = list(csv.DictReader(io.StringIO(forms.stacks_table(comparison))))
    assert [each["path"] for each in rows] == [";".join(each.path) for each in followed.rows]
    (load,) = (each for each in rows if each["path"] == ";".join((ENTRY, READ, ADD, LOAD)))
    assert (float(load["base"]), float(load["patched"])) == pytest.approx((0.405, 0))


def test_lines_are_per_unit_by_object_and_by_functions(comparison: Comparison) -> None:
    moved = first(modelled.LINES, comparison)
    assert (moved.unit_title, moved.vcpus) == ("folio added", 4)
    total = moved.total
    assert (total.all_lines.base, total.all_lines.patched) == pytest.approx((1.01, 0.61))
    numbers = total.reads.base, total.writes.base, total.apart.base
    assert numbers == pytest.approx((0.51, 0.5, 0.39))
    # What moved most comes first, and one arm may have none of it.
    counter = moved.objects[0]
    assert (counter.object, counter.named, counter.only_in) == ("limit", True, "base")
    assert (counter.apart.base, counter.apart.patched) == (0.39, 0.0)
    assert row(moved.objects, object="other kernel memory").all_lines.equal
    assert row(moved.objects, object="pcpu_hot (of each CPU)").named
    assert moved.falsest == counter
    pair = row(moved.pairs, object="limit")
    assert (pair.taker, pair.holder) == ("filemap_fault", "__filemap_add_folio")
    assert (pair.mine, pair.theirs) == ((0, 7), (8, 15))
    assert row(moved.pairs, object="other kernel memory").mine is None
    assert moved.pair_count == len(moved.pairs) == 3
    assert sections.lines_brief(moved) == (
        "cache lines moved between 4 vCPUs per folio added: 1.010 -> 0.6100 (-39.60 %, depends on "
        "the turns); false sharing: limit 0.3900 -> 0"
    )


def test_what_the_turns_make_is_marked(comparison: Comparison, manifest: Manifest) -> None:
    moved = first(modelled.LINES, comparison)
    assert (moved.metronome_ns, moved.other_ns) == (10_000, 20_000)
    marks = {each.object: each.by_turns for each in moved.objects}
    assert marks == {"limit": False, "other kernel memory": True, "pcpu_hot (of each CPU)": True}
    assert row(moved.objects, object="other kernel memory").other == pytest.approx((0.3, 0.3))
    assert sections.LINES.lines(moved)[0].says == "depends on the turns"
    alone = but(manifest, twins=manifest.twins[:2])
    both = {"base": [moves(LOCK)] * 2, "patched": [moves(LOCK)] * 2}
    (only,) = modelled.compare_lines(Recorded(alone, *of_twins(alone, {SHORT: both})))
    assert (only.other_ns, only.other, only.by_turns) == (0, None, False)
    assert not any(each.by_turns for each in only.objects)
    assert sections.LINES.lines(only)[0].says == "no false sharing"


def test_a_line_that_moves_often_is_listed_though_it_depends_on_the_turns(
    manifest: Manifest,
) -> None:
    rare = tuple(
        move(f"rare.{n}", "schedule", "wake_up", 1 + n % 3) for n in range(2 * modelled.MOST_PAIRS)
    )
    doubled = move("limit", "filemap_fault", "__filemap_add_folio", 800, 0, 390)
    twins = {
        name: {"base": [moves(counter, *rare)] * 2, "patched": [moves(counter, *rare[1:])] * 2}
        for name, counter in ((SHORT, COUNTER), (LONG, doubled))
    }
    (moved,) = modelled.compare_lines(Recorded(manifest, *of_twins(manifest, twins)))
    assert (len(moved.objects), len(moved.pairs)) == (modelled.MOST_OBJECTS, modelled.MOST_PAIRS)
    assert row(moved.objects, object="limit").by_turns
    assert moved.objects[-1].object == moved.pairs[-1].object == "limit"


def test_lines_that_come_while_a_lock_is_held_are_for_many_cpus(manifest: Manifest) -> None:
    session = ExactSession(seeds=(1, 2, 3))

    def held(moved: int) -> Counts:
        site = LockSite(
            function="__filemap_add_folio", file="", shared=False, taken=4, held=9, moved=moved
        )
        lock = LockUse(instances=1, sleeps=False, symbol="", sites=(site,))
        return moves(LOCK) | {"locks": (lock,)}

    twins = {
        name: {arm: [held(moved)] * 2 for arm in ("base", "patched")}
        for name, moved in ((SHORT, 2), (LONG, 3))
    }
    records, profiles = of_twins(manifest, twins)
    own = counts.profiles(session)
    both = compare(manifest, [*session.records(), *records], [*own, *profiles])
    counted, chosen = SCALING.of(both)[:2]
    where = counted.lock, counted.lines, counted.lines_counted
    assert where == ("i_pages.xa_lock", (0.5, 0.75), True)
    assert (chosen.lines, chosen.lines_counted) == (LINES, False)
