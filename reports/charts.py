"""The charts of a report: what each shows is given to it, in numbers and in words.

They are drawn to SVG that follows the page: same bytes every time, colours from CSS variables.
Colours are drawn as placeholders and replaced by ``var(--name, fallback)``, so that one drawing is
right on a light page, a dark page and paper.  Text stays text: it can be selected and searched, and
takes the page's typeface.

Changes with their intervals stand on one axis, on which double is as far as half.  Where a metric
has a few lines each stands under its name; many metrics of one pair of arms are a line each, from
the largest change to the smallest.  What the functions of a phase added or took away are steps from
base to patched.  Runs behind a change are shown one by one, by seed or block.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from analysis.explain.functions import Attribution
from analysis.model import Again, Comparison, MetricComparison
from analysis.verdict import Change
from reports import wording
from text import clean_line, clean_lines, typeset

# A second to import, for what only a page has: it is imported where something is drawn.
if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

# Placeholder, CSS variable, and the light page's colour for an SVG that stands alone.
# Base and patched are blue and vermilion of Okabe and Ito, "Color Universal Design" (2008).
INK, MUTED, RULE = "#010101", "#020202", "#030303"
BASE, PATCHED, BAND, PAPER = "#040404", "#050505", "#060606", "#070707"
GOOD, BAD = "#080808", "#090909"
# The base once more, in wall mode: reddish purple of the same palette, darkened for paper.
AGAIN = "#0a0a0a"
COLOURS = (
    (INK, "--ink", "#1d2226"),
    (MUTED, "--muted", "#5b646c"),
    (RULE, "--rule", "#d9dde0"),
    (BASE, "--base", "#0072b2"),
    (PATCHED, "--patched", "#d55e00"),
    (BAND, "--band", "#e9ecee"),
    (PAPER, "--paper", "#ffffff"),
    (GOOD, "--good", "#00694e"),
    (BAD, "--bad", "#a8201a"),
    (AGAIN, "--again", "#96507a"),
)
# How something is drawn, as keywords of matplotlib.
Keywords = dict[str, Any]
WIDTH_IN = 5.0
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    # Titles and labels come from experiment files and guests; "$" must stay a dollar sign.
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "axes.labelsize": 10,
    "axes.formatter.useoffset": False,
    "legend.frameon": False,
    **dict.fromkeys(("font.size", "legend.fontsize"), 10.5),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "axes.grid"), False),
    **dict.fromkeys(("text.color", "legend.labelcolor"), INK),
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor"), MUTED),
    **dict.fromkeys(("xtick.color", "ytick.color", "xtick.labelcolor", "ytick.labelcolor"), MUTED),
    "grid.color": RULE,
    **dict.fromkeys(("axes.linewidth", "grid.linewidth"), 0.7),
    **dict.fromkeys(("xtick.major.width", "ytick.major.width"), 0.7),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 3),
}
# For what draws one chart of many from records: a session writes its report two or three times
# (a verdict, what explains it, the checks), and most of its charts stay as they are.
drawn_once = lru_cache(maxsize=1024)


@dataclass(frozen=True)
class Chart:
    """One drawing: ``svg`` is an element to put into a page, ``alt`` says what it shows."""

    name: str
    kind: str
    title: str
    caption: str
    alt: str
    svg: str


@contextmanager
def figure(height_in: float, width_in: float = WIDTH_IN) -> Iterator[Figure]:
    """A transparent figure in the report's style."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        fig = Figure(figsize=(width_in, height_in), layout="constrained")
        fig.patch.set_alpha(0)
        yield fig


def drawn(
    paint: Callable[[Figure, Axes], None],
    kind: str,
    names: tuple[str, ...],
    title: str,
    caption: str,
    alt: str,
    height_in: float,
    grid: Literal["x", "y"] = "y",
) -> Chart:
    """A chart with one pair of axes, which ``paint`` fills; ``names`` make its name."""
    name = identifier(*names)
    with figure(height_in) as fig:
        axes = fig.subplots()
        clear(axes, grid)
        paint(fig, axes)
        svg = to_svg(fig, name, alt)
    return Chart(name, kind, title, caption, alt, svg)


