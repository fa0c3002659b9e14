"""The script of a page in a real browser: long tables sort and filter, and sums stay last."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reports.document import Column, Heading, Table, row
from reports.render import html
from tests.browser import DESK, opened
from tests.browser import browser as browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

NUMBERS = ("+2.50 %", "−10.00 %", "±0.00 %", "+31.00 %", "–", "+4.00 %", "−0.25 %", "+1.00 %")


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Page:
    rows = [row(f"f{at}", text) for at, text in enumerate(NUMBERS)]
    heads = (Column("function", left=True), Column("change"))
    long = Table("long", heads, (*rows, row("all", "+99.00 %", total=True)))
    short = Table("short", heads, tuple(rows[:3]))
    path = tmp_path / "page.html"
    path.write_text(html.page("t", [Heading("t", 1)], [long, short]))
    drawn, problems = opened(browser, path, DESK, "light")
    assert problems == []
    return drawn


def names(page: Page) -> list[str]:
    """First cells of the rows that are shown of the long table."""
    cells: list[str] = page.evaluate(
        "[...document.querySelector('table').tBodies[0].rows].filter(r => !r.hidden)"
        ".map(r => r.cells[0].textContent)"
    )
    return cells


def test_a_head_sorts_down_then_up_then_not_at_all(page: Page) -> None:
    before, head = names(page), page.get_by_role("button", name="change")
    head.click()
    assert names(page) == ["f3", "f5", "f0", "f7", "f2", "f6", "f1", "f4", "all"]
    assert page.locator("th[aria-sort=descending]").count() == 1
    head.click()
    assert names(page) == ["f1", "f6", "f2", "f7", "f0", "f5", "f3", "f4", "all"]
    head.click()
    assert names(page) == before
    assert page.locator("th[aria-sort]").count() == 0


def test_a_filter_leaves_the_rows_that_hold_the_text_and_the_sum(page: Page) -> None:
    assert page.locator("input[type=search]").count() == 1
    page.get_by_label("Filter").fill("F3")
    assert names(page) == ["f3", "all"]
    assert page.locator("output").text_content() == "1 of 8 rows"
    page.get_by_label("Filter").fill("")
    assert len(names(page)) == 9
