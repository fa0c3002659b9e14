"""Blocks as one self-contained page: no network, the same bytes every time, whole without script.

Every text passes :func:`escaped`, every attribute :func:`attribute`; drawings are made here
with their texts escaped and stay as they are.

A page is one file: from disk, a browser counts every file as another origin, so that what it may
load and run is named by its hash and not by where it comes from (Content Security Policy Level 3).
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from reports.document import (
    Block,
    Callout,
    Cell,
    Code,
    Column,
    Facts,
    Figure,
    Fold,
    Gallery,
    Heading,
    Inline,
    Item,
    Link,
    Listing,
    Mono,
    Paragraph,
    Row,
    Strong,
    Table,
    VerdictRow,
    Verdicts,
    Words,
    plain,
)
from text import clean_line, clean_lines, typeset

STYLE = Path(__file__).parent / "page.css"
# Sorts and filters tables; a page is whole without it.
SCRIPT = Path(__file__).parent / "tables.js"
FOOTER = "Made from the session folder alone; the same folder gives the same bytes."
# Where a long name may end a line: behind these.
BREAKS = re.compile(r"(?<=[._])(?=[^._])")

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


def escaped(text: str) -> str:
    """A text of ours or of anybody's as text of a page, with true minus signs and arrows."""
    return escape(typeset(clean_lines(text)))


def verbatim(text: str) -> str:
    """Code as text of a page: escaped, and otherwise as it is."""
    return escape(clean_lines(text))


def attribute(text: str) -> str:
    """A text as the value of an attribute, quotes included."""
    return f'"{escape(clean_line(text), quote=True)}"'


def slug(text: str) -> str:
    """An anchor of letters, digits and dashes, whatever a guest put into the text."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "section"


def words(text: Words) -> str:
    """Words with what stands out in them."""
    return "".join(map(_inline, (text,) if isinstance(text, str) else text))


def _inline(part: Inline) -> str:
    if isinstance(part, Mono):
        return f"<code>{verbatim(part.text)}</code>"
    if isinstance(part, Strong):
        return f"<b{_classes(_tone(part.tone))}>{escaped(part.text)}</b>"
    if isinstance(part, Link):
        return linked(escaped(part.text), part.to)
    return escaped(part)


def linked(inner: str, to: str) -> str:
    """What is escaped already, as a link; as it is where the address is not safe to follow."""
    if not safe(to):
        return inner
    away = ' rel="noopener noreferrer nofollow"' if to.startswith("https:") else ""
    return f"<a href={attribute(to)}{away}>{inner}</a>"


def _tone(word: str) -> str:
    return slug(word) if word else ""


def _classes(*names: str) -> str:
    text = " ".join(name for name in names if name)
    return f' class="{text}"' if text else ""


class Page:
    """One page on its way: it keeps the anchors unique and knows the sections."""

    def __init__(self) -> None:
        self.anchors: set[str] = set()

    def anchor(self, heading: Heading) -> str:
        """The heading's anchor, or one made of its text; numbered where it is taken."""
        base = heading.anchor or slug(heading.text)
        anchor, number = base, 2
        while anchor in self.anchors:
            anchor, number = f"{base}-{number}", number + 1
        self.anchors.add(anchor)
        return anchor

    def blocks(self, blocks: Sequence[Block]) -> str:
        """All blocks, one below the other."""
        return "\n".join(map(self.block, blocks))

    def block(self, block: Block) -> str:
        """One block."""
        match block:
            case Heading():
                level = block.level
                at = f" id={attribute(self.anchor(block))}" if level > 1 else ""
                return f"<h{level}{at}>{escaped(block.text)}</h{level}>"
            case Paragraph():
                return f"<p{_classes(block.role)}>{words(block.words)}</p>"
            case Listing():
                marked = any(item.level for item in block.items)
                items = "\n".join(map(self._item, block.items))
                return f"<ul{_classes('findings' if marked else '')}>\n{items}\n</ul>"
            case Table():
                return _table(block)
            case Figure():
                return _figure(block)
            case Gallery():
                return (
                    '<div class="charts">\n' + "\n".join(map(_figure, block.figures)) + "\n</div>"
                )
            case Code():
                return f"<pre>{verbatim(block.text)}</pre>"
            case Facts():
                rows = (
                    f"<dt>{escaped(f.name)}</dt><dd>{_breakable(f.words)}</dd>" for f in block.facts
                )
                return '<dl class="facts">\n' + "\n".join(rows) + "\n</dl>"
            case Verdicts():
                return '<ol class="verdicts">\n' + "\n".join(map(_verdict, block.rows)) + "\n</ol>"
            case Callout():
                label = attribute(block.label)
                return (
                    f'<section class="apart" aria-label={label}>\n{self.blocks(block.blocks)}\n'
                    "</section>"
                )
            case Fold():
                summary = f"<summary>{words(block.summary)}</summary>"
                return f"<details>\n{summary}\n{self.blocks(block.blocks)}\n</details>"

    def _item(self, item: Item) -> str:
        mark = '<b class="warning">!</b>' if item.level == "warning" else "<b>·</b>"
        scope = f'<span class="scope">{escaped(item.scope)}</span> ' if item.scope else ""
        inner = f"\n{self.blocks(item.blocks)}\n" if item.blocks else ""
        return f"<li>{mark if item.level else ''}{scope}{words(item.words)}{inner}</li>"


def _breakable(text: Words) -> str:
    return words(text).replace("\n", "<br>")


def _figure(figure: Figure) -> str:
    head = f"<h{figure.level}>{escaped(figure.title)}</h{figure.level}>" if figure.title else ""
    caption = f"<figcaption>{escaped(figure.caption)}</figcaption>"
    if not figure.wide_rem:
        return f"<figure>\n{head}\n{figure.svg}\n{caption}\n</figure>"
    box = _box(figure.title, figure.svg)
    wide = f'style="--wide: {figure.wide_rem:.1f}rem"'
    return f'<figure class="heat" {wide}>\n{head}\n{box}\n{caption}\n</figure>'