def clear(axes: Axes, grid: Literal["x", "y"] = "y") -> None:
    """Give the axes a quiet grid in one direction, behind everything, on no background."""
    axes.patch.set_alpha(0)
    axes.set_axisbelow(True)
    axes.grid(visible=True, axis=grid)


def rectangle(corner: tuple[float, float], width: float, height: float, **style: Any) -> Rectangle:
    """A rectangle to be added to axes, in their units."""
    from matplotlib.patches import Rectangle

    return Rectangle(corner, width, height, **style)


def cut(text: str, most: int, *, end: bool = False) -> str:
    """A name as far as there is room; of some the end counts more."""
    if len(text) <= most:
        return text
    return f"…{text[1 - most :]}" if end else f"{text[: most - 1]}…"


def legend(fig: Figure, *entries: tuple[str, Keywords]) -> None:
    """Name what is drawn, in one row above the axes."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], linestyle="", label=name, **style) for name, style in entries]
    room: Keywords = {"borderpad": 0.1, "handletextpad": 0.3, "columnspacing": 1.2}
    room |= {"loc": "outside upper left", "ncols": len(handles), "handlelength": 1.2}
    fig.legend(handles=handles, **room)


def to_svg(fig: Figure, name: str, alt: str) -> str:
    """The figure as an ``<svg>`` element without prologue, its ids prefixed with ``name``."""
    import matplotlib as mpl
    from matplotlib.text import Text

    for text in fig.findobj(Text):
        assert isinstance(text, Text)
        text.set_text(clean_lines(text.get_text()))
    sink = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        # The page's typeface draws the text; that ours lacks a glyph costs only its width.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        fig.savefig(sink, format="svg", metadata={"Date": None, "Creator": None})
    svg = sink.getvalue()
    svg = svg[svg.index("<svg") :].rstrip()
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Its one style rule would apply to the whole page; the page's own sheet has it.
    svg = re.sub(r"\s*<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\b(id|xlink:href|href)="(#?)([^"]+)"', rf'\1="\2{name}-\3"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    svg = re.sub(r'(font-family: )[^;"]*', r"\1var(--sans, system-ui, sans-serif)", svg)
    for placeholder, variable, fallback in COLOURS:
        svg = svg.replace(placeholder, f"var({variable}, {fallback})")
    box = re.search(r'viewBox="[^"]+"', svg)
    assert box is not None
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'{box.group()} role="img" aria-labelledby="{name}-alt">'
        f'<title id="{name}-alt">{escape(clean_line(alt))}</title>'
    )
    return re.sub(r"^<svg[^>]*>", lambda _: opening, svg, count=1)


def identifier(*words: str) -> str:
    """Words as one id: letters, digits and dashes only, whatever a guest put into them."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-") or "chart"


def within(chart: Chart, prefix: str) -> Chart:
    """The chart under another name, so that two pairs' drawings can share a page."""
    name = f"{prefix}-{chart.name}"
    pattern = re.compile(rf'(\bid="|href="#|url\(#|aria-labelledby="){re.escape(chart.name)}-')
    return replace(chart, name=name, svg=pattern.sub(rf"\g<1>{name}-", chart.svg))


# From here on each metric of a pair is a line, and all are in the order of their changes.
MANY = 9
# Beyond these a chart is a wall; the tables have them all.
MOST_LINES = 60
LINE_IN, THIN_LINE_IN, EDGES_IN = 0.3, 0.19, 1.0
# Lines of room for the name above a group and for the gap below it.
HEAD, GAP = 0.95, 0.35
LONGEST = 36
# A change further out than this many times all intervals would flatten them: it is an arrow.
FURTHEST = 2.5
# A tick is named where so much of the axis is free since the last one.
FREE = 0.1
FEWER = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
TICKS = (
    (*FEWER, 0.5, 1.0, 2.0, 4.0, 9.0, 19.0, 99.0),
    (*(-tick for tick in FEWER), -0.33, -0.5, -0.67, -0.8, -0.9, -0.95),
)


