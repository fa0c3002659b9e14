"""The report as one self-contained HTML file: no network, no script, the same bytes every time."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from reports import charts, count_wording, gate_wording, lock_wording, wall_wording, wording
from reports.charts import Chart, waterfall
from reports.charts import locks as lock_charts
from reports.model import CaseComparison, Comparison, MetricComparison, Pair
from results.record import Manifest

# Beyond these the page would grow by megabytes; functions.csv has them all.
MOST_FUNCTIONS = 150
MOST_WAITS = 20
TEMPLATES = Path(__file__).parent / "templates"
MARKS = {
    "improvement": "▲",
    "regression": "▼",
    "no change": "=",
    "inconclusive": "?",
    "failed": "✕",
}


def _finalize(value: object) -> object:
    """Every string printed by the template passes here; drawings are Markup and stay."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return wording.clean(value, lines=True)
    return value


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters["percent"] = wording.percent
    environment.filters["typeset"] = wording.typeset
    environment.globals.update(
        wording=wording, counts=count_wording, of_locks=lock_wording, of_wall=wall_wording,
        marks=MARKS,
    )  # fmt: skip
    return environment


def wrapped_command(argv: tuple[str, ...]) -> str:
    """An argument vector as a command that can be pasted, one option a line."""
    lines: list[str] = []
    for word in (shlex.quote(argument) for argument in argv):
        if word.startswith("-") or not lines:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return " \\\n  ".join(lines)


def _provenance(manifest: Manifest) -> list[tuple[str, list[tuple[str, str]]]]:
    """Groups of name and value for the section on repeating the session."""
    experiment, provenance, guest = manifest.experiment, manifest.provenance, manifest.guest
    lab = [
        ("session", manifest.session),
        ("created", manifest.created),
        ("lab", f"{provenance.lab_version}, commit {provenance.lab_commit}"),
        ("experiment", experiment.name),
        ("overrides", ", ".join(manifest.overrides) or "none"),
        ("seeds", ", ".join(map(str, manifest.seeds))),
        ("guest", f"{guest.name}: {guest.title}"),
        ("restored from a snapshot", "yes" if provenance.snapshot else "no, cold boot"),
        ("initramfs SHA-256", provenance.initramfs_sha256),
    ]
    if provenance.accelerator:
        lab.append(("accelerator", provenance.accelerator))
    return [
        ("Session", lab),
        ("Host", sorted(provenance.host.items())),
        ("Host before the session", sorted(provenance.fitness.items())),
        ("Tools", sorted(provenance.tools.items())),
    ]


class _SeedRow(NamedTuple):
    block: int
    seed: int
    pairs: list[Pair | None]


def _seed_rows(case: CaseComparison) -> list[_SeedRow]:
    """One row a block: its pair in each primary metric, None where a metric has none."""
    by_block = [{pair.block: pair for pair in metric.pairs} for metric in case.primary]
    blocks = sorted({block for pairs in by_block for block in pairs})
    rows = []
    for block in blocks:
        pairs = [found.get(block) for found in by_block]
        rows.append(_SeedRow(block, next(pair.seed for pair in pairs if pair), pairs))
    return rows


def _of_kind(drawn: tuple[Chart, ...], kind: str) -> list[Chart]:
    return [chart for chart in drawn if chart.kind == kind]


def _verdict_class(metric: MetricComparison) -> str:
    return wording.verdict(metric).replace(" ", "-") or "plain"


def render(comparison: Comparison) -> str:
    """Return the page, ending in a newline."""
    drawn = charts.draw_all(comparison)
    manifest = comparison.manifest
    page = _environment().get_template("report.html.j2").render(
        comparison=comparison,
        manifest=manifest,
        experiment=manifest.experiment,
        exact=manifest.experiment.mode == "exact",
        wall=comparison.wall,
        gate_wording=gate_wording,
        bottom_line=wording.bottom_line(comparison),
        chart_groups=[
            ("Bandwidth", _of_kind(drawn, "bandwidth")),
            ("Every run, A/A beside A/B", _of_kind(drawn, "strip")),
            ("Over the session", _of_kind(drawn, "drift")),
            ("Bandwidth within a run", _of_kind(drawn, "timeline")),
            ("Below the page cache", _of_kind(drawn, "per-io")),
        ],
        forest=_of_kind(drawn, "forest"),
        waterfalls=_of_kind(drawn, "waterfall"),
        waterfall_name=waterfall.name,
        lock_charts=[_of_kind(drawn, lock_charts.kind(found)) for found in comparison.locks],
        most_functions=MOST_FUNCTIONS,
        most_waits=MOST_WAITS,
        svg=lambda chart: Markup(chart.svg),  # noqa: S704  (drawn here, its texts escaped)
        verdict_class=_verdict_class,
        seed_rows=_seed_rows,
        provenance=_provenance(manifest),
        qemu=wrapped_command(manifest.provenance.qemu_argv),
        failures=[count for count in comparison.failure_counts if count.any_failed],
    )  # fmt: skip
    return page.rstrip() + "\n"
