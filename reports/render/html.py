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
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from reports import document as doc
from reports.document import Block, Cell, Column, Heading, Words, safe
from text import clean_line, clean_lines, typeset

# In a page by its name: as a character it is a blank on standard output.
NBSP = "\u00a0"
KEPT_TOGETHER = re.compile(r"(?<=\d) (?=%)|(?<=[<±]) (?=\d)|(?<=\bno) (?=change \()")
STYLE = Path(__file__).parent / "page.css"
# Sorts and filters tables; a page is whole without it.
SCRIPT = Path(__file__).parent / "tables.js"
FOOTER = "Made from the session folder alone; the same folder gives the same bytes."
# Where a long name may end a line: behind these.
BREAKS = re.compile(r"(?<=[._])(?=[^._])")
# An option of a command, within which browsers end a line: behind its hyphens.
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")


def source_hash(text: str) -> str:
    """``'sha256-...'`` of what is between the tags of a script or style element."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def policy(scripts: Iterable[str], styles: Iterable[str] | None) -> str:
    """A policy by which a page loads nothing, and runs these scripts and styles alone.

    None for styles allows those inside drawings, which are attributes and have no hash.
    """
    run = " ".join(map(source_hash, scripts)) or "'none'"
    style = "'unsafe-inline'"
    if styles is not None:
        style = " ".join(map(source_hash, styles)) or "'none'"
    parts = ["default-src 'none'", f"script-src {run}", f"style-src {style}"]
    return "; ".join([*parts, "base-uri 'none'", "form-action 'none'"])


def escaped(text: str) -> str:
    """A text of ours or of anybody's as text of a page, with true minus signs and arrows.

    No line ends between a number and the sign before or the percent sign behind it.
    """
    glued = KEPT_TOGETHER.sub(NBSP, typeset(clean_lines(text)))
    return escape(glued).replace(NBSP, "&nbsp;")


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
    parts = []
    for part in (text,) if isinstance(text, str) else text:
        match part:
            case doc.Mono():
                parts.append(f"<code>{verbatim(part.text)}</code>")
            case doc.Strong():
                parts.append(f"<b{_classes(_tone(part.tone))}>{escaped(part.text)}</b>")
            case doc.Link():
                parts.append(linked(escaped(part.text), part.to))
            case _:
                parts.append(OPTION.sub(r'<span class="option">\g<0></span>', escaped(part)))
    return "".join(parts)


def linked(inner: str, to: str) -> str:
    """What is escaped already, as a link; as it is where the address is not safe to follow."""
    if not safe(to):
        return inner
    away = ' rel="noopener noreferrer nofollow"' if to.startswith("https:") else ""
    return f"<a href={attribute(to)}{away}>{inner}</a>"


def _tone(word: str) -> str:
    return slug(word) if word else ""


def _classes(*names: str) -> str:
    text = " ".join(filter(None, names))
    return f' class="{text}"' if text else ""


def _small(text: str, names: str = "") -> str:
    return f"<small{names}>{escaped(text)}</small>" if text else ""


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
            case Heading(level=level):
                at = f" id={attribute(self.anchor(block))}" if level > 1 else ""
                return f"<h{level}{at}>{escaped(block.text)}</h{level}>"
            case doc.Paragraph():
                return f"<p{_classes(block.role)}>{words(block.words)}</p>"
            case doc.Listing():
                marked = any(item.level for item in block.items)
                return _within("ul", "findings" if marked else "", map(self._item, block.items))
            case doc.Table():
                return _table(block)
            case doc.Figure():
                return _figure(block)
            case doc.Gallery():
                return _within("div", "charts", map(_figure, block.figures))
            case doc.Code():
                return f"<pre>{verbatim(block.text)}</pre>"
            case doc.Facts():
                each = ((f.name, words(f.words).replace("\n", "<br>")) for f in block.facts)
                pairs = (f"<dt>{escaped(name)}</dt><dd>{value}</dd>" for name, value in each)
                return _within("dl", "facts", pairs)
            case doc.Verdicts():
                return _within("ol", "verdicts", map(_verdict, block.rows))
            case doc.Callout():
                label, inner = attribute(block.label), self.blocks(block.blocks)
                return f'<section class="apart" aria-label={label}>\n{inner}\n</section>'
            case doc.Fold():
                summary = f"<summary>{words(block.summary)}</summary>"
                return f"<details>\n{summary}\n{self.blocks(block.blocks)}\n</details>"

    def _item(self, item: doc.Item) -> str:
        mark = '<b class="warning">!</b>' if item.level == "warning" else "<b>·</b>"
        scope = f'<span class="scope">{escaped(item.scope)}</span> ' if item.scope else ""
        inner = f"\n{self.blocks(item.blocks)}\n" if item.blocks else ""
        return f"<li>{mark if item.level else ''}{scope}{words(item.words)}{inner}</li>"


def _within(tag: str, name: str, parts: Iterable[str]) -> str:
    inner = "\n".join(parts)
    return f"<{tag}{_classes(name)}>\n{inner}\n</{tag}>"


def _figure(figure: doc.Figure) -> str:
    head = f"<h{figure.level}>{escaped(figure.title)}</h{figure.level}>" if figure.title else ""
    caption = f"<figcaption>{escaped(figure.caption)}</figcaption>"
    return f"<figure>\n{head}\n{figure.svg}\n{caption}\n</figure>"


def _verdict(verdict: doc.VerdictRow) -> str:
    tone = _tone(verdict.style or verdict.word) or "plain"
    values = (" -> ".join(verdict.values),) if any(verdict.values) else ()
    lines = "".join(f"<small>{words(line)}</small>" for line in (*values, *verdict.lines))
    weak = _classes("change", "failed" if verdict.word == "failed" else "")
    at = f" id={attribute(verdict.anchor)}" if verdict.anchor else ""
    case, mark = linked(escaped(verdict.case), verdict.to), escaped(verdict.mark)
    return (
        f'<li{at}>\n<span class="word {tone}"><i aria-hidden="true">{mark}</i>'
        f"{escaped(verdict.word)}</span>\n"
        f'<span class="what"><b>{case}</b> {escaped(verdict.metric)}{lines}</span>\n'
        f"<span{weak}>{escaped(verdict.change)}"
        f"<small>{escaped(verdict.interval)}</small></span>\n</li>"
    )


def _table(table: doc.Table) -> str:
    rows = []
    for row in table.rows:
        pairs = zip(row.cells, table.columns, strict=True)
        cells = "".join(_cell(*pair, head=at == 0) for at, pair in enumerate(pairs))
        names = _classes("primary" * row.strong, "faint" * row.faint, "sum" * row.sum)
        rows.append(f"<tr{names}>{cells}</tr>")
    head, body = _heads(table.columns), "\n".join(rows)
    inner = f"<table>\n<thead>{head}</thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    # A box that scrolls by itself, with the keyboard too: a page is never wider than a phone.
    region = f'<div class="scroll" tabindex="0" role="region" aria-label={attribute(table.label)}>'
    return f"{region}\n{inner}\n</div>"


def _heads(columns: Sequence[Column]) -> str:
    """One row of heads, or two where columns stand in groups."""
    if not any(column.group for column in columns):
        return f"<tr>{''.join(map(_head, columns))}</tr>"
    upper: list[str] = []
    lower: list[str] = []
    for group, members in groupby(columns, key=lambda column: column.group):
        of_group = list(members)
        if group:
            less = _less(of_group[-1]) if all(map(_less, of_group)) else ""
            span = f'scope="colgroup" colspan="{len(of_group)}"{_classes("span", less)}'
            upper.append(f"<th {span}>{escaped(group)}</th>")
            lower += map(_head, of_group)
        else:
            upper += [_head(column, ' rowspan="2"') for column in of_group]
    return f"<tr>{''.join(upper)}</tr>\n<tr>{''.join(lower)}</tr>"


def _head(column: Column, extra: str = "") -> str:
    under = _small(column.under, ' class="under"')
    # A head without text is no head to anybody.
    tag, scope = ("th", ' scope="col"') if column.head or column.under else ("td", "")
    names = _classes("left" * column.left, _less(column))
    return f"<{tag}{scope}{names}{extra}>{escaped(column.head)}{under}</{tag}>"


def _less(column: Column) -> str:
    return "less" * (column.drop > 0 or column.narrow)


def _cell(cell: Cell, column: Column, *, head: bool) -> str:
    text = verbatim(cell.text) if cell.mono else escaped(cell.text)
    if head and not re.search("[<>&;]", text):
        text = BREAKS.sub("<wbr>", text)
    text = linked(f"<code>{text}</code>" if cell.mono else text, cell.to)
    mark = f'<i aria-hidden="true">{escaped(cell.mark)}</i> ' if cell.mark else ""
    small, under = _small(cell.small), _small(cell.under, ' class="under"')
    kinds = "left" * column.left, "wide" * column.wide, "name" * head
    names = _classes(*kinds, _less(column), _tone(cell.tone))
    tag, scope = ("th", ' scope="row"') if head else ("td", "")
    return f"<{tag}{scope}{names}>{mark}{text}{small}{under}</{tag}>"


def contents(blocks: Sequence[Block]) -> str:
    """A line of links to the sections; nothing where there are hardly any."""
    heads = (block for block in blocks if isinstance(block, Heading))
    links = [
        f"<a href={attribute(f'#{head.anchor}')}>{escaped(head.text)}</a>"
        for head in heads
        if head.level == 2 and head.anchor
    ]
    if len(links) < 3:
        return ""
    return '<nav class="contents" aria-label="Contents">\n' + "\n".join(links) + "\n</nav>\n"


def page(
    title: str,
    head: Sequence[Block],
    blocks: Sequence[Block],
    over: Words = "",
    footer: str = FOOTER,
) -> str:
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
