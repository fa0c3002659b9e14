"""Blocks as plain text: for a terminal of any width, and 80 columns in a file.

No text moves a cursor or is wider than the width; only a command is never broken within a word.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from reports import document as doc
from reports.document import Block, Cell, Column, Row, Table, plain
from text import clean_line, wrap_command

# Of a file, of a pipe, and of a terminal that does not say.
WIDTH = 80
# Below this no table says anything.
NARROWEST = 40
UNBROKEN = "\N{NO-BREAK SPACE}"
# The first column is not cut below this: what is left would name nothing.
SHORTEST_NAME = 20
# Of a result, whose name is wrapped and not cut.
SHORTEST_RESULT = 14
# Of a cell among other words, where all would not fit.
SHORTEST_WORDS = 12
SHARED = "instructions per "
GAP = "  "
INDENT = "  "
SHELL = "sh"


def wrapped(text: str, width: int = WIDTH, indent: str = INDENT, hang: str = "") -> list[str]:
    """The text, fit to be printed, in lines of at most ``width`` columns; none for no text."""
    # A number stays on the line of its unit.
    lines = textwrap.wrap(
        clean_line(text).replace(" %", f"{UNBROKEN}%"),
        width,
        initial_indent=indent,
        subsequent_indent=indent + hang,
        break_on_hyphens=False,
    )
    return [line.replace(UNBROKEN, " ") for line in lines]


def cut(text: str, most: int) -> str:
    """The text, or as much of it as fits with dots behind it."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def text(blocks: Sequence[Block], width: int = WIDTH) -> str:
    """The blocks as a file, ending in a newline."""
    lines = render(blocks, max(width, NARROWEST))
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def render(blocks: Sequence[Block], width: int = WIDTH) -> list[str]:
    """The lines of the blocks, ending in an empty one; none for nothing."""
    lines = list(_spaced(blocks, width))
    return [*lines, ""] if lines else []


def _spaced(blocks: Sequence[Block], width: int, outside: str = "") -> Iterator[str]:
    """Blocks with empty lines between them; what stands below a section's heading is indented."""
    indent, before = outside, None
    for block in blocks:
        is_section = isinstance(block, doc.Heading) and block.level == 2
        lines = list(_block(block, width, outside if is_section else indent))
        indent = f"{outside}{INDENT}" if is_section else indent
        if not lines:
            continue
        close = before is None or isinstance(before, doc.Heading)
        if isinstance(before, doc.Paragraph) and isinstance(block, doc.Paragraph):
            close = before.role == block.role != ""
        yield from lines if close else ("", *lines)
        before = block


def _block(block: Block, width: int, indent: str) -> Iterator[str]:
    match block:
        case doc.Heading():
            yield from wrapped(block.text, width, indent)
        case doc.Paragraph():
            yield from _paragraph(block, width, indent)
        case doc.Listing():
            for item in block.items:
                yield from _item(item, width, indent)
        case Table():
            yield from _table(block, width, indent or INDENT)
        case doc.Code():
            yield from _code(block, width, f"{indent}{INDENT}")
        case doc.Facts():
            yield from _facts(block, width, indent)
        case doc.Verdicts():
            yield from _verdicts(block, width, indent)
        case doc.Callout():
            for inner in block.blocks:
                yield from _block(inner, width, indent)
        case doc.Fold(page_only=False):
            yield from wrapped(f"{plain(block.summary)}:", width, indent)
            yield from _spaced(block.blocks, width, f"{indent}{INDENT}")
        case doc.Fold() | doc.Figure() | doc.Gallery():
            return


def _paragraph(block: doc.Paragraph, width: int, indent: str) -> Iterator[str]:
    """The words; a command at their end that does not fit beside them has lines of its own."""
    lines = wrapped(plain(block.words), width, indent)
    last = block.words[-1] if isinstance(block.words, tuple) else ""
    if isinstance(last, doc.Mono) and len(lines) > 1:
        yield from wrapped(plain(block.words[:-1]), width, indent)
        yield from _code(doc.Code(last.text, SHELL), width, f"{indent}{INDENT}")
    else:
        yield from lines


def _code(block: doc.Code, width: int, indent: str) -> Iterator[str]:
    """Commands, broken so that they can be pasted; other lines as they are, cut to the width."""
    for line in block.text.splitlines():
        if block.language == SHELL:
            for part in wrap_command(clean_line(line), width - len(indent)):
                yield f"{indent}{part}"
        else:
            yield f"{indent}| {clean_line(line)}"[:width].rstrip()


def _item(item: doc.Item, width: int, indent: str) -> Iterator[str]:
    mark = {"warning": "! ", "note": "- "}.get(item.level, "")
    scope = f"{item.scope}: " if item.scope else ""
    yield from wrapped(f"{mark}{scope}{plain(item.words)}", width, indent)
    for block in item.blocks:
        yield from _block(block, width, f"{indent}    ")


