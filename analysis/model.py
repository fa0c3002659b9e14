"""The comparison: one frozen record that every form renders, so that forms agree.

Changes, thresholds and interval bounds are fractions of the base value; values
are in the unit of their metric.  ``None`` means "not known", never zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import Field, SkipValidation

from analysis.execution import Execution
from analysis.explain.functions import EXPLANATION as FUNCTIONS
from analysis.explain.functions import HEADLINES, Attribution
from analysis.verdict import Judgement, Verdict
from errors import RecordError
from experiment.spec import Direction
from results.record import (
    ArmGate,
    CaseSize,
    Failure,
    Manifest,
    PhaseRecord,
    Record,
)


class ReportError(RecordError):
    """A session that cannot be compared: says what is missing."""


def is_share(unit: str) -> bool:
    """Whether a metric of this unit is a percentage itself, whose change is one in points."""
    return unit in ("%", "percent")


class Summary(Record):
    """One arm's values over the complete blocks.

    ``mean`` is geometric where all values are above zero, so that patched over
    base is exactly the change; ``stddev`` is the sample deviation as a fraction of
    the mean, None for a single value or a mean of zero.
    """

    mean: float
    stddev: float | None
    minimum: float
    maximum: float
    n: int


class Pair(Record):
    """One block: the same seed on both arms; ``change`` is None where base is zero.

    ``again`` is the value of the A/A arm, None in exact mode.
    """

    block: int
    seed: int
    base: float
    patched: float
    change: float | None
    again: float | None = None


class Reference(Record):
    """A published figure with its change computed from the figures."""

    case: str
    metric: str
    unit: str
    base: float
    patched: float
    change: float
    document: str
    note: str


class Again(Record):
    """A/A of one metric: the base against itself, in the blocks that are judged.

    ``estimate`` is the Hodges-Lehmann change with its interval, None where there is no
    ratio; ``floor`` is half the interval's width, the change that chance alone shows.
    ``needed`` blocks would see ``change``, None where that is not known (fewer than
    eight blocks) or where ``beyond`` is true: more than anybody measures.
    """

    pairs: int
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    level: float
    floor: float | None = None
    sd: float | None = None
    differs: bool = False
    change: float
    needed: int | None = None
    beyond: bool = False


class MetricComparison(Record):
    """One metric of one case on both arms; ``unit`` is as shown ("virtual MiB/s").

    ``again`` is what A/A says of it and ``again_values`` the A/A arm's values; both are
    of wall mode.
    """

    case: str
    name: str
    phase: str
    title: str
    unit: str
    direction: Direction
    primary: bool
    base: Summary | None
    patched: Summary | None
    pairs: tuple[Pair, ...]
    judgement: Judgement
    published: tuple[Reference, ...] = ()
    again: Again | None = None
    again_values: Summary | None = None


class CaseComparison(Record):
    """One case: its phases as they were run and all its metrics, primary ones first."""

    name: str
    title: str
    size: CaseSize
    phases: tuple[PhaseRecord, ...]
    metrics: tuple[MetricComparison, ...]
    published: tuple[Reference, ...]
    blocks: int

    def metric(self, name: str) -> MetricComparison | None:
        """The metric named ``phase.metric``; None where the case has none."""
        return next((metric for metric in self.metrics if metric.name == name), None)

    @property
    def primary(self) -> tuple[MetricComparison, ...]:
        """The metrics that are judged."""
        return tuple(metric for metric in self.metrics if metric.primary)


class Finding(Record):
    """A fact that weakens trust (``warning``) or that a reader should know (``note``).

    ``kind`` and ``values`` are the fact, ``scope`` what it is of; :mod:`reports.sentences` says it.
    """

    level: Literal["warning", "note"]
    scope: str
    kind: str
    values: dict[str, Any] = Field(default_factory=dict)


class FailedRun(Record):
    """A run that is no data point, with its reason."""

    run_id: str
    case: str
    arm: str
    block: int
    seed: int
    repeat: bool
    failure: Failure


class FailureCount(Record):
    """``fail:runs`` of one case: failed and recorded runs of each arm.

    ``again`` holds both numbers of the A/A arm, None in exact mode.
    """

    case: str
    base_failed: int
    base_runs: int
    patched_failed: int
    patched_runs: int
    again: tuple[int, int] | None = None

    @property
    def any_failed(self) -> bool:
        """Whether a run of any arm failed."""
        return bool(self.base_failed or self.patched_failed or (self.again and self.again[0]))


class Exactness(Record):
    """Whether the repeated run gave the same bits; real time never does."""

    status: Literal["bit-exact", "inexact", "not checked", "not asked", "pending"]
    text: str
    fields: tuple[str, ...] = ()


class DroppedBlock(Record):
    """A block of a case that is left out whole, or would be (``kept``), and why.

    ``failed`` is true where one of its runs failed: that is not the host's doing.
    """

    case: str
    block: int
    reason: str
    failed: bool = False
    kept: bool = False


class HostCheck(Record):
    """A check of the host that was not ok before the session."""

    name: str
    status: str
    found: str


class WallFacts(Record):
    """The host of a wall session, and what it spoilt.

    ``images`` is of how many kernel images all arms are: of each there is one build, whose layout
    no interval has in it.
    """

    accelerator: str
    real_time: bool
    checks: tuple[HostCheck, ...] = ()
    images: int = 1
    dropped: tuple[DroppedBlock, ...] = ()

    def without(self, case: str) -> frozenset[int]:
        """The blocks of a case that are left out."""
        return frozenset(each.block for each in self.dropped if each.case == case and not each.kept)

    def reasons(self, case: str) -> tuple[str, ...]:
        """Why blocks of a case are left out for the host's sake."""
        blocks = (d for d in self.dropped if d.case == case and not (d.kept or d.failed))
        return tuple(block.reason for block in blocks)


