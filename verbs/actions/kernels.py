"""Kernels of an experiment, without a session: built, or named in one key."""

from __future__ import annotations

from errors import SeriesError
from runs.arms import build_arms, cache_key, expect_arms, flavours, kernel_keys
from runs.dry_run import kernel_lines
from runs.progress import Reporter
from runs.request import Request
from verbs.actions.session import building
from verbs.invocation import experiment_of, options, placed, resumable
from verbs.options import ExecutorOptions
from verbs.output import emit, write_out


def build(request: Request, where: ExecutorOptions, *, dry_run: bool, as_json: bool) -> None:
    """Build every kernel that is not in the cache, and print where each is."""
    experiment = experiment_of(request)
    if dry_run:
        write_out("\n".join(kernel_lines(experiment, options())))
        return
    reporter = Reporter()
    failures: dict[str, dict[str, SeriesError]] = {}
    with resumable(), placed(options(), where, reporter) as on:
        expect_arms(experiment, on, flavours(experiment))
        built = {
            flavour: build_arms(
                experiment, on, building(reporter), flavour, failures.setdefault(flavour, {})
            )
            for flavour in flavours(experiment)
        }
    rows = [
        {"arm": name, "flavour": flavour, "key": kernel.identity.key, "folder": str(kernel.folder)}
        for flavour, kernels in built.items()
        for name, kernel in kernels.items()
        if name not in failures[flavour]
    ]
    if as_json:
        emit(rows)
    else:
        for row in rows:
            write_out(f"{row['arm']:<10} {row['flavour']:<10} {row['key']}  {row['folder']}")
    lines = [
        f"{arm} ({flavour}): {error.in_one_line}"
        for flavour, by_arm in failures.items()
        for arm, error in by_arm.items()
    ]
    if lines:
        raise SeriesError("; ".join(lines), where="not built")


def show_key(request: Request, *, as_json: bool) -> None:
    """Print one key for all kernels of an experiment."""
    keys = kernel_keys(experiment_of(request), options())
    key = f"kernels-{cache_key(keys)}"
    if as_json:
        emit({"key": key, "kernels": [{"arm": a, "flavour": f, "key": k}
                                      for (f, a), k in keys.items()]})  # fmt: skip
        return
    write_out(key)
