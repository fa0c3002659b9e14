"""Whether known changes are found: published results, and changes that change nothing.

An entry is a folder of patches; with ``published.toml`` it is a published result, without it
neutral.  Its session is a folder of its name; why there is none, a file beside.  A published result
that instructions do not catch has a second one, with diagnostic runs, and one whose code runs in a
phase of native mode may have one of these.  The table is made of these alone.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from analysis.comparison import unfinished
from analysis.counts import Paired
from analysis.explain.locks import EXPLANATION as LOCKS
from analysis.explain.locks import MeasuredLocks
from analysis.explain.modelled import BY_TURNS, LINES, MEMORY, RARE
from analysis.many import SessionComparison, compare_session
from analysis.model import Comparison, MetricComparison
from analysis.native import Judged, is_finished
from analysis.native import judge as judge_native
from analysis.verdict import CALLED, MISSING, Verdict
from errors import RecordError, UsageError
from experiment.frozen import Frozen, likely
from experiment.load import CONFIGS, load
from files import sha256_of
from reports import wording
from reports.document import Block, Cell, Column, Heading, Mono, Paragraph, Row, Table, listing
from reports.document import row as row_of
from reports.headline import headline, pending
from reports.sections import LEAST_SHARE
from reports.sections.counted import EVENTS, WAITED_FOR
from results import door, native
from results.native import NativeBoot, NativeHead
from results.profile import stem
from results.record import Manifest, Record
from results.session import open_session
from results.store import MANIFEST
from results.units import read_name
from text import enumerated

FOLDERS = (CONFIGS / "series" / "published", CONFIGS / "series" / "neutral")
ABOUT = "published.toml"
# What a neutral change is made for, as published.toml says it of the others.
SOURCE = "deb:linux-source-6.12"
# A lock that is taken this much more or less often, of what it was, has moved; so have misses.
MOVED = 0.05
# And functions of the change did it that account for so much of that.
OWN = 0.5
DIAGNOSED, TIMED = "-diagnostics", "-native"
CHANGES = ("regression", "improvement")
Kind = Literal["regression", "improvement", "elsewhere", "neutral"]
Instrument = Literal["instructions", "locks", "lines", "misses", "time"]


class PublishedResult(Frozen):
    """``published.toml``: what was published, and what was expected before it was measured.

    With ``reverse`` the patches take the published change out.  ``functions`` are to be named,
    ``shows`` are the instruments that should show it, ``objects`` whose lines should move, and
    ``native`` the workloads whose phases of native mode execute what differs;
    ``learned`` says why it was missed, ``rule`` what was mended.
    """

    id: str
    title: str
    commit: str
    kind: Literal["regression", "improvement", "elsewhere"]
    published: str
    machine: str
    source: str
    mechanism: str
    reverse: bool
    kernel: str
    expected: str
    sign: Literal["faster", "slower", "none"]
    functions: tuple[str, ...]
    shows: tuple[Instrument, ...]
    objects: tuple[str, ...] = ()
    native: tuple[str, ...] = ()
    learned: str = ""
    rule: str = ""


@dataclass(frozen=True)
class RecallEntry:
    """A folder of patches with what was published of it; a neutral change has nothing."""

    folder: Path
    result: PublishedResult | None

    @property
    def name(self) -> str:
        """The folder's name, which is its session's, too."""
        return self.folder.name

    @property
    def kind(self) -> Kind:
        """What is to be recalled."""
        return self.result.kind if self.result else "neutral"

    @property
    def source(self) -> str:
        """The kernel's source that the patches are for."""
        return self.result.kernel if self.result else SOURCE

    @property
    def changes_headers(self) -> bool:
        """Whether most of a kernel has to be compiled again."""
        texts = (path.read_text(errors="replace") for path in self.folder.glob("*.patch"))
        return any(re.search(r"^\+\+\+ b/.*\.h$", text, re.MULTILINE) for text in texts)

    @property
    def digests(self) -> set[str]:
        """SHA-256 of the patches."""
        return {sha256_of(path) for path in self.folder.glob("*.patch")}


