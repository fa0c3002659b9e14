"""The answer: what happened, each result in a line, where it came from, and whether to believe it.

One value for all that begin or end with it: the end of a run, the report, the page, the letter and
the comment of a pull request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from analysis.explain.locks import EXPLANATION as LOCKS
from analysis.explain.modelled import LINES, MEMORY
from analysis.findings import summary
from analysis.many import ArmCell, MetricRow, SessionComparison
from analysis.model import Comparison, MetricComparison
from analysis.verdict import CALLED, PENDING, Verdict
from reports import sentences, wording
from reports.document import (
    Block,
    Cell,
    Column,
    Fold,
    Heading,
    Mono,
    Paragraph,
    Table,
    VerdictRow,
    Verdicts,
    Words,
    facts,
    row,
)
from reports.headline import headline, runs
from reports.sections import View, functions, locks, trust
from reports.sections import counted as counts
from reports.sentences import of_finding
from results.profile import BEFORE, WORK
from results.units import shown_name
from text import counted, in_words

# As many columns of verdicts as a table of arms may have before it is turned around.
MOST_COLUMNS = 4
FIRST = {Verdict.REGRESSION: 0, Verdict.IMPROVEMENT: 1}
# Phases whose functions are named in the answer; all have a section of their own.
MOST_WHY = 3
# Findings that are lines of the answer: what is known of the code that ran, and kept runs.
KEPT = "kept-runs"
OF_ANSWER = {"executed": "Ran", "not-known": "Ran", KEPT: "Kept"}
# On a list numbers read as those of hardware.
COUNTED = (
    "All numbers are counted under emulation (QEMU TCG -icount, 1 instruction is 1 virtual ns), "
    "not measured on hardware."
)
REAL_TIME = (
    "All times are real ones of KVM guests on one host. One boot is one sample, and a change "
    "is one of whole blocks."
)
TRANSLATED = (
    "All times are those of a translator (TCG without -icount): they say nothing of any "
    "machine, and no verdict is given."
)
Line = Callable[[View, Comparison], Iterator[tuple[str, Words]]]


def happened(view: View) -> list[Block]:
    """What happened in a few words, how to go on, and why."""
    result = headline(view.session, view.folder)
    words: Words = f"{result.text}."
    if result.command:
        words = (f"{result.text}; to finish: ", Mono(result.command))
    return [Paragraph(words, "bottom"), *(Paragraph(cause, "cause") for cause in result.causes)]


def is_of(session: SessionComparison) -> str:
    """What all numbers are: counted in virtual time, measured in real time, or a translator's."""
    if session.manifest.experiment.mode == "exact":
        return COUNTED
    return REAL_TIME if session.manifest.provenance.real_time else TRANSLATED


def made(view: View) -> str:
    """Which kernels were compared, how many samples there are of each, and what all numbers are."""
    session, manifest = view.session, view.session.manifest
    many = counted(len(manifest.seeds), manifest.experiment.repeated.removesuffix("s"))
    what = f"{session.arms[0].kernel.release}, {sentences.against(session)}"
    if manifest.same_code and not runs(session).recorded:
        return f"{what}."
    return f"{what}, {many}. {is_of(session)}"


def label(comparison: Comparison, metric: MetricComparison) -> str:
    """``instructions per read``, ``virtual MiB/s``; with the phase where the case has several."""
    text = metric.title.removeprefix(f"{metric.phase}: ").partition(", at ")[0]
    if "bandwidth" in text:
        text = text.replace("bandwidth", metric.unit)
    elif metric.unit not in (text, "%", "1") and metric.name.rpartition(".")[2] != WORK:
        text = f"{text}, {metric.unit}"
    phases = {each.phase for each in comparison.primary if each.case == metric.case}
    return f"{metric.phase}: {text}" if len(phases) > 1 and metric.phase not in text else text


