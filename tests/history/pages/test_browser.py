"""The site in a real browser: drawn, quiet, reachable by keyboard, and readable by machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from history.pages import site
from tests.browser import Readable, barriers, opened
from tests.browser import browser as browser
from tests.browser import readable as readable
from tests.history.pages.made_up import fill

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow

TRACK, NIGHT = "track/tonight.laptop.exact.html", "night"
PAGES = ("index.html", TRACK, "track/hostile.laptop.exact.html")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    return site.build(fill(folder / "history"), folder / "site").folder


def nights_of(built: Path) -> list[str]:
    """A page of a night of each kind: the newest ordinary one, and a hostile one."""
    files = sorted((built / NIGHT).glob("*.html"))
    hostile = next(path for path in files if "window.hurt" in path.read_text())
    plain = next(path for path in files if "window.hurt" not in path.read_text())
    return [f"{NIGHT}/{path.name}" for path in (plain, hostile)]


def test_every_page_is_quiet_fits_and_has_no_barrier(readable: Readable, built: Path) -> None:
    for name in [*PAGES, *nights_of(built)]:
        readable(built / name)


def test_axe_and_the_console_can_fail(browser: Browser, tmp_path: Path) -> None:
    bad = "<html><body><img src='gone.png'><p style='color:#999'>pale</p><script>x()</script>"
    (tmp_path / "bad.html").write_text(bad)
    page, messages = opened(browser, tmp_path / "bad.html")
    assert any("x is not defined" in line for line in messages)
    broken = {barrier.partition(":")[0] for barrier in barriers(page)}
    assert {"image-alt", "color-contrast"} <= broken
    page.context.close()


def test_a_chart_is_drawn_and_follows_the_keyboard(browser: Browser, built: Path) -> None:
    page, messages = opened(browser, built / TRACK)
    chart = page.locator(".chart").first
    assert chart.locator("canvas").count() == 1
    painted = chart.locator("canvas").evaluate(
        "c => new Set(new Uint32Array(c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data.buffer)).size"
    )
    assert painted > 20
    line = page.locator(".said").first
    chart.focus()
    page.keyboard.press("End")
    assert "2026-04-30" in line.inner_text()
    page.keyboard.press("ArrowLeft")
    line_text = line.inner_text()
    assert "2026-04-29" in line_text
    assert "kernel 6.12.40-1" in line_text
    assert "tonight" in line_text
    page.keyboard.press("Home")
    assert "2026-01-01" in line.inner_text()
    page.keyboard.press("Enter")
    page.wait_for_url("**/night/*.html")
    assert "Night of 2026-01-01" in page.inner_text("h1")
    assert messages == []
    page.context.close()


def test_hovering_names_the_night_its_value_and_the_change(browser: Browser, built: Path) -> None:
    page, _ = opened(browser, built / TRACK)
    box = page.locator(".chart .u-over").first.bounding_box()
    assert box
    lines = set()
    for step in range(0, 100, 1):
        page.mouse.move(box["x"] + box["width"] * (0.45 + step / 1000), box["y"] + 80)
        lines.add(page.locator(".said").first.inner_text())
    changed = [line for line in lines if "2026-03-02" in line]
    assert changed
    assert "▼ regression" in changed[0]
    page.context.close()


def test_buttons_and_links_are_reached_by_tab_and_lead_somewhere(
    browser: Browser, built: Path
) -> None:
    page, messages = opened(browser, built / "index.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    addresses = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        addresses.add(page.evaluate("document.activeElement.href || ''"))
    assert any(address.endswith(TRACK) for address in addresses)
    page.goto((built / TRACK).as_uri())
    button = page.get_by_role("button", name="30 nights")
    button.focus()
    page.keyboard.press("Space")
    assert button.get_attribute("aria-pressed") == "true"
    assert messages == []
    page.context.close()


def test_every_link_of_the_site_leads_to_a_page(browser: Browser, built: Path) -> None:
    for name in [*PAGES, *nights_of(built)]:
        page, _ = opened(browser, built / name)
        for link in page.eval_on_selector_all("a[href]", "all => all.map(a => a.href)"):
            if link.startswith("file://"):
                assert Path(link.removeprefix("file://").partition("#")[0]).is_file(), link
            else:
                assert link.startswith("https://example.org/"), link
        page.context.close()
