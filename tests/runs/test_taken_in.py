"""What is said of a series before anything is built, and what needs a box or a word."""

import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from errors import SeriesError, SpecError, UsageError
from experiment.load import with_config
from experiment.spec import KernelSpec, SeriesSpec
from host import sandbox
from kernels import worktree
from kernels.build import provide, require_applies
from kernels.cache import tree_folder
from kernels.series import read_patch
from kernels.settle import Settled, settle
from kernels.source import identify
from kernels.worktree import prepare, switch
from runs import building, resolved
from runs.local import Options
from runs.requirements import require_sources
from runs.resolve import SeriesIntake, taken_in
from runs.resolved import resolve
from tests.experiment.test_plan import make_experiment
from tests.kernels.conftest import lab as lab
from tests.kernels.fake import COMMENT, FASTER, GROWN, Lab, git, replace
from tests.kernels.posting import mbox, post
from tests.values import but

MAKEFILE = replace("mm/Makefile", "obj-y", "# more\nobj-y")
ELSEWHERE = (
    "diff --git a/tests/generic/790 b/tests/generic/790\nnew file mode 100644\n--- /dev/null\n"
    "+++ b/tests/generic/790\n@@ -0,0 +1 @@\n+x\n"
)


def experiment(lab: Lab, path: str, source: str = "", **series: Any) -> Settled:
    made = make_experiment([("w", "default")], series=SeriesSpec(path=path, **series))
    kernel = KernelSpec(source=source or f"dir:{lab.source}")
    return settle(but(made, kernel=kernel), **lab.where)


@pytest.fixture(autouse=True)
def any_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the experiment only its series are looked at."""
    monkeypatch.setattr(resolved, "load_catalogue", dict)


def needs_box(made: Settled, options: Options) -> bool:
    whole = resolve(made.experiment, checkout=options.checkout, cache=options.cache)
    return building.needs_box(whole, options)


def options(lab: Lab, **more: Any) -> Options:
    return Options(**lab.where, **more)


def of(lab: Lab, path: str, source: str = "") -> SeriesIntake:
    return taken_in(experiment(lab, path, source), options(lab))


def source_as(kind: str, lab: Lab) -> str:
    """The lab's source as another kind than a folder: a repository, or a file that is packed."""
    if kind == "git":
        git(lab.source, "init", "-q")
        git(lab.source, "add", "-A")
        git(lab.source, "commit", "-qm", "base")
        return f"git:{lab.source}@HEAD"
    if kind == "tarball":
        with tarfile.open(f"{lab.source}.tar", "w") as archive:
            archive.add(lab.source, arcname="linux")
        return f"tarball:{lab.source}.tar"
    return ""


def test_title_author_patches_base_and_findings_are_shown_in_80_columns(lab: Lab) -> None:
    posts = post(lab, FASTER, GROWN, cover="mm: make it fast")
    (lab.checkout / "thread.mbox").write_bytes(mbox(posts[1:] + posts[:1]))
    lines = of(lab, "thread.mbox").lines()
    assert lines[0] == 'series: "mm: make it fast", by Ada L <ada@example.org>'
    assert "  2 patches from thread.mbox" in lines
    assert "  1. mm: change number 1" in lines
    assert "  changes mm/filemap.c" in lines
    assert any("base" in line and "built on" in line for line in lines)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("kind", ["dir", "git", "tarball"])
def test_a_series_that_does_not_apply_is_named_before_a_build(lab: Lab, kind: str) -> None:
    lab.series("mine", FASTER, GROWN)
    source = source_as(kind, lab)
    if kind == "tarball":
        identity = identify(source, **lab.where)
        assert of(lab, "configs/series/mine", source).notes == (
            f"not tried whether it applies: {source} is not unpacked yet",
        )
        # In the state of another arm, with files that were changed.
        (other,) = lab.series("other", COMMENT)
        tree = prepare(identity, tree_folder(lab.cache, identity.key))
        switch(tree, [read_patch(other)])
    good = of(lab, "configs/series/mine", source)
    assert (good.problem, good.notes) == (None, ())
    first, _ = sorted((lab.checkout / "configs/series/mine").glob("*.patch"))
    first.write_text(first.read_text().replace("index >> 4", "index >> 9"))
    bad = of(lab, "configs/series/mine", source)
    assert isinstance(bad.problem, SeriesError)
    assert first.name in bad.problem.where
    assert "does not apply to mm/filemap.c" in bad.problem.what
    assert any("does not apply" in line for line in bad.lines(with_problem=True))


