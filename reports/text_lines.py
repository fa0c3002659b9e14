"""Lines of plain text no longer than a width."""

from __future__ import annotations

import textwrap

from reports import wording

# Of a file, of a pipe, and of a terminal that does not say.
WIDTH = 80
# Below this no table says anything.
NARROWEST = 40
UNBROKEN = "\N{NO-BREAK SPACE}"


def wrapped(text: str, width: int = WIDTH, indent: str = "  ") -> list[str]:
    """The text, fit to be printed, in lines of at most ``width`` columns; none for no text."""
    # A number stays on the line of its unit.
    lines = textwrap.wrap(
        wording.clean(text).replace(" %", f"{UNBROKEN}%"), width,
        initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False,
    )  # fmt: skip
    return [line.replace(UNBROKEN, " ") for line in lines]
