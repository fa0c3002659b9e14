"""The report as Markdown, for a comment, a wiki or a commit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from reports import count_wording as counts
from reports import differences, gate_wording, lock_wording, wall_wording, wording
from reports.attribution_model import Attribution
from reports.gate_model import ArmGate
from reports.lock_model import LockComparison
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
        *([] if metric.again is None else [wording.percent(metric.again.estimate)]),
        wording.verdict(metric),
    )


def metrics(case: CaseComparison) -> list[str]:
    """The table of all metrics of a case."""
    noise = ("A/A",) if any(metric.again is not None for metric in case.metrics) else ()
    heads = (
        "metric", "unit", "base", "stddev", "patched", "stddev", "change", "interval", *noise,
        "verdict",
    )  # fmt: skip
    return table(heads, [_row(metric) for metric in case.metrics if metric.base])


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


def render(comparison: Comparison) -> str:
    """Return the report as Markdown, ending in a newline."""
    manifest = comparison.manifest
    experiment = manifest.experiment
    lines = [f"# {escape(experiment.title)}", ""]
    lines += [escape(experiment.question), ""] if experiment.question else []
    lines += [f"**{wording.bottom_line(comparison)}.**", ""]
    lines += [f"- {escape(wording.sentence(metric))}" for metric in comparison.primary]
    lines += ["", *host(comparison), *gate(comparison.gates)]
    apart = differences.sentences(manifest.arms)
    lines += [f"## {differences.LEAD}", ""] if apart else []
    lines += [*(f"- {escape(text)}" for text in apart), ""] if apart else []
    for case in comparison.cases:
        lines += [f"## {escape(case.name)}: {escape(case.title)}", ""]
        lines += [*metrics(case), *commands(case)]
    published = [
        (f"{r.case} {r.metric}", r.unit, f"{r.base:.2f}", f"{r.patched:.2f}",
         wording.sized(r.change), r.document)
        for r in comparison.published
    ]  # fmt: skip
    if published:
        lines += ["## Published", ""]
        lines += table(("metric", "unit", "base", "patched", "change", "document"), published)
    lines += counted(comparison)
    if comparison.findings:
        lines += ["## Findings", ""]
        lines += [finding(f.level, f"{f.scope}: {f.text}") for f in comparison.findings]
        lines += [""]
    lines += failed(comparison.failed_runs)
    lines += repeat(manifest)
    lines += meaning(comparison)
    return "\n".join(lines).rstrip() + "\n"


def failed(runs: Sequence[FailedRun]) -> list[str]:
    """Every failed run with its reason."""
    rows = [(r.run_id, r.failure.kind, r.failure.blame, r.failure.message) for r in runs]
    return ["## Failed runs", "", *table(("run", "kind", "blame", "message"), rows)] if rows else []


def repeat(manifest: Manifest) -> list[str]:
    """All it takes to do it again."""
    experiment, provenance = manifest.experiment, manifest.provenance
    return ["## How to repeat this", "", *table(("what", "value"), [
        ("experiment", experiment.name),
        ("guest", f"{manifest.guest.name}: {manifest.guest.title}"),
        ("seeds", ", ".join(map(str, manifest.seeds))),
        ("lab", f"{provenance.lab_version} {provenance.lab_commit}"),
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
    lines = []
    if comparison.manifest.experiment.mode == "exact":
        lines += [
            "Exact mode: one guest instruction is one virtual nanosecond, so bandwidth is path "
            "length. Cache misses, NUMA and true parallelism are not seen.",
        ]
    if comparison.wall is not None:
        lines += [wall_wording.meaning(comparison.wall)]
    return lines
