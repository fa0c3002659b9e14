"""Commits of real repositories as patches: ranges, lines of merges, trees, clones of a part."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from errors import UsageError
from experiment.spec import SeriesSpec
from host.process import run
from kernels import git_range
from kernels.git_range import (
    WORK_TREE,
    run_git,
    series_of,
    settled_commit,
    tree_at,
    write_line,
    write_patches,
)
from kernels.series import apply, read_patch
from kernels.source import identify, release_of, unpack
from kernels.worktree import lay_out
from tests.kernels.fake import COMMENT, FASTER, GROWN, Lab, git, keep, patches_of
from tests.kernels.posting import repository
from tests.values import data, script

STRANGER = 65_534


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    """With a setting that has git run a program, as its owner may leave there."""
    folder = tmp_path / "repository"
    folder.mkdir()
    run(["git", "init", "-q", str(folder)], timeout_s=300)
    program = script(tmp_path / "program", f"touch {tmp_path}/canary")
    run(["git", "-C", str(folder), "config", "core.fsmonitor", str(program)], timeout_s=300)
    return folder


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a repository to somebody")
def test_the_settings_of_somebody_elses_repository_are_not_read(
    strange: Path, tmp_path: Path
) -> None:
    for path in (strange, *strange.rglob("*")):
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
    with pytest.raises(UsageError, match="somebody else owns"):
        run_git(strange, "status", check=False)
    assert not (tmp_path / "canary").exists()


SIGNED = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iQEz\n -----END PGP SIGNATURE-----\n\n"


@pytest.mark.parametrize("kind", ["monitor", "hooks", "signature", "filter", "submodule"])
def test_what_a_repository_names_is_not_run(kind: str, lab: Lab, tmp_path: Path) -> None:
    folder = repository(lab, FASTER)
    program = script(tmp_path / "program", f"touch {tmp_path}/canary\nexit 1")
    for name in ("hooks", "info"):
        (folder / ".git" / name).mkdir(exist_ok=True)
    place = folder
    if kind == "submodule":
        git(folder, "clone", "-q", ".", "sub")
        git(folder, "add", "sub")
        git(folder, "commit", "-qm", "sub")
        git(folder, "config", "submodule.sub.ignore", "none")
        place = folder / "sub"
    if kind in ("monitor", "submodule"):
        git(place, "config", "core.fsmonitor", str(program))
    elif kind == "hooks":
        (folder / ".git/hooks/post-index-change").write_bytes(program.read_bytes())
        (folder / ".git/hooks/post-index-change").chmod(0o755)
    elif kind == "filter":
        for name in ("clean", "required"):
            git(
                folder, "config", f"filter.x.{name}", "true" if name == "required" else str(program)
            )
        (folder / ".git/info/attributes").write_text("* filter=x\n")
    else:
        commit = git(folder, "cat-file", "commit", "HEAD").replace("\n\n", f"\n{SIGNED}", 1)
        (tmp_path / "commit").write_text(f"{commit}\n")
        name = git(folder, "hash-object", "-t", "commit", "-w", str(tmp_path / "commit"))
        git(folder, "reset", "-q", "--soft", name)
        git(folder, "config", "log.showSignature", "true")
        git(folder, "config", "gpg.program", str(program))
    for path in (folder / "mm/filemap.c", place / "mm/slow.c"):
        path.write_text(f"{path.read_text()}// changed\n")
    changed = ("mm/filemap.c",) if kind == "submodule" else ("mm/filemap.c", "mm/slow.c")
    series = series_of(folder, "HEAD~1..", base="", uncommitted=True, cache=tmp_path)
    assert read_patch(Path(series.series[-1])).files == changed
    settled = settled_commit(folder, WORK_TREE, "")
    assert git(folder, "diff", "--name-only", "HEAD", settled).splitlines() == [*changed]
    assert not (tmp_path / "canary").exists()


def test_files_that_are_somewhere_else_are_not_taken(lab: Lab, tmp_path: Path) -> None:
    folder = repository(lab, FASTER)
    for other in (tmp_path / "private", tmp_path / "another"):
        (other / "mm").mkdir(parents=True)
        (other / "mm/slow.c").write_text("secret\n")
    git(tmp_path / "another", "init", "-q")
    for other in (tmp_path / "private", tmp_path / "another"):
        git(folder, "config", "core.worktree", str(other))
        with pytest.raises(UsageError, match=r"core\.worktree"):
            settled_commit(folder, WORK_TREE, "")
        with pytest.raises(UsageError, match=r"core\.worktree"):
            tree_at(folder)


@pytest.mark.parametrize(
    "name",
    ["HEAD", "packed-refs", "objects/info/alternates", "../lent/info/alternates", "more"],
)
@pytest.mark.parametrize("worktree", [True, False])
def test_a_pipe_that_git_opens_is_not_waited_for(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, name: str, worktree: bool
) -> None:
    folder = repository(lab, FASTER)
    if worktree:
        git(folder, "worktree", "add", "-q", "--detach", "../other")
    pipe = folder / ".git" / name
    pipe.parent.mkdir(parents=True, exist_ok=True)
    pipe.unlink(missing_ok=True)
    if name.startswith(".."):
        (folder / ".git/objects/info/alternates").write_text(f"{pipe.parent.parent}\n")
    if name == "more":
        git(folder, "config", "include.path", str(pipe))
    os.mkfifo(pipe)
    monkeypatch.setattr(git_range, "IDLE_S", 0.2)
    place = folder.with_name("other") if worktree else folder
    with pytest.raises(UsageError, match=r"did nothing .* pipe") as error:
        run_git(place, "rev-list", "--all")
    assert error.value.where == str(place)


def test_the_repository_is_the_one_that_is_named(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = repository(lab, FASTER)
    git(folder, "init", "-q", str(tmp_path / "hooked"))
    head = run_git(folder, "rev-parse", "HEAD").stdout
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "hooked/.git"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "hooked"))
    assert run_git(folder, "rev-parse", "HEAD").stdout == head


def test_a_filter_that_is_set_later_is_not_run(lab: Lab, tmp_path: Path) -> None:
    folder = repository(lab, FASTER)
    run_git(folder, "rev-parse", "HEAD")
    (folder / ".gitattributes").write_text("* filter=late\n")
    git(folder, "config", "filter.late.clean", f"touch {tmp_path}/ran; cat")
    (folder / "mm/slow.c").write_text("int x;\n")
    run_git(folder, "diff", "HEAD")
    assert not (tmp_path / "ran").exists()


def test_what_git_may_give_and_take_has_bounds(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = repository(lab)
    (folder / "big").write_bytes(b"x" * (64 << 20))
    git(folder, "add", "big")
    git(folder, "commit", "-qm", "big")
    monkeypatch.setattr(git_range, "MOST_BYTES", 1 << 20)
    assert run_git(folder, "show", "HEAD:mm/slow.c").stdout
    with pytest.raises(UsageError, match="gives more than 1 MiB"):
        run_git(folder, "show", "HEAD:big", check=False)
    monkeypatch.setattr(git_range, "MOST_MEMORY", 16 << 20)
    with pytest.raises(UsageError, match="of memory"):
        run_git(folder, "diff", "base", "HEAD", check=False)


def test_a_range_of_more_commits_than_any_series_has(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = repository(lab, FASTER, GROWN, COMMENT)
    monkeypatch.setattr(git_range, "MOST_COMMITS", 2)
    with pytest.raises(UsageError, match="has 3 commits, more than 2"):
        write_patches(f"git:{folder}@base..topic", tmp_path, checkout=lab.checkout)
    assert not list(tmp_path.glob("*.patch"))


def test_a_file_that_no_kernel_has_is_not_read(lab: Lab, tmp_path: Path) -> None:
    folder = repository(lab)
    with (folder / "mm/large.c").open("wb") as file:
        file.truncate(65 << 20)
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "large")
    with pytest.raises(UsageError, match="a file of more than 64 MiB"):
        lay_out(f"git:{folder}@topic", ["mm/large.c"], tmp_path, **lab.where)
    assert lay_out(f"git:{folder}@topic", ["mm/slow.c"], tmp_path, **lab.where)


@pytest.fixture(scope="module")
def five_commits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("five") / "full"
    (folder / "mm").mkdir(parents=True)
    (folder / "lib").mkdir()
    for name in ("Makefile", "Kconfig"):
        (folder / name).write_text(f"{name}\n")
    git(folder, "init", "-q", "-b", "main")
    for number in range(5):
        (folder / "mm/x.c").write_text(f"int x = {number};\n")
        (folder / f"lib/{number}.c").write_text(f"int y = {number};\n")
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", f"number {number}")
    for key in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"):
        git(folder, "config", key, "true")
    return folder


@pytest.fixture
def full(five_commits: Path, tmp_path: Path) -> Path:
    """Five commits of a tree that is a kernel's by its names, to be cloned in part."""
    return shutil.copytree(five_commits, tmp_path / "full")


