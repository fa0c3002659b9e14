"""Changes that people know of: expected, acknowledged or muted, each with reason and expiry.

    [[known]]
    kind = "muted"                   # or "expected", "acknowledged"
    experiment = "filemap-v4"        # experiment, guest, case, metric, arm, function: patterns
    metric = "4k.*"
    from = "2026-11-20"              # nights on which the change may begin
    until = "2026-12-20"             # from this night on the entry says nothing any more
    at_most = 0.03                   # a larger change is open all the same; 0.05 by default
    reason = "accounting of folios, under discussion"

    [[known]]
    kind = "acknowledged"
    change = "0123456789ab"          # the id that `gate` and `history show` print
    reason = "accepted in the mail of 2026-11-19"

``expected`` is written before the change comes, ``acknowledged`` after; ``muted`` silences
what a course says whatever it is.  The difference is in the words: none of them fails a
gate, and all are shown.  What an entry says is asked on the night that is judged: when its
``until`` has come, what it was about is open again.  Only what is acknowledged by its id is
so for good, for nothing else can hide behind it.

Entries that name a change by its id come first; of the others the first that is about a
change decides, so that no later entry takes back the limit of an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, field_validator, model_validator

from errors import SpecError
from experiment.frozen import Frozen, closest
from experiment.load import read_toml, validated
from history.entry import Hex12, Night
from history.policy import fit, fits_everything, fraction, has_wildcard, too_late

Status = Literal["open", "fixed", "small", "expected", "acknowledged", "muted"]
FIELDS = ("experiment", "guest", "case", "metric", "arm", "function")
# Of what no entry may silence more by a pattern, and of what it does where it says nothing.
MOST, USUAL = 0.25, 0.05


class Subject(NamedTuple):
    """What an entry may be about: a change, or a gap (``history.changes``).

    ``names`` are those of :data:`FIELDS`, empty where it is of all or of no function; ``size`` is a
    fraction, and 0 where nothing was judged.
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
        return value if value is None else fraction(value, MOST)

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
        return (self.experiment, self.guest, self.case, self.metric, self.arm, self.function)

    @property
    def limit(self) -> float | None:
        """The largest change this is about, as a fraction; None for any."""
        return USUAL if self.at_most is None and self.change is None else self.at_most

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
        of = self.change or " ".join(pattern for pattern in self.patterns if pattern != "*")
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
            likely = closest(pattern, names) if not has_wildcard(pattern) else None
            likely = likely or next((n for n in names if n.lower() == pattern.lower()), None)
            hint = f"did you mean {likely!r}?" if likely else f"there are: {', '.join(names)}"
            return f": no {FIELDS[at]} is {pattern!r}; {hint}"
    return ""


def load_known(file: Path, today: date | None = None) -> KnownChanges:
    """Read the file; nothing is known where there is none.

    ``today`` is that of the host's clock in UTC where it is not given.

    Raises:
        SpecError: a line for each mistake, with file, key, value found and values allowed.
    """
    if not file.exists():
        return KnownChanges()
    known_changes, problems = validated(read_toml(file), KnownChanges)
    if known_changes is None:
        raise SpecError([problem.line(str(file)) for problem in problems])
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
