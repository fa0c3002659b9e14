"""What a gate makes of what is found, as data: a policy, and changes that people know of.

The first rule whose patterns fit decides; what fits none is judged by the defaults.  Changes that
are acknowledged by their id fail no gate, and all are shown.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, PrivateAttr, field_validator

from experiment.frozen import Frozen
from experiment.load import load
from experiment.spec import WALL_CHANGE, Thresholds, of_case
from history.entry import CaseEntry, Entry, Hex12, Night
from results.record import CaseRecord
from results.units import read_name, recorded_name

# Names as experiments, guests, cases, metrics and arms have them: short and long, with
# every character that such names begin and end with.
USUAL = (
    *("a", "z", "0", "9", "q7", "x" * 60, "filemap-v4", "laptop", "filemap-4k", "swap_out"),
    *("4k.bw", "thp.guest_ns_per_io", "tonight", "base"),
)


def fraction(value: float, most: float) -> float:
    """``value`` itself, where it is a fraction up to ``most``.

    Raises ValueError: it is larger, which is a percentage written as a fraction.
    """
    if value <= most:
        return value
    raise ValueError(
        f"found {value:g}: is a fraction, so {100 * value:g} %; allowed: at most {most:g} "
        f"({100 * most:g} %); did you mean {value / 100:g} ({value:g} %)?"
    )


def fits_everything(pattern: str) -> bool:
    """Whether a pattern of shells fits whatever a name may be, however it is spelled."""
    return all(fnmatchcase(name, pattern) for name in USUAL)


Action = Literal["fail", "warn", "pass"]
Finding = Literal[
    "regression",
    "improvement",
    "inconclusive",
    "failed",
    "broken",
    "mixed",
    "lab",
    "unexplained",
    "incomparable",
    "inexact",
    "too_few",
    "stale",
    "ended",
    "seeds",
    "thresholds",
    "functions",
    "not_tested",
    "partly_tested",
]
# The smallest changes of metrics that have their own, by case and metric.
WorkloadThresholds = Mapping[tuple[str, str], float]
# A regression of a tenth that must not fail anything is a unit that was mistaken.
MOST = 0.1


class PolicyTarget(NamedTuple):
    """What a finding is of; ``case`` and ``metric`` are empty where it is of a whole night."""

    experiment: str
    guest: str
    mode: str
    case: str = ""
    metric: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (*self[:4], read_name(self.metric))))


class Rule(Frozen):
    """What is made of each finding where the patterns fit."""

    experiment: str = "*"
    """Pattern of names, as in a shell."""
    guest: str = "*"
    """Pattern of guests."""
    mode: str = "*"
    """Pattern: ``exact``, ``wall`` or ``*``."""
    case: str = "*"
    """Pattern of cases."""
    metric: str = "*"
    """Pattern of metrics (``4k.instructions``, which is ``4k.path`` on record)."""
    at_least: Annotated[float, Field(ge=0)] = 0.0
    """Smaller changes (a fraction) never fail."""
    change: Annotated[float, Field(gt=0)] | None = None
    """Smallest change that matters, a fraction, by which the history is judged; without it 0.0025,
    in wall mode 0.01.
    """
    alpha: Annotated[float, Field(ge=0.001, le=0.1)] | None = None
    """Error rate by which the history is judged; without it 0.01."""
    regression: Action = "fail"
    """A judged metric became worse."""
    improvement: Action = "pass"
    """A judged metric became better."""
    inconclusive: Action = "warn"
    """A judged metric has no verdict, and more seeds would give one."""
    failed: Action = "fail"
    """A verdict was lost."""
    broken: Action = "fail"
    """A kernel does not build, boot or pass its checks."""
    mixed: Action = "warn"
    """A change on a night on which the environment changed too, without a control arm."""
    lab: Action = "pass"
    """The environment changed a number."""
    unexplained: Action = "fail"
    """The same code in the same environment has other numbers; of a session: a change that the
    functions that differ cannot have made.
    """
    incomparable: Action = "fail"
    """A night with too few seeds in common with those before for any verdict."""
    inexact: Action = "fail"
    """A night or session whose repeated run gave other numbers."""
    too_few: Action = "fail"
    """A case with fewer seeds or blocks than any verdict needs."""
    stale: Action = "fail"
    """A track has no entry of the newest night."""
    ended: Action = "fail"
    """A case, metric or arm that the newest night has not."""
    seeds: Action = "fail"
    """A case measured on other or fewer seeds than before."""
    thresholds: Action = "fail"
    """A night or session judged by laxer thresholds than the policy's."""
    not_tested: Action = "fail"
    """None of the functions that differ between two arms of a session ran in any judged phase."""
    partly_tested: Action = "warn"
    """They ran in some judged phases of the session, and in others not."""
    functions: Action = "pass"
    """Functions that changed between arms of a session or of the newest night, of the metric
    ``PHASE.functions``, whatever the verdict on the whole phase is.
    """

    @field_validator("at_least", "change")
    @classmethod
    def _are_fractions(cls, value: float | None) -> float | None:
        return value if value is None else fraction(value, MOST)

    def _mistakes(self) -> Iterator[str]:
        if self.alpha is not None and self.is_of_some:
            yield (
                "alpha: is of a whole night, and this rule of some of its metrics; write it "
                "into a rule without case and metric"
            )

    @property
    def is_of_some(self) -> bool:
        """Whether it is of some cases or metrics, and not of whole nights."""
        return not (fits_everything(self.case) and fits_everything(self.metric))

    @property
    def patterns(self) -> tuple[str, ...]:
        """In the order of a :class:`PolicyTarget`."""
        metric = recorded_name(self.metric)
        return (self.experiment, self.guest, self.mode, self.case, metric)

    def fits(self, place: PolicyTarget) -> bool:
        """Whether all patterns fit; a finding of a whole night fits any case and metric."""
        return all(
            not name or fnmatchcase(name, pattern)
            for name, pattern in zip(place, self.patterns, strict=True)
        )

    def action(self, finding: Finding, size: float | None = None) -> Action:
        """What is made of a finding; ``size`` is the change as a fraction."""
        action: Action = getattr(self, finding)
        return "warn" if action == "fail" and self.is_small(size) else action

    def is_small(self, size: float | None) -> bool:
        """Whether a change is smaller than ``at_least``."""
        return size is not None and abs(size) < self.at_least

    def hides(self, other: Rule) -> bool:
        """Whether whatever fits ``other`` fits this one, too."""
        pairs = zip(self.patterns, other.patterns, strict=True)
        return all(fits_everything(mine) or mine == theirs for mine, theirs in pairs)