def test_what_does_not_apply_is_named_before_the_first_build(lab: Lab) -> None:
    spec = KernelSpec(source=source_as("tarball", lab))
    patches = lab.series("mine", FASTER)
    require_applies(lab.request(patches, spec=spec))
    shutil.rmtree(lab.cache / "trees")
    patches[0].write_text(patches[0].read_text().replace("index >> 4", "index >> 9"))
    with pytest.raises(SeriesError, match=r"does not apply to mm/filemap\.c"):
        require_applies(lab.request(patches, spec=spec))
    # The tree is ready for the build, and none was begun.
    (tree,) = (lab.cache / "trees").iterdir()
    assert (tree / "src/mm/filemap.c").is_file()
    assert not [*tree.glob("src/obj*"), *tree.glob("*.log")]


@pytest.mark.parametrize("kind", ["dir", "git", "tarball"])
def test_an_option_that_no_kconfig_has_is_named_before_a_build(lab: Lab, kind: str) -> None:
    mine = lab.series(
        "mine", replace("Kconfig", "config SMP", 'config MINE\n\tbool "x"\n\nconfig SMP')
    )
    lab.series("plain", FASTER)
    source = source_as(kind, lab)

    def mistakes(series: str, *texts: str) -> list[str]:
        whole = experiment(lab, f"configs/series/{series}", source)
        made = resolve(with_config(whole.experiment, texts), **lab.where)
        try:
            require_sources(made.planned_kernels(), **lab.where)
        except SpecError as error:
            return error.problems
        return []

    if kind == "tarball":
        assert mistakes("mine", "CONFIG_NOPE=y") == []
        identity = identify(source, **lab.where)
        tree = prepare(identity, tree_folder(lab.cache, identity.key))
        # In the state of another arm, with an option that the source has not.
        switch(tree, [read_patch(path) for path in mine])
    assert mistakes("mine", "CONFIG_NET=y", "patched:CONFIG_MINE=y", "CONFIG_MINE=n") == []
    for series, text in (
        ("mine", "CONFIG_NETT=y"),
        ("mine", "CONFIG_NETT=n"),
        ("mine", "patched:CONFIG_NETT=y"),
        ("plain", "CONFIG_MINE=y"),
    ):
        (line,) = mistakes(series, text)
        assert "no such option" in line
        assert ("did you mean 'NET'?" in line) == ("NETT" in text)
    (line,) = mistakes("mine", "CONFIG_MINE=y")
    assert "base no patch that adds it" in line


@pytest.mark.parametrize("kind", ["dir", "git", "tarball"])
def test_another_projects_patch_is_named_before_a_build(lab: Lab, kind: str) -> None:
    (lab.checkout / "x.diff").write_text(ELSEWHERE)
    problem = of(lab, "x.diff", source_as(kind, lab)).problem
    assert problem is not None
    assert "no path or folder of it is in the kernel's source" in problem.what
    assert problem.where == "tests/generic/790"


def test_a_folder_that_is_no_kernel_is_not_blamed_on_the_series(lab: Lab) -> None:
    (lab.checkout / "x.diff").write_text(ELSEWHERE)
    (lab.checkout / "private").mkdir()
    taken = of(lab, "x.diff", f"dir:{lab.checkout / 'private'}")
    assert taken.problem is None
    assert "no Linux source: there is no Makefile at its top" in taken.notes[0]


def test_a_series_that_only_adds_files_says_so(lab: Lab) -> None:
    (lab.checkout / "x.diff").write_text(ELSEWHERE.replace("tests/generic", "mm"))
    taken = of(lab, "x.diff")
    assert taken.problem is None
    assert "adds files, and changes none of" in taken.notes[0]