class Recalled(StrEnum):
    """What became of an entry; ``caught`` is a change called in the published direction.

    Of silent ones whose code ran: instructions should show a ``wrongly silent`` one (no change)
    and a ``missed`` one (open), and nothing is to be seen of a ``rightly silent`` one.
    """

    CAUGHT = "caught"
    WRONGLY_SILENT = "wrongly silent"
    MISSED = "missed"
    RIGHTLY_SILENT = "rightly silent"
    NOT_EXECUTED = "not executed"
    FALSE_POSITIVE = "false positive"
    NOT_MEASURED = "not measured"
    NOT_YET = "not measured yet"


class RecallRow(Record):
    """One entry with what its session shows; changes and intervals are fractions.

    ``metric`` is of the largest change that is called, or else tested.  ``rank`` is the place of
    ``function`` among those of the called phases, 0 where it is not listed or nothing is called.
    """

    name: str
    kind: Kind
    result: PublishedResult | None
    recalled: Recalled
    why: str = ""
    case: str = ""
    metric: str = ""
    verdict: str = ""
    change: float | None = None
    low: float | None = None
    high: float | None = None
    called: int = 0
    judged: int = 0
    function: str = ""
    rank: int = 0
    instruments: dict[str, str] = Field(default_factory=dict)
    shown_by: tuple[str, ...] = ()

    @property
    def wants_diagnostics(self) -> bool:
        """Whether it is a published result that was measured and not caught by instructions."""
        silent = (Recalled.WRONGLY_SILENT, Recalled.MISSED, Recalled.RIGHTLY_SILENT)
        return self.result is not None and self.recalled in (*silent, Recalled.FALSE_POSITIVE)


class Unmeasured(Record):
    """Why an entry has no session, in a file beside where it would be."""

    recalled: Literal[Recalled.NOT_EXECUTED, Recalled.NOT_MEASURED]
    why: str


def entries(folders: Sequence[Path]) -> tuple[RecallEntry, ...]:
    """All entries, so that a kernel is built from the objects of the one before it.

    Those of one source stand together; those that change headers come last.
    Raises SpecError: a ``published.toml`` is wrong.
    """
    every = [
        RecallEntry(path, load(path / ABOUT, PublishedResult) if (path / ABOUT).is_file() else None)
        for folder in folders
        for path in sorted(folder.iterdir())
        if any(path.glob("*.patch"))
    ]
    return tuple(sorted(every, key=lambda each: (each.source, each.changes_headers)))


def chosen(
    every: Sequence[RecallEntry],
    names: Sequence[str] = (),
    kinds: str = "",
    third: int | None = None,
) -> tuple[RecallEntry, ...]:
    """Those of these names or ids, or all; ``kinds`` is ``published`` or ``neutral``, or both.

    ``third`` is 1 to 3: every third of them from there.
    Raises UsageError: no entry has this name.
    """
    known = {each.result.id.lower(): each.name for each in every if each.result}
    known |= {each.name: each.name for each in every}
    for name in names:
        if name.lower() not in known:
            raise UsageError(
                "no entry has this name",
                where=name,
                next_step=f"name one of the folders in configs/series/published and neutral: "
                f"{likely(name, known.values())}",
            )
    named = {known[name.lower()] for name in names} or {each.name for each in every}
    of_kind = [
        each
        for each in every
        if each.name in named and (not kinds or (each.kind == "neutral") == (kinds == "neutral"))
    ]
    return tuple(of_kind if third is None else of_kind[third - 1 :: 3])


def diagnosed(entry: RecallEntry, sessions: Path) -> Path:
    """The folder of the entry's session with diagnostic runs."""
    return sessions / f"{entry.name}{DIAGNOSED}"


def timed(entry: RecallEntry, sessions: Path) -> Path:
    """The folder of the entry's session of native mode."""
    return sessions / f"{entry.name}{TIMED}"


def begun(folder: Path) -> bool:
    """Whether there is a session in the folder."""
    return door.exists(folder.parent, f"{folder.name}/{MANIFEST}")


