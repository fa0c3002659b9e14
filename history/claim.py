"""What a mail says that a commit does to a benchmark, and how a session of ours stands to it.

Read are the mails of the kernel test robot (LKP), of Arm's Fastpath, and of people who name a
commit and a size.  Texts of the mail are a stranger's: they are bounded, and cleaned where shown.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache
from typing import Literal

from analysis.many import SessionComparison
from analysis.verdict import CALLED, Verdict
from errors import UsageError
from experiment.frozen import Frozen
from experiment.load import CONFIGS, load
from history.recall import functions_of, lines_of, locks_of, misses_of, size_of, tested_of
from reports import wording
from reports.headline import headline
from reports.sections import functions
from reports.sections.answer import label
from text import clean, counted

TABLE = CONFIGS / "benchmarks.toml"
LONGEST = 200
# A mail's first part has what it is about; tables of hundreds of metrics follow.
READ = 1 << 16
MOST_NAMES = 100

# With a letter, as dates and counts have none.
HASH = r"\b(?=\d{0,39}[a-f])([0-9a-f]{7,40})\b"
SIZE = r"(?<![\d.])[-+]?(\d{1,5}(?:\.\d{1,3})?)\s?%"
WORSE = r"(?:regress|slow|drop|degrad|decreas|los[st])\w{0,10}|worse|lower|below"
BETTER = r"(?:improv|fast|gain|speed)\w{0,10}|better|higher"
# Of the robot: "noticed a -13.3% regression of will-it-scale.per_thread_ops on:".
# An answer may break the line before "on" and "due to", or have words of its own there.
ROBOT = re.compile(
    rf"{SIZE}\s(regression|improvement)\sof\s([\w-]{{1,60}}\.\S{{1,120}})(?:\s(?:on|due\sto)\b|$)",
    re.I | re.M,
)
# Of Fastpath: "| suite/test | class | 100.0 | (R) -7.58% |", where the suite is named in the first
# of its rows, and mailers break rows anywhere. Each match is a row's beginning or one value.
FASTPATH = re.compile(
    r"^\|\s{0,99}(?:([a-zA-Z][^\s|]{0,119})\s{0,99})?\|\s{0,99}([a-zA-Z][\w.-]{0,60})"
    rf"|\(([RI])\)\s{{1,99}}{SIZE}",
    re.M,
)
WORDS = re.compile(rf"{SIZE}[^.%]{{0,40}}?\b({WORSE}|{BETTER})\b", re.I)
WORDS_BEFORE = re.compile(rf"\b({WORSE}|{BETTER})\b[^.%]{{0,40}}?{SIZE}", re.I)
FACTOR = re.compile(r"(?<![\d.])([1-9]\d{0,3}(?:\.\d)?)\s?(?:x|times)\s(?:as\s)?(slow|fast)", re.I)
KIND = re.compile(r"\b(?:(regressions?|slower|slowdown)|improvements?|faster|speedup)\b", re.I)
# The likeliest first: who bisected says what came of it.
COMMITS = tuple(
    re.compile(pattern, re.I | re.M)
    for pattern in (
        rf"\bcommit(?:-id)?:[ \t]{{0,9}}{HASH}",
        rf"^{HASH} is the first bad commit",
        rf"\bbisect[^.:]{{0,160}}?\bto:?\s{{1,9}}(?:commit[\s\[]{{1,9}})?{HASH}",
        rf"(?:first bad commit|bisect\w{{0,10}}|culprit|caused by|due to|introduced (?:by|in|with)"
        rf"|traced (?:back )?to)[^.]{{0,80}}?{HASH}",
        # A patch of a stable kernel names itself.
        rf"(?<!upstream )\bcommit[\s/\[(]{{1,9}}{HASH}(?! upstream)",
        rf"^fixes:\s+{HASH}",
        rf"\[[\w. -]{{1,40}}\]\s+{HASH}:",
    )
)
RELEASE = r"v?\d\.\d{1,2}(?:\.\d{1,3})?(?:-rc\d{1,2})?\b"
RELEASES = re.compile(
    rf"\b(?:between|from|kernel|linux)\s+({RELEASE})\s+(?:and|to|->|→)\s+({RELEASE})", re.I
)
# Some archives have the whole mail on one line.
MACHINE = re.compile(r"\btest machine: (.{1,200}?)(?=$| (?:with following )?parameters:)", re.M)
# What a person answers to is quoted, often more than once.
QUOTED = re.compile(r"^(?:> ?)+", re.M)
PARAMETER = re.compile(r"(?<!\S)(?:test|case): {0,9}([\w.-]{1,60})(?!\S)")

Change = Literal["regression", "improvement"]


class ReportedChange(Frozen):
    """What is reported: ``size`` is a fraction of the metric, 0 where none is read.

    ``commit`` is what made the change, or ``releases`` are between what it was seen.
    ``benchmark`` has suite, test and metric as far as they are named, with dots.
    """

    by: str
    subject: str
    message_id: str
    commit: str = ""
    releases: tuple[str, ...] = ()
    kind: Change | None = None
    size: float = 0.0
    benchmark: str = ""
    machine: str = ""

    @property
    def text(self) -> str:
        """What is claimed, in a line."""
        size = f"{100 * self.size:g} % " if self.size else ""
        of = f" of {self.benchmark}" if self.benchmark else ""
        by = f"commit {self.commit}" if self.commit else "..".join(self.releases)
        machine = f", on {self.machine}" if self.machine else ""
        return f"{size}{self.kind or 'change'}{of} by {by}{machine}"

    def is_named_by(self, phase: str) -> bool:
        """Whether the reported test is called by what a phase does, as ``unlink2`` is."""
        test = self.benchmark.split(".")[1:2]
        return bool(phase and test and test[0].startswith(phase))


class Benchmark(Frozen):
    """Benchmarks by patterns of their names, and the workloads that do most nearly the same."""

    names: tuple[str, ...]
    workloads: tuple[str, ...]
    likeness: str


class Benchmarks(Frozen):
    """``configs/benchmarks.toml``."""

    benchmark: tuple[Benchmark, ...]

    def nearest(self, name: str) -> Benchmark | None:
        """The entry with the longest pattern that the name's beginning matches; None: not known."""
        matches = {
            len(pattern): each
            for each in reversed(self.benchmark)
            for pattern in each.names
            if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")
        }
        return matches[max(matches)] if matches else None


