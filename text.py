"""Text of strangers made fit to be shown, and numbers of things in words.

What a guest, a host, a mail or a file of somebody else says may move a cursor, hide behind
right-to-left marks or break an encoding.  Everything that shows such text shows what
:func:`clean` or :func:`clean_lines` left of it; what writes HTML or Markdown escapes besides.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

LONGEST = 200
ELLIPSIS = "…"
# Control characters, those that reorder or hide text, halves of surrogate pairs,
# private use, what is no character yet, and separators that some take for a line break.
UNFIT = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")


def words(text: str) -> tuple[str, ...]:
    """What stands between white space: a table of names, or a command, as it is read."""
    return tuple(text.split())


def clean(text: str, longest: int = LONGEST) -> str:
    """One line of ``text`` in which every character shows as what it is.

    White space becomes single spaces and unfit characters "?"; more than
    ``longest`` characters are cut.  HTML is not escaped: that is for who writes HTML.
    """
    # What is cut anyway need not be looked at: a header may have megabytes.
    line = clean_line(" ".join(text[: 4 * longest + 4].split()))
    return line if len(line) <= longest else line[: longest - 1] + ELLIPSIS


def clean_line(text: str) -> str:
    """``text`` whole on one line, its margins as they are: each white space is a blank."""
    return _fit(text, "")


def clean_lines(text: str) -> str:
    """``text`` with its lines, tabs and margins as they are."""
    return _fit(text, "\n\t")


def _fit(text: str, kept: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        character
        if character in kept
        else " "
        if character.isspace()
        else "?"
        if is_unfit(character)
        else character
        for character in text
    )


# What GitHub Actions takes for a command wherever a step prints it: a line that begins with two
# colons (``::stop-commands::``), and ``##[``.
COMMAND = re.compile(r"^[ \t]*:(?=:)|##(?=\[)", re.M)


def printed(text: str) -> str:
    """``text`` as it may be printed: fit to be shown, and no line of it a command of a log."""
    return COMMAND.sub(r"\g<0> ", clean_lines(text))


def is_unfit(character: str) -> bool:
    """Whether a character must not reach a terminal as it is."""
    return unicodedata.category(character) in UNFIT


def escaped(text: str) -> str:
    """``text`` on one line, with escapes for what does not print: for one's own mistakes."""
    return "".join(
        character if character.isprintable() else repr(character)[1:-1] for character in text
    )


def ascii_only(text: str) -> str:
    """One line of plain ASCII, whole; what has no ASCII form becomes a question mark."""
    replaced = text.replace("±", "+-").replace("–", "-").replace("→", "->")
    return " ".join(clean_line(replaced).encode("ascii", "replace").decode().split())


def counted(count: int, thing: str) -> str:
    """``1 seed``, ``8 seeds``, ``2 I/Os``."""
    return f"{count} {thing if count == 1 else plural(thing)}"


# What stands behind the noun that a thing is called by.
BEHIND = frozenset(
    words(
        "begun between bound by for from given in into made of on over per sent set taken that "
        "there through to while whose with written"
    )
)


def plural(thing: str) -> str:
    """``I/Os``, ``patches``, ``folios added``, ``messages of up to 8 KiB``; ``ms`` stays."""
    words = thing.split(" ")

    def is_behind(at: int) -> bool:
        word = words[at].rstrip(",")
        # "page read as", and not "direct read of"; "zeroed area".
        is_noun = word == "read" and words[at + 1 : at + 2] in (["of"], ["or"])
        is_before = words[at - 1] in ("and", "or")
        return word in BEHIND or (
            (word.endswith("ed") or word == "read") and not (is_noun or is_before)
        )

    at = next(
        (at for at in range(len(words) - 1) if words[at].endswith(",") or is_behind(at + 1)),
        len(words) - 1,
    )
    noun, comma = words[at].removesuffix(","), "," * words[at].endswith(",")
    if noun == "same" or (noun.endswith("s") and not noun.endswith("ss")):
        return thing
    if noun.endswith("y") and not noun.endswith(("ay", "ey")):
        noun = f"{noun[:-1]}ie"
    words[at] = f"{noun}{'es' if noun.endswith(('ch', 'sh', 'ss', 'x')) else 's'}{comma}"
    return " ".join(words)


def in_words(names: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def enumerated(names: Sequence[str], between: str = ", ", most: int = 5) -> str:
    """The first names, ``most`` of them, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{between.join(names[:most])}{more}"


def typeset(text: str) -> str:
    """Numbers as a page prints them: true minus signs and arrows instead of ASCII."""
    return re.sub(r"(?<![\w-])-(?=\d)", "−", text.replace(" -> ", " → "))


def wrap_command(command: str, width: int) -> list[str]:
    """A command line broken at words with backslashes, each line within ``width`` if words are."""
    lines, line = [], ""
    for word in command.split(" "):
        longer = f"{line} {word}" if line else word
        if line and len(longer) > width - 2:
            lines.append(f"{line} \\")
            line = f"  {word}"
        else:
            line = longer
    return [*lines, line]


def percent(fraction: float) -> str:
    """A fraction as people read it, two decimals, without a sign of its own."""
    return f"{100 * fraction:.2f} %"


def duration(seconds: float) -> str:
    """``75`` → ``1m15s``."""
    whole = max(0, round(seconds))
    return f"{whole // 60}m{whole % 60:02d}s" if whole >= 60 else f"{whole}s"
