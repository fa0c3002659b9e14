"""The index page: what it says, and in a real browser that it is quiet, fits and has no barrier."""

import os
from pathlib import Path

import pytest

from errors import InfraError, SeriesError
from queues import page
from queues.store import PrimaryResult, QueueStore
from tests.browser import Readable
from tests.browser import browser as browser
from tests.browser import readable as readable
from tests.queues.made_up import queued

HOSTILE = "<script>window.hurt=1</script>\u202e\x1b[2J" + "x" * 180


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> QueueStore:
    store = QueueStore(tmp_path_factory.mktemp("page") / "linux-mm")
    store.create()

    def outcome(verdict: str, change: float | None) -> dict[str, object]:
        low, high = (None, None) if change is None else (change - 0.002, change + 0.002)
        primary = PrimaryResult(
            case="filemap-4k", metric="4k.bw", verdict=verdict, change=change, low=low, high=high
        )
        ended = f"2026-11-21T0{len(store.read().entries)}:00:00.000000Z"
        return {"state": "done", "code": 0, "results": (primary,), "ended": ended}

    queued(
        store,
        "mm/filemap: one tree walk for a folio added",
        **outcome("improvement", 0.0105),
        author="Ada L <ada@example.org>",
        version=4,
    )
    bad = queued(store, "mm: check every folio twice", **outcome("regression", -0.0231), version=2)
    queued(store, "mm: fix a comment", **outcome("no change", 0.0))
    queued(store, "mm: reclaim a little later", **outcome("inconclusive", 0.001))
    for error, blame in (
        (SeriesError("does not apply to mm/slub.c at line 20"), "series"),
        (InfraError("no space left on device"), "host"),
    ):
        queued(
            store,
            f"mm: {blame}",
            state="failed",
            blame=blame,
            code=int(error.exit_code),
            message=str(error),
            ended="2026-11-20T10:00:00.000000Z",
        )
    began = "2026-11-21T09:30:00.000000Z"
    queued(
        store,
        "mm: runs",
        state="running",
        worker=f"{os.uname().nodename}:{os.getpid()}",
        began=began,
    )
    queued(store, "mm: was killed", state="running", worker=f"{os.uname().nodename}:0", began=began)
    queued(store, "fs/xfs: waits", priority=3, version=7, author="Ada L <ada@example.org>")
    queued(store, HOSTILE, author=HOSTILE)
    queued(store, "mm: gone", state="removed")
    folder = store.session(bad)
    folder.mkdir(parents=True)
    (folder / "report.html").write_text("a report")
    (store.folder / "entries" / "torn.json").write_text("{")
    page.write(store)
    return store


def test_the_counts_say_it_all(store: QueueStore) -> None:
    text = (store.folder / page.INDEX).read_text()
    assert (
        "1 being measured, 2 waiting; 1 regression, 1 improvement, 1 inconclusive, "
        "1 unchanged, 1 series failed, 1 host failed."
    ) in text
    assert "mm: gone" not in text
    assert "torn.json: is no entry of this version of the lab" in text
    assert "<script>window" not in text
    assert page.render(store, store.read()) == text


def test_only_reports_that_are_there_are_linked(store: QueueStore) -> None:
    text = (store.folder / page.INDEX).read_text()
    links = [a for a in text.split("<a href=")[1:] if not a.startswith(chr(34) + "#")]
    assert len(links) == 1
    assert ">mm: check every folio twice</a>" in text


def test_of_a_series_with_many_results_the_worst_is_shown(tmp_path: Path) -> None:
    store = QueueStore(tmp_path / "many")
    store.create()
    results = [
        PrimaryResult(case="memory", metric=f"{phase}.path", verdict=verdict, change=change)
        for phase, verdict, change in (
            ("fork", "regression", 0.01),
            ("exec", "regression", 0.03),
            ("fault", "no change", 0.0),
            ("mremap", "not tested", 0.001),
        )
    ]
    of_phases = tuple(f"memory {phase}: 1 of 9 functions changed" for phase in ("fork", "exec"))
    ended = "2026-11-21T10:00:00.000000Z"
    made = {"state": "done", "code": 1, "ended": ended}
    queued(store, "mm: slower", results=tuple(results), functions=of_phases, **made)
    queued(store, "mm: elsewhere", results=tuple(results[3:]), message="not tested", **made)
    text = page.render(store, store.read())
    assert "memory exec.instructions: +3.00&nbsp;%, regression; 1 more regression" in text
    assert "memory exec: 1 of 9" in text
    assert not any(f"memory {other}" in text for other in ("fork", "fault", "mremap"))


def test_an_empty_queue_says_how_to_fill_it(tmp_path: Path) -> None:
    empty = QueueStore(tmp_path / "empty")
    empty.create()
    assert "./lab.py queue add SERIES" in page.write(empty).read_text()


@pytest.mark.slow
def test_in_a_browser(readable: Readable, store: QueueStore) -> None:
    drawn = readable(store.folder / page.INDEX, "minor", "moderate", "serious", "critical")
    # A stylesheet that the policy refuses would leave the page in the browser's own font.
    assert "Charter" in drawn.locator("h2").first.evaluate(
        "e => getComputedStyle(e.ownerDocument.querySelector('h1')).fontFamily"
    ).replace("sans-serif", "")
