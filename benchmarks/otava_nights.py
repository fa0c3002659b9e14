"""Apache Otava's change points on the same simulated wall nights as ours.

Otava 0.8.0 asks for numpy 2.2.0 exactly and for clients of several databases, so it cannot
share our environment; this file needs nothing of ours:

    .venv/bin/python benchmarks/nights.py --series /tmp/series.json
    python3 -m venv /tmp/otava && /tmp/otava/bin/pip install apache-otava==0.8.0
    /tmp/otava/bin/python benchmarks/otava_nights.py /tmp/series.json

It is asked each night about the last 120, as ours is.  A change point counts as told on the
night on which it is first within three nights of where it stays; at least 0.75 % large, as ours.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from pathlib import Path

from otava.analysis import compute_change_points  # type: ignore[import-not-found]

LONGEST, FEWEST, LATEST, NEAR = 120, 14, 30, 3
LARGE = 0.0075


def changes_in(estimates: list[float]) -> list[tuple[int, int, float]]:
    """(first night of the new level, where it was seen, log ratio) of each change, once."""
    changes: list[tuple[int, int, float]] = []
    for now in range(FEWEST - 1, len(estimates)):
        first = max(0, now + 1 - LONGEST)
        window = [math.exp(value) for value in estimates[first : now + 1]]
        points, _ = compute_change_points(window, max_pvalue=0.001, min_magnitude=LARGE)
        for point in points:
            at = first + point.index
            size = math.log(point.stats.mean_2 / point.stats.mean_1)
            if all(abs(at - known) > NEAR or size * earlier < 0 for known, _, earlier in changes):
                changes.append((at, now, size))
    return changes


def main() -> None:
    scores: dict[str, dict[str, list[float]]] = {}
    for year in json.loads(Path(sys.argv[1]).read_text()):
        score = scores.setdefault(year["name"], {k: [] for k in ("delay", "false", "again", "of")})
        score["of"].append(len(year["truth"]))
        met: set[int] = set()
        false = again = 0
        for _, noticed, size in changes_in(year["estimates"]):
            hits = [
                number
                for number, (night, moved, last) in enumerate(year["truth"])
                if night <= noticed <= last + LATEST and size * moved > 0
            ]
            if not hits:
                false += 1
            elif hits[-1] in met:
                again += 1
            else:
                met.add(hits[-1])
                score["delay"].append(noticed - year["truth"][hits[-1]][0])
        score["false"].append(false)
        score["again"].append(again)
    print("| the year | found | delay, nights (median) | told again | false |")
    print("|---|---|---|---|---|")
    for name, score in scores.items():
        delay = f"{statistics.median(score['delay']):.0f}" if score["delay"] else "–"
        means = " | ".join(f"{statistics.mean(score[key]):.2f}" for key in ("again", "false"))
        detected = f"{len(score['delay'])} of {sum(score['of']):.0f}"
        print(f"| {name} | {detected} | {delay} | {means} |")


if __name__ == "__main__":
    main()