class Comparison(Record):
    """Everything a form may say about a session.

    ``wall`` is None in exact mode, and ``host_findings``, which stand beside the verdict,
    are empty.  ``gates`` are what the gate found of the two arms, empty where none was asked.
    ``explained`` are the explanations of :mod:`analysis.explain` by name, made where they are read.
    """

    manifest: Manifest
    cases: tuple[CaseComparison, ...]
    findings: tuple[Finding, ...]
    failed_runs: tuple[FailedRun, ...]
    failure_counts: tuple[FailureCount, ...]
    exactness: Exactness
    runs_recorded: int
    executions: tuple[Execution, ...] = ()
    explained: SkipValidation[Mapping[str, tuple[Record, ...]]] = Field(default_factory=dict)
    wall: WallFacts | None = None
    host_findings: tuple[Finding, ...] = ()
    gates: tuple[ArmGate, ...] = ()

    @property
    def attributions(self) -> tuple[Attribution, ...]:
        """Functions by phase and unit of work."""
        return FUNCTIONS.of(self)

    @property
    def name(self) -> str:
        """``base -> patched``."""
        return f"{self.manifest.base} -> {self.manifest.patched}"

    @property
    def headlines(self) -> tuple[Attribution, ...]:
        """The attribution of each phase that is shown in full: per its first unit."""
        return HEADLINES.of(self)

    @property
    def judged_functions(self) -> tuple[Attribution, ...]:
        """The headlines, of which none is judged where an arm is broken or was not checked."""
        return () if any(gate.withholds for gate in self.gates) else self.headlines

    def withholds(self, metric: MetricComparison) -> bool:
        """Whether nothing at all is claimed of a metric, not even a size; never in exact mode."""
        if self.wall is None:
            return False
        differs = metric.again is not None and metric.again.differs
        return differs or not self.wall.real_time

    @property
    def measured(self) -> bool:
        """Whether any number may be shown, or the code is the same."""
        values = any(metric.base for case in self.cases for metric in case.metrics)
        return values or self.manifest.same_code

    @property
    def primary(self) -> tuple[MetricComparison, ...]:
        """All metrics that are judged, case by case."""
        return tuple(metric for case in self.cases for metric in case.primary)

    def with_metrics(self, change: Callable[[MetricComparison], MetricComparison]) -> Comparison:
        """The same with each metric changed."""
        cases = tuple(
            case.model_copy(update={"metrics": tuple(map(change, case.metrics))})
            for case in self.cases
        )
        return self.model_copy(update={"cases": cases})

    def metric(self, case: str, name: str) -> MetricComparison | None:
        """The metric of this name of a case; None where the pair has none."""
        own = (each for each in self.cases if each.name == case)
        return next((metric for each in own if (metric := each.metric(name))), None)

    @property
    def published(self) -> tuple[Reference, ...]:
        """All published figures of the experiment."""
        return tuple(reference for case in self.cases for reference in case.published)

    def count(self, verdict: Verdict) -> int:
        """How many primary metrics have this verdict."""
        return sum(metric.judgement.verdict is verdict for metric in self.primary)