class Policy(Frozen):
    """The whole file."""

    rules: tuple[Rule, ...] = ()
    """In order: the first whose patterns fit decides; what fits none is judged by the defaults."""
    _of_workloads: WorkloadThresholds = PrivateAttr(default_factory=dict)

    def with_workloads(self, own: WorkloadThresholds) -> Policy:
        """The policy for workloads whose metrics have smallest changes of their own, by (case,
        metric).

        They hold in exact mode, where no rule with a ``change`` names the case or the metric.
        """
        policy = self.model_copy()
        policy._of_workloads = own
        return policy

    def _mistakes(self) -> Iterator[str]:
        for (first, before), (at, rule) in itertools.combinations(enumerate(self.rules), 2):
            if before.hides(rule):
                yield (
                    f"rules: rules[{at}] is never reached: whatever it is of is decided by "
                    f"rules[{first}]; write the narrower rule first"
                )

    def rule(self, place: PolicyTarget) -> Rule:
        """The rule that decides for a place."""
        return next((rule for rule in self.rules if rule.fits(place)), Rule())

    def thresholds(
        self,
        track: tuple[str, str, str],
        own: Thresholds | None = None,
        judged: Iterable[tuple[str, str]] = (),
    ) -> Thresholds:
        """The thresholds by which a track is judged: those of the rules, not the night's own.

        What no rule is about (the error rate of "no change") stays as in ``own``.
        """
        target, default = PolicyTarget(*track), Thresholds()
        alphas = [rule.alpha for rule in self.rules if rule.alpha and rule.fits(target)]
        general = self.change(target)
        own_changes = {
            of_case(case, metric): change
            for case, metric in sorted(set(judged))
            if (change := self.change(PolicyTarget(*track, case, metric))) != general
        }
        update = {"change": general, "alpha": [*alphas, default.alpha][0], "metrics": own_changes}
        return (own or default).model_copy(update=update)

    def change(self, place: PolicyTarget) -> float:
        """The smallest change that matters there, a fraction."""
        change = WALL_CHANGE if place.mode == "wall" else Thresholds().change
        of_workload = self._of_workloads.get((place.case, place.metric), 0.0)
        for rule in self.rules:
            if rule.change and rule.fits(place) and (place.metric or not rule.is_of_some):
                change = rule.change
                of_workload = 0.0 if rule.is_of_some else of_workload
                break
        return change if place.mode == "wall" else max(change, of_workload)

    def judging(self, entry: Entry) -> Entry:
        """The entry with the thresholds by which it is judged."""
        thresholds = self.thresholds(entry.track, entry.thresholds, judged_in(entry.cases))
        if thresholds == entry.thresholds:
            return entry
        return entry.model_copy(update={"thresholds": thresholds})


