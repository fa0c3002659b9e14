"""A session of any number of arms: a comparison for each pair that is asked for, and all by arm.

The comparisons of a session are pairs, each a view of two arms.  Its rows are the same numbers laid
beside each other: for each metric of each case one cell an arm, with the arm's own values and its
change from the session's base.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from analysis import statistics
from analysis.comparison import compare_views, gated, summarize, unfinished
from analysis.model import (
    CaseComparison,
    Comparison,
    Exactness,
    FailedRun,
    Finding,
    MetricComparison,
    Reference,
    ReportError,
    Summary,
    is_share,
)
from analysis.native import TimedArms
from analysis.verdict import Change, Verdict, change_of
from experiment.plan import AGAIN
from experiment.spec import Direction, Thresholds
from results.record import ArmGate, ArmRecord, Manifest, Record
from results.session import MeasuredSession
from results.units import shown_name

# Columns that a reader of such a table asks for beside what is judged, where they are there.
CHOSEN = ("runtime", "slowpath_share")
# From here on cases are read in one table.
MANY_CASES = 4


@dataclass(frozen=True)
class ArmCell:
    """One metric of one case on one arm.

    ``values`` are the arm's, by block.  ``against`` is its comparison with the session's
    base; None for the base itself, and where only steps are compared.  ``change`` is
    that of ``against``, or else computed in the same way without any verdict.  It is
    ``withheld`` where a wall session claims nothing of it, not even a size.
    """

    arm: str
    values: dict[int, float]
    summary: Summary | None
    against: MetricComparison | None
    change: Change | None
    published: tuple[Reference, ...] = ()
    withheld: bool = False

    @property
    def numbers(self) -> tuple[float, ...]:
        """The values in the order of their blocks."""
        return tuple(self.values[block] for block in sorted(self.values))


@dataclass(frozen=True)
class MetricRow:
    """One metric of one case on every arm, the base first."""

    case: str
    name: str
    title: str
    unit: str
    direction: Direction
    primary: bool
    cells: tuple[ArmCell, ...]

    @property
    def short(self) -> str:
        """The metric without its phase."""
        return self.name.rpartition(".")[2]

    @property
    def shown_name(self) -> str:
        """The name where no unit stands beside it: ``4k.virtual_bw`` in virtual time."""
        return shown_name(self.name, self.unit)

    @property
    def phase(self) -> str:
        """The phase that it was measured in."""
        return self.name.partition(".")[0]

    @property
    def base(self) -> ArmCell:
        """The base arm's cell."""
        return self.cells[0]

    @property
    def others(self) -> tuple[ArmCell, ...]:
        """The cells of all arms but the base."""
        return self.cells[1:]

    @property
    def measured(self) -> bool:
        """Whether any arm has a value."""
        return any(cell.values for cell in self.cells)

    @property
    def is_share(self) -> bool:
        """Whether the values are percentages, whose change is said as a difference."""
        return is_share(self.unit)

    def cell(self, arm: str) -> ArmCell:
        """The cell of this arm."""
        return next(cell for cell in self.cells if cell.arm == arm)


def _change_of(
    base: dict[int, float], other: dict[int, float], thresholds: Thresholds
) -> Change | None:
    """The change over the blocks that both have, as verdicts compute it; None without a ratio.

    It has an interval and no verdict: it is no member of the family that is judged.
    """
    blocks = sorted(base.keys() & other.keys())
    try:
        logs = statistics.log_ratios([base[b] for b in blocks], [other[b] for b in blocks])
    except ValueError:
        return None
    level = 1 - thresholds.alpha
    rank = statistics.signed_rank_interval(logs, level)
    within = statistics.wider(rank, statistics.t_interval(logs, level))
    return change_of(statistics.mean(logs), within, level, statistics.hodges_lehmann(logs))


def _rows(arms: Sequence[str], comparisons: Sequence[Comparison]) -> tuple[MetricRow, ...]:
    """Every metric of every case on every arm, the base first.

    Primary metrics come first in each case; also those without values are there.
    """
    first, base = comparisons[0], arms[0]
    rows = []
    for metric in (metric for case in first.cases for metric in case.metrics):
        values: dict[str, dict[int, float]] = {arm: {} for arm in arms}
        against: dict[str, MetricComparison] = {}
        for comparison in comparisons:
            own, manifest = comparison.metric(metric.case, metric.name), comparison.manifest
            for pair in own.pairs if own else ():
                values[manifest.base][pair.block] = pair.base
                values[manifest.patched][pair.block] = pair.patched
            if own and manifest.base == base:
                against[manifest.patched] = own
        cells = []
        for arm, of_arm in values.items():
            judged, change = against.get(arm), None
            if judged:
                change = judged.judgement.change
            elif arm != base:
                thresholds = first.manifest.experiment.thresholds
                change = _change_of(values[base], of_arm, thresholds)
            cells.append(
                ArmCell(
                    arm=arm,
                    values=of_arm,
                    summary=summarize(list(of_arm.values())),
                    against=judged,
                    change=change,
                    published=judged.published if judged else (),
                    withheld=judged is not None and first.withholds(judged),
                )
            )
        about = ("case", "name", "title", "unit", "direction", "primary")
        rows.append(
            MetricRow(**{name: getattr(metric, name) for name in about}, cells=tuple(cells))
        )
    return tuple(rows)