def _facts(block: doc.Facts, width: int, indent: str) -> Iterator[str]:
    """Names to the left, values beside them; below a name that is too long for that."""
    names = [clean_line(fact.name) for fact in block.facts]
    column = min(max(map(len, names)), SHORTEST_NAME)
    for fact, name in zip(block.facts, names, strict=True):
        lines = wrapped(plain(fact.words), width, f"{indent}{' ' * column}{INDENT}")
        if len(name) > column or not lines:
            yield from wrapped(name, width, indent)
            yield from lines
            continue
        yield f"{indent}{name.ljust(column)}{INDENT}{lines[0].strip()}"
        yield from lines[1:]


def _verdicts(block: doc.Verdicts, width: int, indent: str) -> Iterator[str]:
    """A table below the cases; the limit of "no change" goes first, then names are wrapped.

    Where limits are several, one that goes is a line below its result.
    """
    # What all names say is the title of their column.
    alike = SHARED if all(SHARED in row.metric for row in block.rows) else ""
    results = [
        (
            *(row.metric.replace(alike, ""), *row.values, row.change),
            *(row.interval.partition(" at ")[0], row.word),
        )
        for row in block.rows
    ]
    below, left = f"{indent} ", (0, 5)
    short = [(*each[:5], each[5].partition(" (")[0]) for each in results]
    heads = block.heads or ("",) * 4
    for shown, gap in ((results, GAP), (short, GAP), (short, " ")):
        rows = [(alike.strip(), *heads, ""), *(tuple(map(clean_line, each)) for each in shown)]
        widths = _widths(rows)
        most = width - len(below) - sum(widths[1:]) - len(gap) * 5
        if most >= widths[0]:
            break
    limits = {row.word.partition(" (")[2].rstrip(")") for row in block.rows} - {""}
    apart = shown is short and len(limits) > 1
    # A longer name hangs below its line; on a narrow terminal a result is a sentence.
    fits = most >= min(SHORTEST_RESULT, widths[0])
    widths[0] = min(widths[0], most) if fits else 0
    case = ""
    if block.heads and fits:
        yield f"{below}{_line(rows[0], widths, left, gap)}"
    for row, cells in zip(block.rows, rows[1:], strict=True):
        if row.case != case:
            yield from wrapped(row.case, width, indent)
        case = row.case
        if fits:
            name = wrapped(cells[0], max(widths[0], 1), "", INDENT) or [""]
            yield f"{below}{_line((name[0], *cells[1:]), widths, left, gap)}"
            yield from (f"{below}{more}" for more in name[1:])
        else:
            words = (row.metric, *cells[1:])
            yield from wrapped(GAP.join(filter(None, words)), width, below, INDENT)
        limit = row.word.partition(" (")[2].rstrip(")") if apart else ""
        for more in filter(None, (limit, *map(plain, row.lines))):
            yield from wrapped(more, width, f"{below}    ")


def _table(table: Table, width: int, indent: str) -> list[str]:
    if not table.rows:
        return []
    room = width - len(indent)
    lines: Iterable[str] = []
    for narrower in _narrower(table, room):
        lines = aligned(narrower)
        if max(map(len, lines)) <= room:
            break
    else:
        lines = _continued(table, room) if table.together else lines
    return [f"{indent}{line}"[:width].rstrip() for line in lines]


def _with_cells(table: Table, change: Callable[[Cell], Cell]) -> Table:
    rows = (replace(row, cells=tuple(map(change, row.cells))) for row in table.rows)
    return replace(table, rows=tuple(rows))


def _narrower(table: Table, room: int) -> Iterator[Table]:
    """The table with less and less in it: small print first, then columns by their number."""
    yield table
    bare = _with_cells(table, lambda cell: replace(cell, under=""))
    yield bare
    levels = sorted({column.drop for column in table.columns} - {0})
    if levels or not table.together:
        bare = _with_cells(bare, lambda cell: replace(cell, small=""))
        yield bare
        yield _with_short_names(bare, room)
    less = bare
    for level in levels:
        places = [at for at, column in enumerate(table.columns) if not 0 < column.drop <= level]
        less = _columns(bare, places)
        yield less
        yield _with_short_names(less, room)
    if not table.together:
        less = _with_short_words(less, room)
        yield less
        yield _with_short_heads(less, room)


def _columns(table: Table, places: Sequence[int]) -> Table:
    """The table with these of its columns."""
    rows = tuple(replace(row, cells=tuple(row.cells[at] for at in places)) for row in table.rows)
    return replace(table, columns=tuple(table.columns[at] for at in places), rows=rows)


def _over(table: Table, room: int) -> int:
    return max(map(len, aligned(table))) - room


