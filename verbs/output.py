"""Where verbs answer: results on standard output, words for people on standard error."""

from __future__ import annotations

import json
import os
import sys

# Columns where standard output is no terminal; ``reports.render.text`` has the same.
WIDTH = 80


def emit(value: object) -> None:
    """JSON on standard output."""
    print(json.dumps(value, indent=2, default=str))


def terminal_width() -> int:
    """Columns of the terminal on standard output; 80 where it is none."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or WIDTH
    except (OSError, ValueError):
        return WIDTH


def log(text: str) -> None:
    """A line on standard error."""
    print(text, file=sys.stderr)
