import json
from pathlib import Path

import pytest

from errors import UsageError
from experiment.spec import ArmSpec, Experiment, KernelSpec, SeriesSpec
from kernels import settle as settling
from kernels.build import provide
from kernels.intake import take_in
from tests.kernels.fake import COMMENT, FASTER, GROWN, Lab, git, patches_of
from tests.kernels.posting import Post, mbox, post, repository
from tests.values import but


def series_of(settled: Experiment) -> SeriesSpec:
    assert settled.series is not None
    return settled.series


def experiment(source: str, series: SeriesSpec) -> Experiment:
    return Experiment.model_validate_json(
        '{"name": "x", "title": "", "cases": [{"workload": "w", "times": {}}], '
        f'"kernel": {KernelSpec(source=source).model_dump_json()}, '
        f'"series": {series.model_dump_json()}, '
        '"dataset": {"cgroup_limit_mib": 1, "brd_mib": 2, "file_mib": 1, "jobs": 1}}'
    )


def based_on(lab: Lab, commit: str) -> SeriesSpec:
    (mail,) = post(lab, GROWN)
    body = mail.body.replace("\n-- \n", f"\nbase-commit: {commit}\n-- \n")
    path = lab.checkout / "based.mbox"
    path.write_bytes(mbox([Post(mail.headers, body)]))
    return SeriesSpec(path="based.mbox")


def settle(experiment: Experiment, *, checkout: Path, cache: Path) -> Experiment:
    return settling.settle(experiment, checkout=checkout, cache=cache).experiment


def findings(lab: Lab, settled: Experiment) -> tuple[str, ...]:
    records = take_in(series_of(settled), checkout=lab.checkout, cache=lab.cache).records
    return settling.series_records(settled, records, checkout=lab.checkout)[0].findings


@pytest.fixture
def tree(lab: Lab) -> Path:
    return repository(lab, FASTER, COMMENT)


def test_the_base_commit_is_the_source_where_the_repository_has_it(lab: Lab, tree: Path) -> None:
    base = git(tree, "rev-parse", "topic~1")
    settled = settle(experiment(f"git:{tree}", based_on(lab, base)), **lab.where)
    assert settled.kernel.source == f"git:{tree}@{base}"
    assert series_of(settled).kept
    assert series_of(settled).title == "mm: change number 1"
    assert findings(lab, settled) == ()
    assert settle(settled, **lab.where) == settled
    assert provide(lab.request(patches_of(series_of(settled), **lab.where), spec=settled.kernel))


def test_a_base_commit_nobody_has_is_a_finding(lab: Lab, tree: Path) -> None:
    head = git(tree, "rev-parse", "HEAD")
    settled = settle(experiment(f"git:{tree}", based_on(lab, "abcdef" * 6 + "abcd")), **lab.where)
    assert settled.kernel.source == f"git:{tree}@{head}"
    assert findings(lab, settled) == (
        f"is based on commit abcdefabcdef, not in the repository; built on {head[:12]}",
    )


def test_a_named_ref_wins_and_the_difference_is_noted(lab: Lab, tree: Path) -> None:
    base, head = git(tree, "rev-parse", "base"), git(tree, "rev-parse", "HEAD")
    settled = settle(experiment(f"git:{tree}@topic", based_on(lab, base)), **lab.where)
    assert settled.kernel.source == f"git:{tree}@{head}"
    assert findings(lab, settled) == (f"is based on commit {base[:12]}; built on {head[:12]}",)


def test_whether_another_source_is_that_commit_is_unknown(lab: Lab) -> None:
    settled = settle(experiment(lab.spec.source, based_on(lab, "a" * 40)), **lab.where)
    assert settled.kernel.source == lab.spec.source
    assert findings(lab, settled) == (
        f"is based on commit {'a' * 12}; cannot tell whether {lab.spec.source} is that commit",
    )


def test_a_bare_range_is_one_of_the_source(lab: Lab, tree: Path) -> None:
    settled = settle(experiment(f"git:{tree}", SeriesSpec(path="base..topic")), **lab.where)
    assert settled.kernel.source == f"git:{tree}@{git(tree, 'rev-parse', 'base')}"
    assert len(patches_of(series_of(settled), **lab.where)) == 2
    assert findings(lab, settled) == ()


def test_no_repository(lab: Lab) -> None:
    with pytest.raises(UsageError, match="no such folder: /nowhere"):
        settle(experiment("git:/nowhere", based_on(lab, "a" * 40)), **lab.where)


@pytest.fixture
def series(lab: Lab) -> SeriesSpec:
    lab.series("asked", GROWN)
    return SeriesSpec(path="configs/series/asked")