def _with_short_names(table: Table, room: int) -> Table:
    """Names of the first column cut to what the others leave, where that is enough to name one."""
    most = max(len(_cell_text(row.cells[0])) for row in table.rows) - max(_over(table, room), 0)
    if _over(table, room) <= 0 or most < SHORTEST_NAME:
        return table
    names = [Cell(cut(_cell_text(row.cells[0]), most)) for row in table.rows]
    pairs = zip(names, table.rows, strict=True)
    return replace(table, rows=tuple(Row((name, *row.cells[1:])) for name, row in pairs))


def _with_short_words(table: Table, room: int) -> Table:
    """Cells of all columns of words cut, the widest first: better than numbers that are cut."""
    widths = _widths([[_cell_text(cell) for cell in row.cells] for row in table.rows])
    words = [at for at, column in enumerate(table.columns) if column.left]
    whole = sum(widths) - _over(table, room)
    # What a row is of is cut last.
    for cut_now in (words[1:], words):
        least = [SHORTEST_WORDS if at in cut_now else width for at, width in enumerate(widths)]
        widths = _shrunk(widths, least, sum(widths) - whole)
    rows = []
    for row in table.rows:
        cells = list(row.cells)
        for at in words:
            cells[at] = Cell(cut(_cell_text(cells[at]), widths[at]))
        rows.append(Row(tuple(cells)))
    return replace(table, rows=tuple(rows))


def _shrunk(widths: Sequence[int], least: Sequence[int], over: int) -> list[int]:
    """The widths with so many columns less, the widest first, and none below its least."""
    less = list(widths)
    while over > 0 and (wide := [at for at, width in enumerate(less) if width > least[at]]):
        less[max(wide, key=lambda at: less[at])] -= 1
        over -= 1
    return less


def _with_short_heads(table: Table, room: int) -> Table:
    """Heads (names of arms) cut to what is below them, the widest first, for the same reason."""
    widths = _widths([[_cell_text(cell) for cell in row.cells] for row in table.rows])
    heads = [clean_line(column.head) for column in table.columns]
    most = _shrunk([len(head) for head in heads], widths, _over(table, room))
    pairs = zip(table.columns, map(cut, heads, most), strict=True)
    return replace(table, columns=tuple(replace(column, head=head) for column, head in pairs))


def _continued(table: Table, room: int) -> Iterator[str]:
    """As many groups of columns at a time as fit, one table below the other."""
    placed: list[int] = []
    lines: list[str] = []
    for at in range(1, len(table.columns), table.together):
        group = range(at, min(at + table.together, len(table.columns)))
        both = _columns(table, [0, *placed, *group])
        wider = aligned(both if placed else _with_short_names(both, room))
        if placed and max(map(len, wider)) > room:
            yield from lines
            yield ""
            placed, wider = [], aligned(_with_short_names(_columns(table, [0, *group]), room))
        placed, lines = [*placed, *group], wider
    yield from lines


def _cell_text(cell: Cell) -> str:
    parts = (cell.text, cell.small, cell.under)
    return " ".join(" ".join(map(clean_line, filter(None, parts))).split())


def aligned(table: Table) -> list[str]:
    """Heads and rows as lines of one alignment, however wide."""
    rows = [[clean_line(column.head) for column in table.columns]]
    if any(column.under for column in table.columns):
        rows.append([clean_line(column.under) for column in table.columns])
    rows += ([_cell_text(cell) for cell in row.cells] for row in table.rows)
    widths = _widths(rows)
    left = [at for at, column in enumerate(table.columns) if column.left]
    lines = [_line(line, widths, left) for line in rows]
    if any(column.group for column in table.columns):
        lines = [*_groups(table.columns, widths), *lines]
    return lines


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def columns(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Rows as aligned lines, indented; the columns of ``left`` to the left."""
    widths = _widths(rows)
    return [f"{INDENT}{_line(row, widths, left)}" for row in rows]


def _line(
    cells: Sequence[str], widths: Sequence[int], left: Collection[int] = (), gap: str = GAP
) -> str:
    placed = (
        cell.ljust(width) if at in left else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return gap.join(placed).rstrip()


def _groups(columns: Sequence[Column], widths: Sequence[int]) -> list[str]:
    """The titles of groups above their columns, broken where they are wider than these."""
    at, titles, wide = 0, [], []
    for group, members in groupby(columns, key=lambda column: column.group):
        own = widths[at : at + len(list(members))]
        wide.append(sum(own) + len(GAP) * (len(own) - 1))
        titles.append(textwrap.wrap(clean_line(group), max(wide[-1], 1)))
        at += len(own)
    deep = max(map(len, titles))
    above = [[""] * (deep - len(lines)) + lines for lines in titles]
    return [_line(line, wide) for line in zip(*above, strict=True)]
