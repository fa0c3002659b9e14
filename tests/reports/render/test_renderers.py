"""Blocks in every form: what a text may hold, it stays text, on its line and in its width."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.document import (
    Block,
    Callout,
    Cell,
    Code,
    Column,
    Fact,
    Facts,
    Figure,
    Fold,
    Heading,
    Item,
    Listing,
    Mono,
    Paragraph,
    Row,
    Strong,
    Table,
    VerdictRow,
    Verdicts,
    nested,
    row,
)
from reports.render import html, markdown, text
from tests.reports.render.test_page import ParsedPage
from text import clean_line

ATTACK = "<script>alert(1)</script>\x1b[31m\u202e`|$x$</pre></details>\"'&lt;\n# no\n- no"
SVG = '<svg xmlns="http://www.w3.org/2000/svg"><title>a</title></svg>'
TEXTS = st.text(max_size=40) | st.just(ATTACK)


def every_block(body: str) -> list[Block]:
    """One of each kind, with the text wherever a block has one."""
    words = (body, Mono(body), Strong(body, body))
    columns = (Column(body, left=True), Column(body, group=body, under=body), Column(body, drop=1))
    cell = Cell(body, small=body, under=body, tone=body, mark=body)
    rows = (
        row(body, cell, body, strong=True),
        Row((Cell(body, mono=True), cell, cell), faint=True),
    )
    inner: tuple[Block, ...] = (Paragraph(words), Code(body))
    return [
        Heading(body, 2),
        Heading(body, 3),
        Paragraph(words, "lead"),
        Listing((Item(words, "warning", body, inner), Item(body))),
        Table(body, columns, rows),
        Figure(body, body, body, SVG),
        Code(body, "sh"),
        Facts((Fact(body, words),)),
        Fold(words, inner),
        Callout(body, inner),
        Verdicts((VerdictRow(body, body, body, body, body, body, (body,)),)),
    ]


@given(TEXTS)
def test_a_page_nests_whatever_a_text_holds(body: str) -> None:
    page = html.page(body, [Heading(body, 1)], every_block(body), body)
    parsed = ParsedPage(page)
    assert parsed.open == []
    plain = ParsedPage(html.page("x", [Heading("x", 1)], every_block("x"), "x"))
    # No text makes an element, whatever it is: only places to break a name come and go.
    tags = [[tag for tag, _ in each.tags if tag not in ("wbr", "br")] for each in (parsed, plain)]
    assert tags[0] == [tag for tag in tags[1] if tag != "p" or body] or not body
    assert all(c.isprintable() or c in "\n\t" for c in page)
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


@given(TEXTS)
def test_markdown_keeps_every_text_a_text(body: str) -> None:
    made = markdown.text(every_block(body))
    assert all(c.isprintable() or c in "\n\t" for c in made)
    shown = markdown.escape(body)
    assert "\n" not in shown
    assert re.sub(r"\\(.)", r"\1", shown) == " ".join(clean_line(body).split())
    # Outside of code nothing that HTML or Markdown acts on stands without a backslash.
    assert not re.search(r"(?<!\\)(?:\\\\)*[<>|`*#\[\]]", shown)


def test_a_fence_and_a_span_are_longer_than_what_they_hold() -> None:
    assert markdown.code_block("a ```` b")[0] == "`````"
    assert markdown.words((Mono("a ``` b"),)) == "```` a ``` b ````"


@given(TEXTS, st.integers(40, 130))
def test_text_is_within_its_width_and_moves_no_cursor(body: str, width: int) -> None:
    # A command with a long word is the one exception.
    blocks = [block for block in every_block(body) if not isinstance(block, Code)]
    lines = text.text(blocks, width).splitlines()
    assert max(map(len, lines), default=0) <= width
    assert all(line.isprintable() for line in lines)


def table(**options: int) -> Table:
    columns = (
        Column("function", left=True),
        Column("base", drop=1),
        Column("patched", drop=2),
        Column("change"),
    )
    cells = (Cell("a" * 30), Cell("1" * 12, small="±0.1 %"), Cell("2" * 12, under="[1, 2]"), "+1 %")
    return Table("t", columns, (row(*cells),), **options)


@pytest.mark.parametrize(
    ("width", "there"),
    [(100, "12+"), (70, "12+"), (60, "12+"), (44, "2+")],
)
def test_what_matters_least_goes_first(width: int, there: str) -> None:
    [_, line] = text.render([table()], width)[:2]
    assert len(line) <= width
    shown = {"1": "1" * 12, "2": "2" * 12, "+": "+1 %"}
    assert [name for name, value in shown.items() if value in line] == list(there)
    assert ("±0.1 %" in line) == ("[1, 2]" in line) == (width == 100)
    # A name is cut before a number goes.
    assert ("..." in line) == (width <= 60)


def test_words_are_cut_before_numbers() -> None:
    columns = (Column("lock", left=True), Column("who", left=True), Column("waits"))
    wide = Table("t", columns, (row("l" * 15, "w" * 40, "1234.5"),))
    lines = text.render([wide], 50)
    assert max(map(len, lines)) <= 50
    assert lines[1].split()[0] == "l" * 15
    assert lines[1].endswith("...  1234.5")


def test_columns_that_belong_together_are_continued_together() -> None:
    columns = (Column("arm", left=True), *(Column(f"{n}{m}") for n in "abc" for m in ("", "%")))
    wide = Table("t", columns, (row("x", *("9" * 10 for _ in range(6))),), together=2)
    heads = [line.split() for line in text.render([wide], 40) if "arm" in line]
    assert heads == [["arm", "a", "a%"], ["arm", "b", "b%"], ["arm", "c", "c%"]]


def test_a_fold_of_a_page_alone_is_in_no_other_form() -> None:
    inner = (Paragraph("inside"),)
    for page_only in (False, True):
        blocks: list[Block] = [Paragraph("first"), Fold("more", inner, page_only=page_only)]
        assert "<details>" in html.page("t", [], blocks)
        assert ("inside" in text.text(blocks)) is not page_only
        assert ("inside" in markdown.text(blocks)) is not page_only


def test_the_line_of_contents_leads_to_every_section() -> None:
    blocks: list[Block] = [Heading(name, 2, name) for name in ("one", "two", "three")]
    blocks += [Fold("pair", nested(tuple(blocks), "pair1")), Heading("below", 3)]
    page = html.page("t", [], blocks)
    ids = re.findall(r' id="([^"]+)"', page)
    assert ids == ["one", "two", "three", "pair1-one", "pair1-two", "pair1-three", "below"]
    assert re.findall(r'href="#([^"]+)"', page) == ["one", "two", "three"]


def test_groups_of_columns_have_one_head() -> None:
    columns = (Column("seed", left=True), Column("a", group="4k.bw"), Column("b", group="4k.bw"))
    page = html.page("t", [], [Table("t", columns, (row("1", "2", "3"),))])
    assert '<th scope="colgroup" colspan="2" class="span">4k.bw</th>' in page
    assert '<th scope="col" class="left" rowspan="2">seed</th>' in page
