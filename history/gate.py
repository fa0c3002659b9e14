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


def of_session(compared: SessionComparison, policy: Policy) -> Gate:
    """The gate of one session: each of its verdicts by the rule that fits."""
    manifest = compared.manifest
    track = (manifest.experiment.name, manifest.guest.name, manifest.experiment.mode)
    messages = _lax(track, manifest.experiment.thresholds, judged_in(manifest.cases), policy)
    shown = per_operation(compared).comparisons
    for comparison, of_operations in zip(compared.comparisons, shown, strict=True):
        partly = comparison.count(Verdict.NOT_TESTED) < len(comparison.primary)
        arms = f"{comparison.manifest.patched} against {comparison.manifest.base}"
        for metric in comparison.primary:
            judged = metric.judgement
            place = PolicyTarget(*track, metric.case, metric.name)
            finding = FINDINGS.get(judged.verdict) if judged.verdict else None
            if finding is None:
                continue
            if finding == "not_tested" and partly:
                finding = "partly_tested"
            if finding == "failed" and judged.blame == "series":
                finding = "broken"
            tested = judged.verdict is not Verdict.NOT_TESTED
            size = judged.change.estimate if judged.change and tested else None
            change = f" {percent(size)}" if size is not None else ""
            code = CODES.get(finding, BLAME_CODES.get(judged.blame, 3))
            smaller = _smaller(policy, place, size, finding)
            text = f"{arms}:{change} ({judged.reason}{smaller})"
            messages.append(_message(policy, place, finding, text, code, size))
        # A message for each phase in which a function changed; its largest change is the size.
        messages += [
            _of_functions(
                policy,
                track,
                each.case,
                each.phase,
                f"{arms}: {changed_per_unit(each)}",
                each.largest_change,
            )
            for each in of_operations.judged_functions
            if each.changed
        ]
    if not any(comparison.primary for comparison in compared.comparisons):
        text = "no metric of this session is judged"
        messages.append(_message(policy, PolicyTarget(*track), "not_tested", text, 3))
    broken = [run for run in compared.failed_runs if run.failure.blame == "series"]
    if broken:
        first = broken[0]
        text = f"{len(broken)} runs, first {first.run_id}: {first.failure.message}"
        messages.append(_message(policy, PolicyTarget(*track), "broken", text, 4))
    exactness = compared.comparisons[0].exactness
    messages += _inexact(track, exactness.status, exactness.text, policy)
    return Gate(_sorted(messages))


def _inexact(
    track: tuple[str, str, str], status: str, words: str, policy: Policy
) -> Iterator[Message]:
    """A repeat that broke the promise of exact mode; one that cannot be compared is a warning."""
    if status in ("inexact", "not checked"):
        message = _message(policy, PolicyTarget(*track), "inexact", words, 3)
        if status == "not checked":
            message = message._replace(level=LEVELS["warn"], code=0)
        yield message


def _of_functions(
    policy: Policy, track: tuple[str, str, str], case: str, phase: str, words: str, size: float
) -> Message:
    place = PolicyTarget(*track, case, f"{phase}.{FUNCTIONS}")
    text = f"{words}{_smaller(policy, place, size, 'functions')}"
    return _message(policy, place, "functions", text, 1, size)


def _smaller(policy: Policy, place: PolicyTarget, size: float | None, finding: Finding) -> str:
    rule = policy.rule(place)
    if getattr(rule, finding) != "fail" or not rule.is_small(size):
        return ""
    return f"; does not fail: below at_least = {100 * rule.at_least:g} %"


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
        last = [entry for entry in mine if entry.night_key == mine[-1].night_key]
        new = {entry.id for entry in last if entry.night_key == newest.night_key}
        for change in listed:
            # One of an earlier night is said again where it is open.
            lasts = is_loss(change) and change.status == "open"
            if change.course[:3] == track and (change.detected_entry in new or lasts):
                messages.append(_of_change(change, policy, new=change.detected_entry in new))
        # Of a track that was not measured tonight its last night still stands.
        messages += [*_lost(last, policy), *_untested(last[-1], policy)]
        messages += _lax(track, mine[-1].thresholds, judged_in(mine[-1].cases), policy)
        messages += _too_few(mine[-1], policy)
        for entry in last:
            words = f"{entry.session}: the repeated run is {entry.exactness}: no evidence"
            messages += _inexact(track, entry.exactness, words, policy)
        for each in of_arms if mine[-1].id in new else ():
            is_new = each.entry in new
            if each.track == track and (each.is_standing or (each.functions and is_new)):
                since = "" if is_new else f"since {each.night}: "
                text = f"{since}{of_functions(each)}; change {each.id}"
                message = _of_functions(policy, track, each.case, each.phase, text, each.size)
                messages.append(_acknowledgeable(message, each))
    gaps = gaps_of(entries, known_changes)
    for gap in gaps:
        place = PolicyTarget(*gap.track, gap.case, gap.metric)
        messages.append(_acknowledgeable(_message(policy, place, gap.kind, gap.line, 3), gap))
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


