"""What a report is made of: frozen blocks that say what is shown, not how a form shows it.

A section (``reports.sections``) makes blocks once; ``reports.render`` has one file a form.
Texts are plain: no renderer is given anything escaped, and each escapes in one place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class Mono:
    """Text that is code: never typeset, and never broken into words."""

    text: str


@dataclass(frozen=True)
class Strong:
    """Text that stands out; ``tone`` is the word of a verdict or a level, for its colour."""

    text: str
    tone: str = ""


@dataclass(frozen=True)
class Link:
    """Text that leads somewhere; ``to`` is an https address, a file beside, or an anchor here."""

    text: str
    to: str


Inline = str | Mono | Strong | Link
Words = str | tuple[Inline, ...]
# ``lead`` says the most important thing of a section, ``note`` how to read what is above it.
Role = Literal["", "lead", "note", "banner", "cause", "bottom", "question"]
Level = Literal["", "note", "warning"]


@dataclass(frozen=True)
class Heading:
    """A heading; 1 is the report's title, 2 begins a section.  The anchor is unique in a page."""

    text: str
    level: int = 2
    anchor: str = ""


@dataclass(frozen=True)
class Paragraph:
    """A sentence or some."""

    words: Words
    role: Role = ""


@dataclass(frozen=True)
class Item:
    """An entry of a list: a level makes it a finding, ``scope`` is what the finding is of."""

    words: Words
    level: Level = ""
    scope: str = ""
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True)
class Listing:
    """A list of entries."""

    items: tuple[Item, ...]


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    ``small`` stands beside the text (a spread, a unit) and ``under`` below it; both are the
    first to go where there is no room.  ``tone`` is a verdict's word or ``faint``, ``mark`` a
    sign before the text that repeats the verdict to the eye.  ``to`` is where the text leads.
    """

    text: str = ""
    small: str = ""
    under: str = ""
    tone: str = ""
    mark: str = ""
    mono: bool = False
    to: str = ""


@dataclass(frozen=True)
class Column:
    """A column; those of one ``group`` stand together under its title.

    Numbers are to the right.  Where there is no room columns go in the order of ``drop``, from
    1; those of 0 stay.  A phone shows neither these nor ``narrow`` ones.
    """

    head: str
    left: bool = False
    under: str = ""
    group: str = ""
    wide: bool = False
    drop: int = 0
    narrow: bool = False


@dataclass(frozen=True)
class Row:
    """A row; its first cell is its head.  ``strong`` is what is judged, ``faint`` what is not.

    A ``sum`` of others stays at the end where a reader sorts the rows or looks for some.
    """

    cells: tuple[Cell, ...]
    strong: bool = False
    faint: bool = False
    sum: bool = False


@dataclass(frozen=True)
class Table:
    """A table; ``label`` names it to those who do not see it.

    ``together`` many columns after the first belong together where a table is too wide and is
    continued below itself; 0 where it is not continued.
    """

    label: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    together: int = 0


@dataclass(frozen=True)
class Figure:
    """A drawing with its words; ``svg`` is an element made here, with its texts escaped.

    ``alt`` says what it shows and is inside the drawing, too.
    """

    title: str
    caption: str
    alt: str
    svg: str
    level: int = 3


@dataclass(frozen=True)
class Gallery:
    """Drawings beside each other where there is room."""

    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Code:
    """Lines as they are: commands, or what a kernel printed."""

    text: str
    language: str = ""


@dataclass(frozen=True)
class Fact:
    """A name with its value."""

    name: str
    words: Words


@dataclass(frozen=True)
class Facts:
    """Names with their values."""

    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class VerdictRow:
    """A verdict: its word and mark, of what, how much, and the lines below that say more.

    ``case`` leads to the address ``to`` where there is one; ``anchor`` is the row's own.  ``style``
    colours the word as another would be.  ``values`` are those of base and patched, empty where
    the change says all.
    """

    word: str
    mark: str
    case: str
    metric: str = ""
    change: str = ""
    interval: str = ""
    lines: tuple[Words, ...] = ()
    to: str = ""
    anchor: str = ""
    style: str = ""
    values: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class Verdicts:
    """Verdicts, one below the other.

    With ``heads``, of base, patched, change and interval, forms of characters have a table of them.
    """

    rows: tuple[VerdictRow, ...]
    heads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Callout:
    """Blocks that must not be overlooked; ``label`` names them to those who do not see it."""

    label: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Fold:
    """Blocks that a page shows when asked to.

    Forms that cannot fold show them below the summary; with ``page_only`` they leave them out.
    """

    summary: Words
    blocks: tuple[Block, ...]
    page_only: bool = False


Block = (
    Heading
    | Paragraph
    | Listing
    | Table
    | Figure
    | Gallery
    | Code
    | Facts
    | Verdicts
    | Callout
    | Fold
)


def listing(texts: Iterable[Words]) -> list[Block]:
    """A list of these texts; nothing for none."""
    items = tuple(Item(text) for text in texts)
    return [Listing(items)] if items else []


def row(*cells: str | Cell, strong: bool = False, faint: bool = False, total: bool = False) -> Row:
    """A row of cells, plain ones given as text; a ``total`` is a sum of others."""
    return Row(tuple(Cell(c) if isinstance(c, str) else c for c in cells), strong, faint, total)


def facts(pairs: Iterable[tuple[str, Words]]) -> list[Block]:
    """Facts of these names and values; nothing for none."""
    entries = tuple(Fact(name, words) for name, words in pairs)
    return [Facts(entries)] if entries else []


def nested(blocks: Sequence[Block], prefix: str) -> tuple[Block, ...]:
    """The blocks with their anchors under ``prefix``: sections of one pair of arms of many."""
    return tuple(
        replace(block, anchor=f"{prefix}-{block.anchor}")
        if isinstance(block, Heading) and block.anchor
        else replace(block, blocks=nested(block.blocks, prefix))
        if isinstance(block, Fold | Callout)
        else block
        for block in blocks
    )


def plain(words: Words) -> str:
    """The text alone."""
    if isinstance(words, str):
        return words
    return "".join(part if isinstance(part, str) else part.text for part in words)


# A file beside or below, or above by ../, or a place in this page: no scheme, no host.
RELATIVE = re.compile(r"(?:\.\./)*[\w.%-][\w.%/-]*(?:#[\w.,%-]*)?|#[\w.,%-]+")


def safe(to: str) -> bool:
    """Whether a page links to this: by https, or to a file of its own folder or site."""
    return to.startswith(("https://", "http://")) or RELATIVE.fullmatch(to) is not None