class ChangeLine(NamedTuple):
    """A change: what stands at its left and its right; ``called`` has a verdict that says so.

    ``again`` is what base differs by from itself, ``published`` are changes that others measured.
    """

    label: str
    text: str
    change: Change | None
    called: bool = False
    again: Again | None = None
    published: tuple[float, ...] = ()


class ChangeGroup(NamedTuple):
    """The lines of one metric; ``threshold`` is the smallest change that matters, a fraction."""

    title: str
    threshold: float
    lines: tuple[ChangeLine, ...]


def at(change: float) -> float:
    """Where a change is on the axis: +100 % is as far from zero as -50 %."""
    return math.log1p(max(change, -0.999))


def ticks(low: float, high: float) -> list[float]:
    """The changes that are named on an axis from ``low`` to ``high``, zero always."""
    chosen = [0.0]
    for side in TICKS:
        last = 0.0
        for tick in side:
            if low <= at(tick) <= high and abs(at(tick) - last) >= FREE * (high - low):
                chosen.append(tick)
                last = at(tick)
    return sorted(chosen)


def limits_of(groups: Sequence[ChangeGroup]) -> tuple[float, float]:
    """Both ends of the axis: all intervals, the bands, and published changes not too far out."""
    lines = [line for group in groups for line in group.lines]
    ends = [side * 1.6 * at(group.threshold) for group in groups for side in (-1, 1)]
    for line in lines:
        for each in (line.change, line.again):
            values = (each.estimate, each.low, each.high) if each else ()
            ends += [at(value) for value in values if value is not None]
        floor = line.again.floor if line.again else None
        ends += [at(floor), at(-floor)] if floor else []
    reach = FURTHEST * max(abs(end) for end in ends)
    others = [at(value) for line in lines for value in line.published]
    ends += [value for value in others if abs(value) <= reach]
    low, high = min(ends), max(ends)
    # Room beside the intervals for the arrows of what lies further out.
    left = 0.32 if any(value < -reach for value in others) else 0.06
    right = 0.32 if any(value > reach for value in others) else 0.06
    return low - left * (high - low), high + right * (high - low)


