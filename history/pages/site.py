"""The site: every page of a history, written to a folder beside and moved into its place."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from errors import LabError, RecordError, UsageError
from experiment.load import load_subsystems
from history.changes import changes_of, function_changes, gaps_of
from history.entry import Entry
from history.pages import blocks
from history.pages import tracks as of_tracks
from history.pages.tracks import Track, tracks_of
from history.policy import KnownChanges, Policy
from history.store import HistoryContents, HistoryStore
from history.wording import function_change_line
from reports import wording
from reports.document import Block
from reports.forms import HTML, published
from reports.render import html
from reports.render.html import policy
from results import door
from results.session import SessionHead, heads_in
from text import clean_lines, typeset

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

    path, pen, x, y = "", "M", 0.0, 0.0
    for at, value in enumerate(values):
        if value is None:
            pen = "M"
            continue
        x = EDGE + at * step
        y = HEIGHT / 2 - 3 - (value - middle) / span * (HEIGHT - 2 * EDGE - 6)
        path += f"{pen}{x:.1f} {y:.1f}"
        pen = "L"
    ticks = "".join(
        f'<path class="tick" d="M{EDGE + at * step:.1f} {HEIGHT - 6}v5"/>'
        for at, mark in enumerate(marked)
        if mark
    )
    return Markup(  # noqa: S704  (numbers only)
        f'<svg class="spark" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'aria-hidden="true" focusable="false"><path class="line" d="{path}"/>{ticks}'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5"/></svg>'
    )


HERE = Path(__file__).parent
TEMPLATES, STATIC = HERE / "templates", HERE / "static"
FRONT = "index.html"
# By which a folder is known to be a site, and may be replaced by the next one.
MARK = "twinboot-site"
CHARTS = ("uPlot.iife.min.js", "trend.js")
NEWEST = 30


@dataclass(frozen=True)
class SitePages:
    """What was written: pages by kind; of each session without a report, a line why."""

    folder: Path
    tracks: int
    nights: int
    reports: int
    left_out: tuple[str, ...] = ()


def build(
    store: HistoryStore,
    folder: Path,
    *,
    known_changes: KnownChanges | None = None,
    policy: Policy | None = None,
    sessions: Path | None = None,
) -> SitePages:
    """Write the site of a history; reports of ``sessions`` are made beside their nights.

    ``sessions`` is a folder of session folders, or of folders of these.  The site of
    before in ``folder`` is replaced as a whole.

    Raises StoreError: the folder of the history holds something else; UsageError: ``folder``
    holds something that is no site, or a site with nights while the history has none; OSError:
    the folder cannot be written.
    """
    check(folder)
    read = store.read()
    if not read.entries and any((folder / "night").glob("*.html")):
        raise UsageError(
            "a site with nights is not replaced by one without any; "
            f"{store.folder} has no entry that can be read",
            where=str(folder),
            next_step="name the history that it was made of, or a new folder",
        )
    changes = changes_of(read.entries, known_changes, policy)
    gaps = gaps_of(read.entries, known_changes)
    of_functions = function_changes(read.entries, known_changes)
    tracks = tracks_of(read, changes, gaps, of_functions, load_subsystems())
    heads: list[SessionHead] = []
    if sessions:
        # Every session in the folder, or in a folder of it.
        below = (sessions / name for name in door.names(sessions, folders=True))
        heads = [head for top in (sessions, *below) for head in heads_in(top)]
    left_out = [head.problem for head in heads if head.manifest is None]
    reports = {head.manifest.session: head.folder for head in heads if head.manifest}
    with replaced(folder) as beside:
        links = {e.id: _report(beside, e, reports.get(e.session), left_out) for e in read.entries}
        _write(beside, read, tracks, links)
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
    """Refuse to replace what is no site of the lab's, by raising ``UsageError``."""
    is_another = not folder.is_dir() or (any(folder.iterdir()) and not (folder / MARK).exists())
    if folder.exists() and is_another:
        raise UsageError(
            "holds something that is no site of the lab's",
            where=str(folder),
            next_step="name a new folder",
        )


def _write(
    folder: Path,
    read: HistoryContents,
    tracks: tuple[Track, ...],
    reports: Mapping[str, str],
) -> None:
    door.write(folder, MARK, "pages of a history; written anew as a whole\n")
    templates = environment()
    newest = max((entry.night for entry in read.entries), default="")
    worst_first = sorted(tracks, key=lambda track: (track.rank, track.name))
    front = {"tracks": worst_first, "problems": read.problems, "root": "", "newest": newest}
    page(templates, "front.html.j2", folder / FRONT, front)
    for track in tracks:
        context = {"track": track, "root": "../", "newest": newest}
        entries = {entry.id: entry for entry in track.entries}
        of_track = {
            "changes": [
                _rendered(blocks.changes(chart.changes[::-1], "../", entries))
                for chart in track.charts
            ],
            "newest": [_rendered([blocks.newest(chart, NEWEST)]) for chart in track.charts],
            "data": of_tracks.data(of_tracks.of_track(track)),
        }
        place = folder / "track" / f"{track.name}.html"
        page(templates, "track.html.j2", place, context | of_track, CHARTS)
        around = (None, *track.entries, None)
        for before, entry, after in zip(around, track.entries, around[2:], strict=False):
            link = address(entry.link)
            of_night = {
                "entry": entry,
                "before": before,
                "after": after,
                "report": reports[entry.id],
                "link": link,
                "body": _rendered(blocks.night(entry, track.of_night(entry), link, before)),
            }
            place = folder / "night" / f"{entry.id}.html"
            page(templates, "night.html.j2", place, context | of_night)


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
    templates.globals.update(status=of_tracks, line=function_change_line, spark=spark)
    return templates


def page(
    templates: Environment,
    template: str,
    path: Path,
    values: Mapping[str, object],
    scripts: tuple[str, ...] = (),
) -> None:
    """Write a page by its template; ``scripts`` are files of ``static/``."""
    texts = [(STATIC / name).read_text(encoding="utf-8") for name in scripts]
    # The look of reports, and what pages have besides.
    looks = [STATIC / "uPlot.min.css"] if "uPlot.iife.min.js" in scripts else []
    looks += [html.STYLE, STATIC / "site.css"]
    styles = ["\n".join(file.read_text(encoding="utf-8") for file in looks)]
    text = templates.get_template(template).render(
        policy=Markup(policy(texts, styles)),  # noqa: S704  (made of hashes)
        styles=[Markup(text) for text in styles],  # noqa: S704  (the lab's own files)
        scripts=[Markup(text) for text in texts],  # noqa: S704
        **values,
    )
    door.write(path.parent, path.name, text.rstrip() + "\n")
