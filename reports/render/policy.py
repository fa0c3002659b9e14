"""What a page may load and run, and where its links may lead.

A page is one file: from disk, a browser counts every file as another origin, so that what
is allowed is named by its hash and not by where it comes from (Content Security Policy
Level 3).
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable

# A file beside or below, or above by ../, or a place in this page: no scheme, no host.
RELATIVE = re.compile(r"(?:\.\./)*[\w.%-][\w.%/-]*(?:#[\w.,%-]*)?|#[\w.,%-]+")


def source_hash(text: str) -> str:
    """``'sha256-...'`` of what is between the tags of a script or style element."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def policy(scripts: Iterable[str], styles: Iterable[str] | None) -> str:
    """A policy by which a page loads nothing, and runs these scripts and styles alone.

    None for styles allows those inside drawings, which are attributes and have no hash.
    """
    style = "'unsafe-inline'" if styles is None else _hashes(styles)
    parts = ["default-src 'none'", f"script-src {_hashes(scripts)}", f"style-src {style}"]
    return "; ".join([*parts, "base-uri 'none'", "form-action 'none'"])


def _hashes(texts: Iterable[str]) -> str:
    return " ".join(map(source_hash, texts)) or "'none'"


def safe(to: str) -> bool:
    """Whether a page links to this: by https, or to a file of its own folder or site."""
    return to.startswith(("https://", "http://")) or RELATIVE.fullmatch(to) is not None
