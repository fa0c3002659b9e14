"""The page in a real browser: quiet, no wider than the window, and without barriers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from analysis.many import SessionComparison
from analysis.model import Comparison
from tests.browser import PHONE, Readable, opened
from tests.browser import browser as browser
from tests.browser import readable as readable
from tests.reports.drawn import page_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages(
    tmp_path_factory: pytest.TempPathFactory,
    counted: Comparison,
    five: SessionComparison,
    hostile: Comparison,
) -> list[Path]:
    folder = tmp_path_factory.mktemp("pages")
    files = []
    for name, session in (("counted", counted), ("five", five), ("hostile", hostile)):
        files.append(folder / f"{name}.html")
        files[-1].write_text(page_of(session), encoding="utf-8")
    return files


def test_every_page_is_quiet_fits_and_has_no_barrier(readable: Readable, pages: list[Path]) -> None:
    for file in pages:
        page = readable(file)
        words = "[...document.querySelectorAll('ol.verdicts .word')]"
        wide = "each => each.scrollWidth > each.clientWidth"
        assert page.evaluate(f"{words}.filter({wide}).map(each => each.textContent)") == []


def test_the_line_of_contents_leads_to_sections_by_keyboard(
    browser: Browser, pages: list[Path]
) -> None:
    page, _ = opened(browser, pages[0])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.hash") == "#verdict"
    page.get_by_role("link", name="Why").focus()
    page.keyboard.press("Enter")
    top = page.evaluate("document.getElementById('why').getBoundingClientRect().top")
    bar = page.evaluate("document.querySelector('.contents').getBoundingClientRect().bottom")
    # The heading stands below the line, which stays at the top of the window.
    assert 0 < bar <= top < 200
    page.context.close()


def test_on_a_phone_the_change_comes_first(browser: Browser, pages: list[Path]) -> None:
    page, _ = opened(browser, pages[0], PHONE)
    box = page.get_by_role("region", name="Metrics of filemap-4k", exact=True)
    right = box.get_by_role("cell", name="+1.16 %").first.bounding_box()
    assert right
    assert right["x"] + right["width"] <= PHONE["width"]
    page.context.close()


def test_paper_has_no_line_of_contents(browser: Browser, pages: list[Path]) -> None:
    page, _ = opened(browser, pages[0])
    page.emulate_media(media="print")
    assert not page.locator(".contents").is_visible()
    assert page.locator("h1").is_visible()
    page.context.close()