def finished(entry: RecallEntry, folder: Path) -> bool:
    """Whether a session of these patches is there, and has nothing left to be made.

    Raises UsageError: the session is of other patches; StoreError: it cannot be read.
    """
    if not begun(folder):
        return False
    session = open_session(folder, counted=False)
    _require_same(entry, folder, session.manifest)
    return not unfinished(session) and not pending(compare_session(session, explains=False))


def timed_boots(
    entry: RecallEntry, sessions: Path
) -> tuple[NativeHead, tuple[NativeBoot, ...]] | None:
    """The entry's session of native mode, whole and of its patches; None where there is none.

    One that is damaged is none: it is measured again, and decides nothing else.
    """
    folder = timed(entry, sessions)
    with suppress(door.StoreError):
        if native.is_native(folder):
            head, boots = native.read(folder)
            whole = is_finished(head, boots)
            contents = {content for arm in head.arms for content in arm.contents}
            return (head, boots) if whole and contents == entry.digests else None
    return None


def _require_same(entry: RecallEntry, folder: Path, manifest: Manifest) -> None:
    measured = {patch.sha256 for series in manifest.series for patch in series.patches}
    if measured != entry.digests:
        raise UsageError(
            "is a session of other patches than the entry has now",
            where=str(folder),
            next_step="move it away, and measure anew",
        )


def keep_problem(entry: RecallEntry, sessions: Path, problem: Unmeasured | None) -> None:
    """Write down why an entry has no session, or that there is no such reason any more."""
    name = f"{entry.name}.json"
    if problem is None:
        door.remove(sessions, name)
    else:
        door.write(sessions, name, problem.model_dump_json(indent=2) + "\n")


def row(entry: RecallEntry, sessions: Path) -> RecallRow:
    """What is on disk of an entry."""
    with suppress(FileNotFoundError):
        problem = Unmeasured.model_validate_json(door.read(sessions, f"{entry.name}.json"))
        return _row(entry, problem.recalled, problem.why)
    folder = sessions / entry.name
    try:
        # It has the same judged runs, so the same verdicts.
        if finished(entry, further := diagnosed(entry, sessions)):
            folder = further
        if not begun(folder):
            return _row(entry, Recalled.NOT_YET)
        session = open_session(folder)
        _require_same(entry, folder, session.manifest)
        if why := unfinished(session):
            return _row(entry, Recalled.NOT_YET, why)
        compared = compare_session(session)
    except (RecordError, UsageError, OSError) as error:
        return _row(entry, Recalled.NOT_MEASURED, str(error).splitlines()[0])
    if all(metric.judgement.verdict in MISSING for metric in compared.primary):
        return _row(entry, Recalled.NOT_MEASURED, headline(compared, str(folder)).text)
    of_native = timed_boots(entry, sessions)
    return judge(entry, compared, judge_native(*of_native) if of_native else ())


def _row(entry: RecallEntry, recalled: Recalled, why: str = "", **shown: Any) -> RecallRow:
    of = {"name": entry.name, "kind": entry.kind, "result": entry.result}
    return RecallRow(**of, recalled=recalled, why=why, **shown)


def tested_of(comparison: Comparison) -> list[MetricComparison]:
    """The judged results that have a verdict on the change."""
    untested = (Verdict.NOT_TESTED, *MISSING)
    return [m for m in comparison.primary if m.judgement.verdict not in untested]


def size_of(metric: MetricComparison) -> float:
    """How large a change is, in either direction; 0 where there is none."""
    return abs(wording.estimate(metric.judgement.change) or 0.0)


