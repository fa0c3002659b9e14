"""What is embedded in a page for its script: plain lists and numbers; pure.

Texts are as they came: the scripts put them into a page as text, never as markup.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from datetime import date

from markupsafe import Markup

from history.entry import Entry, NightFunctions
from history.pages import tracks
from history.pages.tracks import Track, TrendChart
from history.trend import Point
from history.wording import size
from reports.wording import figure, percent

# What could end a script element or begin a comment in it, and two line ends of JavaScript.
UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
DIGITS = 10


def data(value: object) -> Markup:
    """JSON for a ``script`` element of type ``application/json``.

    NaN and infinities, and what rounds to one, become null; lone surrogates are replaced.
    """
    text = json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = text.encode("utf-8", "replace").decode()
    for character, escaped in UNSAFE.items():
        text = text.replace(character, escaped)
    return Markup(text)  # noqa: S704  (escaped above)


def _plain(value: object) -> object:
    if isinstance(value, float):
        # The largest of numbers round to infinity.
        short = float(f"{value:.{DIGITS}g}")
        return short if math.isfinite(short) else None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


DAY_S = 86400
# Of the newest nights functions are embedded, the largest of each phase: some kilobytes each.
COUNTED_NIGHTS, COUNTED_FUNCTIONS = 60, 40


def times(entries: Sequence[Entry]) -> list[float]:
    """Seconds since 1970 of each night, in order; entries of one night stand side by side."""
    instants: list[float] = []
    numbers: dict[str, int] = {}
    for entry in entries:
        count = numbers.get(entry.night, 0)
        numbers[entry.night] = count + 1
        midnight = (date.fromisoformat(entry.night) - date(1970, 1, 1)).days * DAY_S
        instants.append(midnight + min(count, 15) * DAY_S / 16)
    return instants


def of_chart(chart: TrendChart) -> dict[str, object]:
    """One chart: values and kernels by arm, level and band of the first, changes by night."""
    head = chart.head
    at = {point.entry: number for number, point in enumerate(head.points)}
    return {
        "title": chart.title,
        "metric": chart.metric,
        "unit": head.unit,
        "direction": head.direction,
        "arms": [
            {
                "name": trend.course.arm,
                "role": trend.role,
                "values": [point.value for point in trend.points],
                "shown": [_shown(point) for point in trend.points],
            }
            for trend in chart.trends
        ],
        "level": [point.level for point in head.points],
        "low": [point.low for point in head.points],
        "high": [point.high for point in head.points],
        "changes": [
            {
                "at": at[change.entry],
                "arm": change.course.arm,
                "word": state.word,
                "mark": state.mark,
                "style": state.style,
                "text": f"{change.course.arm} {size(change)}".strip(),
            }
            for change in chart.changes
            if change.entry in at
            for state in (tracks.of_change(change),)
        ],
    }


def _shown(point: Point) -> str:
    if point.value is None:
        return point.why_not
    spread = f" ±{100 * point.stddev:.2f} %" if point.stddev is not None else ""
    away = percent(point.value / point.level - 1) if point.level else ""
    return f"{figure(point.value)}{spread}{f', {away} from the level' if away else ''}"


def of_track(track: Track) -> dict[str, object]:
    """The data of a page of trends."""
    head = track.charts[0].head if track.charts else None
    nights = []
    for number, entry in enumerate(track.entries):
        kernels = {}
        for arm in entry.arms:
            patches = len(arm.kernel.patches)
            kernels[arm.name] = f"{arm.version}{f' + {patches} patches' if patches else ''}"
        lab = list(head.points[number].lab) if head else []
        nights.append({"id": entry.id, "night": entry.night, "kernels": kernels, "lab": lab})
    charts = [of_chart(chart) for chart in track.charts]
    return {"times": times(track.entries), "nights": nights, "charts": charts}


def of_comparison(
    track: Track, functions: Callable[[Entry], NightFunctions | None], quantiles: Sequence[float]
) -> dict[str, object]:
    """The data of the page that compares any two nights.

    ``quantiles[n]`` is that of Student's distribution for n pairs, 0 where there is none.
    """
    names: dict[str, int] = {}
    settings: dict[str, int] = {}
    nights = [_night(entry, settings) for entry in track.entries]
    for entry, night in list(zip(track.entries, nights, strict=True))[-COUNTED_NIGHTS:]:
        stored = functions(entry) if entry.counted else None
        night["functions"] = _functions(stored, names) if stored else []
    metrics = {
        f"{case.name}\n{metric.name}": {
            "case": case.name, "name": metric.name, "title": metric.title, "unit": metric.unit,
            "direction": metric.direction, "primary": metric.name in case.primary,
        }
        for entry in track.entries for case in entry.cases for metric in case.metrics
    }  # fmt: skip
    return {
        "nights": nights,
        "metrics": metrics,
        "settings": list(settings),
        "names": list(names),
        "quantiles": list(quantiles),
    }


def _night(entry: Entry, settings: dict[str, int]) -> dict[str, object]:
    lines = [f"{name}: {value}" for name, value in sorted(entry.setting.items())]
    return {
        "id": entry.id,
        "night": entry.night,
        "session": entry.session,
        "kernels": {arm.name: arm.version for arm in entry.arms},
        "setting": [settings.setdefault(line, len(settings)) for line in lines],
        "seeds": {case.name: list(case.seeds) for case in entry.cases},
        "values": {
            f"{case.name}\n{name}\n{arm.arm}": [
                ensemble.summary.mean if ensemble.summary else None,
                list(ensemble.values) if name in case.primary else [],
            ]
            for case in entry.cases
            for arm in case.arms
            for name, ensemble in arm.metrics.items()
        },
        "functions": [],
    }


def _functions(counts: NightFunctions, names: dict[str, int]) -> list[dict[str, object]]:
    return [
        {
            "of": f"{phase.case} {phase.phase} ({phase.arm})",
            "unit": phase.unit_title,
            "total": phase.total,
            "rows": [
                [
                    names.setdefault(f"{function.name}\n{function.file}", len(names)),
                    function.instructions,
                    function.scatter / math.sqrt(max(phase.seeds, 1)),
                ]
                for function in phase.functions[:COUNTED_FUNCTIONS]
            ],
        }
        for phase in counts.phases
    ]
