"""What a session would make, and about how long: the plan, shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from errors import InfraError
from host.facts import guests_at_once
from runs.request import Request
from verbs.cli import flattened
from verbs.invocation import emit, log, options, resolved_of, write_out
from verbs.options import SESSIONS, Json

if TYPE_CHECKING:
    from runs.building import KernelForecast
    from runs.local import Options
    from runs.resolved import PlannedCheck, Resolved

app = typer.Typer(add_completion=False)


@app.command("plan")
@flattened
def plan_verb(request: Request, as_json: Json = False) -> None:
    """Show the kernels, runs and checks that a session would make, in order, with an estimate of
    the time.

    Examples:
    ./lab.py plan filemap-v4  # what a session would build and boot, and how long
    ./lab.py plan --series v3.mbox --no-check  # the same for a posting
    """
    resolved = resolved_of(request)
    kernels, problem = _kernels(resolved, options())
    if as_json:
        emit({
            **resolved.plan.model_dump(mode="json"),
            "checks": [_row(check) for check in resolved.checks],
            "kernels": [vars(kernel) for kernel in kernels],
        })  # fmt: skip
    else:
        _print(resolved, kernels)
    if problem:
        raise problem


def _print(resolved: Resolved, kernels: Sequence[KernelForecast]) -> None:
    from runs.boots import duration
    from runs.building import forecast_run

    experiment, plan, checks = resolved.experiment, resolved.plan, resolved.checks
    if kernels:
        log(_kernel_line(kernels))
    if checks:
        log(f"{len(checks)} guests for correctness checks, after the measured runs")
    run = forecast_run(experiment, SESSIONS)
    guest = resolved.measured.guest
    slots = 1 if experiment.mode == "wall" else guests_at_once(guest.memory_mib)
    log(
        f"{len(plan.runs)} runs, {slots} at once: about "
        f"{duration(run.seconds * len(plan.runs) / slots)} (an estimate from "
        f"{duration(run.seconds)} a run, "
        + (
            f"as in {run.session})"
            if run.session
            else "as on the host that coverage was counted on)"
        )
    )
    size = resolved.measured.sizes[resolved.arms[0].spec.name]
    log(
        f"cgroup limit {_mib(size.cgroup_limit_mib)}, file {size.file_mib} MiB, "
        f"brd {_mib(size.brd_mib)}, {size.jobs} jobs"
    )
    judged = [each for each in plan.runs if not each.twin]
    for each in judged:
        write_out(
            f"{each.run_id:<40} seed {each.seed}{'  checks exactness' if each.repeat else ''}"
        )
    for check in checks:
        write_out(f"{check.run_id:<40} {check.does}")
    for each in plan.runs[len(judged) :]:
        write_out(f"{each.run_id:<40} seed {each.seed}")


def _kernels(
    resolved: Resolved, run_options: Options
) -> tuple[tuple[KernelForecast, ...], InfraError | None]:
    """The kernels of a session, or what this host lacks to know them."""
    from runs.building import forecast_kernels

    try:
        return forecast_kernels(resolved, run_options), None
    except InfraError as error:
        return (), error


def _kernel_line(kernels: Sequence[KernelForecast]) -> str:
    from runs.boots import duration

    missing = [kernel for kernel in kernels if not kernel.cached]
    line = f"{len(kernels)} kernels: {len(kernels) - len(missing)} in the cache"
    if not missing:
        return line
    names = ", ".join(f"{kernel.arm} ({kernel.flavour})" for kernel in missing)
    seconds = sum(kernel.seconds for kernel in missing)
    return f"{line}, {len(missing)} to be built, about {duration(seconds)} (an estimate): {names}"


def _row(check: PlannedCheck) -> dict[str, object]:
    return {
        "run_id": check.run_id,
        "arm": check.arm.name,
        "flavour": check.flavour,
        "vcpus": check.vcpus,
        "cases": [case.name for case in check.cases],
        "selftests": list(check.selftests),
    }


def _mib(size: int) -> str:
    return f"{size} MiB" if size else "none"