def draw(
    groups: Sequence[ChangeGroup],
    band: str = "",
) -> list[Chart]:
    """One chart; none without a change, or where lines are too many.

    ``band`` says what the threshold is, where there is one.
    """
    lines = [(group, line) for group in groups for line in group.lines]
    changes = [line.change for _, line in lines if line.change]
    kind, title = "forest", "The change, metric by metric"
    ranked = len(lines) >= MANY and all(len(group.lines) == 1 for group in groups)
    if not changes or (len(lines) > MOST_LINES and not ranked):
        return []
    if ranked:
        kind, title = "ranked", "The change, from the largest to the smallest"
        labels = without_common([group.title for group in groups])
        rows = [
            (line.change.estimate, line._replace(label=label))
            for label, (_, line) in zip(labels, lines, strict=True)
            if line.change
        ]
        rows.sort(key=lambda row: -row[0])
        own = max(group.threshold for group in groups)
        groups = [ChangeGroup("", own, tuple(line for _, line in rows))]
        lines = [(groups[0], line) for line in groups[0].lines]
    alt = "Changes with their intervals: " + "; ".join(
        " ".join(filter(None, (group.title, line.label, line.text))) for group, line in lines
    )
    noise = any(line.again for _, line in lines)
    published = any(line.published for _, line in lines)

    def paint(fig: Figure, axes: Axes) -> None:
        axes.grid(visible=False)
        axes.set_xlim(*limits_of(groups))
        position, labels = 0.0, {}
        for group in groups:
            if group.title:
                across: Keywords = {"transform": axes.get_yaxis_transform(), "va": "center"}
                axes.text(0, position, group.title, **across)
                position += HEAD
            top, (low, high) = position - 0.45, (at(-group.threshold), at(group.threshold))
            for line in group.lines:
                _draw_line(axes, position, line, thin=ranked)
                labels[position] = cut(line.label, LONGEST, end=True)
                position += 1
            size = high - low, position - 0.55 - top
            axes.add_patch(rectangle((low, top), *size, color=BAND, linewidth=0, zorder=0.5))
            axes.vlines(0, top, position - 0.55, color=INK, linewidth=0.9)
            position += GAP
        axes.set_ylim(position - 0.4, -0.6)
        axes.set_yticks(list(labels), list(labels.values()))
        axes.tick_params(axis="y", length=0, labelcolor=INK, labelsize=8.5 if ranked else 9.5)
        axes.spines["left"].set_visible(False)
        marks = ticks(*axes.get_xlim())
        texts = [typeset(f"{100 * mark:+.3g}" if mark else "0") for mark in marks]
        axes.set_xticks([at(mark) for mark in marks], texts)
        axes.set_xlabel("change, % of base")
        level = f"change, {100 * changes[0].level:g} % interval"
        hollow: Keywords = {"marker": "D", "markersize": 6}
        hollow |= {"markerfacecolor": "none", "markeredgecolor": INK}
        legend(
            fig,
            (level, {"marker": "o", "color": PATCHED, "markersize": 6}),
            *([("threshold", {"marker": "s", "color": BAND, "markersize": 8})] if band else []),
            *([("A/A", {"marker": "s", "color": AGAIN, "markersize": 5})] if noise else []),
            *([("published", hollow)] if published else []),
        )

    captions = {
        f"The band is the threshold of {band}.": band,
        "Squares are A/A, base against itself with its interval; the tinted band is the noise "
        "floor, half that interval's width on either side of zero.": noise,
        "Published changes were measured on other machines, in real time; an arrow means "
        "further out.": published,
    }
    caption = " ".join(text for text, is_so in captions.items() if is_so)
    height = len(lines) + (0 if ranked else len(groups) * (HEAD + GAP))
    height_in = EDGES_IN + height * (THIN_LINE_IN if ranked else LINE_IN)
    return [drawn(paint, kind, (kind,), title, caption, alt, height_in, "x")]


def _draw_line(axes: Axes, position: float, line: ChangeLine, *, thin: bool) -> None:
    right_of, size = axes.get_yaxis_transform(), 8.5 if thin else 9.5
    # Of many lines those stand out that say something.
    colour = PATCHED if line.called or not thin else MUTED
    beside: Keywords = {"transform": right_of, "va": "center_baseline", "fontsize": size}
    ink = INK if thin else MUTED
    axes.text(1.01, position, typeset(line.text), color=ink, **beside)
    change, again = line.change, line.again
    if change:
        if both := wording.ends(change):
            axes.hlines(position, at(both[0]), at(both[1]), color=colour, linewidth=2)
        axes.plot(at(change.estimate), position, "o", color=colour, markersize=size - 4)
    if again and again.floor is not None:
        low, wide = at(-again.floor), at(again.floor) - at(-again.floor)
        tint: Keywords = {"color": AGAIN, "alpha": 0.22, "linewidth": 0}
        axes.add_patch(rectangle((low, position - 0.3), wide, 0.6, **tint))
    if again and again.estimate is not None:
        below = position + 0.26
        if both := wording.ends(again):
            axes.hlines(below, at(both[0]), at(both[1]), color=AGAIN, linewidth=1.6)
        axes.plot(at(again.estimate), below, "s", color=AGAIN, markersize=4)
    for value in line.published:
        low, high = axes.get_xlim()
        if low <= at(value) <= high:
            ring: Keywords = {"markerfacecolor": "none", "markeredgewidth": 1.1}
            axes.plot(at(value), position, "D", color=INK, markersize=size - 4, **ring)
            continue
        arrow = f"◇ {100 * value:+.1f} % →" if value > 0 else f"← {100 * value:+.1f} % ◇"
        x, side = (1, "right") if value > 0 else (0, "left")
        out: Keywords = {"transform": right_of, "va": "center", "ha": side, "fontsize": size}
        axes.text(x, position - 0.4, typeset(arrow), **out)


