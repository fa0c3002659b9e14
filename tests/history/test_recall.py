"""Which known changes are found: each cell of the table, from sessions made up."""

from pathlib import Path
from typing import Any

import pytest

from analysis.counts import pair
from analysis.explain.locks import MeasuredLock, MeasuredLocks, TakenIn
from analysis.explain.modelled import (
    LinesComparison,
    MemoryComparison,
    Missed,
    MovedLines,
    MovedSum,
)
from analysis.many import compare_session
from analysis.native import judge as judge_native
from errors import SpecError, UsageError
from history import recall
from history.recall import PublishedResult, Recalled, RecallEntry, RecallRow, judge
from reports.render import markdown, text
from results.session import MeasuredSession
from tests.analysis.counts_factory import counted, profiles
from tests.analysis.factory import ExactSession, all_equal
from tests.analysis.measured import measured
from tests.analysis.native_factory import World, boots_of, head_of
from tests.analysis.test_execution import on_record, running, triage
from tests.values import but, data

ABOUT: dict[str, Any] = data(__file__, "about")
# The table of neutral and published entries below is of changes of this function.
NAME = "xas_load"


def entry(folder: Path = Path("p98-walk"), **about: Any) -> RecallEntry:
    return RecallEntry(folder, PublishedResult.model_validate(ABOUT | about))


NEUTRAL = RecallEntry(Path("mm-comment"), None)


def session(**effect: float) -> MeasuredSession:
    """One in which the changed function ran, with the log ratio of bandwidth by phase."""
    return running(on_record(NAME, **effect), NAME, "4k")


def row(of: RecallEntry, what: MeasuredSession) -> RecallRow:
    return judge(of, compare_session(what))


def noisy() -> MeasuredSession:
    made_up = ExactSession(effect=dict.fromkeys(("4k", "thp", "switch"), 0.002), noise=0.02)
    manifest = but(made_up.manifest(), triage=triage(NAME))
    return running(
        measured(counted(manifest), made_up.records(), profiles(made_up)), NAME, "4k", "thp"
    )


def same_code() -> MeasuredSession:
    made_up = ExactSession(same_code=True)
    return measured(made_up.manifest(), all_equal(made_up.records()))


FASTER, SLOWER, EQUAL = {"4k": 0.02}, {"4k": -0.02}, {"4k": 0.0}


@pytest.mark.parametrize(
    ("of", "what", "recalled"),
    [
        (entry(), session(**FASTER), Recalled.CAUGHT),
        (entry(kind="regression", sign="slower"), session(**SLOWER), Recalled.CAUGHT),
        (entry(), session(**SLOWER), Recalled.FALSE_POSITIVE),
        (entry(kind="elsewhere", sign="none"), session(**FASTER), Recalled.FALSE_POSITIVE),
        (NEUTRAL, session(**SLOWER), Recalled.FALSE_POSITIVE),
        (entry(), session(**EQUAL), Recalled.WRONGLY_SILENT),
        (entry(), noisy(), Recalled.MISSED),
        (entry(sign="none", shows=("locks",)), session(**EQUAL), Recalled.RIGHTLY_SILENT),
        (NEUTRAL, session(**EQUAL), Recalled.RIGHTLY_SILENT),
        (NEUTRAL, same_code(), Recalled.RIGHTLY_SILENT),
        (entry(), on_record("vmalloc", **FASTER), Recalled.NOT_EXECUTED),
        (NEUTRAL, on_record("vmalloc", **FASTER), Recalled.NOT_EXECUTED),
    ],
)
def test_what_becomes_of_an_entry(
    of: RecallEntry, what: MeasuredSession, recalled: Recalled
) -> None:
    assert row(of, what).recalled is recalled


def test_a_caught_one_has_its_size_and_the_place_of_its_function() -> None:
    caught = row(entry(functions=("not_there", NAME)), session(**FASTER))
    assert (caught.case, caught.metric, caught.verdict) == ("filemap-4k", "4k.bw", "improvement")
    assert caught.change == pytest.approx(0.02, abs=0.002)
    assert 0 < (caught.low or 0.0) < 0.02 < (caught.high or 0.0)
    # It moves most of all in the sessions that are made up.
    assert (caught.function, caught.rank) == (NAME, 1)
    unnamed = row(entry(functions=("not_there",)), session(**FASTER))
    assert (unnamed.recalled, unnamed.function, unnamed.rank) == (Recalled.CAUGHT, "", 0)


