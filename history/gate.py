"""From a session or a history to an exit code and messages, by a policy: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from history.change import Change
from history.entry import Entry
from history.known import Known
from history.policy import Action, Finding, Place, Policy
from history.store import Problem
from history.wording import change_line
from reports.many import SessionComparison
from reports.verdict import Judgement, Verdict
from reports.wording import percent

Level = Literal["error", "warning", "notice"]
LEVELS: dict[Action, Level] = {"fail": "error", "warn": "warning", "pass": "notice"}
# In the order in which they win; they are those of docs/architecture.md.
ORDER = (4, 1, 3, 2, 5)
BLAME_CODES = {"series": 4, "user": 2}


class Message(NamedTuple):
    """One line for people; ``code`` is the exit code it asks for, 0 where it fails nothing."""

    level: Level
    title: str
    text: str
    code: int = 0


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
    messages = []
    for one in compared.comparisons:
        for metric in one.primary:
            place = Place(*track, metric.case, metric.name)
            judged = metric.judgement
            arms = f"{one.manifest.patched} against {one.manifest.base}"
            message = _of_verdict(place, judged, arms, policy)
            messages += [message] if message else []
    broken = [run for run in compared.failed_runs if run.failure.blame == "series"]
    if broken:
        first = broken[0]
        text = f"{len(broken)} runs, first {first.run_id}: {first.failure.message}"
        action = policy.rule(Place(*track)).action("broken")
        messages.append(_message(action, "broken", str(Place(*track)), text, 4))
    return Gate(_sorted(messages))


def _of_verdict(place: Place, judged: Judgement, arms: str, policy: Policy) -> Message | None:
    findings: dict[Verdict | None, Finding] = {
        Verdict.REGRESSION: "regression",
        Verdict.IMPROVEMENT: "improvement",
        Verdict.INCONCLUSIVE: "inconclusive",
        Verdict.FAILED: "failed",
    }
    finding = findings.get(judged.verdict)
    if finding is None:
        return None
    if finding == "failed" and judged.blame == "series":
        finding = "broken"
    size = judged.change.estimate if judged.change else None
    action = policy.rule(place).action(finding, size)
    change = f" {percent(size)}" if size is not None else ""
    code = {"regression": 1, "improvement": 1, "inconclusive": 5}.get(
        finding, BLAME_CODES.get(judged.blame, 3)
    )
    return _message(action, finding, str(place), f"{arms}:{change} ({judged.reason})", code)


def of_history(
    entries: Sequence[Entry],
    changes: Iterable[Change],
    policy: Policy,
    *,
    problems: Iterable[Problem] = (),
    known: Known | None = None,
) -> Gate:
    """The gate of the newest entry of every track: what was first seen in it, and no more."""
    newest: dict[tuple[str, str, str], Entry] = {}
    for entry in sorted(entries, key=lambda each: each.order):
        newest[entry.track] = entry
    told = list(changes)
    messages = [
        Message("warning", "history", f"{problem.path.name}: {problem.words}")
        for problem in problems
    ]
    tonight = max((entry.night for entry in newest.values()), default="")
    for track, entry in sorted(newest.items()):
        place = Place(*track)
        if entry.night < tonight:
            action = policy.rule(place).action("stale")
            text = f"last entry of {entry.night}, others have {tonight}"
            messages.append(_message(action, "stale", str(place), text, 3))
            continue
        messages += [_of_change(c, policy) for c in told if c.seen_entry == entry.id]
        messages += _lost(entry, policy)
    for one in known.expired(tonight) if known and tonight else ():
        messages.append(
            Message("notice", "known changes", f"until {one.until}: can be taken out: {one.reason}")
        )
    return Gate(_sorted(messages))


def _of_change(change: Change, policy: Policy) -> Message:
    place = Place(*change.course[:5])
    finding: Finding = (
        "regression" if change.verdict is Verdict.REGRESSION else "improvement"
    )  # fmt: skip
    if change.kind in ("mixed", "lab", "unexplained"):
        finding = change.kind
    rule = policy.rule(place)
    action = rule.action(finding, change.estimate)
    if change.status != "open":
        action = "pass"
    code = 3 if finding in ("lab", "unexplained") else 1
    return _message(action, finding, str(place), change_line(change), code)


def _lost(entry: Entry, policy: Policy) -> list[Message]:
    """Verdicts that the newest night lost, and a kernel that did not run."""
    messages = []
    for case in entry.cases:
        for said in case.said:
            if said.verdict is not Verdict.FAILED:
                continue
            place = Place(*entry.track, case.name, said.metric)
            finding: Finding = "broken" if said.blame == "series" else "failed"
            code = BLAME_CODES.get(said.blame, 3)
            action = policy.rule(place).action(finding)
            messages.append(_message(action, finding, str(place), said.reason, code))
    return messages


def _message(action: Action, finding: str, place: str, text: str, code: int) -> Message:
    title = f"{finding}: {place}"
    return Message(LEVELS[action], title, text, code if action == "fail" else 0)


def _sorted(messages: Iterable[Message]) -> tuple[Message, ...]:
    order = ("error", "warning", "notice")
    return tuple(sorted(messages, key=lambda message: order.index(message.level)))