def test_files_of_a_source_that_is_at_hand(lab: Lab, tmp_path: Path) -> None:
    names = ["mm/filemap.c", "mm/none.c", "gone/x.c", "mm/a b.c"]
    (lab.source / "mm/a b.c").write_text("x\n")
    sources = (f"dir:{lab.source}", source_as("git", lab))
    for number, source in enumerate(sources):
        into = tmp_path / str(number)
        into.mkdir()
        present = worktree.lay_out(source, names, into, **lab.where)
        assert present == frozenset({"mm/filemap.c", "mm/a b.c", "mm"})
        assert (into / "mm/filemap.c").read_bytes() == (lab.source / "mm/filemap.c").read_bytes()
    assert worktree.lay_out("deb:linux-image-6.12", names, tmp_path, **lab.where) is None


def test_a_tree_of_which_nothing_is_known_is_no_source(lab: Lab, tmp_path: Path) -> None:
    for number, source in enumerate(source_as(kind, lab) for kind in ("tarball", "git")):
        identity = identify(source, **lab.where)
        tree = prepare(identity, tree_folder(lab.where["cache"], identity.key))
        (tree.folder / "contents.json").unlink()
        (tree.src / "mm/filemap.c").write_text("what a series made of it\n")
        into = tmp_path / str(number)
        into.mkdir()
        present = worktree.lay_out(source, ["mm/filemap.c"], into, **lab.where)
        if present is not None:
            place = into / "mm/filemap.c"
            assert place.read_bytes() == (lab.source / "mm/filemap.c").read_bytes()


def test_what_a_build_executes_is_built_in_a_box_or_by_a_word(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.series("plain", FASTER)
    lab.series("build", MAKEFILE)
    (lab.checkout / "thread.mbox").write_bytes(mbox(post(lab, FASTER)))
    monkeypatch.setattr(sandbox, "available", lambda: "unshare")
    assert not needs_box(experiment(lab, "configs/series/plain"), options(lab))
    made = experiment(lab, "configs/series/build")
    assert "runs on this host when it is built: mm/Makefile (a makefile)" in " ".join(
        line.strip() for line in taken_in(made, options(lab)).lines()
    )
    assert needs_box(made, options(lab))
    assert needs_box(made, options(lab, sandbox=True))
    with pytest.raises(UsageError, match=r"with your rights: mm/Makefile \(a makefile\)") as error:
        needs_box(made, options(lab, sandbox=False))
    assert "--trust-series build; or leave out --no-sandbox" in error.value.next_step
    assert not needs_box(made, options(lab, sandbox=False, trusted=("build",)))
    monkeypatch.setattr(sandbox, "available", lambda: None)
    with pytest.raises(UsageError, match="with your rights"):
        needs_box(made, options(lab, trusted=("plain",)))
    assert not needs_box(made, options(lab, trusted=("build",)))
    stacked = experiment(lab, "configs/series/plain", stack=("configs/series/build",))
    with pytest.raises(UsageError, match="mm/Makefile"):
        needs_box(stacked, options(lab, trusted=("build",)))
    assert not needs_box(stacked, options(lab, trusted=("plain", "build")))


@pytest.mark.slow
def test_a_makefile_of_a_series_of_ones_own_runs_in_a_box(lab: Lab, tmp_path: Path) -> None:
    if sandbox.available() is None:
        pytest.skip("no box can be made here")
    canary = tmp_path / "canary"
    paths = lab.series("build", replace("mm/Makefile", "obj-y", f"$(shell touch {canary})\nobj-y"))
    made = experiment(lab, "configs/series/build")
    provide(lab.request(paths, boxed=needs_box(made, options(lab))))
    assert not canary.exists()
    unboxed = needs_box(made, options(lab, sandbox=False, trusted=("build",)))
    provide(lab.request(paths, cache=tmp_path / "other", boxed=unboxed))
    assert canary.exists()
