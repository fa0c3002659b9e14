"""What a gate makes of what is found, as data: a policy, and changes that people know of.

The first rule whose patterns fit decides; what fits none is judged by the defaults.  Known changes
fail no gate, and all are shown.  Entries that name a change by its id come first; of the others
the first that fits decides, so that no later one takes back an earlier one's limit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, PrivateAttr, field_validator, model_validator

from errors import SpecError
from experiment.frozen import Frozen, nearest
from experiment.load import load
from experiment.spec import WALL_CHANGE, Thresholds, of_case
from history.entry import CaseEntry, Entry, Hex12, Night
from results.record import CaseRecord
from results.units import read_name, recorded_name

# A word that is said for longer than this is for ever.
LONGEST = timedelta(days=366)
# Names as experiments, guests, cases, metrics and arms have them: short and long, with
# every character that such names begin and end with.
USUAL = (
    *("a", "z", "0", "9", "q7", "x" * 60, "filemap-v4", "laptop", "filemap-4k", "swap_out"),
    *("4k.bw", "thp.guest_ns_per_io", "tonight", "base"),
)


def fraction(value: float, most: float) -> float:
    """``value`` itself, where it is a fraction up to ``most``.

    Raises:
        ValueError: it is larger, which is a percentage written as a fraction.
    """
    if value <= most:
        return value
    raise ValueError(
        f"found {value:g}: is a fraction, so {100 * value:g} %; allowed: at most {most:g} "
        f"({100 * most:g} %); did you mean {value / 100:g} ({value:g} %)?"
    )


def too_late(text: str, today: date, longest: timedelta = LONGEST) -> str:
    """Why a date is too far ahead of ``today``; empty where it is not."""
    latest = today + longest
    if date.fromisoformat(text) <= latest:
        return ""
    days = (date.fromisoformat(text) - today).days
    return f"found {text!r}: is {days} days ahead of today, {today}; allowed: up to {latest}"


def fits_everything(pattern: str) -> bool:
    """Whether a pattern of shells fits whatever a name may be, however it is spelled."""
    return all(fnmatchcase(name, pattern) for name in USUAL)


def has_wildcard(pattern: str) -> bool:
    """Whether a pattern may fit more than the one name it spells."""
    return any(sign in pattern for sign in "*?[")


def fit(names: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether each name fits its pattern."""
    return all(fnmatchcase(name, pattern) for name, pattern in zip(names, patterns, strict=True))


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
    "suspected",
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
    suspected: Action = "warn"
    """A change of a wall course whose interval contains zero."""
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

    @model_validator(mode="after")
    def _judge_whole_nights(self) -> Rule:
        if self.alpha is not None and self.is_of_some:
            raise ValueError(
                "alpha: is of a whole night, and this rule of some of its metrics; write it "
                "into a rule without case and metric"
            )
        return self

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

    @model_validator(mode="after")
    def _all_rules_are_reached(self) -> Policy:
        for (first, before), (at, rule) in itertools.combinations(enumerate(self.rules), 2):
            if before.hides(rule):
                raise ValueError(
                    f"rules: rules[{at}] is never reached: whatever it is of is decided by "
                    f"rules[{first}]; write the narrower rule first"
                )
        return self

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
Status = Literal["open", "fixed", "small", "expected", "acknowledged", "muted"]
FIELDS = ("experiment", "guest", "case", "metric", "arm", "function")
# Of what no entry may silence more by a pattern, and of what it does where it says nothing.
MOST_SILENCED, USUALLY_SILENCED = 0.25, 0.05


class Subject(NamedTuple):
    """What an entry may be about: a change, or a gap (``history.changes``).

    ``names`` are those of :data:`FIELDS`, empty where it is of all; ``size`` is a fraction, or 0.
    """

    id: str
    names: tuple[str, ...]
    night: str
    verdict: str = ""
    size: float = 0.0