def test_what_is_called_the_other_way_is_named() -> None:
    both = running(session(**FASTER, thp=-0.01), NAME, "thp")
    assert row(entry(), both).why == "called the other way: filemap-thp thp.bw"
    assert (row(entry(), both).called, row(entry(), both).judged) == (2, 3)


def test_a_row_has_the_reason_why_nothing_of_it_ran() -> None:
    assert "none of the changed functions ran" in row(entry(), on_record("vmalloc")).why


def made(recalled: Recalled, kind: recall.Kind = "improvement", **more: Any) -> RecallRow:
    result = ABOUT | {"kind": kind} if kind != "neutral" else None
    return RecallRow.model_validate(
        {"name": "p98-walk", "kind": kind, "result": result, "recalled": recalled, **more}
    )


def test_the_score_counts_what_was_measured() -> None:
    rows = [
        made(Recalled.CAUGHT, function=NAME, rank=1),
        made(Recalled.CAUGHT),
        made(Recalled.WRONGLY_SILENT, "regression", shown_by=("locks",)),
        made(Recalled.NOT_YET),
        made(Recalled.NOT_MEASURED),
        made(Recalled.RIGHTLY_SILENT, "elsewhere", shown_by=("lines",)),
        made(Recalled.RIGHTLY_SILENT, "neutral"),
        made(Recalled.FALSE_POSITIVE, "neutral"),
    ]
    changes, elsewhere, neutral, every = recall.scores(rows)
    assert "function named in 1 of 3 (33 %); right sign in 2 of 3 (67 %)" in changes
    assert changes.endswith("as far as measured: 2 of 3 (67 %).")
    assert elsewhere.endswith("1 of 1 (100 %); shown by the instrument that can: 1 of 1 (100 %).")
    assert neutral.endswith("1 of 2 (50 %).")
    assert every == (
        "All: 2 caught, 1 wrongly silent, 2 rightly silent, 1 false positive, 1 not measured, "
        "1 not measured yet"
    )
    assert recall.scores([]) == ["All: "]


@pytest.mark.parametrize("render", [markdown.text, text.text])
def test_the_table_has_what_was_measured_and_names_the_rest(render: Any) -> None:
    rows = [
        row(entry(learned="why so", rule="what was mended"), session(**EQUAL)),
        but(made(Recalled.NOT_YET), name="p99-later"),
    ]
    shown = " ".join(render(recall.blocks(rows)).replace("\\", "").split())
    assert "p98-walk *" in shown
    assert "wrongly silent" in shown
    assert "p98-walk: why so" in shown
    assert "changed a rule: what was mended" in shown
    assert shown.endswith("p99-later")


def moving(taker: str, lines: tuple[float, float], *, by_turns: bool = False) -> MovedLines:
    """Lines of one object per folio on base and patched, of one seed."""
    none = pair([0.0], [0.0])
    return MovedLines(
        object="counter",
        named=True,
        taker=taker,
        holder="filemap_fault",
        all_lines=pair([lines[0]], [lines[1]]),
        reads=none,
        writes=none,
        apart=none,
        by_turns=by_turns,
    )


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        ([], ""),
        ([moving(NAME, (1.0, 0.8))], ""),
        ([moving(NAME, (1.0, 0.5), by_turns=True)], ""),
        ([moving("another", (1.0, 0.5))], ""),
        ([moving(NAME, (0.0, 0.0005))], ""),
        (
            [moving(NAME, (1.0, 0.5)), moving(f"{NAME}.isra.0", (0.9, 0.1))],
            f"counter 0.9000 -> 0.1000 lines per folio to {NAME}.isra.0 from filemap_fault",
        ),
    ],
)
def test_lines_that_changed_code_moves_are_shown(rows: list[MovedLines], shown: str) -> None:
    (comparison,) = compare_session(session(**EQUAL)).comparisons
    none = pair([0.0], [0.0])
    followed = LinesComparison(
        **at("4k"),
        vcpus=4,
        metronome_ns=10000,
        other_ns=20000,
        total=MovedSum(all_lines=none, reads=none, writes=none, apart=none),
        other=None,
        by_turns=False,
        objects=(),
        pairs=tuple(rows),
        pair_count=len(rows),
    )
    assert recall.lines_of({NAME}, comparison) is None
    explained = but(comparison, explained={"lines": (followed,)})
    assert recall.lines_of({NAME}, explained) == shown
    # What was published goes first, however little of it moved.
    small = but(moving(NAME, (0.1, 0.0)), object="published.member")
    explained = but(comparison, explained={"lines": (but(followed, pairs=(*rows, small)),)})
    text = recall.lines_of({NAME}, explained, ["published"])
    assert (text or "").startswith("published.member 0.1000 -> 0")


