"""Data, scripts and styles inside a page, and the policy that lets these run and no others.

A page is one file: from disk, a browser counts every file as another origin, so that what
is allowed is named by its hash and not by where it comes from (Content Security Policy
Level 3).  A block of JSON is never executed, and needs no permission.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterable

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
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def source_hash(text: str) -> str:
    """``'sha256-...'`` of what is between the tags of a script or style element."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def policy(scripts: Iterable[str], styles: Iterable[str]) -> str:
    """A policy by which the page loads nothing, and runs these scripts and styles alone."""
    allowed = {"script-src": scripts, "style-src": styles}
    parts = ["default-src 'none'"]
    for name, texts in allowed.items():
        parts.append(f"{name} {' '.join(map(source_hash, texts)) or chr(39) + 'none' + chr(39)}")
    return "; ".join([*parts, "base-uri 'none'", "form-action 'none'"])
