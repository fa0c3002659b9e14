"""Links of a page: to where a reader may go, and to nowhere that a mail or a guest chose."""

from __future__ import annotations

import pytest

from reports.document import (
    Block,
    Cell,
    Column,
    Link,
    Paragraph,
    Table,
    VerdictRow,
    Verdicts,
    row,
    safe,
)
from reports.render import html, markdown, text
from reports.render.html import policy, source_hash
from reports.sentences import posting

HARMFUL = (
    "javascript:alert(1)",
    "data:text/html,x",
    "//evil.example",
    "file:///etc/passwd",
    "",
    "\\\\x",
)


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
