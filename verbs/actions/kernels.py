"""Kernels of an experiment, without a session: built, or named in one key."""

from __future__ import annotations

from errors import SeriesError
from runs.building import build_arms, expect_arms
from runs.dry_run import kernel_lines
from runs.progress import Reporter
from runs.request import Request
from runs.resolved import cache_key, kernel_keys
from verbs.actions.session import building
from verbs.invocation import options, placed, resolved_of, resumable
from verbs.options import ExecutorOptions
from verbs.output import emit, write_out


def build(request: Request, where: ExecutorOptions, *, dry_run: bool, as_json: bool) -> None:
    """Build every kernel that is not in the cache, and print where each is."""
    resolved = resolved_of(request)
    if dry_run:
        write_out("\n".join(kernel_lines(resolved, options())))
        return
    reporter = Reporter()
    failures: dict[str, dict[str, SeriesError]] = {}
    with resumable(), placed(options(), where, reporter) as on:
        expect_arms(resolved, on, resolved.flavours)
        built = {
            flavour: build_arms(
                resolved, on, building(reporter), flavour, failures.setdefault(flavour, {})
            )
            for flavour in resolved.flavours
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
    where = options()
    keys = kernel_keys(resolved_of(request), checkout=where.checkout, cache=where.cache)
    key = f"kernels-{cache_key(keys)}"
    if as_json:
        emit({"key": key, "kernels": [{"arm": a, "flavour": f, "key": k}
                                      for (f, a), k in keys.items()]})  # fmt: skip
        return
    write_out(key)