def judged_in(cases: Iterable[CaseEntry | CaseRecord]) -> tuple[tuple[str, str], ...]:
    """The judged metrics of cases, each with its case."""
    return tuple((case.name, metric) for case in cases for metric in case.primary)


def laxer(own: Thresholds, policy: Thresholds, judged: Iterable[tuple[str, str]]) -> str:
    """In what ``own`` are laxer than the policy's, for what is judged; empty where they are not."""
    lines = []
    if own.change > policy.change:
        lines.append(f"change {100 * own.change:g} % and not {100 * policy.change:g} %")
    for case, metric in judged:
        change, limit = own.of(case, metric).change, policy.of(case, metric).change
        if change > limit and (change, limit) != (own.change, policy.change):
            lines.append(f"change of {case} {metric} {100 * change:g} % and not {100 * limit:g} %")
    if own.alpha < policy.alpha:
        lines.append(f"alpha {own.alpha:g} and not {policy.alpha:g}")
    return ", ".join(lines)


# Changes that people know of: configs/known-changes.toml.
Status = Literal["open", "fixed", "small", "acknowledged"]


class KnownChange(Frozen):
    """One entry of the file: a change, by its id, that fails no night before ``until``."""

    change: Hex12
    reason: Annotated[str, Field(min_length=1)]
    until: Night | None = None

    def expired(self, tonight: str) -> bool:
        """Whether it says nothing any more on this night."""
        return self.until is not None and self.until <= tonight


class KnownChanges(Frozen):
    """The whole file."""

    known: tuple[KnownChange, ...] = ()

    def standing(self, change: str, tonight: str) -> tuple[Status, str]:
        """How what has this id stands on the night ``tonight``, and why."""
        why = ""
        for entry in self.known:
            if entry.change == change and not entry.expired(tonight):
                return "acknowledged", entry.reason
            if entry.change == change:
                why = f"acknowledged until {entry.until}, which has come: {entry.reason}"
        return "open", why

    def notes(self, ids: Iterable[str], tonight: str) -> list[str]:
        """What is wrong with entries, a line each; ``ids`` are all of changes and gaps."""
        known_ids, notes = set(ids), []
        for entry in self.known:
            if entry.expired(tonight):
                notes.append(f"{entry.change} until {entry.until} has expired: {entry.reason}")
            elif entry.change not in known_ids:
                words = "names no change; `history show` lists their ids"
                notes.append(f"{entry.change} {words}: {entry.reason}")
        return notes


def load_known(file: Path) -> KnownChanges:
    """Read the file; nothing is known where there is none.

    Raises SpecError: a line for each mistake, with file, key, value found and values allowed.
    """
    return load(file, KnownChanges) if file.exists() else KnownChanges()
