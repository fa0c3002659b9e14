"""Blocks as Markdown, for a comment, a wiki or a commit.

Every text passes :func:`escape`, so that what guests, hosts and mails say is text; code is in
fences longer than any within it.  Folds are written out, drawings are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from reports import document as doc
from reports.document import Block, Words, safe
from text import clean_line, clean_lines

# All that Markdown, and HTML within it, take for something else than text.
ACTIVE = re.compile(r"([\\`*_{}\[\]<>#|!~&])")


def escape(text: str) -> str:
    """Text that Markdown and HTML within it take as text, on one line."""
    return ACTIVE.sub(r"\\\1", " ".join(clean_line(text).split()))


def words(text: Words) -> str:
    """Words with what stands out in them."""
    if isinstance(text, str):
        return escape(text)
    parts = []
    for part in text:
        if isinstance(part, doc.Mono):
            parts.append(_mono(part.text))
        elif isinstance(part, doc.Strong):
            parts.append(f"**{escape(part.text)}**")
        elif isinstance(part, doc.Link):
            # An address that is its own text is a link to every reader of Markdown.
            is_address = part.text == part.to and safe(part.to)
            parts.append(f"<{part.to}>" if is_address else escape(part.text))
        else:
            # A blank at an end belongs to what stands beside it.
            lead, tail = " " * part.startswith(" "), " " * part.endswith(" ")
            parts.append(f"{lead}{escape(part)}{tail}")
    return "".join(parts)


def _mono(text: str) -> str:
    """A span of code whose ticks are more than any run within it."""
    text = " ".join(clean_line(text).split())
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    ticks = "`" * (longest + 1)
    pad = " " if longest else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def code_block(text: str, language: str = "") -> list[str]:
    """A fenced block whose fence is longer than any in ``text``."""
    text = clean_lines(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", text, fence, ""]


def render(blocks: Sequence[Block], level: int = 0) -> list[str]:
    """The lines of the blocks; headings are ``level`` deeper than they say."""
    return [line for block in blocks for line in _block(block, level)]


def text(blocks: Sequence[Block], level: int = 0) -> str:
    """The blocks as a file, ending in a newline."""
    return "\n".join(render(blocks, level)).rstrip() + "\n"


def _block(block: Block, level: int) -> list[str]:
    match block:
        case doc.Heading():
            return [f"{'#' * min(6, block.level + level)} {escape(block.text)}", ""]
        case doc.Paragraph(role="bottom"):
            return [f"**{words(block.words)}**", ""]
        case doc.Paragraph():
            return [words(block.words), ""]
        case doc.Listing():
            return [*(line for item in block.items for line in _item(item)), ""]
        case doc.Table():
            return _table(block)
        case doc.Code():
            return code_block(block.text, block.language)
        case doc.Facts():
            rows = [f"| {escape(f.name)} | {words(f.words)} |" for f in block.facts]
            return ["| what | value |", "|:--|:--|", *rows, ""]
        case doc.Verdicts():
            return [*(_results(block) if block.heads else map(_verdict, block.rows)), ""]
        case doc.Callout():
            return render(block.blocks, level)
        case doc.Fold():
            if block.page_only:
                return []
            return [f"{words(block.summary)}:", "", *render(block.blocks, level + 1)]
        case doc.Figure() | doc.Gallery():
            return []


def _item(item: doc.Item) -> list[str]:
    mark = "**warning** " if item.level == "warning" else ""
    scope = f"{escape(item.scope)}: " if item.scope else ""
    lines = [f"- {mark}{scope}{words(item.words)}"]
    for block in item.blocks:
        if isinstance(block, doc.Listing):
            lines += [f"  - {words(inner.words)}" for inner in block.items]
        elif isinstance(block, doc.Code):
            # Indented by more than the list: no line of a console can end the block.
            quoted = clean_lines(block.text).split("\n")
            lines += ["", *(f"        {line}".rstrip() for line in quoted)]
        else:
            lines += [f"  {line}".rstrip() for line in _block(block, 0)]
    return lines


def _results(block: doc.Verdicts) -> list[str]:
    """A table of results, and below it what there is to say of some."""
    heads = [escape(head) for head in ("result", *block.heads, "verdict")]
    lines = ["| " + " | ".join(heads) + " |", "|:--" + "|--:" * len(block.heads) + "|:--|"]
    for row in block.rows:
        name = escape(f"{row.case}: {row.metric}")
        cells = (*row.values, row.change or "not measured", row.interval.partition(" at ")[0])
        shown = " | ".join(map(escape, cells))
        lines.append(f"| {name} | {shown} | **{escape(row.word)}** |")
    more = [(f"{row.case}: {row.metric}", line) for row in block.rows for line in row.lines]
    return [*lines, *([""] * bool(more)), *(f"- {escape(of)}: {words(line)}" for of, line in more)]


def _verdict(row: doc.VerdictRow) -> str:
    """One entry: ``- **improvement** filemap-4k 4k.bw +1.01 % [+0.77, +1.25] at 99 %; ...``."""
    size = " ".join(part for part in (row.change, row.interval) if part)
    first = " ".join(part for part in (row.case, row.metric, size) if part)
    parts = [escape(first), *map(words, row.lines)]
    return f"- **{escape(row.word)}** {'; '.join(parts)}"


def cell_text(cell: doc.Cell) -> str:
    """All that a cell has, in one line."""
    return " ".join(part for part in (cell.text, cell.small, cell.under) if part)


def _table(table: doc.Table) -> list[str]:
    heads = []
    for column in table.columns:
        title = ": ".join(part for part in (column.group, column.head) if part)
        heads.append(", ".join(part for part in (title, column.under) if part))
    rule = [":--" if column.left else "--:" for column in table.columns]
    rows = []
    for row in table.rows:
        cells = [escape(cell_text(cell)) for cell in row.cells]
        if row.strong and cells[0]:
            cells[0] = f"**{cells[0]}**"
        rows.append(f"| {' | '.join(cells)} |")
    if not rows:
        return []
    return [f"| {' | '.join(map(escape, heads))} |", f"|{'|'.join(rule)}|", *rows, ""]
