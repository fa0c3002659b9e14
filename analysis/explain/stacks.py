"""Instructions by call path, counted in diagnostic runs of the judged guests: pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analysis import counts, paired
from analysis.counts import CountedPhase, Recorded
from analysis.explain import Explanation
from analysis.paired import Paired
from results.profile import SMALLER, PhaseProfile
from results.record import Record

Path = tuple[str, ...]
# A path's change that is less than this share of all that the kernel executed is not worth a row.
LEAST_SHARE = 0.0001
# Where this share of all that changed is on or below one path, that path is where it changed.
FOCUS = 0.8


class StackRow(Record):
    """A kernel function as called on one path: ``callers`` from the outermost to the nearest.

    ``instructions`` and ``calls`` are of the function itself, ``total`` with all that it called
    there, each per unit of work.
    """

    callers: Path
    function: str
    instructions: Paired
    total: Paired
    calls: Paired

    @property
    def path(self) -> Path:
        """The callers, and the function."""
        return (*self.callers, self.function)


class StackComparison(Record):
    """One phase of one case in a diagnostic run of the judged guests, virtual, per unit of work.

    ``total`` is what the kernel executed on any path.  ``rows`` are all paths, callers before what
    they called; ``listed`` are the numbers of those whose own instructions changed, the most first.
    ``focus`` is the longest path that ``focus_share`` of all changed instructions are on or below;
    empty where nothing changed or no path has most of it.
    """

    twin: str
    case: str
    phase: str
    unit_title: str
    seeds: tuple[int, ...]
    total: Paired
    rows: tuple[StackRow, ...]
    listed: tuple[int, ...]
    focus: Path
    focus_share: float


def _counted(run: PhaseProfile) -> Iterator[tuple[Path, str, Sequence[float]]]:
    """Each frame by its path."""
    above: list[str] = []
    for frame in run.stacks or ():
        above = [*above[: frame.depth], frame.function]
        yield tuple(above), "", (frame.instructions, frame.calls)


def _focus(rows: Sequence[StackRow]) -> tuple[Path, float]:
    """The longest path that most of what changed is on or below, and how much of it is."""
    moved: dict[Path, float] = {}
    for row in rows:
        if not row.instructions.is_significant:
            continue
        for depth in range(len(row.path) + 1):
            above = row.path[:depth]
            moved[above] = moved.get(above, 0.0) + abs(row.instructions.difference)
    everything = moved.get((), 0.0)
    most = [path for path, here in moved.items() if path and here >= FOCUS * everything]
    if not everything or not most:
        return (), 0.0
    longest = max(most, key=len)
    return longest, moved[longest] / everything


def _phase(twin: str, here: CountedPhase) -> StackComparison:
    table = counts.table(here, _counted, 2)
    own = table.per_unit[..., 0]
    totals = own.copy()
    at = {path: number for number, path in enumerate(table.keys)}
    # What is below a path is behind it.
    for path, number in reversed(at.items()):
        if path[:-1]:
            totals[..., at[path[:-1]]] += totals[..., number]
    rows = tuple(
        StackRow(callers=path[:-1], function=path[-1], instructions=mine, total=total, calls=calls)
        for path, (mine, calls), total in zip(
            table.keys, table.rows(), paired.columns(*totals), strict=True
        )
    )
    total = paired.pair(*own.sum(axis=-1))
    least = LEAST_SHARE * max(total.base, total.patched)
    changed = [
        number
        for number, row in enumerate(rows)
        if row.function != SMALLER
        and not row.instructions.within_scatter
        and abs(row.instructions.difference) > least
    ]
    changed.sort(key=lambda number: (-abs(rows[number].instructions.difference), number))
    focus, share = _focus(rows)
    return StackComparison(
        twin=twin,
        case=here.case.name,
        phase=here.phase.name,
        unit_title=here.unit_title,
        seeds=here.seeds,
        total=total,
        rows=rows,
        listed=tuple(changed[: counts.MOST_LISTED]),
        focus=focus,
        focus_share=share,
    )


def compare_stacks(recorded: Recorded) -> tuple[StackComparison, ...]:
    """One comparison a twin that followed call stacks, case and phase, where both arms have."""
    return tuple(
        _phase(twin.name, here)
        for twin in recorded.manifest.twins
        for here in counts.phases(recorded, lambda run: run.stacks is not None, twin.name)
        if any(run.stacks for arm in here.runs for run in arm)
    )


EXPLANATION = Explanation(
    "stacks",
    "Call stacks",
    80,
    StackComparison,
    compare_stacks,
    lambda each: each.model_copy(
        update={
            "rows": tuple(each.rows[number] for number in each.listed),
            "listed": tuple(range(len(each.listed))),
        }
    ),
)