class KnownChange(Frozen):
    """One entry of the file; patterns are those of shells."""

    kind: Literal["expected", "acknowledged", "muted"]
    reason: Annotated[str, Field(min_length=1)]
    until: Night | None = None
    from_: Annotated[Night | None, Field(alias="from")] = None
    change: Hex12 | None = None
    experiment: str = "*"
    guest: str = "*"
    case: str = "*"
    metric: str = "*"
    arm: str = "*"
    function: str = "*"
    direction: Literal["regression", "improvement", "any"] = "any"
    at_most: Annotated[float, Field(gt=0)] | None = None

    @field_validator("at_most")
    @classmethod
    def _is_a_fraction(cls, value: float | None) -> float | None:
        return value if value is None else fraction(value, MOST_SILENCED)

    @model_validator(mode="after")
    def _says_what(self) -> KnownChange:
        if self.change is None and all(map(fits_everything, self.patterns)):
            spelled = [pattern for pattern in self.patterns if pattern != "*"]
            why = f"; {spelled[0]!r} fits everything" if spelled else ""
            raise ValueError(f"change: missing: name a change, or a pattern other than '*'{why}")
        for_good = self.kind == "acknowledged" and self.change is not None
        if self.until is None and not for_good:
            raise ValueError(
                "until: missing: a night, YYYY-MM-DD; what is acknowledged by its id needs none"
            )
        if self.from_ and self.until and self.from_ >= self.until:
            raise ValueError(f"until: {self.until} is not after from = {self.from_}")
        return self

    @property
    def patterns(self) -> tuple[str, ...]:
        """In the order of :data:`FIELDS`."""
        metric = recorded_name(self.metric)
        return (self.experiment, self.guest, self.case, metric, self.arm, self.function)

    @property
    def limit(self) -> float | None:
        """The largest change this is about, as a fraction; None for any."""
        return USUALLY_SILENCED if self.at_most is None and self.change is None else self.at_most

    def is_about(self, subject: Subject) -> bool:
        """Whether this entry is about a change, whatever its size and on whatever night."""
        if self.change is not None and self.change != subject.id:
            return False
        if self.from_ and subject.night < self.from_:
            return False
        if self.direction not in ("any", subject.verdict or "any"):
            return False
        return fit(subject.names, self.patterns)

    def expired(self, tonight: str) -> bool:
        """Whether it says nothing any more on this night."""
        return self.until is not None and self.until <= tonight

    def too_wide(self, courses: Sequence[tuple[str, ...]]) -> bool:
        """Whether it names nothing and fits each of the courses (names by :data:`FIELDS`)."""
        if self.change is not None or not courses:
            return False
        has_name = any(not has_wildcard(pattern) for pattern in self.patterns)
        return not has_name and all(fit(course, self.patterns) for course in courses)

    def title(self) -> str:
        """``muted 4k.* until 2026-12-20``: the entry in a message."""
        of = self.change or " ".join(read_name(each) for each in self.patterns if each != "*")
        return f"{self.kind} {of}{f' until {self.until}' if self.until else ''}"


class KnownChanges(Frozen):
    """The whole file."""

    known: tuple[KnownChange, ...] = ()

    def standing(self, subject: Subject, tonight: str) -> tuple[Status, str]:
        """How a change or gap stands on the night ``tonight``, and why.

        ``open`` where no entry is about it, the entry has expired, or its limit is passed.
        """
        why = ""
        for entry in sorted(self.known, key=lambda candidate: candidate.change is None):
            if not entry.is_about(subject):
                continue
            if entry.expired(tonight):
                why = why or f"{entry.kind} until {entry.until}, which has come: {entry.reason}"
                continue
            if entry.limit is not None and subject.size > entry.limit:
                limit = f"{100 * entry.limit:g} %"
                return "open", f"larger than the {limit} that are {entry.kind}: {entry.reason}"
            return entry.kind, entry.reason
        return "open", why

    def narrow(self, courses: Sequence[tuple[str, ...]]) -> KnownChanges:
        """Without the entries that would silence every course there is."""
        entries = tuple(entry for entry in self.known if not entry.too_wide(courses))
        return self if len(entries) == len(self.known) else KnownChanges(known=entries)

    def notes(
        self, courses: Sequence[tuple[str, ...]], ids: Iterable[str], tonight: str
    ) -> list[tuple[KnownChange, str]]:
        """Entries that say nothing, or must not, each with the reason.

        ``courses`` are all that the history has or had, ``ids`` all of changes and gaps.
        """
        known_ids = set(ids)
        notes = []
        for entry in self.known:
            if entry.too_wide(courses):
                words = "is not applied: it matches everything that is measured; write out a name"
            elif entry.expired(tonight):
                words = "has expired; remove it"
            elif entry.change is not None and entry.change not in known_ids:
                words = "names no change; `history show` lists their ids"
            elif entry.change is None and not any(fit(c, entry.patterns) for c in courses):
                words = f"matches nothing that was ever measured{_hint(entry, courses)}"
            else:
                continue
            notes.append((entry, words))
        return notes


def _hint(entry: KnownChange, courses: Sequence[tuple[str, ...]]) -> str:
    for at, pattern in enumerate(entry.patterns):
        names = sorted({course[at] for course in courses})
        if not any(fit((name,), (pattern,)) for name in names):
            likely = ", ".join(nearest(pattern, filter(None, map(read_name, names))))
            return f": no {FIELDS[at]} is {read_name(pattern)!r}; the nearest are: {likely}"
    return ""


def load_known(file: Path, today: date | None = None) -> KnownChanges:
    """Read the file; nothing is known where there is none.

    ``today`` is that of the host's clock in UTC where it is not given.

    Raises:
        SpecError: a line for each mistake, with file, key, value found and values allowed.
    """
    if not file.exists():
        return KnownChanges()
    known_changes = load(file, KnownChanges)
    today = today or datetime.now(UTC).date()
    late = [
        f"{file}: known[{at}].{key}: {words}; write a nearer one and renew it"
        for at, entry in enumerate(known_changes.known)
        for key, night in (("from", entry.from_), ("until", entry.until))
        if night and (words := too_late(night, today))
    ]
    if late:
        raise SpecError(late)
    return known_changes
