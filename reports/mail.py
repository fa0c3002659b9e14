"""What forms share that go into mail: plain ASCII, 75 columns, and the lines below a table."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from reports import differences, wording
from reports.by_arm import MetricRow
from reports.many import SessionComparison
from reports.model import Finding, MetricComparison
from reports.sections import checks
from results.record import ArmRecord, Manifest
from text import ascii_only

WIDTH = 75
# Stands above the first table of every mail: on a list numbers read as those of hardware.
COUNTED = (
    "All numbers are counted under QEMU TCG -icount: 1 instruction = 1 virtual ns. They are "
    "not a prediction of hardware."
)
REAL_TIME = (
    "All times are real ones of KVM guests on one host. One boot is one sample, and a change "
    "is one of whole blocks."
)
TRANSLATED = (
    "All times are those of a translator (TCG without -icount): they say nothing of any "
    "machine, and no verdict is given."
)


def measured_under(manifest: Manifest) -> str:
    """What all numbers are: counted in virtual time, measured in real time, or a translator's."""
    if manifest.experiment.mode == "exact":
        return COUNTED
    return REAL_TIME if manifest.provenance.real_time else TRANSLATED


def wrapped(text: str, indent: str = "", hang: str = "  ") -> list[str]:
    """The text as plain ASCII lines of at most 75 columns, continued with ``hang``.

    A word longer than a line is broken: hostile names must not widen a mail.
    """
    return textwrap.wrap(
        ascii_only(text), WIDTH, initial_indent=indent, subsequent_indent=indent + hang,
        break_on_hyphens=False,
    )  # fmt: skip


def fit(text: str, width: int) -> str:
    """One line of plain ASCII, cut to ``width`` with two dots where it is longer."""
    plain = ascii_only(text)
    return plain if len(plain) <= width else f"{plain[: max(0, width - 2)]}.."


def chunks(arms: Sequence[ArmRecord], room: int, width: int) -> Iterator[Sequence[ArmRecord]]:
    """The arms but the base, as many at a time as have ``width`` columns each in ``room``."""
    many = max(1, room // width)
    others = arms[1:]
    for at in range(0, len(others), many):
        yield others[at : at + many]


def banner(session: SessionComparison) -> list[str]:
    """What the arms differ by beyond the series; nothing where they do not."""
    sentences = differences.sentences(session.arms)
    if not sentences:
        return []
    return [
        *wrapped(f"{differences.LEAD}:"),
        *(line for s in sentences for line in wrapped(s, "  ")),
        "",
    ]


def of_host(session: SessionComparison) -> list[Finding]:
    """What is to be known of a wall session's host; nothing in exact mode."""
    return [f for comparison in session.comparisons for f in comparison.host_findings]


def warnings(session: SessionComparison) -> list[str]:
    """What the gate found broken, and the findings that weaken trust."""
    findings = [f for f in [*of_host(session), *session.findings] if f.level == "warning"]
    texts = [checks.line(gate) for gate in session.gates if gate.standing != "green"]
    texts += [f"{f.scope}: {f.text}" for f in findings]
    lines = [line for text in texts for line in wrapped(f"WARNING: {text}")]
    return [*lines, ""] if lines else []


def checked(session: SessionComparison) -> list[str]:
    """What the gate looked at of the arms whose verdicts stand; nothing without a gate."""
    sentence = checks.sentence([gate for gate in session.gates if not gate.withholds])
    return [*wrapped(sentence), ""] if sentence else []


def below(session: SessionComparison, rows: Sequence[MetricRow]) -> list[str]:
    """For each metric that is judged its unit, n, interval and verdict, an arm at a time."""
    lines: list[str] = []
    for row in rows:
        if not row.primary:
            continue
        lines += wrapped(f"{row.case} {row.shown_name}, {row.unit}, {wording.row_samples(row)}:")
        for cell in row.others:
            if cell.against is not None:
                lines += wrapped(judged(cell.arm, cell.against, withheld=cell.withheld), "  ")
            if cell.against is not None and cell.against.again is not None:
                lines += wrapped(f"A/A: {wording.noise(cell.against)}", "  ")
    return [*lines, ""] if lines else []


def unmeasured(session: SessionComparison) -> list[str]:
    """Why nothing was measured, each reason once: in place of tables that hold nothing."""
    reasons = (metric.judgement.reason for metric in session.primary)
    sentences = [f"{text[0].upper()}{text[1:]}." for text in dict.fromkeys(reasons) if text]
    lines = [line for text in sentences for line in wrapped(text)]
    return [*lines, ""] if lines else []


def family(session: SessionComparison) -> list[str]:
    """That all verdicts are one family; nothing where there is one."""
    if len(session.primary) < 2:
        return []
    return [*wrapped(f"{wording.family(session)}."), ""]


def judged(arm: str, metric: MetricComparison, *, withheld: bool = False) -> str:
    """``sorted: -1.06% [-1.20, -0.95] at 99%: regression``, with the reason where it needs one.

    Of a change that is ``withheld`` not even the size is said.
    """
    if withheld:
        return f"{arm}: {wording.verdict(metric)} ({metric.judgement.reason})"
    within = wording.interval(metric)
    change = wording.change(metric) if metric.judgement.change else "not measured"
    reason = wording.reason(metric)
    text = f"{arm}: {' '.join(part for part in (change, within) if part)}"
    text = f"{text}, n={metric.judgement.pairs}: {wording.verdict(metric)}"
    return (f"{text} ({reason})" if reason else text).replace(" %", "%")
