"""`answer` measures the commit that a mail names, and replies from a session that is there."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from runs.request import Request
from tests.conftest import Terminal
from tests.history.test_claim import PERSON, ROBOT
from tests.kernels.fake import git
from tests.verbs.test_gate import session_folder
from verbs import answer

HEAD = "From: A <a@b.example>\nSubject: hackbench is slower\nMessage-ID: <m-1@b.example>\n\n"


@pytest.fixture
def mail(tmp_path: Path) -> Path:
    file = tmp_path / "report.eml"
    file.write_text(HEAD + PERSON)
    return file


def test_a_reply_is_made_of_a_session(main: Terminal, mail: Path, tmp_path: Path) -> None:
    mail.write_text(HEAD + ROBOT)
    assert main("answer", mail, "--of", str(session_folder(tmp_path / "s"))) == 0
    head, _, body = main.out.partition("\n\n")
    assert head.splitlines() == ["Subject: Re: hackbench is slower", "In-Reply-To: <m-1@b.example>"]
    assert "path, the other way" in body
    assert "emulation" in body
    assert max(map(len, body.splitlines())) <= 80


@pytest.mark.parametrize(
    ("text", "arguments"),
    [("", ()), (HEAD + "it is slow\n", ()), (HEAD + PERSON, ("--tree", "nowhere"))],
)
def test_what_cannot_be_answered_is_refused(
    main: Terminal, mail: Path, text: str, arguments: tuple[str, ...]
) -> None:
    mail.write_text(text)
    assert main("answer", mail, *arguments) == 2
    assert main("answer", str(mail.with_name("none.eml"))) == 2


def test_the_commit_and_its_parent_are_the_arms(
    main: Terminal, mail: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "linux"
    tree.mkdir()
    git(tree, "init", "-q")
    for number in range(2):
        for name in ("Makefile", "Kconfig"):
            (tree / name).write_text(f"# {number}\n")
        git(tree, "add", ".")
        git(tree, "commit", "-qm", f"change {number}")
    parent, commit = git(tree, "rev-parse", "HEAD~1"), git(tree, "rev-parse", "HEAD")
    measured: list[Request] = []
    unseen = [True]

    def measure(request: Request, *_: object, nearest: tuple[str, ...], **__: Any) -> Path:
        measured.append(request)
        assert nearest == ("messaging",)
        return session_folder(tmp_path / "s")

    monkeypatch.setattr(answer, "measure", measure)
    monkeypatch.setattr(answer, "_is_unseen", lambda *_: unseen[0])
    words = ["answer", str(mail), "--tree", str(tree)]
    # The mail's own commit is in another tree.
    assert main(*words) == 2
    assert main(*words, "--commit", commit) == 0
    # The reply quotes the mail's, and names the tree's.
    shown = " ".join(main.out.split())
    assert "by commit 0123456789ab." in shown
    assert f"measured it is commit {commit}." in shown
    request, again = measured
    assert (request.twins, again) == (None, dataclasses.replace(request, twins=True))
    assert main(*words, "--commit", commit, "--no-diagnostics") == 0
    unseen[0] = False
    assert main(*words, "--commit", commit) == 0
    assert [each.twins for each in measured[2:]] == [False, None]
    assert request.source == f"git:{tree}@{parent}"
    assert request.series == (f"git:{tree}@{commit}~1..{commit}",)
    assert request.named_workloads == ()