def _verdict(comparison: Comparison, metric: MetricComparison) -> VerdictRow:
    """One result: its values, which of work are costs that nobody has, and why it is none."""
    word, base, patched = sentences.verdict(metric), metric.base, metric.patched
    shown = base and patched and metric.name.rpartition(".")[2] != WORK
    reason = sentences.reason(metric)
    if metric.judgement.limit is not None:
        # The limit stands beside the word.
        reason = PENDING if reason.endswith(PENDING) else ""
    # Fewer than were made, where some are left out.
    few = base is not None and base.n < len(comparison.manifest.seeds)
    return VerdictRow(
        word=sentences.judged(metric),
        style=word,
        mark=sentences.MARKS[word],
        case=metric.case,
        metric=label(comparison, metric),
        change=wording.change(metric) if metric.judgement.change else "",
        interval=wording.interval(metric),
        lines=tuple(filter(None, (reason, sentences.samples(metric) * few))),
        values=wording.sides(base.mean, patched.mean) if base and patched and shown else ("", ""),
    )


def of_pair(view: View, comparison: Comparison) -> list[Block]:
    """All results of two arms, and where they came from."""
    alpha = comparison.manifest.experiment.thresholds.alpha
    level = f"{100 - 100 * alpha:g} % interval"
    heads = (comparison.manifest.base, comparison.manifest.patched, "change", level)
    # What changed is read first, and of that what got worse.
    results = sorted(
        comparison.primary,
        key=lambda m: FIRST.get(m.judgement.verdict or Verdict.NOT_JUDGED, len(FIRST)),
    )
    rows: list[VerdictRow] = []
    for metric in results:
        result = _verdict(comparison, metric)
        # That nothing changed ran is said at the first of the phases where it is so.
        if result.style == Verdict.NOT_TESTED:
            known = {line for other in rows for line in other.lines}
            new = tuple(line for line in result.lines if line not in known)
            result = replace(result, lines=new)
        rows.append(result)
    # Of many pairs the rest is said once, below.
    own = FACTS if view.session.is_pair else (_why, beside)
    lines = (each for line in own for each in line(view, comparison))
    return [Verdicts(tuple(rows), heads), *facts(lines)]


def _why(_: View, comparison: Comparison) -> Iterator[tuple[str, Words]]:
    """The functions that a change came from, phase by phase, what was called first."""
    first: dict[tuple[str, str], MetricComparison] = {}
    for metric in comparison.primary:
        first.setdefault((metric.case, metric.phase), metric)
    called = {(m.case, m.phase) for m in comparison.primary if m.judgement.verdict in CALLED}
    of_phase = {(each.case, each.phase): each for each in comparison.headlines}
    texts, same = [], []
    for at in sorted(first, key=lambda each: each not in called):
        if (own := of_phase.get(at)) is None or own.identical:
            continue
        if not own.changed and at not in called:
            same += [at] * bool(own.tested)
            continue
        ratios = (
            f"{each.title} {wording.both(each.calls, 2)}"
            for each in own.ratios
            if each.calls.is_significant
        )
        behind = functions.explained(comparison, first[at]) or sentences.changed_per_unit(own)
        parts = functions.in_parts(own.split) if own.split and at not in called else ""
        of_locks = (each for each in LOCKS.of(comparison) if (each.case, each.phase) == at)
        held = next((locks.brief(each) for each in of_locks if each.moved_most), "")
        text = "; ".join(filter(None, (*ratios, behind, parts, held)))
        texts += [(at, text)] if text else []
    for at, text in texts[:MOST_WHY]:
        yield "Why", f"{_place(comparison, at)}{text}"
    if texts[MOST_WHY:]:
        yield "", f"and of {counted(len(texts) - MOST_WHY, 'more phase')}: Why"
    if of_phase and all(each.identical for each in of_phase.values()):
        yield "Functions", functions.IDENTICAL
    if same and not texts:
        names = in_words([_place(comparison, at).removesuffix(": ") for at in same[:MOST_WHY]])
        more = f" and {len(same) - MOST_WHY} more phases" if same[MOST_WHY:] else ""
        yield "Functions", f"none changed{f' in {names}{more}' * bool(names)}"