def test_files_that_are_not_committed_are_refused_or_taken_as_requested(
    lab: Lab, tree: Path, series: SeriesSpec
) -> None:
    head = git(tree, "rev-parse", "HEAD")
    (tree / "new.c").write_text("int unknown_to_git;\n")
    assert settle(experiment(f"git:{tree}", series), **lab.where).kernel.source.endswith(head)
    (tree / "init.c").write_text("int changed;\n")
    with pytest.raises(UsageError, match=r"1 files are changed and not committed, as init\.c"):
        settle(experiment(f"git:{tree}", series), **lab.where)
    left_out = settle(experiment(f"git:{tree}@HEAD", series), **lab.where)
    assert left_out.kernel.source == f"git:{tree}@{head}"
    taken = settle(experiment(f"git:{tree}@WORKTREE", series), **lab.where).kernel.source
    commit = taken.rpartition("@")[2]
    assert git(tree, "show", f"{commit}:init.c") == "int changed;"
    assert git(tree, "rev-parse", f"{commit}^") == head
    assert git(tree, "diff", "--name-only") == "init.c"
    assert git(tree, "stash", "list") == ""


def test_clean_work_tree_is_its_head(lab: Lab, tree: Path, series: SeriesSpec) -> None:
    settled = settle(experiment(f"git:{tree}@WORKTREE", series), **lab.where)
    assert settled.kernel.source == f"git:{tree}@{git(tree, 'rev-parse', 'HEAD')}"


@pytest.mark.parametrize("how", ["bare", "shallow", "worktree"])
def test_every_kind_of_repository_is_a_source(
    lab: Lab, tree: Path, series: SeriesSpec, tmp_path: Path, how: str
) -> None:
    other = tmp_path / how
    if how == "worktree":
        git(tree, "worktree", "add", "-q", "--detach", str(other), "topic")
    else:
        option = "--bare" if how == "bare" else "--depth=1"
        git(tree, "clone", "-q", option, "--branch=topic", f"file://{tree}", str(other))
    settled = settle(experiment(f"git:{other}", series), **lab.where)
    topic = git(tree, "rev-parse", "topic")
    assert settled.kernel.source == f"git:{other}@{topic}"
    assert provide(lab.request(spec=settled.kernel)).identity.source == (
        f"git:{git(tree, 'rev-parse', 'topic^{tree}')}"
    )
    if how == "bare":
        with pytest.raises(UsageError, match="cannot keep its work tree"):
            settle(experiment(f"git:{other}@WORKTREE", series), **lab.where)


def test_arms_have_repositories_of_their_own(lab: Lab, tree: Path, series: SeriesSpec) -> None:
    plain = experiment(f"git:{tree}", series)
    arms = [
        {"name": "base"},
        {"name": "other", "kernel": {"source": f"git:{tree}@topic~1"}},
        {"name": "head", "kernel": {"source": f"git:{tree}"}},
    ]
    data = {**plain.model_dump(mode="json"), "arms": arms}
    settled = settle(Experiment.model_validate_json(json.dumps(data)), **lab.where)
    sources = [arm.kernel.source if arm.kernel else "" for arm in settled.arms]
    names = [git(tree, "rev-parse", name) for name in ("topic~1", "HEAD")]
    assert sources == ["", *(f"git:{tree}@{name}" for name in names)]


def test_arms_of_two_releases_have_what_both_can_have(lab: Lab, tree: Path) -> None:
    checkout = Path(__file__).parents[2]
    for patchlevel in (19, 99):
        makefile = f"VERSION = 6\nPATCHLEVEL = {patchlevel}\nSUBLEVEL = 0\n"
        (tree / "Makefile").write_text(makefile)
        git(tree, "commit", "-qam", f"v6.{patchlevel}")
        git(tree, "tag", f"v6.{patchlevel}")
    arms = tuple(
        ArmSpec(name=f"v{number}", kernel=KernelSpec(source=f"git:{tree}@v6.{number}"))
        for number in (19, 99)
    )
    two = but(experiment(f"git:{tree}@v6.19", SeriesSpec(path="x")), series=None, arms=arms)
    same = settle(two, checkout=checkout, cache=lab.cache)
    assert [arm.kernel and arm.kernel.config for arm in same.arms] == [{}, {}]
    (tree / "Makefile").write_text("VERSION = 7\nPATCHLEVEL = 3\n")
    git(tree, "commit", "-qam", "v7.3")
    newer = but(arms[1], kernel=KernelSpec(source=f"git:{tree}@topic"))
    apart = settle(but(two, arms=(arms[0], newer)), checkout=checkout, cache=lab.cache)
    common = {"CONFIG_PREEMPT_VOLUNTARY": "n", "CONFIG_PREEMPT_LAZY": "y"}
    assert [arm.kernel and arm.kernel.config for arm in apart.arms] == [common, common]
