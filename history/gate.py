"""From a session or a history to an exit code and messages, by a policy: pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from analysis.many import SessionComparison
from analysis.operations import per_operation
from analysis.statistics import pairs_needed
from analysis.verdict import Verdict
from experiment.spec import FUNCTIONS, Thresholds
from history.changes import (
    FunctionsChange,
    Gap,
    NightlyChange,
    function_changes,
    gaps_of,
    is_loss,
    newest_entry,
)
from history.entry import Entry, by_track
from history.policy import Action, Finding, KnownChanges, Policy, PolicyTarget, judged_in, laxer
from history.store import UnreadFile
from history.wording import change_line, of_functions
from reports.sentences import changed_per_unit
from reports.wording import percent
from text import clean_line

Level = Literal["error", "warning", "notice"]
LEVELS: dict[Action, Level] = {"fail": "error", "warn": "warning", "pass": "notice"}
# In the order in which they win; they are those of docs/architecture.md.
ORDER = (4, 1, 3, 2, 5)
BLAME_CODES = {"series": 4, "user": 2}
FINDINGS: dict[Verdict, Finding] = {
    Verdict.NOT_TESTED: "not_tested",
    Verdict.REGRESSION: "regression",
    Verdict.IMPROVEMENT: "improvement",
    Verdict.INCONCLUSIVE: "inconclusive",
    Verdict.UNEXPLAINED: "unexplained",
    Verdict.NOT_JUDGED: "too_few",
    Verdict.FAILED: "failed",
}
CODES = {"regression": 1, "improvement": 1, "inconclusive": 5, "too_few": 5, "unexplained": 5}


class Message(NamedTuple):
    """One line for people; ``code`` is the exit code it asks for, ``change`` its id or empty."""

    level: Level
    title: str
    text: str
    code: int = 0
    change: str = ""


class Gate(NamedTuple):
    """The outcome: what is said, in order, and the exit code."""

    messages: tuple[Message, ...]

    @property
    def exit_code(self) -> int:
        """4 a kernel that does not run, 1 a regression, 3 or 2 a lost verdict, 5 no verdict."""
        codes = {message.code for message in self.messages}
        return next((code for code in ORDER if code in codes), 0)


class _Gating(NamedTuple):
    """Findings of one track, made messages by the rules of its places."""

    policy: Policy
    track: tuple[str, str, str]

    def message(
        self,
        finding: Finding,
        text: str,
        code: int,
        *,
        case: str = "",
        metric: str = "",
        size: float | None = None,
    ) -> Message:
        """The message of a finding; ``size`` is the change as a fraction."""
        place = PolicyTarget(*self.track, case, metric)
        action = self.policy.rule(place).action(finding, size)
        return Message(LEVELS[action], f"{finding}: {place}", text, code if action == "fail" else 0)

    def smaller(self, finding: Finding, case: str, metric: str, size: float | None) -> str:
        """Why a change does not fail that would if it were larger; else empty."""
        rule = self.policy.rule(PolicyTarget(*self.track, case, metric))
        if getattr(rule, finding) != "fail" or not rule.is_small(size):
            return ""
        return f"; does not fail: below at_least = {100 * rule.at_least:g} %"

    def of_functions(self, case: str, phase: str, words: str, size: float) -> Message:
        """Functions that changed in a phase; the largest change is the size."""
        metric = f"{phase}.{FUNCTIONS}"
        text = f"{words}{self.smaller('functions', case, metric, size)}"
        return self.message("functions", text, 1, case=case, metric=metric, size=size)

    def inexact(self, status: str, words: str) -> Iterator[Message]:
        """A repeat that broke the promise of exact mode; a warning where none was compared."""
        if status in ("inexact", "not checked"):
            message = self.message("inexact", words, 3)
            if status == "not checked":
                message = message._replace(level=LEVELS["warn"], code=0)
            yield message

    def lax(self, own: Thresholds, judged: Sequence[tuple[str, str]]) -> list[Message]:
        """Thresholds by which less is found than the policy asks for."""
        lax = laxer(own, self.policy.thresholds(self.track, own, judged), judged)
        text = (
            f"{lax}; measure without --set thresholds, or with those of the policy, or write "
            "change and alpha into a rule of the policy"
        )
        return [self.message("thresholds", text, 2)] if lax else []

    def of_change(self, change: NightlyChange, *, new: bool) -> Message:
        """What is said of a change, which is of an earlier night unless ``new``."""
        case, metric = change.course.case, change.course.metric
        finding: Finding = "regression" if change.verdict is Verdict.REGRESSION else "improvement"
        if change.kind in ("mixed", "lab", "unexplained", "incomparable"):
            finding = change.kind
        # How large a difference is says nothing where it is not judged.
        size = None if finding == "incomparable" else change.estimate
        code = 3 if finding in ("lab", "unexplained", "incomparable") else 1
        since = "" if new else f"since {change.night}: "
        text = f"{since}{change_line(change)}{self.smaller(finding, case, metric, size)}"
        message = self.message(finding, text, code, case=case, metric=metric, size=size)
        return _acknowledgeable(message, change)

    def lost(self, measured: Sequence[Entry]) -> Iterator[Message]:
        """Verdicts that one night of one track lost, and a kernel that did not run.

        ``measured`` are all measurements of that night, the first one first.  What the host
        lost is made good by measuring again; a kernel that did not run once is broken.
        """
        for at, entry in enumerate(measured):
            again = at < len(measured) - 1
            of = f"{entry.session}, measured again since: " if again else ""
            for case in entry.cases:
                for each in case.conclusions:
                    finding: Finding = "broken" if each.blame == "series" else "failed"
                    if each.verdict is Verdict.FAILED and (finding == "broken" or not again):
                        code = BLAME_CODES.get(each.blame, 3)
                        text, metric = f"{of}{each.reason}", each.metric
                        yield self.message(finding, text, code, case=case.name, metric=metric)

    def untested(self, entry: Entry) -> Iterator[Message]:
        """Phases of a night in which nothing ran that differs between two arms."""
        for (arm, against), pairs in entry.of_series.items():
            idle = [pair for pair in pairs if pair[1].verdict is Verdict.NOT_TESTED]
            finding: Finding = "partly_tested" if len(idle) < len(pairs) else "not_tested"
            for case, each in idle:
                text = f"{arm} against {against}: {each.reason}"
                yield self.message(finding, text, 3, case=case, metric=each.metric)


def of_session(compared: SessionComparison, policy: Policy) -> Gate:
    """The gate of one session: each of its verdicts by the rule that fits."""
    manifest = compared.manifest
    track = (manifest.experiment.name, manifest.guest.name, manifest.experiment.mode)
    gating = _Gating(policy, track)
    messages = gating.lax(manifest.experiment.thresholds, judged_in(manifest.cases))
    shown = per_operation(compared).comparisons
    for comparison, of_operations in zip(compared.comparisons, shown, strict=True):
        partly = comparison.count(Verdict.NOT_TESTED) < len(comparison.primary)
        arms = f"{comparison.manifest.patched} against {comparison.manifest.base}"
        for metric in comparison.primary:
            judged, case, name = metric.judgement, metric.case, metric.name
            finding = FINDINGS.get(judged.verdict) if judged.verdict else None
            if finding is None:
                continue
            if finding == "not_tested" and partly:
                finding = "partly_tested"
            if finding == "failed" and judged.blame == "series":
                finding = "broken"
            tested = judged.verdict is not Verdict.NOT_TESTED
            size = judged.change.estimate if judged.change and tested else None
            code = CODES.get(finding, BLAME_CODES.get(judged.blame, 3))
            smaller = gating.smaller(finding, case, name, size)
            reason = f"{judged.reason}{smaller}"
            text = f"{arms}: {reason if size is None else f'{percent(size)} ({reason})'}"
            messages.append(gating.message(finding, text, code, case=case, metric=name, size=size))
        for each in of_operations.judged_functions:
            if each.changed:
                words, most = f"{arms}: {changed_per_unit(each)}", each.largest_change
                messages.append(gating.of_functions(each.case, each.phase, words, most))
    if not any(comparison.primary for comparison in compared.comparisons):
        messages.append(gating.message("not_tested", "no metric of this session is judged", 3))
    broken = [run for run in compared.failed_runs if run.failure.blame == "series"]
    if broken:
        first = broken[0]
        text = f"{len(broken)} runs, first {first.run_id}: {first.failure.message}"
        messages.append(gating.message("broken", text, 4))
    exactness = compared.comparisons[0].exactness
    return Gate(_sorted([*messages, *gating.inexact(exactness.status, exactness.text)]))


def of_history(
    entries: Sequence[Entry],
    changes: Iterable[NightlyChange],
    policy: Policy,
    *,
    problems: Iterable[UnreadFile] = (),
    known_changes: KnownChanges | None = None,
) -> Gate:
    """The gate of the newest night of a history.

    It says what that night changed, what earlier nights left open, which verdicts it lost,
    and what it no longer measures.  ``changes`` are those of ``history.changes.changes_of``
    by the same policy and known changes.
    """
    listed, known_changes = list(changes), known_changes or KnownChanges()
    messages = [
        Message("warning", "history", f"{problem.path.name}: {problem.words}")
        for problem in problems
    ]
    newest = newest_entry(entries)
    if newest is None:
        return Gate(_sorted(messages))
    of_arms = function_changes(entries, known_changes)
    for track, mine in by_track(entries).items():
        gating, newest_of = _Gating(policy, track), mine[-1]
        last = [entry for entry in mine if entry.night_key == newest_of.night_key]
        new = {entry.id for entry in last if entry.night_key == newest.night_key}
        for change in listed:
            # One of an earlier night is said again where it is open.
            lasts = is_loss(change) and change.status == "open"
            if change.course[:3] == track and (change.detected_entry in new or lasts):
                messages.append(gating.of_change(change, new=change.detected_entry in new))
        # Of a track that was not measured tonight its last night still stands.
        messages += [*gating.lost(last), *gating.untested(newest_of)]
        messages += gating.lax(newest_of.thresholds, judged_in(newest_of.cases))
        # With so few seeds no verdict of an exact night can ever come.
        least = pairs_needed(1 - policy.thresholds(track).alpha)
        for case in newest_of.cases if newest_of.mode == "exact" else ():
            if len(case.seeds) < least:
                text = f"{len(case.seeds)} seeds; any verdict needs at least {least}"
                messages.append(gating.message("too_few", text, 5, case=case.name))
        for entry in last:
            words = f"{entry.session}: the repeated run is {entry.exactness}: no evidence"
            messages += gating.inexact(entry.exactness, words)
        for each in of_arms if newest_of.id in new else ():
            is_new = each.entry in new
            if each.track == track and (each.is_standing or (each.functions and is_new)):
                since = "" if is_new else f"since {each.night}: "
                text = f"{since}{of_functions(each)}; change {each.id}"
                message = gating.of_functions(each.case, each.phase, text, each.size)
                messages.append(_acknowledgeable(message, each))
    gaps = gaps_of(entries, known_changes)
    for gap in gaps:
        message = _Gating(policy, gap.track).message(
            gap.kind, gap.line, 3, case=gap.case, metric=gap.metric
        )
        messages.append(_acknowledgeable(message, gap))
    ids = [*(each.id for each in listed), *(gap.id for gap in gaps), *(c.id for c in of_arms)]
    messages += [
        Message("warning", "known changes", words)
        for words in known_changes.notes(ids, newest.night)
    ]
    return Gate(_sorted(messages))


def _acknowledgeable(message: Message, of: NightlyChange | Gap | FunctionsChange) -> Message:
    """The message with the id of what it is of, which fails nothing where somebody knows of it."""
    if of.status not in ("open", "small"):
        message = message._replace(level=LEVELS["pass"], code=0)
    return message._replace(change=of.id)


def _sorted(messages: Iterable[Message]) -> tuple[Message, ...]:
    order = ("error", "warning", "notice")
    return tuple(sorted(messages, key=lambda message: order.index(message.level)))


def workflow_commands(messages: Iterable[Message]) -> str:
    """A line ``::error title=TITLE::TEXT`` for each message; no file is named."""
    lines = []
    for message in messages:
        title = _escaped(message.title).replace(":", "%3A").replace(",", "%2C")
        lines.append(f"::{message.level} title={title}::{_escaped(message.text)}\n")
    return "".join(lines)


def _escaped(text: str) -> str:
    return clean_line(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))
