"""Text from outside, made fit for a terminal, a log and a report."""

from __future__ import annotations

import unicodedata

LONGEST = 200
ELLIPSIS = "…"
# Control characters, those that reorder or hide text, halves of surrogate pairs,
# private use, and the separators that some readers take for a line break.
UNFIT = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def clean(text: str, longest: int = LONGEST) -> str:
    """One line of ``text`` in which every character shows as what it is.

    White space becomes single spaces and unfit characters "?"; more than
    ``longest`` characters are cut.  HTML is not escaped: that is for who writes HTML.
    """
    # What is cut anyway need not be looked at: a header may have megabytes.
    words = " ".join(text[: 4 * longest + 4].split())
    fit = "".join("?" if is_unfit(character) else character for character in words)
    return fit if len(fit) <= longest else fit[: longest - 1] + ELLIPSIS


def clean_lines(text: str) -> str:
    """``text`` with its lines and margins as they are, and "?" for every unfit character."""
    return "".join(
        "?" if character not in "\n\t" and is_unfit(character) else character for character in text
    )


def is_unfit(character: str) -> bool:
    """Whether a character must not reach a terminal as it is."""
    return unicodedata.category(character) in UNFIT
