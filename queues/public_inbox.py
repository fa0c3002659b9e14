"""A local mirror of a public-inbox archive, format v2: a git repository for each epoch.

A commit holds one mail, in its file ``m``, or takes one out again, then in ``d``.  A mail
that is purged or edited is taken out of history, so that every commit after it is another.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pygit2
from pygit2.enums import SortMode

from errors import InfraError
from kernels.series import LARGEST
from queues.arrivals import Arrival, MailBatch, Positions

EPOCH = re.compile(r"(\d{1,6})\.git")
BATCH = 500
SHORT = 12


def epochs(folder: Path) -> dict[str, Path]:
    """The epochs by number, in order: of an archive, of its ``git/``, or the one named."""
    for place in (folder / "git", folder):
        paths = [path for path in place.glob("*.git") if EPOCH.fullmatch(path.name)]
        if paths:
            paths.sort(key=lambda path: int(path.stem))
            return {path.stem: path for path in paths}
    is_epoch = (folder / "HEAD").is_file() and (folder / "objects").is_dir()
    return {folder.stem: folder} if is_epoch else {}


@dataclass(frozen=True)
class PublicInbox:
    """An archive; a position is the last commit of an epoch that was read."""

    folder: Path

    def new(self, positions: Positions, *, since: float, now: float) -> Iterator[MailBatch]:
        """As of ``Mailbox``: epoch after epoch, by the hundred."""
        at = dict(positions)
        for name, path in epochs(self.folder).items():
            try:
                for batch in _epoch(path, at.get(name, ""), since, now, first=not positions):
                    at[name] = batch.positions[""]
                    yield MailBatch(batch.arrivals, dict(at), batch.notes)
            except (pygit2.GitError, KeyError, ValueError) as error:
                raise InfraError(
                    f"cannot be read: {error}", where=str(path), next_step=f"git -C {path} fsck"
                ) from None


def _epoch(path: Path, last: str, since: float, now: float, *, first: bool) -> Iterator[MailBatch]:
    # Whose repository it is was decided by who named it.
    pygit2.settings.owner_validation = False
    repository = pygit2.Repository(str(path))
    if repository.head_is_unborn:
        return
    head = repository.head.target
    if str(head) == last:
        return
    walk = repository.walk(head, SortMode.TOPOLOGICAL)
    met = _met(repository, last, str(head)) if last else ""
    if met:
        walk.hide(met)
    notes = (_rewritten(path, last, met),) if met != last else ()
    oldest = since if first or (last and not met) else 0.0
    newest_first = itertools.takewhile(lambda commit: commit.commit_time >= oldest, walk)
    commits = [commit.id for commit in newest_first][::-1]
    for begin in range(0, max(1, len(commits)), BATCH):
        some = commits[begin : begin + BATCH]
        arrivals = [_arrival(repository, commit, now, path.name) for commit in some]
        reached = str(some[-1]) if begin + BATCH < len(commits) else str(head)
        yield MailBatch(tuple(arrival for arrival in arrivals if arrival), {"": reached}, notes)
        notes = ()


def _met(repository: pygit2.Repository, last: str, head: str) -> str:
    """The newest commit that what was read and what is there have in common, or nothing."""
    try:
        common = repository.merge_base(last, head)
    except pygit2.GitError:  # collected since
        return ""
    return str(common) if common else ""


def _rewritten(path: Path, last: str, met: str) -> str:
    what = f"{path.name}: its history was rewritten: commit {last[:SHORT]} is no longer in it"
    if met:
        return f"{what}; mails since commit {met[:SHORT]} are read again"
    return f"{what}, nor anything before it; its newest mails are read again (--days)"


def _arrival(
    repository: pygit2.Repository, commit_id: pygit2.Oid, now: float, epoch: str
) -> Arrival | None:
    commit = repository[commit_id]
    assert isinstance(commit, pygit2.Commit)
    at = min(float(commit.commit_time), now)
    for name in ("m", "d"):
        if name in commit.tree:
            entry = commit.tree[name]
            _, size = repository.odb.read_header(entry.id)
            if not isinstance(entry, pygit2.Blob):
                return None
            # One byte more than may be read, so that whoever reads it sees that.
            raw = entry.data if size <= LARGEST else b"\0" * (LARGEST + 1)
            return Arrival(raw, at, f"{epoch} {str(commit_id)[:SHORT]}", deleted=name == "d")
    return None
