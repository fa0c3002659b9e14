"""Functions that a patch changes, by its text alone: pure."""

from __future__ import annotations

import re

from kernels.diff import HUNK, hunk_numbers

# Kernel style: a function begins in the first column, and its name is before a parenthesis.
BEGINS = re.compile(r"[A-Za-z_][^;=#]*?\b([A-Za-z_][A-Za-z0-9_]*)\(")
# "diff", "index" and the like stand outside of hunks; these begin lines in them.
NO_FUNCTIONS = {"if", "for", "while", "switch", "return", "sizeof", "defined", "EXPORT_SYMBOL"}


def changed_functions(text: str, where: str) -> tuple[str, ...]:
    """Names of the functions in which lines are added or taken out, in the order of the patch.

    Where a hunk begins within a function, its heading has the name, as git found it.  What
    stands outside of functions, and a macro, has none.

    Raises:
        SeriesError: a hunk with impossible numbers; ``where`` names the patch.
    """
    names: dict[str, None] = {}
    old = new = 0
    current = ""
    for line in text.split("\n"):
        if old <= 0 and new <= 0:
            if match := HUNK.match(line):
                _, old, _, new = hunk_numbers(match, where)
                current = _begins(line[match.end() :].strip())
            continue
        kind, body = line[:1] or " ", line[1:]
        old -= kind in " -"
        new -= kind in " +"
        current = _begins(body) or current
        if kind in "+-" and body.strip() and current:
            names[current] = None
        if body.startswith("}"):
            current = ""
    return tuple(names)


def _begins(line: str) -> str:
    match = BEGINS.match(line)
    if match is None or line.rstrip().endswith(";") or match[1] in NO_FUNCTIONS:
        return ""
    return match[1]