def _modelled(_: View, comparison: Comparison) -> Iterator[tuple[str, Words]]:
    """What a modelled machine would miss, and which lines would move between its CPUs."""
    texts = [*map(counts.memory_brief, MEMORY.of(comparison)[:1])]
    texts += map(counts.lines_brief, LINES.of(comparison)[:1])
    if text := "; ".join(filter(None, texts)):
        yield "Modelled", text


def _place(comparison: Comparison, at: tuple[str, str]) -> str:
    """The phase, with its case where several are judged; empty of the only one."""
    judged = {(metric.case, metric.phase) for metric in comparison.primary}
    several = len({case for case, _ in judged}) > 1
    return f"{f'{at[0]} ' * several}{at[1]}: " if len(judged) > 1 else ""


def _ran(view: View, comparison: Comparison) -> Iterator[tuple[str, Words]]:
    """Which changed lines and functions ran, or why that is not known; and what was run before.

    From which session of which host a run is says nothing to others: its numbers are the same.
    """
    if not comparison.manifest.same_code:
        lines = functions.lines_that_ran(comparison).removesuffix(" ran")
        for finding in comparison.findings:
            name = OF_ANSWER.get(finding.kind)
            if name and not (view.of_others and finding.kind == KEPT):
                text = of_finding(finding).removeprefix("executed: ")
                own = lines if name == "Ran" else ""
                yield name, "; ".join(filter(None, (own, text)))
        triage = comparison.manifest.triage
        if triage and triage.verdict == "data or layout":
            yield "Code", summary(triage)


def earlier(_: View, comparison: Comparison) -> Iterator[tuple[str, Words]]:
    """What an arm does more or less of before a phase, where no number of the phase has it."""
    texts = []
    for metric in (each for case in comparison.cases for each in case.metrics):
        differs = metric.judgement.differs and metric.name.endswith(f".{BEFORE}")
        if differs and metric.base and metric.patched:
            values = " -> ".join(wording.sides(metric.base.mean, metric.patched.mean))
            texts.append(
                f"{_place(comparison, (metric.case, metric.phase))}{values} ms of the guest's "
                f"clock, {wording.change(metric)} {wording.bounds(metric)}".rstrip()
            )
    if texts:
        yield "Before", f"{'; '.join(texts)}: what runs before a phase is in no other number"


def _checked(view: View, _: Comparison) -> Iterator[tuple[str, Words]]:
    """How correctness and exactness stand."""
    exactness = view.session.exactness.status
    checks = trust.checks_of(view.session)
    repeated = "repeated runs are bit-identical" if exactness == "bit-exact" else ""
    if text := "; ".join(filter(None, (checks, repeated))):
        yield "Checks", text


def beside(_: View, comparison: Comparison) -> Iterator[tuple[str, Words]]:
    """What a user would see of the phases that are judged by something else: bandwidth."""
    judged = {(metric.case, metric.phase) for metric in comparison.primary}
    parts = []
    for case in comparison.cases:
        for phase in case.phases:
            metric = case.metric(f"{phase.name}.bw")
            if metric is None or (case.name, phase.name) not in judged or metric.primary:
                continue
            if metric.judgement.change is not None and metric.base and metric.patched:
                values = " -> ".join(wording.sides(metric.base.mean, metric.patched.mean))
                name = f"{case.name} " * (len({at for at, _ in judged}) > 1)
                name += shown_name(metric.name, metric.unit)
                text = f"{name} {wording.change(metric)} {wording.bounds(metric)}".rstrip()
                reference = sentences.published(metric)
                more = f", {reference}" if reference else ""
                parts.append(f"{text}, {values}{wording.after(metric.unit)}{more}")
    if parts:
        yield "Not judged", "; ".join(parts)


def _published(_: View, comparison: Comparison) -> Iterator[tuple[str, Words]]:
    """What is published of what is judged."""
    several = len({metric.case for metric in comparison.primary}) > 1
    texts = [
        f"{f'{metric.case} ' * several}{shown_name(metric.name, metric.unit)} "
        f"{text.removeprefix('published ')}"
        for metric in comparison.primary
        if (text := sentences.published(metric))
    ]
    if texts:
        yield "Published", ", ".join(texts)


