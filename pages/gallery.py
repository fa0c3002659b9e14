"""A page of sessions, each with its question, its verdicts and its report; no history is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiment.spec import Experiment
from pages import site
from reports.session_list import ListedSession, listed
from reports.write import HTML, published
from results import door
from results.sessions import SessionHead


@dataclass(frozen=True)
class Shown:
    """A session on the page; ``report`` is the file beside it, empty where there is none."""

    experiment: Experiment
    guest: str
    listed: ListedSession
    report: str


def build(heads: Sequence[SessionHead], folder: Path) -> int:
    """Write the page and a report of each session to a folder; return how many reports there are.

    Reports are made of the records.  Sessions are shown in the order given; what cannot be read is
    left out, and one whose records cannot be compared has no report.

    Raises:
        SiteError: the folder holds something that is no site of the lab's, or that of a history.
        OSError: the folder cannot be written.
    """
    site.check(folder)
    if any((folder / "night").glob("*.html")):
        raise site.SiteError(
            "the site of a history is not replaced by a page of sessions",
            where=str(folder), next_step="name a new folder",
        )  # fmt: skip
    with site.replaced(folder) as beside:
        door.write(beside, site.MARK, "reports of sessions; written anew as a whole\n")
        entries = []
        for head in heads:
            if head.manifest is None:
                continue
            report, manifest, line = f"{head.folder.name}.html", head.manifest, listed(head)
            if line.problem:
                report = ""
            else:
                door.write(beside, report, published(head.folder)[HTML])
            entries.append(Shown(manifest.experiment, manifest.guest.title, line, report))
        values = {"sessions": entries, "root": ""}
        site.page(site.environment(), "gallery.html.j2", beside / site.FRONT, values)
    return sum(bool(entry.report) for entry in entries)
