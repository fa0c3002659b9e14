"""A page of sessions, each with its question, its verdicts and its report; no history is needed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiment.spec import Experiment
from pages import site
from reports.session_list import ListedSession, listed
from reports.write import HTML
from results.sessions import SessionHead


@dataclass(frozen=True)
class Shown:
    """A session on the page; ``report`` is the file beside it, empty where there is none."""

    experiment: Experiment
    guest: str
    listed: ListedSession
    report: str


def build(heads: Sequence[SessionHead], folder: Path) -> int:
    """Write the page and copies of the reports to a folder; return how many reports there are.

    Sessions are shown in the order given; what cannot be read is left out.

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
    beside = folder.with_name(f".{folder.name}-{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        (beside / site.MARK).write_text("reports of sessions; written anew as a whole\n")
        entries = []
        for head in heads:
            if head.manifest is None:
                continue
            report = f"{head.folder.name}.html" if (head.folder / HTML).exists() else ""
            if report:
                shutil.copyfile(head.folder / HTML, beside / report)
            manifest = head.manifest
            entries.append(Shown(manifest.experiment, manifest.guest.title, listed(head), report))
        values = {"sessions": entries, "root": ""}
        site.page(site.environment(), "gallery.html.j2", beside / site.FRONT, values)
        shutil.rmtree(folder, ignore_errors=True)
        beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return sum(bool(entry.report) for entry in entries)