@cache
def benchmarks() -> Benchmarks:
    """The table that is shipped."""
    return load(TABLE, Benchmarks)


def read(subject: str, body: str, *, by: str, message_id: str, commit: str = "") -> ReportedChange:
    """Read what a mail claims; ``commit`` is what the user says that it is about.

    One that the mail does not name is the same change elsewhere, and none of its words.
    Raises UsageError: it names no commit and no two releases.
    """
    text = f"{subject}\n{QUOTED.sub('', html.unescape(body[:READ]))}"
    releases = RELEASES.search(text)
    matches = (match for pattern in COMMITS if (match := pattern.search(text)))
    named = next((match[1] for match in matches), "")
    hashes = re.findall(HASH, text, re.I)
    is_in_mail = any(each.startswith(commit) or commit.startswith(each) for each in hashes)
    named = commit if commit and (is_in_mail or not named) else named
    if not named and releases is None:
        what = "names no commit and no two releases that are compared"
        step = "say which it is about: --commit HASH"
        raise UsageError(what, where=clean(subject, LONGEST) or "the mail", next_step=step)
    kind, size, benchmark = _change(text)
    machine = MACHINE.search(text)
    return ReportedChange(
        by=clean(by, LONGEST),
        subject=clean(subject, LONGEST),
        message_id=clean(message_id, LONGEST),
        commit=named,
        releases=(releases[1], releases[2]) if releases and not named else (),
        kind=kind,
        size=size,
        benchmark=clean(benchmark, LONGEST),
        machine=clean(machine[1], LONGEST) if machine else "",
    )


def _change(text: str) -> tuple[Change | None, float, str]:
    """Kind, size and benchmark, from the form that says most."""
    if match := ROBOT.search(text):
        kind: Change = "regression" if match[2].lower() == "regression" else "improvement"
        suite, _, metric = match[3].partition(".")
        # The robot names the test among its parameters, and in some metrics.
        test = next((each for each in PARAMETER.findall(text) if each != suite), "")
        test = "" if metric.startswith(test) else test
        return kind, float(match[1]) / 100, ".".join(filter(None, (suite, test, metric)))
    if rows := list(_rows(text)):
        size, mark, name = max(rows)
        return "regression" if mark == "R" else "improvement", size / 100, name
    for pattern, at in ((WORDS, (1, 2)), (WORDS_BEFORE, (2, 1))):
        if match := pattern.search(text):
            worse = re.fullmatch(WORSE, match[at[1]], re.I)
            kind = "regression" if worse else "improvement"
            return kind, float(match[at[0]]) / 100, _benchmark(text, *match.span())
    if match := FACTOR.search(text):
        kind = "regression" if match[2].lower() == "slow" else "improvement"
        return kind, float(match[1]) - 1, _benchmark(text, *match.span())
    if match := KIND.search(text):
        return "regression" if match[1] else "improvement", 0.0, _benchmark(text, *match.span())
    return None, 0.0, _benchmark(text, 0, 0)