def clone(full: Path, name: str, *options: str) -> Path:
    place = full.with_name(name)
    git(full, "clone", "-q", *options, f"file://{full}", str(place))
    return place


def patches(place: Path, words: str, tmp_path: Path) -> list[str]:
    into = tmp_path / f"patches-{words.replace('/', '-')}-{place.name}"
    into.mkdir(exist_ok=True)
    write_patches(f"git:{place}@{words}", into, checkout=tmp_path)
    return [path.name for path in sorted(into.iterdir())]


def missing(place: Path) -> int:
    listing = run_git(place, "rev-list", "--objects", "--all", "--missing=print").stdout
    return sum(line.startswith("?") for line in listing.splitlines())


@pytest.mark.parametrize("option", ["--no-checkout", "--sparse"])
def test_a_partial_clone_names_the_command_that_fetches_and_fetches_nothing(
    full: Path, tmp_path: Path, option: str
) -> None:
    place = clone(full, "partial", "--filter=blob:none", option)
    before = missing(place)
    assert before > 0
    with pytest.raises(UsageError, match="a partial clone without") as error:
        patches(place, "HEAD~2..HEAD", tmp_path)
    assert missing(place) == before
    run(["sh", "-c", error.value.next_step], timeout_s=300)
    assert patches(place, "HEAD~2..HEAD", tmp_path) == [
        "0001-number-3.patch",
        "0002-number-4.patch",
    ]