def locked(label: str, sites: dict[str, tuple[float, float]]) -> MeasuredLock:
    """A lock with how often functions took it on base and patched, the same on three seeds."""
    none = pair([0.0] * 3, [0.0] * 3)
    total = tuple(sum(each[arm] for each in sites.values()) for arm in (0, 1))
    acquisitions = {name: pair([of[0]] * 3, [of[1]] * 3) for name, of in sites.items()}
    held: dict[str, Any] = {"held": none, "held_each": None}
    rows = [TakenIn(function=name, taken=times, **held) for name, times in acquisitions.items()]
    return MeasuredLock(
        label=label,
        by="taker" if label.startswith("taken in") else "member",
        instances="many",
        sleeps=False,
        taken=pair([total[0]] * 3, [total[1]] * 3),
        **{**held, "waits": None, "waited": None, "saturation": None},
        sites=tuple(rows),
    )


def with_locks(*rows: MeasuredLock) -> dict[str, tuple[MeasuredLocks, ...]]:
    none, where = pair([0.0] * 3, [0.0] * 3), {**at("4k"), "seeds": (1, 2, 3)}
    where = {key: where[key] for key in ("case", "phase", "unit_title", "seeds")}
    counts: dict[str, Any] = {"vcpus": 1, "busy": none, "listed": len(rows), "lost": (0, 0)}
    return {"measured_locks": (MeasuredLocks(**where, **counts, rows=tuple(rows), moved_most=""),)}


TAKEN = f"taken in {NAME}"


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        ({"m.lock": {NAME: (2.0, 1.0)}}, "m.lock 2 -> 1 per folio"),
        ({TAKEN: {NAME: (0.0, 3.0)}}, f"{TAKEN} 0 -> 3 per folio"),
        # Another of its takers did it.
        ({"vma_lock": {"other": (0.21, 0.25), NAME: (0.004, 0.004)}}, ""),
        ({"vma_lock": {"other": (0.21, 0.25), NAME: (0.004, 0.0)}}, ""),
        # The same lock by another name.
        ({TAKEN: {NAME: (0.05, 0.005)}, "known.lock": {NAME: (0.955, 1.0)}}, ""),
        ({TAKEN: {NAME: (0.02, 0.0)}, "taken in inlined": {"inlined": (0.0, 0.02)}}, ""),
    ],
)
def test_locks_that_changed_code_takes_more_or_less_often(
    rows: dict[str, dict[str, tuple[float, float]]], shown: str
) -> None:
    (comparison,) = compare_session(session(**EQUAL)).comparisons
    assert recall.locks_of({NAME, "inlined"}, but(comparison, explained={})) is None
    moved = but(comparison, explained=with_locks(*(locked(*row) for row in rows.items())))
    text = recall.locks_of({NAME, "inlined"}, moved) or ""
    assert text.replace(".000", "") == shown


@pytest.mark.parametrize(
    ("phase", "llc", "whole", "shown"),
    [
        ("4k", ([4.0, 4.2], [2.0, 2.2]), 10, "LLC misses 4.100 -> 2.100 per folio (filemap-4k 4k)"),
        ("4k", ([4.0, 6.0], [2.0, 5.9]), 10, ""),
        ("4k", ([4.0, 4.2], [3.9, 4.1]), 10, ""),
        # None of the changed functions ran there.
        ("thp", ([4.0, 4.2], [2.0, 2.2]), 10, ""),
        # The phase is a thousand times as long.
        ("4k", ([4.0, 4.2], [2.0, 2.2]), 1000, ""),
    ],
)
def test_misses_that_moved_where_changed_code_ran_are_shown(
    phase: str, llc: tuple[list[float], list[float]], whole: int, shown: str
) -> None:
    (comparison,) = compare_session(session(**EQUAL)).comparisons
    none = pair([0.0], [0.0])
    missed = dict.fromkeys(Missed.model_fields, none) | {"llc": pair(*llc), "cycles": pair(*llc)}
    modelled = MemoryComparison(
        **at(phase),
        instructions=none,
        total=Missed(**missed),
        cycles=pair(*([each * whole for each in arm] for arm in llc)),
        rows=(),
        others=None,
        other_count=0,
        unmapped=(0, 0),
    )
    assert recall.misses_of(comparison) is None
    assert recall.misses_of(but(comparison, explained={"memory": (modelled,)})) == shown


