"""A sparkline: the course of one metric in the space of a word, drawn to follow the page."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

WIDTH, HEIGHT, EDGE = 160, 36, 4
# More nights than this are not told apart in this width.
NIGHTS = 90


def draw(values: Sequence[float | None], marked: Sequence[object]) -> Markup:
    """An SVG of the newest :data:`NIGHTS` values, gaps left open.

    Nights whose ``marked`` is true, on which something changed, have a tick below.
    Numbers alone are drawn, and colours are those of the page.
    """
    values, marked = values[-NIGHTS:], marked[-NIGHTS:]
    numbers = [value for value in values if value is not None]
    if not numbers:
        return Markup("")
    low, high = min(numbers), max(numbers)
    # A course without change is a level line, not one that fills the height.
    span = max(high - low, 0.02 * abs(high) or 1.0)
    middle = (high + low) / 2
    step = (WIDTH - 2 * EDGE) / max(len(values) - 1, 1)

    def place(at: int, value: float) -> tuple[float, float]:
        drop = (value - middle) / span
        return EDGE + at * step, HEIGHT / 2 - 3 - drop * (HEIGHT - 2 * EDGE - 6)

    path, pen = "", "M"
    for at, value in enumerate(values):
        if value is None:
            pen = "M"
            continue
        x, y = place(at, value)
        path += f"{pen}{x:.1f} {y:.1f}"
        pen = "L"
    ticks = "".join(
        f'<path class="tick" d="M{EDGE + at * step:.1f} {HEIGHT - 6}v5"/>'
        for at, mark in enumerate(marked) if mark
    )  # fmt: skip
    last = max(at for at, value in enumerate(values) if value is not None)
    x, y = place(last, numbers[-1])
    return Markup(  # noqa: S704  (numbers only)
        f'<svg class="spark" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'aria-hidden="true" focusable="false"><path class="line" d="{path}"/>{ticks}'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5"/></svg>'
    )