def _of_change(change: NightlyChange, policy: Policy, *, new: bool) -> Message:
    place = PolicyTarget(*change.course[:5])
    finding: Finding = "regression" if change.verdict is Verdict.REGRESSION else "improvement"
    if change.kind in ("mixed", "lab", "unexplained", "incomparable"):
        finding = change.kind
    # How large a difference is says nothing where it is not judged.
    size = None if finding == "incomparable" else change.estimate
    code = 3 if finding in ("lab", "unexplained", "incomparable") else 1
    since = "" if new else f"since {change.night}: "
    text = f"{since}{change_line(change)}{_smaller(policy, place, size, finding)}"
    return _acknowledgeable(_message(policy, place, finding, text, code, size), change)


def _lax(
    track: tuple[str, str, str], own: Thresholds, judged: Sequence[tuple[str, str]], policy: Policy
) -> list[Message]:
    """Thresholds by which less is found than the policy asks for."""
    lax = laxer(own, policy.thresholds(track, own, judged), judged)
    text = (
        f"{lax}; measure without --set thresholds, or with those of the policy, or write change "
        "and alpha into a rule of the policy"
    )
    return [_message(policy, PolicyTarget(*track), "thresholds", text, 2)] if lax else []


def _too_few(entry: Entry, policy: Policy) -> Iterator[Message]:
    """Cases of an exact night with so few seeds that no verdict can ever come of them."""
    least = pairs_needed(1 - policy.thresholds(entry.track).alpha)
    for case in entry.cases if entry.mode == "exact" else ():
        if len(case.seeds) < least:
            text = f"{len(case.seeds)} seeds; any verdict needs at least {least}"
            yield _message(policy, PolicyTarget(*entry.track, case.name), "too_few", text, 5)


def _lost(measured: Sequence[Entry], policy: Policy) -> Iterator[Message]:
    """Verdicts that one night of one track lost, and a kernel that did not run.

    ``measured`` are all measurements of that night, the first one first.  What the host
    lost is made good by measuring again; a kernel that did not run once is broken.
    """
    for at, entry in enumerate(measured):
        again = at < len(measured) - 1
        of = f"{entry.session}, measured again since: " if again else ""
        for case, conclusion in (
            (of_case, each) for of_case in entry.cases for each in of_case.conclusions
        ):
            finding: Finding = "broken" if conclusion.blame == "series" else "failed"
            if conclusion.verdict is Verdict.FAILED and (finding == "broken" or not again):
                place = PolicyTarget(*entry.track, case.name, conclusion.metric)
                code = BLAME_CODES.get(conclusion.blame, 3)
                yield _message(policy, place, finding, f"{of}{conclusion.reason}", code)


def _untested(entry: Entry, policy: Policy) -> Iterator[Message]:
    """Phases of a night in which nothing ran that differs between two arms."""
    for (arm, against), pairs in entry.of_series.items():
        idle = [pair for pair in pairs if pair[1].verdict is Verdict.NOT_TESTED]
        finding: Finding = "partly_tested" if len(idle) < len(pairs) else "not_tested"
        for case, conclusion in idle:
            place = PolicyTarget(*entry.track, case, conclusion.metric)
            text = f"{arm} against {against}: ({conclusion.reason})"
            yield _message(policy, place, finding, text, 3)


def _message(
    policy: Policy,
    place: PolicyTarget,
    finding: Finding,
    text: str,
    code: int,
    size: float | None = None,
) -> Message:
    """The message of a finding, as the rule of its place has it; ``size`` is a fraction."""
    action = policy.rule(place).action(finding, size)
    return Message(LEVELS[action], f"{finding}: {place}", text, code if action == "fail" else 0)


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
