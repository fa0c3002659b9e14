"""One night's comparison of one experiment, as it is kept: values, verdicts, and the setting."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field, model_validator

from analysis.explain.functions import Moved
from analysis.model import Summary
from analysis.verdict import Verdict
from experiment.frozen import MOST, Name
from experiment.plan import AGAIN
from experiment.spec import Mode, Thresholds
from files import digest
from results.profile import PATH, PER_WORK, WORK
from results.record import KernelIdentity, Metric, Record
from results.units import INSTRUCTIONS, shown_unit

SCHEMA_VERSION = 5
# An arm of this name is the same kernel every night: what it moves by is the lab's.
PINNED = "pinned"


def calendar_date(text: str) -> str:
    """``text`` itself, where it is a day that the calendar has, as YYYY-MM-DD.

    Raises ValueError: it is none.
    """
    try:
        good = date.fromisoformat(text).isoformat() == text
    except ValueError:
        good = False
    if not good:
        raise ValueError(f"found {text!r}: is no date; write YYYY-MM-DD, a day the calendar has")
    return text


Night = Annotated[str, AfterValidator(calendar_date)]
# Of a night: a word that its jobs share, as the number of a workflow's run.
NightId = Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,63})?$")]
Hex12 = Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
Value = Annotated[float, Field(allow_inf_nan=False, ge=-MOST["float"], le=MOST["float"])]
Role = Literal["followed", "pinned", "again"]


class Ensemble(Record):
    """One metric of one arm: a value for each seed of its case, None without a valid run."""

    values: tuple[Value | None, ...] = ()
    summary: Summary | None = None


class ArmCase(Record):
    """One arm in one case: its metrics by name, and how many of its runs failed."""

    arm: str
    metrics: dict[str, Ensemble]
    runs: int
    failed: int
    failures: tuple[str, ...] = ()


class Conclusion(Record):
    """What the session's own comparison said of a primary metric: ``arm`` against ``against``.

    Changes are fractions.
    """

    arm: str
    against: str
    metric: str
    verdict: Verdict
    reason: str
    blame: str = ""
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    pairs: int = 0


class ChangedFunction(Record):
    """A kernel function that changed, per unit of work: mean over the seeds on both arms."""

    name: str
    file: str
    base: Value
    patched: Value
    difference: Value
    calls_base: Value
    calls_patched: Value
    moved: tuple[Moved, ...]


class FunctionDifference(NamedTuple):
    """By how much one function differs between two arms; an array of five in the file.

    ``difference`` is in instructions per unit of work; ``size``, a fraction of the phase, is the
    same or what its calls moved, and ``half`` half of the width of its 95 % interval.
    """

    name: str
    file: str
    difference: Value
    size: Value
    half: Value


class ChangedFunctions(Record):
    """What the session's own comparison said of the functions of a phase: ``arm`` to ``against``.

    ``largest`` are the ``analysis.explain.functions.MOST_CHANGED`` largest of the ``count`` that
    changed; the largest difference is ``size`` of the phase, a fraction.
    """

    arm: str
    against: str
    phase: str
    unit_title: str
    tested: int
    count: int
    size: Value = 0.0
    largest: tuple[ChangedFunction, ...] = ()
    differences: tuple[FunctionDifference, ...] = ()


class CaseEntry(Record):
    """One case of the night; ``seeds`` has the seed of each block."""

    name: str
    title: str
    seeds: tuple[int, ...]
    metrics: tuple[Metric, ...]
    primary: tuple[str, ...]
    arms: tuple[ArmCase, ...]
    conclusions: tuple[Conclusion, ...] = ()
    functions: tuple[ChangedFunctions, ...] = ()

    @model_validator(mode="after")
    def _values_fit(self) -> CaseEntry:
        for arm in self.arms:
            for name, ensemble in arm.metrics.items():
                if ensemble.values and len(ensemble.values) != len(self.seeds):
                    raise ValueError(
                        f"{self.name}: {arm.arm}: {name}: {len(ensemble.values)} values for "
                        f"{len(self.seeds)} seeds"
                    )
        return self

    def arm(self, name: str) -> ArmCase | None:
        """The arm of this name; None where the night had none."""
        return next((arm for arm in self.arms if arm.arm == name), None)

    def metric(self, name: str) -> Metric | None:
        """The metric of this name; None where the case has none."""
        return next((metric for metric in self.metrics if metric.name == name), None)

    def shown(self, metric: Metric, mode: Mode) -> tuple[float, str]:
        """By what a value is multiplied for people, and its unit then.

        What is judged of a phase of I/Os is an index; it is shown as the instructions of an I/O
        that needs as much work as one of this night's first arm (:mod:`analysis.operations`).
        """
        phase, _, short = metric.name.rpartition(".")
        if short != PATH:
            return 1.0, shown_unit(metric.unit, mode)
        work = (arm.metrics.get(f"{phase}.{WORK}") for arm in self.arms)
        means = [each.summary.mean for each in work if each and each.summary]
        unit = "I/O" if means else "operation"
        return means[0] / PER_WORK if means else 1.0, f"{INSTRUCTIONS} per {unit}"


class ArmEntry(Record):
    """One arm's kernel and its part; ``settings`` are what it was booted with besides.

    ``commit`` is known for a git source that was asked for by commit.
    """

    name: str
    label: str
    role: Role
    kernel: KernelIdentity
    settings: dict[str, str] = Field(default_factory=dict)
    commit: str = ""

    @property
    def version(self) -> str:
        """What people call the kernel: its commit, else the version of its source package."""
        if self.commit:
            return self.commit[:12]
        _, equals, package = self.kernel.source.partition("=")
        return package if equals else f"{self.kernel.release} ({self.kernel.source[:20]})"


class Entry(Record):
    """One night's comparison of one experiment.

    ``night`` is a date in UTC; ``night_id`` is shared by the sessions of one night, and empty
    where the date is all there is.  ``setting`` has all that may move a number besides the kernel.
    ``looks`` are the numbers of seeds after which its session was judged, empty where one was
    fixed. ``counted`` tells whether functions were counted.
    """

    schema_version: Literal[5] = 5
    night: Night
    night_id: NightId = ""
    created: str
    session: str
    link: str = ""
    # File names are made of these.
    experiment: Name
    title: str
    mode: Mode
    guest: Name
    thresholds: Thresholds
    lab_version: str
    lab_commit: str
    setting: dict[str, str]
    tools: dict[str, str]
    initramfs_sha256: str
    arms: Annotated[tuple[ArmEntry, ...], Field(min_length=1)]
    cases: tuple[CaseEntry, ...]
    exactness: str
    same_code: bool = False
    looks: tuple[int, ...] = ()
    findings: tuple[str, ...] = ()
    counted: bool = False

    @model_validator(mode="after")
    def _names_fit(self) -> Entry:
        arms = [arm.name for arm in self.arms]
        twice = {name for name in arms if arms.count(name) > 1}
        if twice:
            raise ValueError(f"arm named twice: {sorted(twice)[0]!r}")
        for case in self.cases:
            metrics = {metric.name for metric in case.metrics}
            names = {m for arm in case.arms for m in arm.metrics} | {
                s.metric for s in case.conclusions
            }
            arms_named = {each.arm for each in case.arms} | {each.arm for each in case.functions}
            unknown = arms_named - set(arms) or names - metrics
            if unknown:
                raise ValueError(f"{case.name}: neither arm nor metric: {sorted(unknown)[0]!r}")
        return self

    @property
    def id(self) -> str:
        """12 hex digits: a hash of what it is of and not of its numbers, the same for a session."""
        kernels = [f"{arm.name}={arm.kernel.key}" for arm in self.arms]
        key = [*self.track, self.night, self.created, self.session, self.lab_version, *kernels]
        return digest(*key)[:12]

    @property
    def method(self) -> str:
        """By which rule a night's session was judged, in words."""
        return "seeds added until decided" if self.looks else "a fixed number of seeds"

    @property
    def night_key(self) -> str:
        """What entries of one night have in common: its id, or else its date."""
        return self.night_id or self.night

    @property
    def track(self) -> tuple[str, str, str]:
        """Experiment, guest and mode: entries of one track follow each other."""
        return self.experiment, self.guest, self.mode

    @property
    def setting_key(self) -> str:
        """12 hex digits: equal for two nights that only their kernels tell apart."""
        lines = (f"{name}={value}" for name, value in sorted(self.setting.items()))
        return digest("\n".join(lines))[:12]

    @property
    def order(self) -> tuple[str, str, str]:
        """Sorts entries by night, then by when they were made; equal ones by session."""
        return self.night, self.created, self.session

    @property
    def subject(self) -> ArmEntry:
        """The arm that the track is about: the first that is followed."""
        return next((arm for arm in self.arms if arm.role == "followed"), self.arms[0])

    @property
    def pinned(self) -> ArmEntry | None:
        """The pinned arm, where the night had one."""
        return next((arm for arm in self.arms if arm.role == "pinned"), None)

    @property
    def followed(self) -> tuple[ArmEntry, ...]:
        """The arms whose course is watched."""
        return tuple(arm for arm in self.arms if arm.role == "followed")

    @property
    def of_series(self) -> dict[tuple[str, str], list[tuple[str, Conclusion]]]:
        """What was concluded of each pair of arms, with its case, but against the pinned arm."""
        pairs: dict[tuple[str, str], list[tuple[str, Conclusion]]] = {}
        for case in self.cases:
            for each in case.conclusions:
                if role_of(each.against) != "pinned":
                    pairs.setdefault((each.arm, each.against), []).append((case.name, each))
        return pairs

    @property
    def is_fit(self) -> bool:
        """Whether the night's numbers are evidence: an inexact session's are none."""
        return self.exactness != "inexact"

    def ensemble(self, case: str, metric: str, arm: str) -> Ensemble | None:
        """The values of a metric of an arm; None where the night has none."""
        of_case = self.case(case)
        measured = of_case.arm(arm) if of_case else None
        return measured.metrics.get(metric) if measured else None

    def arm(self, name: str) -> ArmEntry | None:
        """The arm of this name."""
        return next((arm for arm in self.arms if arm.name == name), None)

    def case(self, name: str) -> CaseEntry | None:
        """The case of this name."""
        return next((case for case in self.cases if case.name == name), None)


def by_track(entries: Iterable[Entry]) -> dict[tuple[str, str, str], tuple[Entry, ...]]:
    """Entries by experiment, guest and mode; within a track, the oldest first."""
    tracks: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in sorted(entries, key=lambda each: each.order):
        tracks.setdefault(entry.track, []).append(entry)
    return {track: tuple(tracks[track]) for track in sorted(tracks)}


def role_of(name: str) -> Role:
    """The part an arm plays, by its name: ``pinned``, ``base-again``, or followed."""
    if name == PINNED:
        return "pinned"
    return "again" if name == AGAIN else "followed"
