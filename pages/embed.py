"""Data inside a page: a block of JSON is never executed, and needs no permission."""

from __future__ import annotations

import json
import math

from markupsafe import Markup

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