def test_one_command_fetches_what_series_and_source_need(full: Path, tmp_path: Path) -> None:
    place = clone(full, "partial", "--filter=blob:none", "--no-checkout")
    with pytest.raises(UsageError, match="a partial clone without") as error:
        series_of(place, "HEAD~2..", base="", uncommitted=False, cache=tmp_path)
    run(["sh", "-c", error.value.next_step], timeout_s=300)
    series = series_of(place, "HEAD~2..", base="", uncommitted=False, cache=tmp_path)
    source = identify(series.source, checkout=tmp_path, cache=tmp_path)
    unpack(source, tmp_path / "tree")
    assert (tmp_path / "tree/lib/2.c").read_text() == "int y = 2;\n"
    assert patches(place, "HEAD~2..HEAD", tmp_path)


def test_a_source_in_a_partial_clone_is_not_fetched_file_by_file(
    full: Path, tmp_path: Path
) -> None:
    place = clone(full, "partial", "--filter=blob:none", "--no-checkout")
    before = missing(place)
    assert release_of(f"git:{place}@HEAD", tmp_path) == ""
    source = identify(f"git:{place}@HEAD", checkout=tmp_path, cache=tmp_path)
    with pytest.raises(UsageError, match="a partial clone without 8 of the files") as error:
        unpack(source, tmp_path / "tree")
    assert missing(place) == before
    run(["sh", "-c", error.value.next_step], timeout_s=300)
    run(["rm", "-rf", str(tmp_path / "tree")], timeout_s=300)
    unpack(source, tmp_path / "tree")
    assert (tmp_path / "tree/mm/x.c").read_text() == "int x = 4;\n"


def test_a_range_that_a_shallow_clone_has_not(full: Path, tmp_path: Path) -> None:
    place = clone(full, "shallow", "--depth=2")
    assert patches(place, "HEAD~1..HEAD", tmp_path) == ["0001-number-4.patch"]
    with pytest.raises(UsageError, match="git does not know HEAD~3") as error:
        patches(place, "HEAD~3..HEAD", tmp_path)
    assert "fetch --deepen=1000" in error.value.next_step


def test_what_is_left_of_a_cut_history_is_no_series(full: Path, tmp_path: Path) -> None:
    git(full, "checkout", "-q", "-b", "topic", "main~3")
    for number in range(3):
        (full / "mm/topic.c").write_text(f"int t = {number};\n")
        git(full, "add", "-A")
        git(full, "commit", "-qm", f"topic {number}")
    place = clone(full, "shallow", "--depth=2", "--no-single-branch")
    with pytest.raises(UsageError, match="in common in this shallow clone") as error:
        patches(place, "origin/main..origin/topic", tmp_path)
    assert "fetch --deepen=1000" in error.value.next_step
    git(place, "fetch", "-q", "--unshallow")
    names = patches(place, "origin/main..origin/topic", tmp_path)
    assert names == [f"000{number + 1}-topic-{number}.patch" for number in range(3)]