def judge(
    entry: RecallEntry, session: SessionComparison, of_native: Sequence[Judged] = ()
) -> RecallRow:
    """What a session of two arms shows of an entry, with what native mode measured of them."""
    (comparison,) = session.comparisons
    tested = tested_of(comparison)
    called = [metric for metric in tested if metric.judgement.verdict in CALLED]
    functions = entry.result.functions if entry.result else ()
    function, rank = named(functions, comparison, called)
    own = functions_of(functions, comparison)
    objects = entry.result.objects if entry.result else ()
    by_instrument = {
        "locks": locks_of(own, comparison),
        "lines": lines_of(own, comparison, objects),
        "misses": misses_of(comparison),
        "time": time_of(of_native),
    }
    instruments = {name: text for name, text in by_instrument.items() if text is not None}
    largest = max(called or tested, key=size_of, default=None)
    change = largest.judgement.change if largest else None
    verdict = largest.judgement.verdict if largest else None
    against = [f"{m.case} {m.name}" for m in called if m.judgement.verdict is not verdict]
    why = f"called the other way: {enumerated(against)}" if against else ""
    return _row(
        entry,
        outcome_of(entry, tested, largest, same_code=comparison.manifest.same_code),
        why if tested else headline(session).text,
        case=largest.case if largest else "",
        metric=largest.name if largest else "",
        verdict=str(verdict or ""),
        change=change.estimate if change else None,
        low=change.low if change else None,
        high=change.high if change else None,
        called=len(called),
        judged=len(tested),
        function=function,
        rank=rank,
        instruments=instruments,
        shown_by=(
            *(
                each
                for each in (entry.result.shows if entry.result else ())
                if (text := instruments.get(each))
                and (each != "lines" or not objects or any(name in text for name in objects))
            ),
            # It is of every change of a path, and says in which direction.
            *(
                "time"
                for each in of_native[:1]
                if entry.kind in {str(most_changed(of_native).verdict)}
            ),
        ),
    )


def outcome_of(
    entry: RecallEntry,
    tested: Sequence[MetricComparison],
    largest: MetricComparison | None,
    *,
    same_code: bool,
) -> Recalled:
    """What became of it; ``largest`` is the largest that is called, or tested where none is."""
    verdict = largest.judgement.verdict if largest else None
    if verdict in CALLED:
        return Recalled.CAUGHT if verdict == entry.kind else Recalled.FALSE_POSITIVE
    if not tested and not (same_code and entry.kind == "neutral"):
        return Recalled.NOT_EXECUTED
    if entry.result is None or "instructions" not in entry.result.shows:
        return Recalled.RIGHTLY_SILENT
    verdicts = {metric.judgement.verdict for metric in tested}
    return Recalled.WRONGLY_SILENT if verdicts == {Verdict.NO_CHANGE} else Recalled.MISSED


def named(
    functions: Sequence[str], comparison: Comparison, called: Sequence[MetricComparison]
) -> tuple[str, int]:
    """The first of the functions in the called phases' lists, with its place.

    Where nothing is called it is one that is called changed, and has no place.
    """
    phases = {(metric.case, metric.phase) for metric in called}
    places = [
        (rank, each.name)
        for attribution in comparison.headlines
        if (attribution.case, attribution.phase) in phases
        for rank, each in enumerate((r for r in attribution.rows if not r.user), 1)
        if stem(each.name) in functions
    ]
    if places or called:
        rank, name = min(places, default=(0, ""))
        return name, rank
    changed = (each.name for a in comparison.headlines for each in a.changed)
    return next((name for name in changed if stem(name) in functions), ""), 0


def functions_of(published: Sequence[str], comparison: Comparison) -> set[str]:
    """The functions whose code differs, with those that a published result names."""
    return {*published, *(stem(f) for each in comparison.executions for f in each.changed)}


def has_moved(count: Paired) -> bool:
    """Whether a count moved beyond its scatter, and by a share that is worth a word."""
    return count.is_significant and (count.change is None or abs(count.change) >= MOVED)


def locks_of(own: Set[str], comparison: Comparison) -> str | None:
    """What the locks say, which are counted in judged runs, too; empty where none moved.

    Of those that functions of the change take more or less often, the one that is taken most times
    more or less; None where nothing counted any.  A lock that its other takers moved is not
    theirs.  One that is known by its taker alone may be one of the others, or go by another
    function's name in the other arm: what these add up to has to have moved.
    """
    measured = LOCKS.of(comparison)
    if not measured:
        return None
    moved = (each for phase in measured for each in moved_locks(own, phase))
    return max(moved, default=(0.0, ""))[1]