def chosen_columns(rows: Sequence[MetricRow]) -> tuple[MetricRow, ...]:
    """What a table with a row an arm has columns for: what is judged, and what is chosen."""
    primary = [row for row in rows if row.primary]
    published = [row for row in rows if any(cell.published for cell in row.cells)]
    preferred = [row for short in CHOSEN for row in rows if row.short == short and row.measured]
    return tuple({(row.case, row.name): row for row in (*primary, *preferred, *published)}.values())


class Step(NamedTuple):
    """One arm after the first: what it adds to the arm before, and all up to it.

    ``own`` is its comparison with the arm before, ``cell`` its values and its change
    from the first arm.  ``number`` is its place in the series: two with a dash where arms between
    are not there, as of patches that do not build alone.
    """

    number: str
    arm: ArmRecord
    own: MetricComparison
    cell: ArmCell

    @property
    def title(self) -> str:
        """The patch, as the arm is labelled, without the number that stands before it anyway."""
        return re.sub(r"^\d+: ", "", self.arm.label) or self.arm.name


class SessionComparison(Record):
    """Everything a form may say about a session; one comparison where it has two arms.

    ``comparisons`` are in the order the experiment asks for them; each holds the
    session's head cut to its two arms.  ``rows`` has the same numbers by arm: each metric of
    each case on every arm.  ``timed`` is what native mode measured of the same arms.
    """

    manifest: Manifest
    comparisons: tuple[Comparison, ...]
    rows: tuple[MetricRow, ...]
    timed: TimedArms | None = None

    @property
    def is_pair(self) -> bool:
        """Whether one pair of arms is all that is compared: its name need not be said."""
        return len(self.comparisons) == 1

    def name_of(self, comparison: Comparison) -> str:
        """``base -> patched``; empty of the only pair of a session."""
        return "" if self.is_pair else comparison.name

    @property
    def arms(self) -> tuple[ArmRecord, ...]:
        """The arms, base first, without the A/A arm."""
        return tuple(arm for arm in self.manifest.arms if arm.name != AGAIN)

    @property
    def cases(self) -> tuple[CaseComparison, ...]:
        """The cases, of the first pair: their names, sizes and phases are those of all."""
        return self.comparisons[0].cases

    @property
    def exactness(self) -> Exactness:
        """Whether the session is bit-exact: one repeat speaks for all arms."""
        return self.comparisons[0].exactness

    @property
    def primary(self) -> tuple[MetricComparison, ...]:
        """Everything that is judged, comparison by comparison."""
        return tuple(metric for comparison in self.comparisons for metric in comparison.primary)

    @property
    def failed_runs(self) -> tuple[FailedRun, ...]:
        """Every run that is no data point, once."""
        by_id = {
            run.run_id: run for comparison in self.comparisons for run in comparison.failed_runs
        }
        return tuple(by_id.values())

    @property
    def failures(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Failed and recorded runs, by case and arm; in wall mode those of the A/A arm, too."""
        counts = {}
        for manifest, count in (
            (each.manifest, count) for each in self.comparisons for count in each.failure_counts
        ):
            counts[count.case, manifest.base] = count.base_failed, count.base_runs
            counts[count.case, manifest.patched] = count.patched_failed, count.patched_runs
            if count.again is not None:
                counts[count.case, AGAIN] = count.again
        return counts

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every finding of any comparison, once."""
        findings: list[Finding] = []
        for comparison in self.comparisons:
            findings += [each for each in comparison.findings if each not in findings]
        return tuple(findings)

    @property
    def gates(self) -> tuple[ArmGate, ...]:
        """What the gate found of each arm, once; empty where none was asked."""
        by_arm = {gate.arm: gate for comparison in self.comparisons for gate in comparison.gates}
        return tuple(by_arm[arm.name] for arm in self.manifest.arms if arm.name in by_arm)

    @property
    def is_by_steps(self) -> bool:
        """Whether each arm is compared with the one before, and there is more than one step."""
        return self.manifest.experiment.compare == "steps" and len(self.arms) > 2

    def of_case(self, case: str) -> tuple[MetricRow, ...]:
        """The rows of one case."""
        return tuple(row for row in self.rows if row.case == case)

    @property
    def steps(self) -> tuple[tuple[str, Comparison], ...]:
        """Each arm's comparison with the last one before it that was compared, and its number.

        None where the session is not by steps.
        """
        at = {arm.name: number for number, arm in enumerate(self.arms)}
        nearest: dict[int, tuple[int, Comparison]] = {}
        for each in self.comparisons if self.is_by_steps else ():
            before, arm = at[each.manifest.base], at[each.manifest.patched]
            if before >= nearest.get(arm, (0,))[0]:
                nearest[arm] = (before, each)
        return tuple(
            (str(arm) if before == arm - 1 else f"{before + 1}-{arm}", comparison)
            for arm, (before, comparison) in sorted(nearest.items())
        )

    def course(self, row: MetricRow) -> tuple[Step, ...]:
        """The steps of one metric, in order; none where the session is not by steps."""
        arms = {arm.name: arm for arm in self.arms}
        steps = []
        for number, comparison in self.steps:
            own, arm = comparison.metric(row.case, row.name), comparison.manifest.patched
            assert own is not None
            steps.append(Step(number, arms[arm], own, row.cell(arm)))
        return tuple(steps)

    def count(self, verdict: Verdict) -> int:
        """How many primary metrics have this verdict, over all comparisons."""
        return sum(metric.judgement.verdict is verdict for metric in self.primary)


def views(manifest: Manifest) -> list[Manifest]:
    """The session's head, once for each pair of arms that is compared.

    Raises:
        ReportError: an arm that is to be compared is not on record, or there are fewer
            than two.
    """
    arms = {arm.name: arm for arm in manifest.arms}
    pairs = manifest.experiment.compared
    if len(arms) < 2:
        raise ReportError(f"{len(arms)} arms: a comparison has at least 2")
    missing = sorted({name for pair in pairs for name in pair} - set(arms))
    if missing:
        raise ReportError(f"arms not on record: {', '.join(missing)}")
    if set(arms) - {AGAIN} != {arm.name for arm in manifest.experiment.all_arms}:
        raise ReportError(f"arms {', '.join(arms)}: not those of the experiment")
    again = [arm for arm in manifest.arms if arm.name == AGAIN]
    if len(arms) == 2 + len(again):
        return [manifest for _ in pairs]
    return [
        manifest.model_copy(
            update={
                "arms": (arms[base], arms[patched], *again),
                "triage": arms[patched].triage if base == manifest.base else arms[patched].step,
                "series": (*manifest.series, *arms[patched].series),
                "runs_planned": manifest.runs_planned * (2 + len(again)) // len(arms),
            }
        )
        for base, patched in pairs
    ]


def compare_session(session: MeasuredSession, *, explains: bool = True) -> SessionComparison:
    """Return what the session shows, with all verdicts judged as one family.

    Its correctness checks withhold the verdicts of arms that are broken, or were not
    checked though the experiment asks for it.  What is counted is left out where nothing is to be
    explained, which takes most of the time; verdicts are the same but for those that what was
    counted makes unexplained.

    Raises:
        ReportError: as :func:`analysis.comparison.compare_views`, or a record names an arm
            that the manifest does not know.
    """
    manifest = session.manifest
    names = {arm.name for arm in manifest.arms}
    for record in session.records:
        if record.arm not in names:
            raise ReportError(f"{record.run_id}: arm {record.arm!r}: not in the manifest")
    judged = at_last_look(session)
    stopped: tuple[Finding, ...] = ()
    if judged is not session:
        values: dict[str, object] = {
            "judged": len(judged.manifest.seeds),
            "planned": len(manifest.seeds),
            "repeated": manifest.experiment.repeated,
        }
        warning = Finding(level="warning", scope="session", kind="between-looks", values=values)
        stopped = (warning,)
    compared = []
    for view in compare_views(views(judged.manifest), judged, explains=explains):
        checked = gated(view, manifest.base, session.checks)
        findings = (*stopped, *checked.findings)
        compared.append(checked.model_copy(update={"findings": findings}))
    return of_comparisons(judged.manifest, compared)


def at_last_look(session: MeasuredSession) -> MeasuredSession:
    """The session as it was at the last look whose runs are all on record.

    A session that was stopped while it added seeds keeps the verdicts of the look before: to
    judge the runs that happen to be there would be a look that the error rates do not allow for.
    Where not even the first look is complete it is the session itself, unfinished.
    """
    manifest = session.manifest
    looks = manifest.experiment.looks(len(manifest.seeds))
    if not looks.sequential or not unfinished(session):
        return session
    for seeds in sorted(looks.seeds, reverse=True):
        records = tuple(record for record in session.records if record.block < seeds)
        run_ids = {record.run_id for record in records}
        counts = {
            case.name: min(seeds, len(manifest.seeds_of(case.name))) for case in manifest.cases
        }
        until = dataclasses.replace(
            session,
            manifest=manifest.with_seeds(manifest.seeds[:seeds], counts),
            records=records,
            profiles=tuple(each for each in session.profiles if each.run_id in run_ids),
            locks=tuple(each for each in session.locks if each.run_id in run_ids),
        )
        if not unfinished(until):
            return until
    return session


def of_comparisons(manifest: Manifest, comparisons: Sequence[Comparison]) -> SessionComparison:
    """The session of these comparisons, with its numbers by arm."""
    arms = [arm.name for arm in manifest.arms if arm.name != AGAIN]
    return SessionComparison(
        manifest=manifest, comparisons=tuple(comparisons), rows=_rows(arms, comparisons)
    )