def _rows(text: str) -> Iterator[tuple[float, str, str]]:
    """The values of a table of Fastpath that are marked: size, mark, and suite with its class."""
    suite = test = ""
    for named, row, mark, size in FASTPATH.findall(text):
        if row:
            suite, test = named or suite, row
        elif suite:
            name = suite.replace("/", ".")
            yield float(size), mark, name if name.endswith(f".{test}") else f"{name}.{test}"


def _benchmark(text: str, start: int, end: int) -> str:
    """The name nearest to a place that the table has an entry for, with its test if named.

    Others are what a commit is called by, and what else is measured.
    """
    table = benchmarks()
    patterns = [name for each in table.benchmark for name in each.names]
    # "build-" would be any build, as a hyphen may be a space.
    suites = {re.split(r"[.*]", name)[0] for name in patterns} - {"", "build-"}
    of_tests = {name.partition(".")[0] for name in patterns if "." in name}
    words = "|".join(sorted(map(re.escape, suites), key=len, reverse=True)).replace(r"\-", "[- ]")
    spots = re.finditer(rf"\b((?:{words})(?:s|\d)?)\b(?:([./:]| +)([\w-]{{1,60}}))?", text)
    named = sorted(spots, key=lambda match: max(match.start() - end, start - match.end()))
    for match in named[:MOST_NAMES]:
        suite, between, test = match.groups("")
        suite = suite.replace(" ", "-")
        name = f"{suite}.{test}" if between.strip() or suite in of_tests else suite
        for each in (name, suite):
            if table.nearest(each):
                return str(each)
    return ""


class Stands(StrEnum):
    """How a session stands to a claim."""

    PATH = "path"
    OTHER_WAY = "path, the other way"
    LOCK = "lock"
    LINE = "shared line"
    MISSES = "misses"
    LAYOUT = "layout only"
    SILENT = "not reproduced"
    OPEN = "inconclusive"
    NOT_TESTED = "not tested"


# What diagnostic runs may say more of: instructions show nothing.
UNSEEN = (Stands.LAYOUT, Stands.SILENT, Stands.OPEN)


@dataclass(frozen=True)
class ClaimAnswer:
    """What a session says to a claim: a word, and why in a sentence."""

    word: Stands
    why: str


def answer(claim: ReportedChange, session: SessionComparison) -> ClaimAnswer:
    """Hold a session of the claim's commit against it.

    What changes the instructions of a phase is said first, of that one which the reported test is
    named by if there is one; else what other instruments saw:
    locks, lines that move between CPUs, misses of a modelled machine.  Where a phase moved without
    a reason that is known, no other is given.
    """
    comparison = session.comparisons[0]
    tested = tested_of(comparison)
    if not tested:
        return ClaimAnswer(Stands.NOT_TESTED, headline(session).text)
    called = [metric for metric in tested if metric.judgement.verdict in CALLED]
    agreeing = [m for m in called if m.judgement.verdict == (claim.kind or m.judgement.verdict)]
    if agreeing or called:
        largest = max(agreeing or called, key=lambda m: (claim.is_named_by(m.phase), size_of(m)))
        place = f"{largest.case}: {label(comparison, largest)}"
        moved_by = f"{wording.change(largest)} {wording.bounds(largest)}"
        behind = functions.explained(comparison, largest)
        return ClaimAnswer(
            Stands.PATH if agreeing else Stands.OTHER_WAY,
            f"{place} {moved_by}{f', {behind}' if behind else ''}",
        )
    if unexplained := [m for m in tested if m.judgement.verdict is Verdict.UNEXPLAINED]:
        largest = max(unexplained, key=size_of)
        moved_by = f"{wording.change(largest)} {wording.bounds(largest)}"
        what = f"{largest.case}: {label(comparison, largest)} {moved_by}"
        return ClaimAnswer(Stands.OPEN, f"{what}, which no code that differs explains")
    own = functions_of((), comparison)
    if locks := locks_of(own, comparison):
        return ClaimAnswer(Stands.LOCK, f"taken more or less often: {locks}")
    if lines := lines_of(own, comparison):
        return ClaimAnswer(Stands.LINE, lines)
    if misses := misses_of(comparison):
        return ClaimAnswer(Stands.MISSES, misses)
    if any(metric.judgement.verdict is not Verdict.NO_CHANGE for metric in tested):
        return ClaimAnswer(Stands.OPEN, headline(session).text)
    # Nothing changed: because no function did, or although some did.
    changed = sorted({each.name for a in comparison.headlines for each in a.changed})
    if not changed and comparison.headlines:
        why = "no function of these phases executes more or fewer instructions: what is left is "
        return ClaimAnswer(
            Stands.LAYOUT, f"{why}where code and data lie, which exact mode does not see"
        )
    shown = f", though {', '.join(changed[:3])} changed" if changed else ""
    return ClaimAnswer(Stands.SILENT, f"no change in {counted(len(tested), 'result')}{shown}")