@pytest.mark.parametrize(
    ("base", "patched", "moved"),
    [
        ([9.0, 9.1], [9.0, 9.1], False),
        ([0.0, 0.0], [1.0, 1.0], True),
        ([9.0, 9.0], [8.0, 8.0], True),
        ([9.0, 9.0], [8.9, 8.9], False),
        ([9.0, 1.0], [8.0, 1.5], False),
    ],
)
def test_what_is_equal_on_both_arms_has_not_moved(
    base: list[float], patched: list[float], moved: bool
) -> None:
    assert recall.has_moved(pair(base, patched)) is moved


def at(phase: str) -> dict[str, Any]:
    """Where a diagnostic run of a made-up session counted."""
    where = {"case": "filemap-4k", "phase": phase, "unit_title": "folio", "seeds": (1,)}
    return {**where, "twin": "more", "machine": "a", "machine_title": "A"}


@pytest.mark.parametrize(
    ("change", "kind", "shown"),
    [(0.05, "regression", True), (0.05, "improvement", False), (0.0, "improvement", False)],
)
def test_time_shows_a_change_of_its_direction(
    change: float, kind: recall.Kind, shown: bool
) -> None:
    head = head_of(24, phases=("readahead", "pread"))
    of_native = judge_native(head, boots_of(head, World(change=change), 1))
    compared = compare_session(session(**EQUAL))
    timed = judge(entry(kind=kind), compared, of_native)
    assert ("time" in timed.shown_by) is shown
    assert timed.recalled is Recalled.WRONGLY_SILENT
    word = "regression" if change else "no change"
    assert f"] {word} (filemap-4k " in timed.instruments["time"]
    same = judge_native(head_of(24, same_code=True), ())
    assert "machine code is the same" in judge(entry(), compared, same).instruments["time"]


def folders(top: Path) -> tuple[Path, Path]:
    """Two published results, of which the first changes a header, and a neutral change."""
    for name, file in (
        ("published/p01-header", "include/linux/mm.h"),
        ("published/p02-code", "mm/filemap.c"),
        ("neutral/comment", "mm/vmscan.c"),
    ):
        folder = top / name
        folder.mkdir(parents=True)
        (folder / "0001-change.patch").write_text(f"--- a/{file}\n+++ b/{file}\n")
    for number in ("01-header", "02-code"):
        lines = [
            f"{key} = {str(value).lower() if isinstance(value, bool) else list(value)}"
            if isinstance(value, bool | tuple)
            else f'{key} = "{value}"'
            for key, value in (ABOUT | {"id": f"P{number[:2]}"}).items()
        ]
        (top / "published" / f"p{number}" / recall.ABOUT).write_text("\n".join(lines) + "\n")
    return top / "published", top / "neutral"


def test_entries_that_change_headers_are_built_last(tmp_path: Path) -> None:
    every = recall.entries(folders(tmp_path))
    assert [each.name for each in every] == ["p02-code", "comment", "p01-header"]


def test_entries_are_chosen_by_name_id_kind_and_third(tmp_path: Path) -> None:
    every = recall.entries(folders(tmp_path))

    def names(*words: str, **more: Any) -> list[str]:
        return [each.name for each in recall.chosen(every, words, **more)]

    assert names("P01", "comment") == ["comment", "p01-header"]
    assert names(kinds="neutral") == ["comment"]
    assert names(kinds="published", third=2) == ["p01-header"]
    assert [*names(third=1), *names(third=2), *names(third=3)] == names()
    with pytest.raises(UsageError, match="p01-heeder: no entry"):
        names("p01-heeder")


def test_a_wrong_file_is_named(tmp_path: Path) -> None:
    published, neutral = folders(tmp_path)
    file = published / "p02-code" / recall.ABOUT
    file.write_text(file.read_text().replace('"faster"', '"quicker"'))
    with pytest.raises(SpecError, match="sign"):
        recall.entries((published, neutral))


def test_all_entries_of_the_lab_can_be_read() -> None:
    every = recall.entries(recall.FOLDERS)
    assert len([each for each in every if each.result]) == 25
    assert len([each for each in every if not each.result]) == 30
