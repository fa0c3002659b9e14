"""The verb that packs a session to be repeated elsewhere, and repeats one."""

from __future__ import annotations

import enum
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from errors import UsageError
from verbs.cli import flattened
from verbs.invocation import emit, log, options, placed, resumable, write_out
from verbs.options import SESSIONS, Booting, Folder, Json, opt, session_argument

if TYPE_CHECKING:
    from runs.repro import RunAgain

app = typer.Typer(add_completion=False)
MOST_SHOWN = 12


class ReproExit(enum.IntEnum):
    """Exit codes of ``repro --check``; 2, 3 and 4 are those of every verb."""

    SAME = 0
    DIFFERENT = 1


@app.command("repro")
@flattened
def repro_verb(
    where: Booting,
    given: Annotated[Path | None, session_argument("SESSION")] = None,
    output: Annotated[
        Path | None, opt("-o --output ARCHIVE", "archive to write; default: SESSION.tar.gz")
    ] = None,
    check: Annotated[
        Path | None, opt("--check ARCHIVE", "repeat the session of this archive")
    ] = None,
    source: Annotated[
        str,
        opt(
            "--source SOURCE",
            "with --check: the kernel source on this host, if elsewhere than in the archive",
        ),
    ] = "",
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Pack a session into an archive, or repeat an archived session and compare every number.

    Exit codes of --check: 0 every number is equal, 1 some are not.

    Examples:
    ./lab.py repro sessions/NAME -o s.tar.gz  # pack a session
    ./lab.py repro --check s.tar.gz  # repeat it and compare every number
    """
    if (given is None) == (check is None):
        what = "give either SESSION to pack or --check ARCHIVE"
        step = "./lab.py repro SESSION, or ./lab.py repro --check ARCHIVE"
        raise UsageError(what, where="repro", next_step=step)
    if check is not None:
        raise typer.Exit(_repeat(check, source, folder, where, as_json=as_json))
    if source or folder or as_json:
        what = "--source, --session and --json are options of --check"
        raise UsageError(what, where="repro", next_step="leave them out, or add --check ARCHIVE")
    assert given is not None
    from runs import repro

    archive = output or Path(f"{given.resolve().name}.tar.gz")
    names = repro.write_archive(given, archive, options())
    log(f"{len(names)} files, {archive.stat().st_size >> 10} KiB")
    write_out(archive)


def _repeat(
    archive: Path, source: str, folder: Path | None, booting: Booting, *, as_json: bool
) -> ReproExit:
    """Repeat an archive's session wherever is asked; say what differs, and return the exit code."""
    from results.store import MANIFEST
    from runs import repro, session
    from runs.boots import Reporter
    from runs.manifest import tools_of
    from runs.measure import measure
    from runs.resolved import resolve

    reporter = Reporter()
    with (
        # What is asked is whether it comes out again.
        placed(replace(options(booting), kept=None), booting, reporter) as here,
        tempfile.TemporaryDirectory(prefix="twinboot-repro-") as scratch,
    ):
        opened = repro.read_archive(archive, Path(scratch))
        manifest = opened.manifest
        session.require_known(manifest.experiment, archive, here)
        on = session.options_of(manifest, here)
        tools = tools_of(manifest.experiment.kernel.architecture, on)
        differing = list(repro.differs_here(opened, on, tools))
        for line in differing:
            reporter.log(f"differs  {line}")
        experiment = repro.experiment_again(opened, on, source)
        target = folder or session.new_folder(SESSIONS, experiment)
        again = ("repro", "--check", str(archive), "--session", str(target))
        with session.SessionLock(target), resumable(again, target / MANIFEST):
            if (target / MANIFEST).exists():
                prepared, store, on = session.reopen(target, on, reporter.building)
            else:
                prepared, store = session.start(
                    resolve(experiment, checkout=on.checkout, cache=on.cache),
                    on,
                    target,
                    manifest.overrides,
                    reporter.building,
                    manifest.arguments,
                )
            reporter.log(f"session {target}")
            built = repro.differs_built(manifest, prepared)
            for line in built:
                reporter.log(f"differs  {line}")
            measure(prepared, on, store, reporter)
        compared = repro.compare_sessions(repro.kept_in(opened.session), repro.kept_in(target))
        differing += built
    same = all(run.same for run in compared)
    if as_json:
        emit(
            {
                "same": same,
                "differs": differing,
                "runs": [
                    {
                        "run_id": run.run_id,
                        "same": run.same,
                        "result": run.result._asdict(),
                        "numbers": [each._asdict() | {"same": each.same} for each in run.numbers],
                        "counts": [each._asdict() | {"same": each.same} for each in run.counts],
                    }
                    for run in compared
                ],
            }
        )
    else:
        write_out(as_text(differing, compared, manifest.session))
    same = same and not any("code_key" in line for line in built)
    return ReproExit.SAME if same else ReproExit.DIFFERENT


def as_text(differing: Sequence[str], compared: Sequence[RunAgain], name: str) -> str:
    """What differs, then each run with how many of its numbers are the same."""
    lines = [f"{name}, repeated", ""]
    lines += [f"differs: {line}" for line in differing] or [
        "tools, inputs, kernels and guest are identical to the archive's"
    ]
    lines.append("")
    for run in compared:
        equal = [sum(each.same for each in group) for group in (run.numbers, run.counts)]
        result = "identical bytes" if run.result.same else "different bytes"
        lines.append(
            f"{run.run_id:<40} {result}; {equal[0]} of {len(run.numbers)} numbers and "
            f"{equal[1]} of {len(run.counts)} counts equal"
        )
        if not run.result.same:
            lines.append(f"    result: archive {run.result.then}, now {run.result.now or 'none'}")
        wrong = [each for each in (*run.numbers, *run.counts) if not each.same]
        lines += [
            f"    {each.name}: archive {each.then}, now {each.now}" for each in wrong[:MOST_SHOWN]
        ]
        if len(wrong) > MOST_SHOWN:
            lines.append(f"    and {len(wrong) - MOST_SHOWN} more (--json lists all)")
    numbers, counts = (
        sum(len(group) for group in groups)
        for groups in ([run.numbers for run in compared], [run.counts for run in compared])
    )
    different = sum(not run.same for run in compared)
    total = f"{numbers} numbers and {counts} counts of {len(compared)} runs"
    lines.append("")
    if not compared:
        lines.append(
            "nothing to compare: the machine code of both arms was equal, so no run was made"
        )
    elif different:
        lines.append(f"not reproduced: {different} of {len(compared)} runs differ")
    else:
        lines.append(f"reproduced: all {total} are equal")
    return "\n".join(lines)
