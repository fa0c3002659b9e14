"""What forms share that go into mail: plain ASCII, 75 columns, and the lines beside a table."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from analysis import execution
from analysis.many import MetricRow, SessionComparison
from analysis.model import Finding, MetricComparison
from reports import sentences, wording
from reports.sections import trust
from reports.sentences import of_finding
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


def under(session: SessionComparison) -> str:
    """What all numbers are: counted in virtual time, measured in real time, or a translator's."""
    if session.manifest.experiment.mode == "exact":
        return COUNTED
    return REAL_TIME if session.manifest.provenance.real_time else TRANSLATED


def wrapped(text: str, indent: str = "", hang: str = "  ") -> list[str]:
    """The text as plain ASCII lines of at most 75 columns, continued with ``hang``.

    A word longer than a line is broken: hostile names must not widen a mail.
    """
    return textwrap.wrap(
        ascii_only(text),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + hang,
        break_on_hyphens=False,
    )


def paragraph(*texts: str, hang: str = "") -> list[str]:
    """Each text wrapped, and a blank line below them all; nothing for none."""
    lines = [line for text in texts for line in wrapped(text, hang=hang)]
    return [*lines, ""] if lines else []


def fit(text: str, width: int) -> str:
    """One line of plain ASCII, cut to ``width`` with two dots where it is longer."""
    plain = "".join(" " if c.isspace() else c for c in text)
    plain = plain if plain.isascii() and plain.isprintable() else ascii_only(plain)
    return plain if len(plain) <= width else f"{plain[: max(0, width - 2)]}.."


def measured_under(session: SessionComparison) -> list[str]:
    """:func:`under` as a paragraph."""
    return paragraph(under(session))


def banner(session: SessionComparison) -> list[str]:
    """What the arms differ by beyond the series; nothing where they do not."""
    texts = execution.sentences(session.arms)
    lines = [line for text in texts for line in wrapped(text, "  ")]
    return [*wrapped(f"{execution.LEAD}:"), *lines, ""] if lines else []


def of_host(session: SessionComparison) -> list[Finding]:
    """What is to be known of a wall session's host; nothing in exact mode."""
    return [f for comparison in session.comparisons for f in comparison.host_findings]


def warnings(session: SessionComparison) -> list[str]:
    """What the gate found broken, and the findings that weaken trust."""
    findings = [f for f in [*of_host(session), *session.findings] if f.level == "warning"]
    texts = [trust.check_line(gate) for gate in session.gates if gate.standing != "green"]
    texts += [f"{f.scope}: {of_finding(f)}" for f in findings]
    return paragraph(*(f"WARNING: {text}" for text in texts), hang="  ")


def failures(session: SessionComparison) -> list[str]:
    """``fail:runs`` an arm, for every case in which a run failed."""
    counts, lines = session.failures, []
    for case in sorted({case for (case, _), (bad, _) in counts.items() if bad}):
        arms = [arm.name for arm in session.manifest.arms if (case, arm.name) in counts]
        text = ", ".join(f"{arm} {counts[case, arm][0]}:{counts[case, arm][1]}" for arm in arms)
        lines += wrapped(f"{case}: {text}", "  ")
    return ["fail:runs", *lines, ""] if lines else []


def checked(session: SessionComparison) -> list[str]:
    """What the gate looked at of the arms whose verdicts stand; nothing without a gate."""
    sentence = trust.checks_sentence([gate for gate in session.gates if not gate.withholds])
    return paragraph(*([sentence] if sentence else []), hang="  ")


def claims(session: SessionComparison, rows: Sequence[MetricRow]) -> list[tuple[str, list[str]]]:
    """For each metric that is judged its unit and n; interval and verdict, an arm at a time."""
    every = []
    for row in rows:
        lines = []
        for cell in row.others if row.primary else ():
            if cell.against is not None:
                lines.append(judged(cell.arm, cell.against, withheld=cell.withheld))
                lines += [f"A/A: {sentences.noise(cell.against)}"] if cell.against.again else []
        head = f"{row.case} {row.shown_name}, {row.unit}, {wording.row_samples(row)}:"
        every += [(head, lines)] if row.primary else []
    return every


def below(session: SessionComparison, rows: Sequence[MetricRow]) -> list[str]:
    """:func:`claims` as lines."""
    lines = [
        line
        for head, texts in claims(session, rows)
        for line in (*wrapped(head), *(part for text in texts for part in wrapped(text, "  ")))
    ]
    return [*lines, ""] if lines else []


def unmeasured(session: SessionComparison) -> list[str]:
    """Why nothing was measured, each reason once: in place of tables that hold nothing."""
    reasons = dict.fromkeys(metric.judgement.reason for metric in session.primary)
    return paragraph(*(f"{text[0].upper()}{text[1:]}." for text in reasons if text), hang="  ")


def family(session: SessionComparison) -> list[str]:
    """That all verdicts are one family; nothing where there is one."""
    family = [f"{sentences.family(session)}."] if len(session.primary) > 1 else []
    return paragraph(*family, hang="  ")


def judged(arm: str, metric: MetricComparison, *, withheld: bool = False) -> str:
    """``sorted: -1.06% [-1.20, -0.95] at 99%: regression``, with the reason where it needs one.

    Of a change that is ``withheld`` not even the size is said.
    """
    if withheld:
        return f"{arm}: {sentences.verdict(metric)} ({metric.judgement.reason})"
    change = wording.change(metric) if metric.judgement.change else "not measured"
    size = " ".join(filter(None, (change, wording.interval(metric))))
    reason = sentences.reason(metric)
    text = f"{arm}: {size}, n={metric.judgement.pairs}: {sentences.verdict(metric)}"
    return (f"{text} ({reason})" if reason else text).replace(" %", "%")
