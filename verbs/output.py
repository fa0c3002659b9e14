"""Where verbs answer: results on standard output, words for people on standard error.

Everything printed goes through here, and no character of it moves a cursor, sets a title, fills a
clipboard or reorders what is read: names, messages and consoles come from anywhere.
"""

from __future__ import annotations

import json
import os
import sys

from text import clean_lines

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
    print(clean_lines(text), file=sys.stderr)


def write_out(text: object = "", *, end: str = "\n", flush: bool = False) -> None:
    """Text on standard output."""
    print(clean_lines(str(text)), end=end, flush=flush)
