"""``twinboot HEAD~1..`` in a kernel tree, and its other short forms."""

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import Terminal
from tests.kernels.fake import FAKE_LINUX, FASTER, GROWN, git
from verbs.cli import expanded


@pytest.fixture
def main(main: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Terminal:
    """The program from a folder of a kernel tree with a branch."""
    tree = tmp_path / "linux"
    shutil.copytree(FAKE_LINUX, tree)
    git(tree, "init", "-q", "-b", "mainline")
    for subject, edit in (("Linux 6.12", None), ("mm: faster", FASTER)):
        if edit:
            git(tree, "checkout", "-q", "-b", "topic")
            edit(tree)
        git(tree, "add", "-A")
        git(tree, "commit", "-qm", subject)
    monkeypatch.chdir(tree / "mm")
    return main


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["HEAD~3.."], ["run", "HEAD~3.."]),
        (["v6.12..topic/x", "--set", "blocks=2"], ["run", "v6.12..topic/x", "--set", "blocks=2"]),
        (["--dirty", "--quick"], ["run", "--dirty", "--quick"]),
        (["help", "queue", "add"], ["queue", "add", "--help"]),
        (["run", "filemap-v4"], ["run", "filemap-v4"]),
        (["run", "--series", "git:/x@a..b"], ["run", "--series", "git:/x@a..b"]),
        (["report", "../session"], ["report", "../session"]),
        (["../x"], ["../x"]),
        (["--help"], ["--help"]),
        ([], []),
    ],
)
def test_short_forms(words: list[str], expected: list[str]) -> None:
    assert expanded(words) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["HEAD~1.."], ["topic", "--base", "mainline"], ["--base", "mainline"]]
)
def test_a_range_becomes_source_series_and_workloads(main: Terminal, words: list[str]) -> None:
    assert main("plan", *words, "--guest", "smoke", "--no-check") == 0
    lines = main.err.splitlines()
    assert lines[0].startswith("source: ")
    assert lines[0].endswith('("Linux 6.12")')
    assert lines[1].endswith('("mm: faster")')
    assert lines[2].startswith('series: "mm: faster", by ')
    assert any(line.startswith("  base-commit ") for line in lines)
    assert " ".join(" ".join(lines).split()).endswith(
        "workloads: filemap-4k, metadata, direct, pages, tracing (chosen by names of files; what "
        "is compiled otherwise is known once it is built)"
    )


def test_what_is_not_committed_is_the_patched_arm(main: Terminal) -> None:
    GROWN(Path.cwd().parent)
    words = ("--set", "guest=smoke", "--no-check", "--workloads", "filemap-4k")
    assert main("plan", "--dirty", *words) == 0
    assert "uncommitted: mm/filemap.c" in main.err
    assert main.err.splitlines()[-1] == "workloads: filemap-4k"
    series = Path.cwd().parents[1] / "cache" / "series"
    (record,) = series.glob("*/series.json")
    (entry,) = json.loads(record.read_text())
    assert entry["patches"][0]["files"] == ["mm/filemap.c"]


def test_a_range_is_planned_and_is_all_the_series_there_is(main: Terminal) -> None:
    options = ("--guest", "smoke", "--workloads", "filemap-4k", "--no-check", "--seeds", "1")
    assert main("plan", "HEAD~1..", *options, "--json") == 0
    plan = json.loads(main.out)
    judged = [run["run_id"] for run in plan["runs"] if not run["twin"]]
    assert judged[:2] == ["filemap-4k.b00.base", "filemap-4k.b00.patched"]
    assert main("run", "HEAD~1..", "--series", "x.mbox") == 2
    assert "next: leave out --series" in main.err


def test_outside_of_a_kernel_tree(
    main: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main("HEAD~1..") == 2
    shown = main.err
    assert f"{tmp_path}: not a git work tree of a kernel" in shown
    assert "next: " in shown
