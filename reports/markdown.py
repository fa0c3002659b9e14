"""The report as Markdown, for a comment, a wiki or a commit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from reports import wording
from reports.model import CaseComparison, Comparison, MetricComparison

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
        wording.verdict(metric),
    )


def _case(case: CaseComparison) -> list[str]:
    lines = [f"## {escape(case.name)}: {escape(case.title)}", ""]
    heads = (
        "metric", "unit", "base", "stddev", "patched", "stddev", "change", "interval", "verdict",
    )  # fmt: skip
    lines += table(heads, [_row(metric) for metric in case.metrics if metric.base])
    for phase in case.phases:
        lines += [f"Phase {escape(phase.name)}, caches {escape(phase.caches)}:", ""]
        lines += code_block(phase.command, "sh")
    return lines


def render(comparison: Comparison) -> str:
    """Return the report as Markdown, ending in a newline."""
    manifest = comparison.manifest
    experiment, provenance = manifest.experiment, manifest.provenance
    lines = [f"# {escape(experiment.title)}", ""]
    lines += [escape(experiment.question), ""] if experiment.question else []
    lines += [f"**{wording.bottom_line(comparison)}.**", ""]
    lines += [f"- {escape(wording.sentence(metric))}" for metric in comparison.primary]
    lines += [""]
    for case in comparison.cases:
        lines += _case(case)
    published = [
        (f"{r.case} {r.metric}", r.unit, f"{r.base:.2f}", f"{r.patched:.2f}",
         wording.percent(r.change), r.document)
        for r in comparison.published
    ]  # fmt: skip
    if published:
        lines += ["## Published", ""]
        lines += table(("metric", "unit", "base", "patched", "change", "document"), published)
    if comparison.findings:
        lines += ["## Findings", ""]
        lines += [
            f"- {'**warning** ' if f.level == 'warning' else ''}{escape(f'{f.scope}: {f.text}')}"
            for f in comparison.findings
        ] + [""]
    if comparison.failed_runs:
        lines += ["## Failed runs", ""]
        failed = [
            (r.run_id, r.failure.kind, r.failure.blame, r.failure.message)
            for r in comparison.failed_runs
        ]
        lines += table(("run", "kind", "blame", "message"), failed)
    lines += ["## How to repeat this", ""]
    lines += table(("what", "value"), [
        ("experiment", experiment.name),
        ("guest", f"{manifest.guest.name}: {manifest.guest.title}"),
        ("seeds", ", ".join(map(str, manifest.seeds))),
        ("lab", f"{provenance.lab_version} {provenance.lab_commit}"),
        *((f"kernel {arm.name}", f"{arm.kernel.release}, key {arm.kernel.key[:12]}, "
           f"{len(arm.kernel.patches)} patches on {arm.kernel.source}") for arm in manifest.arms),
        *((f"tool {name}", version) for name, version in sorted(provenance.tools.items())),
        *((f"host {name}", value) for name, value in sorted(provenance.host.items())),
        *(("override", override) for override in manifest.overrides),
    ])  # fmt: skip
    if experiment.mode == "exact":
        lines += [
            "Exact mode: one guest instruction is one virtual nanosecond, so bandwidth is path "
            "length. Cache misses, NUMA and true parallelism are not seen.",
        ]
    return "\n".join(lines).rstrip() + "\n"
