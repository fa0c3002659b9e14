"""Instructions by call path, counted in diagnostic runs of the judged guests: pure."""

from __future__ import annotations

from collections.abc import Iterator

from analysis import counts
from analysis.counts import CountedPhase, OnePhase, Paired, Recorded, Row
from analysis.explain import Explanation
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


class StackComparison(OnePhase):
    """One phase of one case in a diagnostic run of the judged guests, virtual, per unit of work.

    ``total`` is what the kernel executed on any path.  ``rows`` are all paths, callers before what
    they called; ``listed`` are the numbers of those whose own instructions changed, the most first.
    ``focus`` is the longest path that ``focus_share`` of all changed instructions are on or below;
    empty where nothing changed or no path has most of it.
    """

    twin: str
    total: Paired
    rows: tuple[StackRow, ...]
    listed: tuple[int, ...]
    focus: Path
    focus_share: float


def _counted(run: PhaseProfile) -> Iterator[Row[Path]]:
    """Each frame by its path."""
    above: list[str] = []
    for frame in run.stacks or ():
        above = [*above[: frame.depth], frame.function]
        yield tuple(above), "", (frame.instructions, frame.calls)


def _phase(twin: str, here: CountedPhase) -> StackComparison:
    table = here.table(_counted, 2)
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
            table.keys, table.rows(), counts.columns(*totals), strict=True
        )
    )
    total = counts.pair(*own.sum(axis=-1))
    least = LEAST_SHARE * max(total.base, total.patched)
    changed = [
        number
        for number, row in enumerate(rows)
        if row.function != SMALLER
        and not row.instructions.within_scatter
        and abs(row.instructions.difference) > least
    ]
    changed.sort(key=lambda number: (-abs(rows[number].instructions.difference), number))
    # How much of what changed is on or below each path.
    moved: dict[Path, float] = {(): 0.0}
    for row in rows:
        for depth in range(len(row.path) + 1) if row.instructions.is_significant else ():
            above = row.path[:depth]
            moved[above] = moved.get(above, 0.0) + abs(row.instructions.difference)
    everything = moved[()]
    most = [path for path, size in moved.items() if path and size >= FOCUS * everything > 0]
    focus = max(most, key=len, default=())
    return StackComparison(
        **here.where,
        twin=twin,
        total=total,
        rows=rows,
        listed=tuple(changed[: counts.MOST_LISTED]),
        focus=focus,
        focus_share=moved[focus] / everything if focus else 0.0,
    )


def compare_stacks(recorded: Recorded) -> Iterator[StackComparison]:
    """One comparison a twin that followed call stacks, case and phase, where both arms have."""
    for twin in recorded.manifest.twins:
        for here in counts.phases(recorded, lambda run: run.stacks is not None, twin.name):
            if any(run.stacks for run in here.every):
                yield _phase(twin.name, here)


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
