"""The site as files: complete, the same bytes twice, and hostile text is text."""

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from analysis.verdict import Verdict
from errors import UsageError
from experiment.load import Subsystems, SubsystemWorkloads
from history.changes import changes_of, function_changes, gaps_of
from history.entry import SCHEMA_VERSION, Conclusion, Entry
from history.gate import of_history
from history.ingest import entry_of, read_session
from history.pages import site, tracks
from history.pages.tracks import tracks_of
from history.policy import KnownChange, KnownChanges, Policy
from history.store import FORMAT, HEAD, HistoryContents, HistoryStore
from history.wording import of_session
from reports import forms
from reports.render.html import source_hash
from results.door import StoreError
from tests.analysis import counts_factory
from tests.analysis.factory import ExactSession, stored
from tests.history.altered import measured_again, without_case
from tests.history.factory import Nights, with_functions
from tests.history.pages.made_up import HOSTILE, hostile
from tests.values import but

CLEAR = Nights((0.0, 0.0, -0.02, -0.02), experiment="tonight")


class Tags(HTMLParser):
    """Every element of a page with its attributes, and the texts of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._in_script = tag == "script"

    def handle_data(self, text: str) -> None:
        if self._in_script:
            self.scripts.append(text)

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False


@pytest.fixture
def store(tmp_path: Path) -> HistoryStore:
    store = HistoryStore(tmp_path / "history")
    for entry in CLEAR.entries():
        store.add(entry)
    return store


def tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.html")}


def test_each_track_and_night_has_its_page(store: HistoryStore, tmp_path: Path) -> None:
    made = site.build(store, tmp_path / "site")
    names = set(tree(made.folder))
    nights = {f"night/{entry.id}.html" for entry in store.read().entries}
    track = "tonight.laptop.exact.html"
    assert names == nights | {"index.html", f"track/{track}"}
    assert (made.tracks, made.nights) == (1, 4)


def test_the_same_history_gives_the_same_bytes(store: HistoryStore, tmp_path: Path) -> None:
    first = tree(site.build(store, tmp_path / "one").folder)
    assert tree(site.build(store, tmp_path / "two").folder) == first


def test_a_site_is_replaced_as_a_whole_and_nothing_else_is(
    store: HistoryStore, tmp_path: Path
) -> None:
    folder = tmp_path / "site"
    site.build(store, folder)
    (folder / "night" / "old.html").write_text("of a night that was pruned")
    site.build(store, folder)
    assert not (folder / "night" / "old.html").exists()
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("dear to me")
    with pytest.raises(UsageError, match="no site"):
        site.build(store, mine)
    assert (mine / "thesis.tex").read_text() == "dear to me"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["history", "mine", "site"]


def test_a_history_that_is_none_leaves_no_site(tmp_path: Path) -> None:
    (tmp_path / "history").mkdir()
    (tmp_path / "history" / "x").touch()
    with pytest.raises(StoreError):
        site.build(HistoryStore(tmp_path / "history"), tmp_path / "site")
    assert not (tmp_path / "site").exists()


def empty_history(folder: Path) -> HistoryStore:
    folder.mkdir()
    head = {"format": FORMAT, "schema_version": SCHEMA_VERSION}
    (folder / HEAD).write_text(json.dumps(head))
    return HistoryStore(folder)


def test_no_night_yet_is_a_page_too(tmp_path: Path) -> None:
    made = site.build(empty_history(tmp_path / "history"), tmp_path / "site")
    assert "The history is empty" in (made.folder / "index.html").read_text()


def test_a_site_with_nights_is_not_replaced_by_one_without(
    store: HistoryStore, tmp_path: Path
) -> None:
    made = site.build(store, tmp_path / "site")
    before = {path: path.read_bytes() for path in made.folder.rglob("*") if path.is_file()}
    with pytest.raises(StoreError, match="no history here"):
        site.build(HistoryStore(tmp_path / "mistyped"), made.folder)
    with pytest.raises(UsageError, match="not replaced by one without any"):
        site.build(empty_history(tmp_path / "empty"), made.folder)
    assert {path: path.read_bytes() for path in made.folder.rglob("*") if path.is_file()} == before


def test_a_torn_file_is_named_on_the_front_page(store: HistoryStore, tmp_path: Path) -> None:
    path = store.path(store.read().entries[0])
    path.write_bytes(path.read_bytes()[:100])
    made = site.build(store, tmp_path / "site")
    front = (made.folder / "index.html").read_text()
    assert path.name in front
    assert "torn" in front


def test_the_regression_is_on_the_front_page(store: HistoryStore, tmp_path: Path) -> None:
    front = (site.build(store, tmp_path / "site").folder / "index.html").read_text()
    assert "1 regression open" in front
    # Night four was no change against night three.
    assert re.search(r'class="word no-change"><i aria-hidden="true">=</i>no change', front)


def test_reports_of_sessions_are_made_of_their_records(tmp_path: Path) -> None:
    session = ExactSession()
    target = stored(tmp_path / "sessions" / "deep" / "one", session)
    forms.write_all(tmp_path / "sessions" / "deep" / "one")
    store = HistoryStore(tmp_path / "history")
    entry = read_session(tmp_path / "sessions" / "deep" / "one")
    store.add(entry)
    expected = (target.folder / "report.html").read_bytes()
    # What a stranger put in their place is neither read nor shown.
    (tmp_path / "key").write_text("a secret")
    (target.folder / "report.html").write_text("<script>theirs</script>")
    for name in ("samples.csv", "functions.csv", "report-2.html"):
        (target.folder / name).unlink(missing_ok=True)
        (target.folder / name).symlink_to(tmp_path / "key")
    (tmp_path / "sessions" / "other").symlink_to(target.folder)
    made = site.build(store, tmp_path / "site", sessions=tmp_path / "sessions")
    assert made.reports == 1
    assert made.left_out == (f"{tmp_path}/sessions/other: is a link, which is not followed",)
    copied = made.folder / "night" / entry.id / "report.html"
    assert copied.read_bytes() == expected
    names = {path.name for path in copied.parent.iterdir()}
    assert names == {"report.html", "report.md", "samples.csv"}
    everything = [path.read_bytes() for path in made.folder.rglob("*") if path.is_file()]
    assert b"secret" not in b"".join(everything)
    assert (
        f'href="{entry.id}/{copied.name}"'
        in (made.folder / "night" / f"{entry.id}.html").read_text()
    )


def test_a_night_s_page_says_which_functions_changed(tmp_path: Path) -> None:
    entry = entry_of(counts_factory.measured_with_counts())
    store = HistoryStore(tmp_path / "history")
    store.add(entry)
    made = site.build(store, tmp_path / "site")
    marked = (made.folder / "night" / f"{entry.id}.html").read_text()
    # As typeset: a minus sign and an arrow.
    page = re.sub("<[^>]*>", "", html.unescape(marked)).replace("\u2212", "-")
    texts = [of_session(each) for case in entry.cases for each in case.functions]
    assert len(texts) == 3
    for text in texts:
        assert text in page
    first = entry.cases[0].functions[0].largest[0]
    assert f"{first.base:.2f} \u2192 {first.patched:.2f}" in page


def test_hostile_text_is_text(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path / "history")
    for entry in Nights((0.0, 0.02, 0.0), experiment="hostile").entries():
        store.add(hostile(entry))
    made = site.build(store, tmp_path / "site")
    for name, page in tree(made.folder).items():
        tags = Tags(page.decode())
        assert not [tag for tag, _ in tags.elements if tag in ("img", "iframe", "object", "base")]
        for _, attributes in tags.elements:
            assert not [key for key in attributes if key.startswith("on") or key == "style"], name
            assert not (attributes.get("href") or "").startswith("javascript:")
            assert "src" not in attributes
        assert not [text for text in tags.scripts if text.startswith("window.hurt")], name
        assert "\u202e" not in re.sub(r"<script.*?</script>", "", page.decode(), flags=re.S)


def test_a_page_allows_its_own_scripts_and_nothing_from_elsewhere(
    store: HistoryStore, tmp_path: Path
) -> None:
    for name, page in tree(site.build(store, tmp_path / "site").folder).items():
        text = page.decode()
        tags = Tags(text)
        policy = next(
            a["content"]
            for tag, a in tags.elements
            if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"
        )
        assert policy
        assert policy.startswith("default-src 'none'; script-src ")
        assert "unsafe" not in policy
        assert "http" not in policy
        executed = [
            script
            for script, (_, a) in zip(
                tags.scripts, [t for t in tags.elements if t[0] == "script"], strict=True
            )
            if a.get("type") != "application/json"
        ]
        assert all(source_hash(script) in policy for script in executed), name
        assert not re.search(r"<(script|link(?! rel=.alternate)|img)[^>]*(src|href)=", text)


@given(
    st.recursive(st.text() | st.floats() | st.none(), lambda inner: st.lists(inner), max_leaves=9)
)
@example(1.7976931348623157e308)
@example([float("nan"), "\ud800"])
def test_embedded_data_comes_back_and_never_ends_its_element(value: object) -> None:
    text = str(tracks.data({"value": value, HOSTILE: HOSTILE}))
    assert not set(text) & {"<", ">", "&", "\u2028", "\u2029"}
    assert json.loads(text)[HOSTILE] == HOSTILE


def test_metrics_are_shown_by_the_part_of_the_kernel() -> None:
    entries = CLEAR.entries()
    (alone,) = tracks_of(HistoryContents(tuple(entries)), changes_of(entries))
    assert not alone.grouped
    case = entries[0].cases[0]
    two = [
        but(entry, cases=(*entry.cases, but(entry.cases[0], name="x+ext4"))) for entry in entries
    ]
    parts = Subsystems(
        subsystem=(
            SubsystemWorkloads(title="first", workloads=("x",)),
            SubsystemWorkloads(title="second", workloads=(case.name,)),
        )
    )
    (track,) = tracks_of(HistoryContents(tuple(two)), (), subsystems=parts)
    assert track.grouped
    names = [(chart.subsystem, chart.case) for chart in track.primary]
    assert list(dict.fromkeys(names)) == [("first", "x+ext4"), ("second", case.name)]


def test_one_word_a_night() -> None:
    entries = CLEAR.entries()
    (track,) = tracks_of(HistoryContents(tuple(entries)), changes_of(entries))
    words = [tracks.of_night(entry, track.changes).word for entry in entries]
    assert words == ["no change", "no change", "regression", "no change"]
    assert [change.night for change in track.standing] == [entries[2].night]
    assert tracks_of(HistoryContents(tuple(entries[:1])), ())[0].status.word == "first night"


@pytest.mark.parametrize(
    ("verdicts", "word", "words"),
    [
        ((Verdict.NO_CHANGE, Verdict.REGRESSION, Verdict.IMPROVEMENT), "regression", "1 metric"),
        ((Verdict.IMPROVEMENT, Verdict.NO_CHANGE, Verdict.IMPROVEMENT), "improvement", "2 metrics"),
        ((Verdict.NO_CHANGE, Verdict.NOT_TESTED, Verdict.REGRESSION), "regression", "1 metric"),
        ((Verdict.NO_CHANGE, Verdict.INCONCLUSIVE), "inconclusive", "1 metric"),
        ((Verdict.NO_CHANGE,), "no change", "1 metric"),
    ],
)
def test_the_first_night_has_the_verdict_of_its_series(
    verdicts: tuple[Verdict, ...], word: str, words: str
) -> None:
    entry = CLEAR.entries()[0]
    values = {"arm": "patched", "against": "base", "metric": "m", "reason": ""}
    conclusions = tuple(Conclusion.model_validate({**values, "verdict": each}) for each in verdicts)
    (case,) = entry.cases
    first = but(entry, cases=(but(case, conclusions=conclusions),))
    status = tracks.of_night(first, (), first=True)
    assert (status.word, status.words) == (word, words)
    # A later night is measured by those before it.
    assert tracks.of_night(first, ()).word == "no change"


def test_what_is_not_judged_has_a_word_and_a_mark() -> None:
    kind = "incomparable"
    (change,) = changes_of(CLEAR.entries())
    word = tracks.of_change(but(change, kind=kind, verdict=None))
    assert (word.word, word.style) == (kind, kind)
    assert word.mark
    assert kind in tracks.ORDER


def test_a_regression_that_was_undone_does_not_stand() -> None:
    entries = Nights((0.0, 0.0, -0.02, -0.02, 0.0, 0.0)).entries()
    (track,) = tracks_of(HistoryContents(tuple(entries)), changes_of(entries))
    assert len(track.changes) == 2
    assert track.standing == ()


@pytest.mark.parametrize(
    ("link", "kept"),
    [("https://a/b?c&d", "https://a/b?c&amp;d"), ("javascript:x", ""), ("//evil", ""), ("", "")],
)
def test_only_addresses_become_links(link: str, kept: str) -> None:
    assert str(site.address(link)) == kept


def story(entries: list[Entry], known: KnownChanges) -> tuple[set[str], set[str]]:
    """Ids that fail the gate, and ids that the pages show as open."""
    policy = Policy()
    changes = changes_of(entries, known, policy)
    gate = of_history(entries, changes, policy, known_changes=known)
    failing = {message.change for message in gate.messages if message.level == "error"}
    tracks = tracks_of(HistoryContents(tuple(entries)), changes, gaps_of(entries, known))
    shown = {change.id for track in tracks for change in track.standing}
    shown |= {gap.id for track in tracks for gap in track.blind}
    return failing, shown


def test_pages_and_gate_tell_the_same_story() -> None:
    slow = Nights((0.0,) * 12 + (-0.02,) * 8, experiment="slow").entries()
    undone = Nights((0.0,) * 8 + (-0.02,) * 6 + (0.0,) * 6, experiment="undone").entries()
    stale = Nights((0.0,) * 10, experiment="stale").entries()
    cases = ("filemap-4k", "filemap-thp")
    ended = Nights((0.0,) * 20, experiment="ended", cases=cases).entries()
    ended[-1] = without_case(ended[-1], "filemap-thp")
    entries = [*slow, *undone, *stale, *ended]
    failing, shown = story(entries, KnownChanges())
    assert failing == shown
    assert len(shown) == 3
    for until, left in (("2026-01-21", 2), ("2026-01-20", 3)):
        slower = next(each for each in changes_of(entries) if each.course.experiment == "slow")
        known = KnownChange(change=slower.id, until=until, reason="x")
        failing, shown = story(entries, KnownChanges(known=(known,)))
        assert failing == shown
        assert len(shown) == left
    changes = changes_of(entries)
    assert [change.status for change in changes if change.course.experiment == "undone"] == [
        "fixed",
        "open",
    ]
    every = [KnownChange(change=name, reason="x") for name in story(entries, KnownChanges())[1]]
    assert story(entries, KnownChanges(known=tuple(every))) == (set(), set())


WITH_A_GAP = [*CLEAR.entries(), *Nights((0.0,), experiment="stale").entries()]
WITH_FUNCTIONS = [
    with_functions(entry, {"xas_load": 0.002})
    for entry in Nights((0.0, 0.0), codes=("a", "a")).entries()
]


@pytest.mark.parametrize("entries", [WITH_A_GAP, WITH_FUNCTIONS], ids=["a gap", "functions"])
def test_what_is_not_acknowledged_is_on_the_front_page(
    entries: list[Entry], tmp_path: Path
) -> None:
    store = HistoryStore(tmp_path / "history")
    for entry in entries:
        store.add(entry)
    (name,) = [each.id for each in gaps_of(entries)] + [e.id for e in function_changes(entries)]
    gate = of_history(entries, changes_of(entries), Policy())
    assert name in {message.change for message in gate.messages}
    known = KnownChanges(known=(KnownChange(change=name, reason="accepted"),))
    for marks, count in ((None, 1), (known, 0)):
        made = site.build(store, tmp_path / "site", known_changes=marks)
        assert (made.folder / "index.html").read_text().count(name) == count


def test_a_night_that_was_measured_again_keeps_its_word() -> None:
    entries = CLEAR.entries()[:3]
    entries.append(measured_again(entries[-1]))
    (track,) = tracks_of(HistoryContents(tuple(entries)), changes_of(entries))
    assert track.status.word == "regression"