def _box(label: str, inner: str) -> str:
    """A box that scrolls by itself, with the keyboard too: a page is never wider than a phone."""
    region = f'<div class="scroll" tabindex="0" role="region" aria-label={attribute(label)}>'
    return f"{region}\n{inner}\n</div>"


def _verdict(verdict: VerdictRow) -> str:
    tone = _tone(verdict.style or verdict.word) or "plain"
    lines = "".join(f"<small>{words(line)}</small>" for line in verdict.lines)
    weak = "failed" if verdict.word == "failed" else ""
    at = f" id={attribute(verdict.anchor)}" if verdict.anchor else ""
    case = linked(escaped(verdict.case), verdict.to)
    return (
        f'<li{at}>\n<span class="word {tone}"><i aria-hidden="true">{escaped(verdict.mark)}</i>'
        f"{escaped(verdict.word)}</span>\n"
        f'<span class="what"><b>{case}</b> {escaped(verdict.metric)}{lines}'
        "</span>\n"
        f"<span{_classes('change', weak)}>{escaped(verdict.change)}"
        f"<small>{escaped(verdict.interval)}</small></span>\n</li>"
    )


def _table(table: Table) -> str:
    body = "\n".join(_row(row, table.columns) for row in table.rows)
    inner = f"<table>\n<thead>{_heads(table.columns)}</thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    return _box(table.label, inner)


def _heads(columns: Sequence[Column]) -> str:
    """One row of heads, or two where columns stand in groups."""
    if not any(column.group for column in columns):
        return f"<tr>{''.join(_head(column) for column in columns)}</tr>"
    upper, lower = [], []
    for group, members in groupby(columns, key=lambda column: column.group):
        groups = list(members)
        if group:
            span = f'scope="colgroup" colspan="{len(groups)}" class="span"'
            upper.append(f"<th {span}>{escaped(group)}</th>")
            lower += [_head(column) for column in groups]
        else:
            upper += [_head(column, ' rowspan="2"') for column in groups]
    return f"<tr>{''.join(upper)}</tr>\n<tr>{''.join(lower)}</tr>"


def _head(column: Column, extra: str = "") -> str:
    under = f'<small class="under">{escaped(column.under)}</small>' if column.under else ""
    # A head without text is no head to anybody.
    tag, scope = ("th", ' scope="col"') if column.head or column.under else ("td", "")
    names = _classes("left" * column.left)
    return f"<{tag}{scope}{names}{extra}>{escaped(column.head)}{under}</{tag}>"


def _row(row: Row, columns: Sequence[Column]) -> str:
    cells = [
        _cell(cell, column, head=at == 0)
        for at, (cell, column) in enumerate(zip(row.cells, columns, strict=True))
    ]
    names = _classes("primary" * row.strong, "faint" * row.faint, "sum" * row.sum)
    return f"<tr{names}>{''.join(cells)}</tr>"


def _cell(cell: Cell, column: Column, *, head: bool) -> str:
    text = verbatim(cell.text) if cell.mono else escaped(cell.text)
    if head:
        text = BREAKS.sub("<wbr>", text) if not re.search("[<>&;]", text) else text
    if cell.mono:
        text = f"<code>{text}</code>"
    text = linked(text, cell.to)
    mark = f'<i aria-hidden="true">{escaped(cell.mark)}</i> ' if cell.mark else ""
    small = f"<small>{escaped(cell.small)}</small>" if cell.small else ""
    under = f'<small class="under">{escaped(cell.under)}</small>' if cell.under else ""
    names = _classes(
        "left" * column.left, "wide" * column.wide, "name" * head, _tone(cell.tone)
    )  # fmt: skip
    tag, scope = ("th", ' scope="row"') if head else ("td", "")
    return f"<{tag}{scope}{names}>{mark}{text}{small}{under}</{tag}>"


def _sections(blocks: Sequence[Block]) -> Iterator[Heading]:
    """The headings that the line of contents leads to."""
    for block in blocks:
        if isinstance(block, Heading) and block.level == 2 and block.anchor:
            yield block


def contents(blocks: Sequence[Block]) -> str:
    """A line of links to the sections; nothing where there are hardly any."""
    sections = list(_sections(blocks))
    links = [f"<a href={attribute(f'#{h.anchor}')}>{escaped(h.text)}</a>" for h in sections]
    if len(links) < 3:
        return ""
    return '<nav class="contents" aria-label="Contents">\n' + "\n".join(links) + "\n</nav>\n"


def page(
    title: str, head: Sequence[Block], blocks: Sequence[Block], over: Words = "",
    footer: str = FOOTER,
) -> str:  # fmt: skip
    """The whole page, ending in a newline.

    ``title`` is the window's, ``head`` stands above the line of contents, ``over`` above all.
    """
    builder = Page()
    above = f'<p class="over">{words(over)}</p>\n' if over else ""
    style, script = STYLE.read_text(encoding="utf-8"), SCRIPT.read_text(encoding="utf-8")
    body = (
        f"<main>\n<header>\n{above}{builder.blocks(head)}\n</header>\n"
        f"{contents(blocks)}{builder.blocks(blocks)}\n"
        f"<footer>{escaped(footer)}</footer>\n</main>\n"
    )
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy([script], None)}">\n'
        f"<title>{verbatim(title)}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n{body}<script>{script}</script>\n</body>\n</html>\n"
    )


def text_of(words: Words) -> str:
    """Words as they stand on a page, without marks: for tests and titles."""
    return typeset(clean_line(plain(words)))
