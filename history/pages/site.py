"""The site: every page of a history, written to a folder beside and moved into its place."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from scipy import stats

from errors import LabError, RecordError, UsageError
from experiment.load import load_subsystems
from history.changes import NightlyChange, changes_of, gaps_of
from history.entry import Entry
from history.function_changes import function_changes
from history.known import KnownChanges
from history.pages import blocks, payload
from history.pages import tracks as of_tracks
from history.pages.tracks import Track, tracks_of
from history.policy import Policy
from history.store import HistoryContents, HistoryStore
from history.wording import change_line, function_change_line, size
from reports import wording
from reports.document import Block
from reports.forms import HTML, published
from reports.render import html
from reports.render.html import policy
from results import door
from results.session import SessionHead, heads_in
from text import clean_line, clean_lines, typeset

WIDTH, HEIGHT, EDGE = 160, 36, 4
# More nights than this are not told apart in this width.
NIGHTS = 90


def spark(values: Sequence[float | None], marked: Sequence[object]) -> Markup:
    """An SVG of the newest :data:`NIGHTS` values, gaps left open.

    Nights whose ``marked`` is true, on which something changed, have a tick below.
    Numbers alone are drawn, and colours are those of the page.
    """
    values, marked = values[-NIGHTS:], marked[-NIGHTS:]
    numbers = [value for value in values if value is not None]
    if not numbers:
        return Markup("")
    low, high = min(numbers), max(numbers)
    # A course without change is a level line, not one that fills the height.
    span = max(high - low, 0.02 * abs(high) or 1.0)
    middle = (high + low) / 2
    step = (WIDTH - 2 * EDGE) / max(len(values) - 1, 1)

    def place(at: int, value: float) -> tuple[float, float]:
        drop = (value - middle) / span
        return EDGE + at * step, HEIGHT / 2 - 3 - drop * (HEIGHT - 2 * EDGE - 6)

    path, pen = "", "M"
    for at, value in enumerate(values):
        if value is None:
            pen = "M"
            continue
        x, y = place(at, value)
        path += f"{pen}{x:.1f} {y:.1f}"
        pen = "L"
    ticks = "".join(
        f'<path class="tick" d="M{EDGE + at * step:.1f} {HEIGHT - 6}v5"/>'
        for at, mark in enumerate(marked) if mark
    )  # fmt: skip
    last = max(at for at, value in enumerate(values) if value is not None)
    x, y = place(last, numbers[-1])
    return Markup(  # noqa: S704  (numbers only)
        f'<svg class="spark" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'aria-hidden="true" focusable="false"><path class="line" d="{path}"/>{ticks}'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5"/></svg>'
    )


FEED = "feed.xml"
MOST = 100
ATOM = "http://www.w3.org/2005/Atom"


def feed(tracks: Sequence[Track]) -> str:
    """The newest changes that were judged, the last one first; addresses are below the feed's."""
    ElementTree.register_namespace("", ATOM)
    top = ElementTree.Element(_name("feed"))
    recent = sorted(
        ((change, track) for track in tracks for change in track.changes),
        key=lambda both: (both[0].detected, both[0].id), reverse=True,
    )[:MOST]  # fmt: skip
    newest = max((track.last.night for track in tracks), default="1970-01-01")
    _text(top, "id", "urn:twinboot:changes")
    _text(top, "title", "Twinboot: changes")
    _text(top, "updated", _time(newest))
    _text(ElementTree.SubElement(top, _name("author")), "name", "Twinboot")
    _link(top, "index.html")
    for change, track in recent:
        _entry(top, change, track)
    ElementTree.indent(top)
    body = ElementTree.tostring(top, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{body}\n'


def _entry(top: ElementTree.Element, change: NightlyChange, track: Track) -> None:
    entry = ElementTree.SubElement(top, _name("entry"))
    word = of_tracks.of_change(change).word
    shown = f" {size(change)}" if size(change) else ""
    course = change.course
    _text(entry, "id", f"urn:twinboot:change:{change.id}")
    _text(entry, "title", f"{word}{shown}: {course.case} {course.metric} ({course.experiment})")
    _text(entry, "updated", _time(change.detected))
    _link(entry, f"track/{track.name}.html#change-{change.id}")
    _text(entry, "summary", change_line(change))


def _name(tag: str) -> str:
    return f"{{{ATOM}}}{tag}"


def _text(parent: ElementTree.Element, tag: str, text: str) -> None:
    ElementTree.SubElement(parent, _name(tag)).text = clean_line(text)


def _link(parent: ElementTree.Element, to: str) -> None:
    ElementTree.SubElement(parent, _name("link"), {"href": to})


def _time(night: str) -> str:
    """Midnight of a night, as Atom writes times."""
    return f"{night}T00:00:00Z"


HERE = Path(__file__).parent
TEMPLATES, STATIC = HERE / "templates", HERE / "static"
FRONT = "index.html"
# By which a folder is known to be a site, and may be replaced by the next one.
MARK = "twinboot-site"
CHARTS = ("uPlot.iife.min.js", "trend.js")
COMPARING = ("compare.js",)
MOST_PAIRS = 400
NEWEST = 30


class SiteError(UsageError):
    """The folder for the site holds something else."""


@dataclass(frozen=True)
class SitePages:
    """What was written: pages by kind; of each session without a report, a line why."""

    folder: Path
    tracks: int
    nights: int
    reports: int
    left_out: tuple[str, ...] = ()


def build(
    store: HistoryStore, folder: Path, *, known_changes: KnownChanges | None = None,
    policy: Policy | None = None, sessions: Path | None = None,
) -> SitePages:  # fmt: skip
    """Write the site of a history; reports of ``sessions`` are made beside their nights.

    ``sessions`` is a folder of session folders, or of folders of these.  The site of
    before in ``folder`` is replaced as a whole.

    Raises:
        StoreError: the folder of the history holds something else.
        SiteError: ``folder`` holds something that is no site, or a site with nights while the
            history has none.
        OSError: the folder cannot be written.
    """
    check(folder)
    read = store.read()
    if not read.entries and any((folder / "night").glob("*.html")):
        raise SiteError(
            "a site with nights is not replaced by one without any; "
            f"{store.folder} has no entry that can be read",
            where=str(folder), next_step="name the history that it was made of, or a new folder",
        )  # fmt: skip
    changes = changes_of(read.entries, store.functions, known_changes, policy)
    tracks = tracks_of(
        read, changes, gaps_of(read.entries, known_changes),
        function_changes(read.entries, known_changes), load_subsystems(),
    )  # fmt: skip
    heads = _heads(sessions) if sessions else []
    left_out = [head.problem for head in heads if head.manifest is None]
    reports = {head.manifest.session: head.folder for head in heads if head.manifest}
    with replaced(folder) as beside:
        links = {e.id: _report(beside, e, reports.get(e.session), left_out) for e in read.entries}
        _write(beside, store, read, tracks, links)
    written = sum(map(bool, links.values()))
    return SitePages(folder, len(tracks), len(read.entries), written, tuple(left_out))


@contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """An empty folder to fill, which takes the place of ``folder`` when the block ends well."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    # In a folder that nobody else can put a link into.
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        beside = scratch / folder.name
        beside.mkdir()
        yield beside
        shutil.rmtree(folder, ignore_errors=True)
        beside.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def check(folder: Path) -> None:
    """Refuse to replace what is no site of the lab's, by raising ``SiteError``."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        return
    if not folder.is_dir() or (any(folder.iterdir()) and not (folder / MARK).exists()):
        raise SiteError(
            "holds something that is no site of the lab's",
            where=str(folder), next_step="name a new folder",
        )  # fmt: skip


def _heads(sessions: Path) -> list[SessionHead]:
    """Every session in a folder, or in a folder of it."""
    tops = [sessions, *(sessions / name for name in door.names(sessions, folders=True))]
    return [head for top in tops for head in heads_in(top)]


def _write(
    folder: Path,
    store: HistoryStore,
    read: HistoryContents,
    tracks: tuple[Track, ...],
    reports: Mapping[str, str],
) -> None:
    door.write(folder, MARK, "pages of a history; written anew as a whole\n")
    templates = environment()
    newest = max((entry.night for entry in read.entries), default="")
    common = {"newest": newest, "marks": of_tracks.status, "spark": spark}
    worst_first = sorted(tracks, key=lambda track: (track.rank, track.name))
    front = {"tracks": worst_first, "problems": read.problems, "root": "", **common}
    page(templates, "front.html.j2", folder / FRONT, front)
    door.write(folder, FEED, feed(tracks))
    quantiles = [0.0, 0.0, *(float(stats.t.ppf(0.995, n - 1)) for n in range(2, MOST_PAIRS))]
    for track in tracks:
        context = {"track": track, "root": "../", **common}
        entries = {entry.id: entry for entry in track.entries}
        of_charts = {
            "changes": [
                _rendered(blocks.changes(chart.changes[::-1], "../", entries))
                for chart in track.charts
            ],
            "newest": [_rendered([blocks.newest(chart, NEWEST)]) for chart in track.charts],
        }
        name = f"{track.name}.html"
        payloads = payload.of_track(track)
        page(templates, "track.html.j2", folder / "track" / name,
              {**context, **of_charts, "data": payload.data(payloads)}, CHARTS)  # fmt: skip
        compared = payload.of_comparison(track, store.functions, quantiles)
        page(templates, "compare.html.j2", folder / "compare" / name,
              {**context, "data": payload.data(compared)}, COMPARING)  # fmt: skip
        for number, entry in enumerate(track.entries):
            link = address(entry.link)
            before = track.entries[number - 1] if number else None
            around = {
                "entry": entry,
                "before": before,
                "after": track.entries[number + 1] if number + 1 < len(track.entries) else None,
                "report": reports[entry.id],
                "link": link,
                "body": _rendered(blocks.night(entry, track.of_night(entry), link, before)),
                **context,
            }
            page(templates, "night.html.j2", folder / "night" / f"{entry.id}.html", around)


def _report(folder: Path, entry: Entry, session: Path | None, left_out: list[str]) -> str:
    """Write a session's page and the files that it links to, into a folder of the night.

    They are made of its records; what lies in its folder may be anybody's.  Returns the page's
    place, empty where there is no session, or none that can be compared.
    """
    if session is None:
        return ""
    try:
        files = published(session)
    except (RecordError, OSError) as error:
        left_out.append(f"{session}: {error.in_one_line if isinstance(error, LabError) else error}")
        return ""
    for name, content in files.items():
        door.write(folder, f"night/{entry.id}/{name}", content)
    return f"{entry.id}/{HTML}"


def _rendered(blocks: Sequence[Block]) -> Markup:
    """Blocks as a part of a page; their renderer escapes every text."""
    return Markup(html.Page().blocks(blocks))  # noqa: S704


def address(link: str) -> Markup:
    """The link, escaped, if a browser may follow it, else nothing: ``javascript:`` is one, too."""
    return escape(link) if link.startswith(("https://", "http://")) else Markup("")


def environment() -> Environment:
    """The templates of the site: every string they print is cleaned and escaped; markup stays."""

    def finalize(value: object) -> object:
        if isinstance(value, str) and not isinstance(value, Markup):
            return typeset(clean_lines(value))
        return value

    templates = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,
    )
    templates.filters.update(percent=wording.percent, figure=wording.figure)
    templates.globals.update(status=of_tracks, line=function_change_line)
    return templates


def page(
    templates: Environment, template: str, path: Path, values: Mapping[str, object],
    scripts: tuple[str, ...] = (),
) -> None:  # fmt: skip
    """Write a page by its template; ``scripts`` are files of ``static/``."""
    texts = [_static(name) for name in scripts]
    styles = [_style(charts="uPlot.iife.min.js" in scripts)]
    text = templates.get_template(template).render(
        policy=Markup(policy(texts, styles)),  # noqa: S704  (made of hashes)
        styles=[Markup(text) for text in styles],  # noqa: S704  (the lab's own files)
        scripts=[Markup(text) for text in texts],  # noqa: S704
        **values,
    )
    door.write(path.parent, path.name, text.rstrip() + "\n")


def _static(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def _style(*, charts: bool) -> str:
    """The look of reports, and what pages have besides."""
    own = [html.STYLE.read_text(encoding="utf-8"), _static("site.css")]
    return "\n".join([*([_static("uPlot.min.css")] if charts else []), *own])