def without_common(names: Sequence[str]) -> list[str]:
    """The names without what all of them begin with, the workload."""
    if len({name.partition(":")[0] for name in names}) == 1 and all(":" in name for name in names):
        return [name.partition(":")[2] for name in names]
    return list(names)


# Of steps from function to function, in inches.
STEP_IN, STEP_EDGES_IN = 0.43, 0.8
MOST_BARS = 8
FAINT = 0.35


class Bar(NamedTuple):
    """One step from ``start`` to ``end``, both relative to base."""

    label: str
    start: float
    end: float
    faint: bool


def bars(attribution: Attribution) -> list[Bar]:
    """The steps in order: listed functions, everything else, and the whole change.

    Those that are not significant are drawn only where hardly anything is.
    """
    clear = [row for row in attribution.rows if not row.instructions.within_scatter]
    rows = (clear or list(attribution.rows))[:MOST_BARS]
    steps, reached = [], 0.0
    for row in rows:
        end = reached + row.instructions.difference
        steps.append(Bar(row.shown_name, reached, end, row.instructions.within_scatter))
        reached = end
    rest = len(attribution.functions) - len(rows)
    whole = attribution.total.difference
    if rest:
        faint = attribution.others is not None and attribution.others.within_scatter
        faint = faint or len(rows) == len(clear) < attribution.listed
        steps.append(Bar(f"{rest} other functions", reached, whole, faint))
    return [*steps, Bar("all", 0.0, whole, faint=False)]


def _draw_bar(axes: Axes, position: int, bar: Bar, last: bool) -> None:
    change = bar.end - bar.start
    colour = MUTED if last else GOOD if change < 0 else BAD
    style: Keywords = {"color": colour, "alpha": FAINT if bar.faint else 0.9, "linewidth": 0}
    axes.barh(position, change, left=bar.start, height=0.34, **style)
    # In pieces: one line over the whole height would run through the names.
    axes.vlines(0, position - 0.2, position + 0.2, color=INK, linewidth=0.9)
    if not change:
        axes.plot(bar.start, position, "|", color=MUTED, markersize=8)
    if not last:
        down: Keywords = {"color": MUTED, "linewidth": 0.6, "alpha": 0.5}
        axes.vlines(bar.end, position - 0.17, position + 1.17, **down)
    weight = "bold" if last else "normal"
    words: Keywords = {"va": "center", "fontsize": 9.5, "fontweight": weight}
    words["transform"] = axes.get_yaxis_transform()
    axes.text(0, position - 0.36, bar.label, **words)
    axes.text(1, position - 0.36, typeset(wording.signed(change)), ha="right", **words)


def waterfall(comparison: Comparison, attribution: Attribution) -> list[Chart]:
    """The chart of a phase; none where all its functions stayed the same."""
    if attribution.identical or not attribution.listed:
        return []
    steps = bars(attribution)
    base, patched = comparison.manifest.base, comparison.manifest.patched
    unit = attribution.unit_title

    def paint(_: Figure, axes: Axes) -> None:
        for position, bar in enumerate(steps):
            _draw_bar(axes, position, bar, last=position == len(steps) - 1)
        ends = [end for bar in steps for end in (bar.start, bar.end)]
        room = 0.04 * (max(ends) - min(ends))
        axes.set_xlim(min(ends) - room, max(ends) + room)
        axes.set_ylim(len(steps) - 0.65, -0.65)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(f"instructions per {unit}, {patched} minus {base}")

    changes = "; ".join(f"{bar.label} {wording.signed(bar.end - bar.start)}" for bar in steps)
    before, after = (
        wording.amount(each) for each in (attribution.total.base, attribution.total.patched)
    )
    where = f"{attribution.case}, phase {attribution.phase}"
    executed = f"from {base} {before} to {patched} {after}"
    alt = f"Instructions per {unit} in {where}, {executed}: {changes}"
    caption = (
        "Each step begins where the one above it ended; the last is the whole change. Faint steps "
        f"are not significant. The axis shows the change alone: {base} is {before} instructions."
    )
    names = ("waterfall", attribution.case, attribution.phase)
    height = STEP_EDGES_IN + STEP_IN * len(steps)
    title = f"{where}: per {unit}"
    return [drawn(paint, "waterfall", names, title, caption, alt, height, "x")]


