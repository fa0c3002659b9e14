"""The report as Markdown, for a comment, a wiki or a commit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from reports import (
    across,
    differences,
    gate_wording,
    lock_wording,
    many_wording,
    matrix,
    repeat,
    steps,
    wall_wording,
    wording,
)
from reports import count_wording as counts
from reports.across import Row
from reports.attribution_model import Attribution
from reports.gate_model import ArmGate
from reports.headline import headline
from reports.lock_model import LockComparison
from reports.many import SessionComparison
from reports.model import CaseComparison, Comparison, FailedRun, MetricComparison
from reports.paired import Paired
from results.record import Manifest

MOST_WAITS = 10

ACTIVE = re.compile(r"([\\`*_{}\[\]<>#|!~&])")


def escape(text: str) -> str:
    """Text that Markdown and the HTML within it take as text, on one line."""
    return ACTIVE.sub(r"\\\1", " ".join(wording.clean(text).split()))


def code_block(text: str, language: str = "") -> list[str]:
    """A fenced block whose fence is longer than any in ``text``."""
    text = wording.clean(text, lines=True)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", text, fence, ""]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table: the first column to the left, numbers to the right; cells are escaped."""
    rule = [":--", *["--:" for _ in heads[1:]]]
    body = ["| " + " | ".join(escape(cell) for cell in row) + " |" for row in rows]
    return ["| " + " | ".join(heads) + " |", "|" + "|".join(rule) + "|", *body, ""] if body else []


def _row(metric: MetricComparison) -> tuple[str, ...]:
    base, patched = metric.base, metric.patched
    return (
        metric.name,
        metric.unit,
        wording.figure(base.mean if base else None),
        wording.spread(base.stddev if base else None),
        wording.figure(patched.mean if patched else None),
        wording.spread(patched.stddev if patched else None),
        wording.change(metric),
        wording.interval(metric),
        *([] if metric.again is None else [wall_wording.size(metric)]),
        wording.verdict(metric),
    )


def metrics(case: CaseComparison, manifest: Manifest) -> list[str]:
    """The table of all metrics of a case, its columns headed by the names of the arms."""
    noise = ("A/A",) if any(metric.again is not None for metric in case.metrics) else ()
    heads = (
        "metric", "unit", manifest.base, "stddev", manifest.patched, "stddev", "change", "interval",
        *noise, "verdict",
    )  # fmt: skip
    return table(
        [escape(head) for head in heads], [_row(metric) for metric in case.metrics if metric.base]
    )


def commands(case: CaseComparison) -> list[str]:
    """The command line of each phase."""
    lines: list[str] = []
    for phase in case.phases:
        lines += [f"Phase {escape(phase.name)}, caches {escape(phase.caches)}:", ""]
        lines += code_block(phase.command, "sh")
    return lines


def _amounts(pair: Paired) -> tuple[str, ...]:
    return (
        counts.amount(pair.base),
        counts.amount(pair.patched),
        counts.signed(pair.difference),
        counts.bounds(pair),
    )


def _origin(found: Attribution, base: str, patched: str) -> list[str]:
    lines = [f"### {escape(found.case)}, phase {escape(found.phase)}", ""]
    if found.identical:
        return [*lines, counts.IDENTICAL, ""]
    lines += [f"{escape(counts.total(found))}.", ""]
    clear = counts.beyond_scatter(found)
    lines += [f"{escape(clear)}.", ""] if clear else []
    for ratio in found.ratios:
        said = [counts.ratio(ratio), counts.absent(ratio)]
        lines += [*(f"{escape(text)}." for text in said if text), ""]
    rows = [
        (counts.function(row), counts.place(row), *_amounts(row.instructions),
         counts.both(row.calls, 2) if row.calls else "", counts.note(row, base, patched))
        for row in counts.shown(found)
    ]  # fmt: skip
    if rows:
        further = counts.further(found)
        if further:
            label, sums = further
            rows.append((label, "", counts.amount(sums.base), counts.amount(sums.patched),
                         counts.signed(sums.difference), "", "", ""))  # fmt: skip
        if found.others:
            rows.append((counts.others(found), "", *_amounts(found.others), "", ""))
        rows.append(("all", "", *_amounts(found.total), "", ""))
        heads = ("function", "where", base, patched, "difference", "95 %", "calls", "")
        lines += table([escape(head) for head in heads], rows)
        more = counts.elsewhere(found)
        lines += [f"{more}.", ""] if more else []
        lines += [f"{escape(counts.share(found))}.", ""]
    hints = [f"- {escape(counts.hint(hint, base, patched))}" for hint in found.hints]
    return [*lines, *hints, ""] if hints else lines


