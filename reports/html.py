"""The report as one self-contained HTML file: no network, no script, the same bytes every time."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from reports import (
    across,
    charts,
    count_wording,
    differences,
    gate_wording,
    lock_wording,
    many_wording,
    matrix,
    repeat,
    wall_wording,
    wording,
)
from reports.across import Cell
from reports.charts import Chart, heat, waterfall
from reports.charts import locks as lock_charts
from reports.charts.canvas import within
from reports.headline import headline
from reports.many import SessionComparison
from reports.model import CaseComparison, Comparison, MetricComparison, Pair
from results.record import ArmRecord, Manifest

# Beyond these the page would grow by megabytes; functions.csv has them all.
MOST_FUNCTIONS = 150
MOST_WAITS = 20
# From here on each case has no drawings of its own.
MANY_CHARTS = 8
REM_AN_INCH = 6.8
TEMPLATES = Path(__file__).parent / "templates"
MARKS = {
    "improvement": "▲",
    "regression": "▼",
    "no change": "=",
    "inconclusive": "?",
    "failed": "✕",
}


def _cleaned(text: str) -> str:
    return wording.clean(text, lines=True)


def environment_of(folder: Path, printed: Callable[[str], str] = _cleaned) -> Environment:
    """The templates of a folder; every string they print passes ``printed``, and is escaped.

    Drawings are Markup and stay as they are.
    """

    def finalize(value: object) -> object:
        plain = isinstance(value, str) and not isinstance(value, Markup)
        return printed(str(value)) if plain else value

    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,
    )
    environment.filters["percent"] = wording.percent
    return environment


def _parts(name: str) -> list[str]:
    """A name in pieces, each up to a point or an underscore: a line may end behind them."""
    return re.findall(r"[^._]*[._]|[^._]+", name)


def environment() -> Environment:
    """Templates with their filters and the words they use."""
    environment = environment_of(TEMPLATES)
    environment.filters["typeset"] = wording.typeset
    environment.filters["parts"] = _parts
    environment.filters["reference_change"] = wording.reference_change
    environment.globals.update(
        wording=wording, counts=count_wording, of_locks=lock_wording, of_wall=wall_wording,
        of_many=many_wording, of_matrix=matrix, gate_wording=gate_wording, marks=MARKS,
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


def provenance_of(manifest: Manifest) -> list[tuple[str, list[tuple[str, str]]]]:
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


def rem(chart: Chart) -> float:
    """The drawing's own width on the page: that of a chart of 5 inches is 34 rem."""
    box = re.search(r'viewBox="0 0 ([0-9.]+) ', chart.svg)
    return REM_AN_INCH * float(box.group(1)) / 72 if box else REM_AN_INCH * 5


def cell_class(cell: Cell) -> str:
    """The colour's name of an arm's cell: of the verdict's word, or of what stands out."""
    return many_wording.verdict(cell).replace(" ", "-") or "plain"


def context(
    comparison: Comparison, prefix: str = "", kinds: Sequence[charts.Draw] = charts.KINDS
) -> dict[str, Any]:
    """What the templates of one comparison read; ``prefix`` keeps its drawings' names apart."""
    drawn = charts.draw_all(comparison, kinds)
    if prefix:
        drawn = tuple(within(chart, prefix) for chart in drawn)
    manifest = comparison.manifest
    return {
        "comparison": comparison,
        "manifest": manifest,
        "experiment": manifest.experiment,
        "exact": manifest.experiment.mode == "exact",
        "wall": comparison.wall,
        "many_cases": len(comparison.cases) >= across.MANY_CASES,
        "measured": many_wording.measured(comparison),
        "chart_groups": [
            ("Bandwidth", _of_kind(drawn, "bandwidth")),
            ("Every run, A/A beside A/B", _of_kind(drawn, "strip")),
            ("Over the session", _of_kind(drawn, "drift")),
            ("Bandwidth within a run", _of_kind(drawn, "timeline")),
            ("Below the page cache", _of_kind(drawn, "per-io")),
        ],
        "forest": _of_kind(drawn, "forest"),
        "waterfalls": _of_kind(drawn, "waterfall"),
        "waterfall_name": lambda found: (
            f"{prefix}-{waterfall.name(found)}" if prefix else waterfall.name(found)
        ),
        "lock_charts": [_of_kind(drawn, lock_charts.kind(found)) for found in comparison.locks],
        "most_functions": MOST_FUNCTIONS,
        "most_waits": MOST_WAITS,
        "svg": lambda chart: Markup(chart.svg),  # noqa: S704  (drawn here, its texts escaped)
        "verdict_class": _verdict_class,
        "cell_class": cell_class,
        "rem": rem,
        "seed_rows": _seed_rows,
        "failures": [count for count in comparison.failure_counts if count.any_failed],
    }


class ArmRow(NamedTuple):
    """One arm in the facts above: what it is made of."""

    arm: ArmRecord
    settings: str


def _arms(session: SessionComparison) -> list[ArmRow]:
    return [
        ArmRow(arm, "; ".join(f"{name} = {value}" for name, value in sorted(arm.settings.items())))
        for arm in session.arms
    ]


def head_of(session: SessionComparison) -> dict[str, Any]:
    """What the templates read of the whole session: its head, what happened, how to repeat it."""
    manifest = session.manifest
    return {
        "session": session,
        "manifest": manifest,
        "headline": headline(session),
        "arms": _arms(session),
        "names": [arm.name for arm in session.arms],
        "gates": session.gates,
        "differences": differences.differences(session.arms),
        "repeat": repeat.repeat(session),
        "provenance": provenance_of(manifest),
        "qemu": wrapped_command(manifest.provenance.qemu_argv),
    }


def render(comparison: Comparison) -> str:
    """Return the page, ending in a newline."""
    session = SessionComparison(manifest=comparison.manifest, comparisons=(comparison,))
    found = across.rows(session)
    many = len(comparison.cases) >= across.MANY_CASES
    kinds = charts.KINDS if len(comparison.cases) < MANY_CHARTS else charts.OF_MANY_CASES
    page = (
        environment()
        .get_template("report.html.j2")
        .render(
            **context(comparison, kinds=kinds) | head_of(session),
            matrix=matrix.measured(found) if many else (),
            found=found,
            heat=heat.draw(session),
        )
    )
    return page.rstrip() + "\n"
