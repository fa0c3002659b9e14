"""The verb that measures a kernel tree again each time a file in it is saved."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from runs.request import Request
from verbs.cli import Without, flattened
from verbs.invocation import log, options, placed
from verbs.options import Measuring
from verbs.session import OfTree

app = typer.Typer(add_completion=False)

# What is measured is the tree's, in exact mode, and in a line.
OF_LOOP = Without(
    *("name", "series", "source", "arms", "automatic", "reverse", "per_patch", "mode", "twins"),
    *("check", "quick", "memory"),
)
# Half the seconds of the usual guest: whoever edits waits.
SMALL = "smoke"
# The first look has half the seeds that a session begins with.
FIRST_SEEDS = ("blocks=4", "max_seeds=32")


@app.command("loop")
@flattened
def loop_verb(
    request: Annotated[Request, OF_LOOP],
    commits: Annotated[OfTree, Without("uncommitted")],
    measuring: Measuring,
) -> None:
    """Measure a kernel tree each time a file in it is saved; one line a verdict, until Ctrl-C.

    What git knows of the tree is compared with HEAD as it is when the loop begins, or with where
    the branch left --base. The kernel is built of what changed, the base's runs are kept ones, and
    the next save ends what is under way.

    Examples:
    ./lab.py loop  # in a tree: edit, save, read
    ./lab.py loop --base origin/master --workloads filemap-4k  # all of a branch, by this workload
    """
    from experiment.ad_hoc import load_auto
    from experiment.spec import KernelSpec
    from kernels import build
    from kernels.git_range import HEAD, commit_of, merge_base, tree_at
    from verbs.saves import Loop, LoopReporter, Tree

    reporter = LoopReporter()
    tree = tree_at(commits.tree or Path())
    where = str(tree)
    start = commit_of(tree, HEAD, where)
    if commits.base:
        start = merge_base(tree, commit_of(tree, commits.base, where), start, where)
    request = replace(request, check=False, twins=False, guest=request.guest or SMALL)
    if request.seeds is None:
        request = replace(request, overrides=(*FIRST_SEEDS, *request.overrides))
    with placed(options(measuring), measuring, reporter) as on:
        # The one that takes minutes, before anybody waits for it.
        kernel = {**load_auto().experiment["kernel"], "source": f"git:{tree}@{start}"}
        base = on.kernel(KernelSpec.model_validate(kernel), ())
        build.provide(base, partial(reporter.building, "the base"))
        log(f"waiting for saves in {tree}, compared with {start[:12]}; Ctrl-C ends it")
        loop = Loop(Tree(tree, start), request, on, reporter)
        try:
            loop.run()
        finally:
            if loop.last is not None:
                log(f"of the last verdict: ./lab.py report {loop.last}")