def test_a_sparse_checkout_is_a_tree_and_no_folder_of_a_source(full: Path, tmp_path: Path) -> None:
    place = clone(full, "sparse", "--sparse")
    git(place, "sparse-checkout", "set", "--no-cone", "/mm/")
    assert not (place / "Makefile").exists()
    assert tree_at(place / "mm") == place
    series = series_of(place, "HEAD~1..", base="", uncommitted=False, cache=tmp_path)
    unpack(identify(series.source, checkout=tmp_path, cache=tmp_path), tmp_path / "tree")
    assert (tmp_path / "tree/lib/3.c").exists()
    with pytest.raises(UsageError, match="a sparse checkout") as error:
        identify(f"dir:{place}", checkout=tmp_path, cache=tmp_path)
    assert f"git:{place}@HEAD" in error.value.next_step


def edit_slow(tree: Path) -> None:
    with (tree / "mm/slow.c").open("a") as file:
        file.write("/* more */\n")


def merged(lab: Lab) -> Path:
    """base - one - merge (of a side branch with two commits) - nothing - last."""
    folder = repository(lab, edit_slow)
    git(folder, "checkout", "-qb", "side", "base")
    for number in range(2):
        (folder / f"mm/side{number}.c").write_text("int side;\n")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", f"side {number}")
    git(folder, "checkout", "-q", "topic")
    git(folder, "merge", "-q", "--no-ff", "-m", "merge the side", "side")
    git(folder, "commit", "-q", "--allow-empty", "-m", "nothing")
    (folder / "init.c").write_text((folder / "init.c").read_text() + "/* end */\n")
    git(folder, "commit", "-qam", "init: é last")
    return folder


def test_each_prefix_is_the_tree_of_its_commit(lab: Lab, tmp_path: Path) -> None:
    folder = merged(lab).rename(lab.checkout / "with@name")
    into = tmp_path / "into"
    into.mkdir()
    base, commits = write_line("base..topic", into, checkout=lab.checkout, repository=str(folder))
    assert base == git(folder, "rev-parse", "base")
    # Both commits of the side are one patch, the empty one is none.
    assert [git(folder, "log", "-1", "--format=%s", commit) for commit in commits] == [
        "mm: commit 0",
        "merge the side",
        "init: é last",
    ]
    patches = patches_of(SeriesSpec(path=str(into)), **lab.where)
    assert len(patches) == 3
    tree = tmp_path / "tree"
    git(folder, "worktree", "add", "-q", str(tree), "base")
    for patch, commit in zip(patches, commits, strict=True):
        apply([read_patch(patch)], tree)
        git(tree, "add", "-A")
        assert git(tree, "write-tree") == git(folder, "rev-parse", f"{commit}^{{tree}}")


@pytest.fixture
def tree(lab: Lab) -> Path:
    """``mainline`` with two commits, and on its first one a branch ``topic/fast`` with two."""
    where = lab.source
    git(where, "init", "-q", "-b", "mainline")
    commit(where, "Linux 6.12")
    git(where, "branch", "topic/fast")
    (where / "README").write_text("mainline goes on\n")
    commit(where, "Linux 6.13")
    git(where, "checkout", "-q", "topic/fast")
    for number, edit in enumerate((FASTER, GROWN), 1):
        edit(where)
        commit(where, f"mm: step {number}")
    return where


def commit(tree: Path, subject: str) -> None:
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", subject)


