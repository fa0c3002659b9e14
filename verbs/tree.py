"""The verb for whoever stands in a kernel tree: the range is the series, the tree its source."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from host import facts
from kernels.tree import series_of, tree_at
from runs.question import Question
from verbs.asked import (
    CheckFirst,
    DryRun,
    Executor,
    Folder,
    Guests,
    Mode,
    PerPatch,
    Probe,
    Set,
    Store,
    Strict,
    Twins,
    log,
    read,
)
from verbs.measuring import run_verb

app = typer.Typer()


@app.command("tree")
def tree_verb(
    wanted: Annotated[
        str, typer.Argument(metavar="[A..B|BRANCH]", help="commits of the tree")
    ] = "",
    base: Annotated[
        str, typer.Option(metavar="REF", help="of BRANCH, or HEAD: what it is on top of")
    ] = "",
    uncommitted: Annotated[
        bool, typer.Option("--dirty", help="also what is changed and not committed")
    ] = False,
    folder: Annotated[
        Path, typer.Option("--tree", help="the kernel tree, or a folder in it; by default here")
    ] = Path(),
    workloads: Annotated[
        str, typer.Option(metavar="NAME,NAME", help="by default what the changed files call for")
    ] = "",
    overrides: Set = [],  # noqa: B006
    session: Folder = None,
    probe: Probe = True,
    twins: Twins = None,
    per_patch: PerPatch = False,
    check: CheckFirst = None,
    mode: Mode = "",
    guests: Guests = None,
    strict: Strict = False,
    dry_run: DryRun = False,
    executor: Executor = "local",
    store: Store = "",
) -> None:
    """Measure commits of the kernel tree that you stand in, with and without them.

    `twinboot HEAD~3..` is short for `twinboot tree HEAD~3..`, `twinboot --dirty` for `twinboot
    tree --dirty`, and `twinboot run topic --base mainline` for `twinboot tree topic --base
    mainline`. The base arm is the commit that the range starts from. Nothing in the tree is
    changed. The exit code is the verdict's.
    """
    found = series_of(
        tree_at(folder), wanted, base=base, uncommitted=uncommitted, cache=facts.cache_folder()
    )
    for note in found.notes:
        log(note)
    question = Question(
        overrides=tuple(overrides), mode=mode, series=found.series, source=found.source,
        workloads=workloads, automatic=not workloads, per_patch=per_patch, twins=twins, check=check,
    )  # fmt: skip
    cases = ", ".join(case.name for case in read(question).cases)
    log(f"workloads: {cases}{'' if workloads else ', by the files that the series changes'}")
    run_verb(
        overrides=overrides, series=list(found.series), source=found.source, workloads=workloads,
        auto=not workloads, folder=session, probe=probe, twins=twins, per_patch=per_patch,
        check=check, mode=mode, guests=guests, strict=strict, dry_run=dry_run, executor=executor,
        store=store,
    )  # fmt: skip
