"""A real browser for tests of pages, and all that a page says in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

DESK: ViewportSize = {"width": 1200, "height": 850}
PHONE: ViewportSize = {"width": 390, "height": 800}
# The first opens no window for each context, and takes half of the time.
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
# Where to leave the pictures to be looked at; a folder of the test's own by default.
SHOTS = os.environ.get("TWINBOOT_SHOTS")
Readable = Callable[..., "Page"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert CHROMIUM, "no browser: apt-get install chromium-headless-shell"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Root in a container has no sandbox to put it in; it opens our own files only.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(
    browser: Browser,
    file: Path,
    viewport: ViewportSize = DESK,
    scheme: Literal["light", "dark"] = "light",
) -> tuple[Page, list[str]]:
    """A page, and all that it says, asks the network for, or throws."""
    context = browser.new_context(viewport=viewport, color_scheme=scheme)
    page = context.new_page()
    messages: list[str] = []
    page.on("console", lambda message: messages.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: messages.append(f"error: {error}"))
    page.on(
        "request",
        lambda request: messages.extend(
            [] if request.url.startswith("file:") else [f"asks {request.url}"]
        ),
    )
    page.goto(file.as_uri())
    return page, messages


def barriers(page: Page, impacts: Collection[str] = ("serious", "critical")) -> list[str]:
    """What keeps people out of a page: each rule that it breaks, and where first."""
    from axe_playwright_python.sync_playwright import Axe

    return [
        f"{each['id']}: {each['nodes'][0]['html'][:200]}"
        for each in Axe().run(page).response["violations"]
        if each["impact"] in impacts
    ]


# Contrast is of the scheme, and what fits of the width: two of the four have each.
@pytest.fixture(params=[(DESK, "light"), (PHONE, "dark")], ids=["desk", "phone"])
def readable(
    request: pytest.FixtureRequest, browser: Browser, tmp_path: Path
) -> Iterator[Readable]:
    """Open a page, all of it: it is quiet, starts nothing, fits, and has no barrier."""
    viewport, scheme = request.param
    folder = Path(SHOTS) if SHOTS else tmp_path
    pages: list[Page] = []

    def shown(file: Path, *impacts: str) -> Page:
        page, messages = opened(browser, file, viewport, scheme)
        pages.append(page)
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{file.parent.name}-{file.stem}-{viewport['width']}-{scheme}.png"
        page.screenshot(path=folder / name)
        assert messages == [], file.name
        assert page.evaluate("window.hurt") is None, file.name
        wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wider <= 0, f"{file.name} is {wider} px too wide"
        assert barriers(page, impacts or ("serious", "critical")) == [], file.name
        return page

    yield shown
    for page in pages:
        page.context.close()
