"""Blocks in every form: what a text may hold, it stays text, on its line and in its width."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.many import SessionComparison
from analysis.model import Comparison
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
    Link,
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
    safe,
)
from reports.render import html, markdown, text
from reports.render.html import policy, source_hash
from reports.sentences import posting
from tests.analysis.measured import render
from tests.reports.render.test_page import ParsedPage
from tests.values import data
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
    # No text makes an element, whatever it is: only places to break a line, or not to, come and go.
    tags = [
        [tag for tag, of in each.tags if tag not in ("wbr", "br") and of.get("class") != "option"]
        for each in (parsed, plain)
    ]
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


@pytest.mark.parametrize(("width", "there"), [(100, "12+"), (70, "12+"), (60, "12+"), (44, "2+")])
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


@pytest.mark.parametrize("width", [40, 60, 79, 80, 100, 132, 250])
def test_no_line_is_longer_than_the_terminal(
    width: int,
    counted: Comparison,
    five: SessionComparison,
    stepwise: SessionComparison,
    matrix: Comparison,
    hostile: Comparison,
) -> None:
    for session in (counted, five, stepwise, matrix, hostile):
        rendered = render(session, "text", width=width)
        # A command is not broken within a word: it would be another command.
        lines = [
            line for line in rendered.splitlines() if "sessions/" not in line and ".tar" not in line
        ]
        assert max(map(len, lines)) <= width


def test_pairs_of_many_arms_are_headed_by_their_names(five: SessionComparison) -> None:
    for form in ("text", "markdown"):
        heads = [
            line.replace("|", " ").split()
            for line in render(five, form).splitlines()
            if line.replace("|", " ").split()[:1] == ["metric"] and "verdict" in line
        ]
        assert heads
        for head in heads:
            assert {"vanilla", "change"} & set(head), form
            assert not {"base", "patched"} & set(head), form


def test_a_file_is_the_same_wherever_it_is_printed(normal: Comparison) -> None:
    assert render(normal, "text") == render(normal, "text", width=80)
    assert "--resume" not in render(normal, "text")


def test_long_names_of_arms_are_cut_and_no_number_is() -> None:
    """``sorted-bourney`` twice made a table two columns too wide, whose last digits were cut."""
    heads = (
        Column("lock", left=True),
        Column("change"),
        Column("vanilla", group="held"),
        Column("sorted-bourney", group="held"),
        Column("vanilla", group="waits"),
        Column("sorted-bourney", group="waits"),
    )
    numbers = ("(-27.99 %)", "0.7573", "0.5453", "0.09350", "0.02078")
    table = Table("locks", heads, (row("i_pages.xa_lock", *numbers),))
    lines = text.render([table], 66)
    assert max(map(len, lines)) <= 66
    assert lines[-2].split()[-5:] == ["%)", *numbers[1:]]


HARMFUL = data(__file__, "harmful")


@pytest.mark.parametrize("to", HARMFUL)
def test_a_harmful_address_is_no_link(to: str) -> None:
    assert not safe(to)
    blocks: list[Block] = [
        Paragraph((Link("name", to),)),
        Verdicts((VerdictRow("failed", "✕", "name", to=to),)),
    ]
    assert "<a" not in html.Page().blocks(blocks)


@pytest.mark.parametrize(
    "to", ["https://lore.kernel.org/r/x@y/", "samples.csv", "../night/1.html#a-b", "#verdict"]
)
def test_others_are(to: str) -> None:
    assert safe(to)
    page = html.Page().blocks([Paragraph((Link("<name>", to),))])
    assert f'<a href="{to}"' in page
    assert "&lt;name&gt;</a>" in page


def test_several_limits_of_no_change_stay_where_the_column_has_no_room() -> None:
    def shown(*limits: str) -> list[str]:
        rows = (VerdictRow(f"no change (< {each})", "", "c", "instructions") for each in limits)
        return text.text([Verdicts(tuple(rows), ("base", "patched", "", ""))], 44).splitlines()

    assert [line.strip() for line in shown("0.25 %", "5 %") if "<" in line] == ["< 0.25 %", "< 5 %"]
    assert not any("<" in line for line in shown("5 %", "5 %"))


def test_cells_and_verdicts_link() -> None:
    table = Table("t", (Column("a"),), (row(Cell("x", to="x.html")),))
    verdicts = Verdicts((VerdictRow("improvement", "▲", "x", to="y.html", anchor="here"),))
    page = html.Page().blocks([table, verdicts])
    assert '<a href="x.html">x</a>' in page
    assert '<li id="here">' in page


def test_forms_of_characters_have_the_address() -> None:
    address = posting("<20260101.1-x@example.org>")
    assert address == "https://lore.kernel.org/r/20260101.1-x@example.org/"
    block = Paragraph((Link(address, address),))
    assert f"<{address}>" in markdown.text([block])
    assert address in text.text([block])


def test_a_message_id_cannot_leave_the_archive() -> None:
    assert posting("") == posting("no mail") == ""
    assert posting('"><script>@x').count("<") == 0
    assert posting("../../x@y").startswith("https://lore.kernel.org/r/..%2F")


def test_a_page_runs_its_own_script_and_no_other() -> None:
    page = html.page("t", [], [Paragraph("x")])
    script = html.SCRIPT.read_text()
    assert page.count("<script") == 1
    assert f"script-src {source_hash(script)};" in page
    assert "default-src 'none'" in policy([], [])
    assert "script-src 'none'" in policy([], [])


def test_no_line_of_a_page_ends_within_a_number() -> None:
    shown = html.escaped("no change (< 0.25 %), within 0.25 and 5 %, ± 3")
    assert shown == "no&nbsp;change (&lt;&nbsp;0.25&nbsp;%), within 0.25 and 5&nbsp;%, ±&nbsp;3"


def test_no_line_of_a_page_ends_within_an_option() -> None:
    shown = html.words('QEMU TCG -icount, (--no-check), a-b, -3, <b -c>, "--seeds"')
    names = ("-icount", "--no-check", "-c", "--seeds")
    kept = [f'<span class="option">{name}</span>' for name in names]
    in_marks = f"&lt;b {kept[2]}&gt;, &quot;{kept[3]}&quot;"
    assert shown == f"QEMU TCG {kept[0]}, ({kept[1]}), a-b, −3, {in_marks}"
