"""The page of sessions: a link for each report, hostile text is text, a site of nights stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from history.store import HistoryStore
from pages import site
from reports.write import HTML, write_all
from results.sessions import heads_in
from results.store import SessionStore
from tests.history.factory import Nights
from tests.pages.test_site import Tags
from tests.reports.factory import ExactSession

HOSTILE = "<script>x</script>"


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    """Two sessions, of which one has a page of somebody's, a folder that is none, and a link."""
    folder = tmp_path / "sessions"
    for name, title in (("a", "a title"), ("b", HOSTILE)):
        manifest = ExactSession().manifest()
        experiment = manifest.experiment.model_copy(update={"title": title})
        store = SessionStore(folder / name)
        store.create(manifest.model_copy(update={"experiment": experiment}))
        for record in ExactSession().records():
            store.append(record)
    (folder / "a" / HTML).write_text("<script>theirs</script>")
    private = SessionStore(tmp_path / "private")
    private.create(ExactSession().manifest())
    (folder / "c").symlink_to(private.folder)
    (folder / "torn").mkdir()
    (folder / "torn" / "manifest.json").write_text("{")
    return folder


def test_each_session_is_shown_and_each_report_is_linked(sessions: Path, tmp_path: Path) -> None:
    assert site.gallery(heads_in(sessions), tmp_path / "site") == 2
    text = (tmp_path / "site" / site.FRONT).read_text()
    links = [attrs["href"] for tag, attrs in Tags(text).elements if tag == "a"]
    assert links == ["#main", "index.html", "b.html", "a.html"]
    made = (tmp_path / "site" / "a.html").read_text()
    write_all(sessions / "a")
    assert made == (sessions / "a" / HTML).read_text()
    assert not (tmp_path / "site" / "c.html").exists()
    assert text.count('class="verdict"') == 2


def test_hostile_text_is_text_and_the_page_loads_nothing(sessions: Path, tmp_path: Path) -> None:
    site.gallery(heads_in(sessions), tmp_path / "site")
    text = (tmp_path / "site" / site.FRONT).read_text()
    assert "&lt;script&gt;" in text
    assert not Tags(text).scripts
    assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text


def test_the_same_sessions_give_the_same_bytes(sessions: Path, tmp_path: Path) -> None:
    for _ in range(2):
        site.gallery(heads_in(sessions), tmp_path / "site")
    site.gallery(heads_in(sessions), tmp_path / "other")
    pages = [(tmp_path / name / site.FRONT).read_bytes() for name in ("site", "other")]
    assert pages[0] == pages[1]


def test_nothing_else_is_replaced(sessions: Path, tmp_path: Path) -> None:
    with pytest.raises(site.SiteError):
        site.gallery(heads_in(sessions), sessions)
    store = HistoryStore(tmp_path / "history")
    for entry in Nights((0.0, 0.0), experiment="tonight").entries():
        store.add(entry)
    made = site.build(store, tmp_path / "nights").folder
    with pytest.raises(site.SiteError):
        site.gallery(heads_in(sessions), made)
    assert (made / "night").is_dir()