def _timed(view: View, _: Comparison) -> Iterator[tuple[str, Words]]:
    """Real time of the same arms, a line a case, where native mode measured it."""
    if (timed := view.session.timed) is None:
        return
    by_case: dict[str, list[str]] = {}
    for each in timed.judged:
        size = ""
        if each.change and (both := wording.ends(each.change)):
            size = f" {wording.percent(each.change.estimate)} {wording.between(*both)}"
        by_case.setdefault(each.case, []).append(f"{each.phase}{size} {each.verdict}")
    for case, texts in by_case.items():
        yield "Time", f"{case}: {'; '.join(texts)}"
    yield (
        "",
        f"real time on {timed.cpu} (native mode, session {timed.session}), not part of the verdict",
    )


# Below the results, in the order of reading.
FACTS: tuple[Line, ...] = (_why, _modelled, _timed, _ran, earlier, _checked, beside, _published)


def every(view: View) -> list[Block]:
    """Every result with its reason, pair by pair."""
    blocks: list[Block] = []
    for comparison in view.session.comparisons:
        name = view.session.name_of(comparison)
        if name:
            measured = "" if comparison.measured else ": not measured"
            blocks.append(Heading(f"{name}{measured}", 3))
        if comparison.measured or not name:
            blocks += of_pair(view, comparison)
    return blocks


def _verdict_cell(metric_row: MetricRow, cell: ArmCell) -> Cell:
    """A verdict in a cell; of an arm that is not judged against the base its change alone."""
    change, word = wording.cell_change(metric_row, cell), sentences.cell_verdict(cell)
    if cell.against is None:
        return Cell(change, under="not judged", tone="faint")
    bounds, mark = wording.cell_bounds(metric_row, cell), sentences.MARKS.get(word, "")
    return Cell(f"{change} {word}", under=bounds, tone=word, mark=mark)


def _by_arm(view: View) -> list[Block]:
    """The verdicts of many arms beside each other; turned around where metrics are many."""
    judged = [each for each in view.session.rows if each.primary]
    names = [arm.name for arm in view.session.arms[1:]]
    if not judged or view.session.is_pair:
        return []
    if len(judged) > MOST_COLUMNS:
        heads = [Column("case and metric", left=True), *map(Column, names)]
        rows = [
            row(
                # What is below a cell is left out where a table is too wide.
                Cell(f"{each.case} {each.shown_name}", under=each.unit),
                *(_verdict_cell(each, cell) for cell in each.others),
            )
            for each in judged
        ]
    else:
        heads = [Column("arm", left=True), *(Column(f.shown_name, under=f.case) for f in judged)]
        rows = [row(name, *(_verdict_cell(f, f.cell(name)) for f in judged)) for name in names]
    return [Table("Verdicts by arm and case", tuple(heads), tuple(rows), together=1)]


def answer(view: View, *, folds: bool = True) -> list[Block]:
    """What happened, and the results as the number of arms and cases asks for.

    Without ``folds`` those of two arms are all there, and those of many in one table.
    """
    body: list[Block] = [*happened(view), Paragraph(made(view), "note")]
    if not headline(view.session).has_verdicts:
        lines = (each for line in (_ran, _checked) for each in line(view, view.first))
        not_tested = all(m.judgement.verdict is Verdict.NOT_TESTED for m in view.session.primary)
        return [*body, *(facts(lines) if view.session.is_pair and not_tested else [])]
    if view.session.is_pair and not (view.many_cases and folds):
        return [*body, *every(view)]
    more = [Fold("Every verdict with its reason", tuple(every(view)))] if folds else []
    findings = [f for f in view.session.findings if f.kind == KEPT and not view.of_others]
    arms = dict.fromkeys(arm for each in findings for arm in of_finding(each).split("; "))
    return [*body, *_by_arm(view), *(facts([("Kept", "; ".join(arms))]) if arms else []), *more]


def verdicts(view: View) -> list[Block]:
    """The section: the answer, and how many comparisons it was corrected for."""
    body = [Heading("Verdict", 2, "verdict"), *answer(view)]
    if not headline(view.session).has_verdicts:
        return body
    return [*body, Paragraph(f"{sentences.family(view.session)}.", "note")]