# Of runs.
HEIGHT_IN = 2.9
DASHED = (0, (3, 3))
# Beside the samples of an arm stand its mean and the interval of its change.
BESIDE = 0.3


def charted_metrics(comparison: Comparison) -> list[MetricComparison]:
    """What a case is shown by: of each phase what is judged first, else its bandwidth.

    In wall mode everything that is judged, and the bandwidth of every phase.
    """
    wall = comparison.wall is not None
    metrics: dict[tuple[str, str], MetricComparison] = {}
    for case in comparison.cases:
        chosen: list[MetricComparison | None] = [*case.primary] if wall else []
        for phase in case.phases:
            judged = (metric for metric in case.primary if metric.phase == phase.name and not wall)
            chosen.append(next(judged, case.metric(f"{phase.name}.bw")))
        for each in chosen:
            if each and each.pairs and each.base and each.patched:
                metrics[each.case, each.name] = each
    return list(metrics.values())


def samples(comparison: Comparison) -> list[Chart]:
    """One chart for each of :func:`charted_metrics`: a dot a run, a line a seed or block."""
    arms = tuple(arm.name for arm in comparison.manifest.arms)
    return [_samples(arms, metric) for metric in charted_metrics(comparison)]


@drawn_once
def _samples(arms: tuple[str, ...], metric: MetricComparison) -> Chart:
    assert metric.base
    assert metric.patched
    mean, many = metric.base.mean, "block" if len(arms) > 2 else "seed"
    # The base stands in the middle where A/A is on its left.
    change = (1, PATCHED, metric.patched.mean, metric.judgement.change)
    again = (-1, AGAIN, metric.again_values.mean if metric.again_values else mean, metric.again)
    others = [change, *([again] if len(arms) > 2 else [])]
    columns = {0: (arms[0], BASE), 1: (arms[1], PATCHED)}
    columns |= {-1: (arms[2], AGAIN)} if len(arms) > 2 else {}

    def paint(_: Figure, axes: Axes) -> None:
        for pair in metric.pairs:
            values = {-1: pair.again, 0: pair.base, 1: pair.patched}
            points = {x: y for x in sorted(columns) if (y := values[x]) is not None}
            axes.plot(list(points), list(points.values()), color=MUTED, linewidth=0.8, alpha=0.45)
            for x, y in points.items():
                marker = "s" if x < 0 else "o"
                axes.plot(x, y, marker, color=columns[x][1], markersize=4.5, alpha=0.75)
        axes.axhline(mean, color=INK, linewidth=0.7, linestyle=DASHED, alpha=0.6)
        for x, colour, value, judged in others:
            beside = x + BESIDE * x
            axes.plot(beside, value, "D", color=colour, markersize=5.5)
            if both := wording.ends(judged):
                low, high = (mean * (1 + end) for end in both)
                axes.vlines(beside, low, high, color=colour, linewidth=2)
        axes.set_xticks(list(columns), [name for name, _ in columns.values()])
        axes.tick_params(axis="x", length=0)
        axes.set_xlim(min(columns) - 0.55, 1.55)
        axes.margins(y=0.08)
        axes.set_ylabel(metric.unit)

    values = f"{arms[0]} {wording.figure(mean)}, {arms[1]} {wording.figure(metric.patched.mean)}"
    alt = (
        f"{metric.case}, {metric.title}: {values} {metric.unit}, change {wording.change(metric)} "
        f"{wording.interval(metric)}, {len(metric.pairs)} {many}s"
    )
    caption = (
        f"A line joins the runs of one {many}. Diamonds are means; bars are the intervals of the "
        "changes, from the dashed base mean. The axis does not begin at zero."
    )
    title = f"{metric.case}, {metric.name}"
    names = ("samples", metric.case, metric.name)
    return drawn(paint, "samples", names, title, caption, alt, HEIGHT_IN)