def state(tree: Path) -> dict[str, str]:
    """Every file, the index and the refs of a repository; its objects may grow."""
    return {
        str(path.relative_to(tree)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in tree.rglob("*")
        if path.is_file() and "objects" not in path.parts
    }


def subjects(lab: Lab, series: tuple[str, ...]) -> list[str]:
    first, *stack = series
    spec = SeriesSpec(path=first, stack=tuple(stack))
    return [read_patch(path).subject for path in patches_of(spec, **lab.where)]


def test_a_range_on_the_commit_it_starts_from(lab: Lab, tree: Path) -> None:
    before = state(tree)
    chosen = series_of(tree, "HEAD~2..", base="", uncommitted=False, cache=lab.cache)
    assert chosen.source == f"git:{tree}@{git(tree, 'rev-parse', 'HEAD~2')}"
    assert chosen.series == (f"git:{tree}@HEAD~2..topic/fast",)
    assert subjects(lab, chosen.series) == ["mm: step 1", "mm: step 2"]
    assert [note.partition(":")[0] for note in chosen.notes] == ["source", "series"]
    assert chosen.notes[0].endswith('("Linux 6.12")')
    assert chosen.notes[1].startswith("series: 2 commits up to ")
    assert state(tree) == before


@pytest.mark.parametrize("revision", ["topic/fast", ""])
def test_a_branch_on_top_of_one_that_went_on(lab: Lab, tree: Path, revision: str) -> None:
    chosen = series_of(tree, revision, base="mainline", uncommitted=False, cache=lab.cache)
    assert chosen.source.endswith(f"@{git(tree, 'rev-parse', 'HEAD~2')}")
    assert subjects(lab, chosen.series) == ["mm: step 1", "mm: step 2"]


def test_changes_that_are_not_committed_are_a_patch(lab: Lab, tree: Path) -> None:
    COMMENT(tree)
    git(tree, "add", "-A")  # staged, and one more that is not
    raw = (tree / "mm/slow.c").read_bytes() + b"/* latin: \xe9 */\n"
    (tree / "mm/slow.c").write_bytes(raw)
    (tree / "mm/new.c").write_text("int x;\n")
    before = state(tree)
    chosen = series_of(tree, "", base="", uncommitted=True, cache=lab.cache)
    assert state(tree) == before
    assert chosen.source == f"git:{tree}@{git(tree, 'rev-parse', 'HEAD')}"
    assert chosen.notes[1:] == (
        "uncommitted: mm/filemap.c, mm/slow.c",
        "left out, since git does not know it: mm/new.c",
    )
    (diff,) = chosen.series
    assert Path(diff).name.startswith("topic-fast-uncommitted-")
    spec = SeriesSpec(path=diff)
    target = lab.checkout / "target"
    git(tree, "worktree", "add", "-q", "--detach", str(target), "HEAD")
    apply([read_patch(path) for path in patches_of(spec, **lab.where)], target)
    assert (target / "mm/slow.c").read_bytes() == raw
    # The same changes have the same name, and so the same kernel.
    assert series_of(tree, "", base="", uncommitted=True, cache=lab.cache).series == chosen.series
    keep(spec, **lab.where)


def test_changes_on_top_of_a_range(lab: Lab, tree: Path) -> None:
    COMMENT(tree)
    left = series_of(tree, "HEAD~1..", base="", uncommitted=False, cache=lab.cache)
    assert left.notes[-1] == "left out, since not committed: mm/filemap.c (--dirty has it in)"
    assert len(left.series) == 1
    chosen = series_of(tree, "HEAD~1..", base="", uncommitted=True, cache=lab.cache)
    assert chosen.source.endswith(git(tree, "rev-parse", "HEAD~1"))
    assert [subject.partition("-uncommitted")[0] for subject in subjects(lab, chosen.series)] == [
        "mm: step 2",
        "topic-fast",
    ]


@pytest.mark.parametrize(
    ("revision", "base", "uncommitted", "message"), data(__file__, "what_cannot_be_meant")
)
def test_what_cannot_be_meant(
    lab: Lab, tree: Path, revision: str, base: str, uncommitted: bool, message: str
) -> None:
    git(tree, "checkout", "-q", "--orphan", "orphan")
    commit(tree, "another history")
    git(tree, "checkout", "-q", "topic/fast")

    def taken() -> None:
        chosen = series_of(tree, revision, base=base, uncommitted=uncommitted, cache=lab.cache)
        subjects(lab, chosen.series)

    with pytest.raises(UsageError) as caught:
        taken()
    assert message in caught.value.what
    assert caught.value.next_step


def test_a_tree_is_the_same_from_any_folder_in_it_and_in_a_worktree(lab: Lab, tree: Path) -> None:
    assert tree_at(tree / "mm") == tree
    beside = lab.checkout / "beside"
    git(tree, "worktree", "add", "-q", "--detach", str(beside), "mainline")
    assert tree_at(beside) == beside
    chosen = series_of(beside, "HEAD~1..", base="", uncommitted=False, cache=lab.cache)
    # Nothing is checked out that has a name.
    assert chosen.series == (f"git:{beside}@HEAD~1..HEAD",)


def test_what_is_no_kernel_tree(lab: Lab) -> None:
    with pytest.raises(UsageError, match="not a git work tree of a kernel"):
        tree_at(lab.source)  # a tarball's tree
    git(lab.checkout, "init", "-q")
    with pytest.raises(UsageError, match="not a git work tree of a kernel"):
        tree_at(lab.checkout)
