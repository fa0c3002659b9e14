"""A public-inbox archive of our own making, and mails for it."""

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kernels.posting import Post
from tests.waiting import completed

NOW = 1_795_000_000.0  # 2026-11-18
DAY = 86400.0
# Nobody's settings.
ALONE = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "PATH": "/usr/bin:/bin"}


def git(folder: Path, *arguments: str, stdin: bytes = b"") -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        check=True,
        capture_output=True,
        input=stdin,
        env=ALONE,
    )
    return done.stdout.decode().strip()


@dataclass
class MailArchive:
    """``folder/git/N.git``, each commit one mail."""

    folder: Path

    def epoch(self, number: int) -> Path:
        path = self.folder / "git" / f"{number}.git"
        if not path.exists():
            path.mkdir(parents=True)
            git(path, "init", "-q", "--bare", "-b", "master")
        return path

    def add(
        self,
        mails: Iterable[Post | bytes],
        *,
        epoch: int = 0,
        at: float = NOW - 3600,
        name: str = "m",
        parent: str | None = None,
    ) -> str:
        """A commit a mail, on top of ``parent`` or of what is there; the last commit."""
        repository = self.epoch(epoch)
        onto = self.head(epoch) if parent is None else parent
        stream = []
        for number, mail in enumerate(mails):
            raw = mail if isinstance(mail, bytes) else mail.encoded()
            stream += [
                b"commit refs/heads/master\n",
                f"committer P <p@example.org> {int(at) + number} +0000\ndata 6\na mail".encode(),
                f"\nfrom {onto}".encode() if onto and number == 0 else b"",
                f"\ndeleteall\nM 100644 inline {name}\ndata {len(raw)}\n".encode(),
                raw + b"\n",
            ]
        # --force: a parent that is not the newest commit rewrites what came after it.
        git(repository, "fast-import", "--quiet", "--force", stdin=b"".join(stream))
        return self.head(epoch)

    def head(self, epoch: int = 0) -> str:
        result = completed(
            ["git", "-C", str(self.epoch(epoch)), "rev-parse", "-q", "--verify", "master"],
            check=False,
        )
        return result.stdout.strip()


def diff(file: str, old: str = "x", new: str = "y") -> str:
    return (
        f"diff --git a/{file} b/{file}\n--- a/{file}\n+++ b/{file}\n@@ -1 +1 @@\n-{old}\n+{new}\n"
    )


def patch(
    subject: str,
    name: str,
    *,
    file: str = "mm/filemap.c",
    answers: Sequence[str] = (),
    sender: str = "Ada L <ada@example.org>",
    text: str = "",
    body: str | None = None,
) -> Post:
    """One posted mail; ``name`` makes its id, ``answers`` are names of those before it."""
    headers = [
        ("From", sender),
        ("Subject", subject),
        ("Date", "Wed, 18 Nov 2026 10:00:00 +0000"),
        ("Message-ID", f"<{name}@example.org>"),
    ]
    if answers:
        headers.append(("In-Reply-To", f"<{answers[-1]}@example.org>"))
        headers.append(("References", " ".join(f"<{each}@example.org>" for each in answers)))
    made = f"It has a reason.\n{text}\n---\n{diff(file)}--\n2.39.5\n" if body is None else body
    return Post(tuple(headers), made)


def series(
    name: str,
    patches: int,
    *,
    version: int = 1,
    cover: bool = True,
    tag: str = "PATCH",
    title: str = "mm: make it fast",
    file: str = "mm/filemap.c",
    under: Sequence[str] = (),
    sender: str = "Ada L <ada@example.org>",
) -> list[Post]:
    """A series as git sends it: cover letter, patches that answer it (or the first patch)."""
    mark = f"{tag} v{version}" if version > 1 else tag
    posts = []
    first = f"{name}-0" if cover else f"{name}-1"
    if cover:
        body = "Why.\n\n mm/filemap.c | 2 +-\n"
        posts.append(
            patch(f"[{mark} 0/{patches}] {title}", first, answers=under, sender=sender, body=body)
        )
    for number in range(1, patches + 1):
        answers = [*under, first] if cover or number > 1 else under
        subject = f"[{mark} {number}/{patches}] mm: step {number} of {name.partition('-')[0]}"
        posts.append(patch(subject, f"{name}-{number}", file=file, answers=answers, sender=sender))
    return posts