def _twin(found: LockComparison, base: str, patched: str) -> list[str]:
    lines = [
        f"### {escape(found.case)}, phase {escape(found.phase)}: twin {escape(found.twin)}", "",
        f"**{lock_wording.banner(found)}.** {escape(lock_wording.guest(found))}. "
        f"{lock_wording.limits(found)}", "",
    ]  # fmt: skip
    if found.slow_share:
        lines += [f"{escape(lock_wording.slow_path(found))}.", ""]
    many = f"1,000 {counts.plural(found.unit_title)}"
    heads: tuple[str, ...]
    if found.serial:
        heads = (
            f"held {found.ns} per {found.unit_title}",
            "change",
            f"{found.ns} each time",
            "saturates at, CPUs",
        )
        rows = [(r.label, counts.few(r.hold), counts.moved(r.hold), counts.few(r.hold_each),
                 lock_wording.cpus(r.saturation)) for r in found.shown]  # fmt: skip
    else:
        heads = (f"contentions per {many}", "change", f"waited {found.ns} per {found.unit_title}",
                 f"waited in, per {many}")  # fmt: skip
        rows = [(r.label, counts.few(r.contentions), counts.moved(r.contentions),
                 counts.few(r.wait), lock_wording.waiters(r)) for r in found.shown]  # fmt: skip
    lines += table([escape(head) for head in (f"lock, {base} -> {patched}", *heads)], rows)
    waits = [
        (row.caller, row.flags, counts.few(row.count), counts.moved(row.count),
         counts.few(row.wait), lock_wording.chain(row))
        for row in found.waits[:MOST_WAITS]
    ]  # fmt: skip
    of_waits = (
        "waiting", "kind", f"waits per {many}", "change", f"{found.ns} per {found.unit_title}",
        "called by",
    )  # fmt: skip
    return lines + table([escape(head) for head in of_waits], waits)


def counted(comparison: Comparison) -> list[str]:
    """The sections on functions and locks; nothing where nothing was counted."""
    arms = (comparison.manifest.base, comparison.manifest.patched)
    lines = ["## Where it came from", "", counts.EXPLAINS, ""] if comparison.headlines else []
    for found in comparison.headlines:
        lines += _origin(found, *arms)
    lines += ["## Locks", ""] if comparison.locks else []
    for twin in comparison.locks:
        lines += _twin(twin, *arms)
    serial = [twin for twin in comparison.locks if twin.serial]
    lines += [lock_wording.saturation(serial[0]), ""] if serial else []
    return lines


def host(comparison: Comparison) -> list[str]:
    """What to know of the host beside the verdicts of a wall session."""
    if comparison.wall is None:
        return []
    lines = [f"- {escape(line)}" for line in wall_wording.noise_lines(comparison)]
    lines += [finding(found.level, found.text) for found in comparison.host_findings]
    return ["## This host", "", *lines, ""]


def gate(gates: Sequence[ArmGate]) -> list[str]:
    """What was checked, and what was found, quoted."""
    if not gates:
        return []
    lines = ["## Correctness", ""]
    for each in gates:
        mark = "" if each.standing == "green" else "**"
        lines += [f"- {mark}{escape(gate_wording.line(each))}{mark}"]
        lines += [f"  - {escape(text)}" for text in gate_wording.details(each)]
        for quoted in gate_wording.quoted(each):
            # Indented by more than the list: no line of a console can end the block.
            lines += ["", *(f"        {wording.clean(line)}".rstrip() for line in quoted)]
    return [*lines, ""]


def finding(level: str, text: str) -> str:
    """One finding as an entry of a list."""
    return f"- {'**warning** ' if level == 'warning' else ''}{escape(text)}"


def _verdict_table(session: SessionComparison, found: tuple[Row, ...]) -> list[str]:
    """One row an arm, one column a metric that is judged: change and verdict."""
    judged = [row for row in found if row.primary]
    heads = ("arm", *(f"{row.case} {row.name}" for row in judged))
    rows = [
        (arm.name, *(
            f"{many_wording.change(row, cell)} {many_wording.bounds(row, cell)} "
            f"{many_wording.verdict(cell)}"
            for row in judged for cell in [row.cell(arm.name)]
        ))
        for arm in session.arms[1:]
    ]  # fmt: skip
    return table([escape(head) for head in heads], rows)


def _by_arm(session: SessionComparison, found: tuple[Row, ...]) -> list[str]:
    """Each case's table with a row an arm, as documents have it."""
    lines: list[str] = []
    for case in session.comparisons[0].cases:
        shown = [row for row in across.columns(across.of_case(found, case.name)) if row.measured]
        heads = ["arm", *(part for row in shown for part in (f"{row.name}, {row.unit}", "change"))]
        rows = []
        for arm in session.arms:
            if not any(row.cell(arm.name).values for row in shown):
                continue
            cells = [arm.name]
            for row in shown:
                cell = row.cell(arm.name)
                said = "" if cell is row.base else matrix.change(row, cell)
                cells += [matrix.values(cell)[0], said]
            rows.append(cells)
        lines += [f"### {escape(case.name)}: {escape(case.title)}", ""]
        lines += table([escape(head) for head in heads], rows)
    return lines


def bullets(title: str, said: Sequence[str]) -> list[str]:
    """A section that is a list; nothing where it is empty."""
    return [f"## {title}", "", *(f"- {escape(text)}" for text in said), ""] if said else []