def moved_locks(own: Set[str], phase: MeasuredLocks) -> Iterator[tuple[float, str]]:
    """The locks of a phase that these functions moved: by how many times, and in words."""
    by_change: dict[str, float] = defaultdict(float)
    for lock in phase.rows:
        by_change["" if lock.by == "taker" else lock.label] += sum(
            site.taken.difference for site in lock.sites if stem(site.function) in own
        )
    unnamed, every = by_change[""], sum(by_change.values())
    for lock in phase.rows:
        more = lock.taken.difference
        by_own = every if lock.by == "taker" else by_change[lock.label] + unnamed
        is_taken = not own.isdisjoint(stem(site.function) for site in lock.sites)
        is_theirs = by_own * more > 0 and abs(by_own) >= OWN * abs(more)
        if is_taken and is_theirs and has_moved(lock.taken):
            yield abs(more), f"{lock.label} {wording.few(lock.taken)} per {phase.unit_title}"


def lines_of(own: Set[str], comparison: Comparison, objects: Sequence[str] = ()) -> str | None:
    """Which lines of modelled CPUs move more or less often, as ``locks_of``.

    Those of the ``objects`` go first.  A diagnostic run of one seed has no scatter: a change is one
    that is larger than what the length of a turn may make.
    """
    followed = LINES.of(comparison)
    if not followed:
        return None
    moved = [
        (
            any(name in row.object for name in objects),
            abs(row.all_lines.difference),
            f"{row.object} {wording.few(row.all_lines)} lines per {phase.unit_title} to "
            f"{row.taker} from {row.holder}",
        )
        for phase in followed
        for row in phase.pairs
        if own & {stem(row.taker), stem(row.holder)}
        and not row.by_turns
        and abs(row.all_lines.difference)
        > max(RARE, BY_TURNS * max(row.all_lines.base, row.all_lines.patched))
    ]
    return max(moved, default=(False, 0.0, ""))[2]


def misses_of(comparison: Comparison) -> str | None:
    """Which misses of a modelled machine moved most, as ``locks_of``, where changed code ran.

    In phases whose estimate of cycles all misses together moved: of many numbers of two seeds some
    are beyond their scatter.
    """
    modelled = MEMORY.of(comparison)
    if not modelled:
        return None
    ran = {(each.case, each.phase) for each in comparison.executions if each.ran}
    moved = [
        (
            abs(missed.change or math.inf),
            f"{EVENTS[name][0]} {wording.few(missed)} per {phase.unit_title} "
            f"({phase.case} {phase.phase})",
        )
        for phase in modelled
        if (phase.case, phase.phase) in ran
        and phase.total.cycles.is_significant
        and abs(phase.total.cycles.difference) >= LEAST_SHARE * phase.cycles.base
        for name in WAITED_FOR
        if has_moved(missed := getattr(phase.total, name))
    ]
    return max(moved, default=(0.0, ""))[1]


def most_changed(of_native: Sequence[Judged]) -> Judged:
    """The phase whose time is called changed by most, or else the one with the least interval."""

    def weight(each: Judged) -> tuple[bool, float]:
        change = each.change
        if change is None or change.low is None or change.high is None:
            return False, -math.inf
        called = each.verdict in CALLED
        return called, abs(change.estimate or 0.0) if called else change.low - change.high

    return max(of_native, key=weight)


def time_of(of_native: Sequence[Judged]) -> str | None:
    """What native mode measured, of one phase; None where it measured nothing."""
    if not of_native:
        return None
    each = most_changed(of_native)
    if each.change is None or each.change.low is None or each.change.high is None:
        return each.reason
    interval = wording.between(each.change.low, each.change.high)
    size = wording.percent(each.change.estimate)
    return f"{size} {interval} {each.verdict} ({each.case} {each.phase}, native)"


