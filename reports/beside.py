"""A session's results and those of somebody's own hardware, in one table.

No verdict of the session is made of them: an exit code knows only what the lab measured itself.
"""

from __future__ import annotations

import math
import statistics as plain
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from analysis.many import SessionComparison
from analysis.native import Judged
from analysis.statistics import Welch, as_change, holm, welch
from reports import wording
from reports.document import Block, Column, Heading, Paragraph, Row, Table, listing, row
from reports.native import names_of
from reports.sections.answer import label
from results.native import NativeHead
from results.outside import OutsideMetric

ALPHA = 0.01
COLUMNS = (
    Column("result", left=True),
    Column("base"),
    Column("change"),
    Column("interval"),
    Column("spread", drop=2),
    Column("results", drop=3),
    Column("freedom", drop=1),
    Column("verdict"),
)
MEANING = (
    "Results of {} are of files that were named with --beside. Their interval is Welch's, at 99 %, "
    "of the logarithms, with these degrees of freedom, and Holm's method corrects the p values; "
    "spread is the larger standard deviation of the two arms. They are in no verdict of this "
    "session."
)
NONE = "no verdict"


@dataclass(frozen=True)
class OutsideComparison:
    """One metric of two arms: its test, or why there is none."""

    name: str
    metric: OutsideMetric
    base: Sequence[float]
    other: Sequence[float]
    test: Welch | None
    why: str

    @property
    def spread(self) -> float | None:
        """The larger relative standard deviation of the arms; None where none is known."""
        known = []
        for values in (self.base, self.other):
            mean = plain.fmean(values)
            known += [plain.stdev(values) / mean] if len(values) > 1 and mean else []
        for arm, deviation in self.metric.deviations.items():
            mean = plain.fmean(self.metric.values[arm])
            known += [deviation / mean] if mean else []
        return max(known, default=None)

    def word(self, adjusted: float) -> str:
        """What its test says, whose p value is adjusted for all that are shown."""
        if self.test is None:
            return NONE
        if not self.test.interval.excludes(0) or adjusted > ALPHA:
            return "inconclusive"
        if self.metric.more_is_better is None:
            return "differs"
        return "better" if self.metric.more_is_better == (self.test.estimate > 0) else "worse"


def compared(name: str, metric: OutsideMetric, base: str, other: str) -> OutsideComparison:
    """Test a metric of two arms, where it can be tested."""
    before, after = metric.values[base], metric.values[other]
    test, why = None, ""
    if min(*before, *after) <= 0:
        why = "a result is 0"
    elif not metric.single:
        why = "the file does not say of how many results its means are"
    elif min(len(before), len(after)) < 2:
        alone = len(before) == len(after) == 1
        why = f"one result {'an' if alone else 'of an'} arm: no spread is known"
    else:
        test = welch(before, after, 1 - ALPHA)
        why = "" if test else "the results of an arm are equal: no spread is known"
    return OutsideComparison(name, metric, before, after, test, why)


def of_files(pairs: Sequence[OutsideComparison]) -> Iterator[Row]:
    """The metrics of files as rows."""
    tested = [of for of in pairs if of.test]
    p_values = holm([of.test.p for of in pairs if of.test])
    adjusted = dict(zip(map(id, tested), p_values, strict=True))
    for of in pairs:
        base, other = plain.fmean(of.base), plain.fmean(of.other)
        ratio = math.log(other / base) if min(base, other) > 0 else None
        estimate = of.test.estimate if of.test else ratio
        low_high = of.test.interval[:2] if of.test else None
        yield row(
            of.name,
            f"{wording.figure(base, 4)}{wording.after(of.metric.unit or '1')}",
            wording.percent(None if estimate is None else as_change(estimate)),
            wording.between(*map(as_change, low_high)) if low_high else wording.NOTHING,
            wording.spread(of.spread),
            f"{len(of.base)} and {len(of.other)}" if of.metric.single else "unknown",
            f"{of.test.freedom:.1f}" if of.test else wording.NOTHING,
            of.word(adjusted.get(id(of), 1.0)),
        )


def of_native(head: NativeHead, judged: Iterable[Judged]) -> list[Row]:
    """The phases of a session of native mode as rows."""
    return [
        row(
            name,
            f"{wording.figure(each.base_ns, 4)} ns" if each.base_ns else wording.NOTHING,
            wording.percent(wording.estimate(each.change)),
            wording.between(*both) if (both := wording.ends(each.change)) else wording.NOTHING,
            wording.NOTHING,
            f"{each.rounds} rounds",
            wording.NOTHING,
            str(each.verdict),
            strong=True,
        )
        for each, name in names_of(head, judged).items()
    ]


def of_session(session: SessionComparison) -> list[Row]:
    """The judged results of another session as rows, of operations where it has them."""
    many = len(session.comparisons) > 1
    return [
        row(
            f"{metric.case}: {label(pair, metric)}{f' ({session.name_of(pair)})' if many else ''}",
            wording.figure(metric.base.mean, 4) if metric.base else wording.NOTHING,
            wording.change(metric),
            wording.bounds(metric) or wording.NOTHING,
            wording.NOTHING,
            f"{len(metric.pairs)} pairs",
            wording.NOTHING,
            str(metric.judgement.verdict),
            strong=True,
        )
        for pair in session.comparisons
        for metric in pair.primary
    ]


def blocks(
    of_lab: tuple[str, Sequence[Row]],
    metrics: Sequence[OutsideMetric],
    arms: Sequence[str],
    machine: str,
) -> list[Block]:
    """The section: rows of a session, with what measured them, then those of this machine."""
    pairs = [
        compared(f"{metric.name}{f' ({other})' if len(arms) > 2 else ''}", metric, arms[0], other)
        for other in arms[1:]
        for metric in metrics
    ]
    others = [""] * (len(COLUMNS) - 1)
    rows = [row(of_lab[0], *others, faint=True), *of_lab[1]]
    rows += [row(machine, *others, faint=True), *of_files(pairs)]
    reasons: dict[str, list[str]] = {}
    for of in pairs:
        reasons.setdefault(of.why, []).append(of.name)
    return [
        Heading("Beside results of other hardware", 2, "beside"),
        Table("Results", COLUMNS, tuple(rows)),
        *listing(f"{NONE} of {', '.join(of)}: {why}" for why, of in reasons.items() if why),
        Paragraph(MEANING.format(machine), "note"),
    ]