def lead(session: SessionComparison, aside: str) -> list[str]:
    """What happened, with its causes; ``aside`` stands behind the first sentence."""
    happened = headline(session)
    command = f"; go on: `{happened.command}`" if happened.command else "."
    lines = [f"**{escape(happened.text)}**{command} {escape(aside)}.", ""]
    lines += [*(f"- {escape(cause)}" for cause in happened.causes), ""] if happened.causes else []
    return lines


def verdict_list(comparison: Comparison) -> list[str]:
    """One entry a metric that is judged."""
    return [*(f"- {escape(wording.sentence(metric))}" for metric in comparison.primary), ""]


def render(session: SessionComparison) -> str:
    """Return the report as Markdown, ending in a newline."""
    experiment, first = session.manifest.experiment, session.comparisons[0]
    found = across.rows(session)
    lines = [f"# {escape(experiment.title)}", ""]
    lines += [escape(experiment.question), ""] if experiment.question else []
    lines += lead(session, many_wording.against(session))
    if headline(session).has_verdicts:
        lines += verdict_list(first) if session.single else _verdict_table(session, found)
        lines += [f"{escape(many_wording.family(session))}.", ""]
    lines += [*host(first), *gate(session.gates)]
    lines += bullets("Patch by patch", steps.answers(session))
    lines += bullets(differences.LEAD, differences.sentences(session.arms))
    if session.single:
        for case in first.cases:
            lines += [f"## {escape(case.name)}: {escape(case.title)}", ""]
            lines += [*metrics(case, first.manifest), *commands(case)]
        lines += [*_published(session), *counted(first)]
    else:
        lines += [*_arm_by_arm(session, found), *_published(session), *_pairs(session)]
    if session.findings:
        lines += ["## Findings", ""]
        lines += [finding(f.level, f"{f.scope}: {f.text}") for f in session.findings]
        lines += [""]
    lines += failed(session.failed_runs)
    lines += [*_repeat(session), *meaning(first)]
    return "\n".join(lines).rstrip() + "\n"


def _arm_by_arm(session: SessionComparison, found: tuple[Row, ...]) -> list[str]:
    lines = _by_arm(session, found)
    return ["## Arm by arm", "", *lines] if lines else []


def _pairs(session: SessionComparison) -> list[str]:
    """Each pair of arms, what was run, and what failed."""
    lines: list[str] = []
    for one in session.comparisons:
        lines += [f"## {escape(many_wording.name(one))}", ""]
        if not many_wording.measured(one):
            lines += ["Not measured.", ""]
            continue
        lines += verdict_list(one)
        lines += [line for case in one.cases for line in metrics(case, one.manifest)]
        lines += counted(one)
    lines += ["## What was run", ""]
    for case in session.comparisons[0].cases:
        lines += [f"### {escape(case.name)}", "", *commands(case)]
    return lines + bullets("Failures", matrix.failures(session))


def _published(session: SessionComparison) -> list[str]:
    rows = [
        (arm, f"{r.case} {r.metric}", r.unit, f"{r.base:.2f}", f"{r.patched:.2f}",
         wording.reference_change(r), r.document)
        for arm, r in many_wording.references(session)
    ]  # fmt: skip
    heads = ("arm", "metric", "unit", session.manifest.base, "this arm", "change", "document")
    shown = table([escape(head) for head in heads], rows)
    return ["## Published", "", *shown] if rows else []


def failed(runs: Sequence[FailedRun]) -> list[str]:
    """Every failed run with its reason."""
    rows = [(r.run_id, r.failure.kind, r.failure.blame, r.failure.message) for r in runs]
    return ["## Failed runs", "", *table(("run", "kind", "blame", "message"), rows)] if rows else []


def _repeat(session: SessionComparison) -> list[str]:
    """The commands that make it again, what must come out, and all that it was made with."""
    again, manifest = repeat.repeat(session), session.manifest
    experiment, provenance = manifest.experiment, manifest.provenance
    lines = ["## How to repeat this", "", f"{escape(again.lab)}.", ""]
    lines += code_block("\n".join(again.commands), "sh")
    lines += [f"{escape(' '.join(again.notes))}", ""] if again.notes else []
    lines += [f"{escape(again.expected)}:", ""] if again.expected else []
    lines += [*(f"- {escape(result)}" for result in again.results), ""] if again.results else []
    return [*lines, *table(("what", "value"), [
        ("experiment", experiment.name),
        ("guest", f"{manifest.guest.name}: {manifest.guest.title}"),
        ("seeds", ", ".join(map(str, manifest.seeds))),
        *((f"kernel {arm.name}", f"{arm.kernel.release}, key {arm.kernel.key[:12]}, "
           f"{len(arm.kernel.patches)} patches on {arm.kernel.source}") for arm in manifest.arms),
        *((f"tool {name}", version) for name, version in sorted(provenance.tools.items())),
        *((f"host {name}", value) for name, value in sorted(provenance.host.items())),
        *(("override", override) for override in manifest.overrides),
        *([("accelerator", provenance.accelerator)] if provenance.accelerator else []),
        *provenance.fitness.items(),
    ])]  # fmt: skip


def meaning(comparison: Comparison) -> list[str]:
    """What the numbers mean, and what they do not."""
    return [wall_wording.meaning(comparison.wall) if comparison.wall else wording.EXACT]