def scores(rows: Sequence[RecallRow]) -> list[str]:
    """The score, a sentence each."""
    there = [
        each for each in rows if each.recalled not in (Recalled.NOT_YET, Recalled.NOT_MEASURED)
    ]
    changes = [each for each in there if each.kind in CHANGES]
    elsewhere = [each for each in there if each.kind == "elsewhere"]
    neutral = [each for each in there if each.kind == "neutral"]
    texts = []
    if changes:
        caught = [each for each in changes if each.recalled is Recalled.CAUGHT]
        named = [each for each in caught if each.function]
        besides = [each for each in changes if each in named or each.shown_by]
        texts += [
            f"Regressions and improvements by instructions: right sign and function named in "
            f"{_share(named, changes)}; right sign in {_share(caught, changes)}; with locks, "
            f"lines, misses and time as far as measured: {_share(besides, changes)}."
        ]
    if elsewhere:
        silent = [each for each in elsewhere if each.recalled is Recalled.RIGHTLY_SILENT]
        shown = [each for each in elsewhere if each.shown_by]
        texts += [
            f"Not in the path: rightly silent {_share(silent, elsewhere)}; shown by the instrument "
            f"that can: {_share(shown, elsewhere)}."
        ]
    if neutral:
        called = [each for each in neutral if each.recalled is Recalled.FALSE_POSITIVE]
        texts += [f"Neutral changes reported as changes: {_share(called, neutral)}."]
    counts = Counter(each.recalled for each in rows)
    return [*texts, "All: " + ", ".join(f"{n} {each}" for each in Recalled if (n := counts[each]))]


def _share(some: Sequence[RecallRow], every: Sequence[RecallRow]) -> str:
    return f"{len(some)} of {len(every)} ({100 * len(some) / len(every):.0f} %)"


COLUMNS = (
    Column("entry", left=True),
    Column("outcome", left=True),
    Column("ours", left=True),
    Column("function (place)", left=True, drop=3),
    Column("other instruments", left=True, drop=1),
    Column("published", left=True, drop=2),
)


def blocks(rows: Sequence[RecallRow]) -> list[Block]:
    """The table as a document: the score, what was measured, and what was not."""
    there = [each for each in rows if each.recalled is not Recalled.NOT_YET]
    published = [each for each in there if each.kind != "neutral"]
    neutral = [each for each in there if each.kind == "neutral"]
    sentences = [
        f"{each.name}: {text}"
        for each in there
        for text in (
            each.why,
            each.result.learned if each.result else "",
            f"* changed a rule: {each.result.rule}" if each.result and each.result.rule else "",
        )
        if text
    ]
    missing = [each.name for each in rows if each.recalled is Recalled.NOT_YET]
    document: list[Block] = [
        Heading("Recall of known changes", 1),
        Paragraph(
            (
                "Published results that patches undo or redo, and no-op changes, each measured by ",
                Mono("./lab.py recall"),
                " in the same way: the two workloads that execute most of the functions whose "
                "machine code differs, the smallest guest, eight seeds, the usual thresholds, no "
                "correctness checks, and ",
                Mono("--diagnostics"),
                " for a published result that instructions do not catch. Nothing is booted where "
                "no machine code differs. Sizes are of instructions counted under emulation; "
                "published numbers are of the machine named with them. A false positive is a "
                "change that is called and was not published, or was the other way round.",
            )
        ),
        *listing(scores(rows)),
    ]
    for title, own in (("Published results", published), ("Neutral changes", neutral)):
        if own:
            document += [Heading(title), Table(title, COLUMNS, tuple(map(cells, own)))]
    if sentences:
        document += [Heading("Why"), *listing(sentences)]
    if missing:
        document += [Heading("Not measured yet"), Paragraph(", ".join(missing))]
    return document


def cells(each: RecallRow) -> Row:
    """The row as it is shown."""
    result = each.result
    count = f"({each.called} of {each.judged} changed)" if each.judged else ""
    where = " ".join(part for part in (each.case, read_name(each.metric), count) if part)
    known = each.low is not None and each.high is not None
    interval = wording.between(each.low or 0.0, each.high or 0.0) if known else ""
    size = wording.percent(each.change) if each.change is not None else ""
    ours = Cell(
        size, small=" ".join(part for part in (interval, each.verdict) if part), under=where
    )
    rank = f"{each.function} ({each.rank})" if each.rank else each.function
    others = "; ".join(f"{name}: {text or 'no change'}" for name, text in each.instruments.items())
    published = Cell(result.published, under=f"({result.machine})") if result else "changes nothing"
    mark = " *" if result and result.rule else ""
    return row_of(
        f"{each.name}{mark}",
        str(each.recalled),
        ours,
        rank or "none named" * bool(each.called),
        others,
        published,
    )
