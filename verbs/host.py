"""Verbs about this host and its cache: doctor, list, clean."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from errors import Exit, UsageError
from verbs.folders import CHECKOUT
from verbs.options import Folder, Json
from verbs.output import emit, log, write_out

app = typer.Typer(add_completion=False)


@app.command("doctor")
def doctor_verb(
    wall: Annotated[
        bool, typer.Option("--wall", help="also check whether this host is fit for wall mode")
    ] = False,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="also check by booting guests whether this QEMU is bit-exact"),
    ] = False,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix", help="with --wall: print commands that make this host fit, and undo it"
        ),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="exit 3 if there is any warning")
    ] = False,
    kernel: Annotated[
        str,
        typer.Option(
            "--kernel",
            metavar="TREE",
            help="try a kernel instead: configure, build, boot and measure it, and look names up",
        ),
    ] = "",
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Check this host for what the lab needs, and print the command that fixes each problem."""
    from experiment import load
    from host import doctor, facts, fitness, settings

    if kernel:
        from verbs.actions import kernel_trial

        trial = kernel_trial.try_kernel(kernel_trial.source_of(kernel, Path.cwd()), folder)
        emit([vars(check) for check in trial.checks]) if as_json else write_out(
            doctor.as_text(trial.checks)
        )
        if doctor.worst(trial.checks) == "fail" or (strict and doctor.worst(trial.checks) != "ok"):
            raise typer.Exit(Exit.INFRASTRUCTURE)
        return
    if fix:
        if not wall or exact or strict or as_json:
            raise UsageError(
                "--fix prints commands and checks nothing",
                where="--fix",
                next_step="./lab.py doctor --wall --fix",
            )
        write_out(settings.as_shell(settings.to_change()))
        return
    if exact:
        # What boots guests takes seconds to import, which no other check needs.
        from runs.trial import try_exactness

        for difference in try_exactness(facts.cache_folder(), CHECKOUT, log).differences:
            log(f"differs: {difference}")
    checks = doctor.run_checks()
    if wall:
        guest = load.load_guest(Path("wall"))
        checks = (
            *checks,
            *fitness.wall_checks(
                facts.cache_folder(), guest_mib=guest.memory_mib, vcpus=guest.vcpus
            ),
        )
    emit([vars(check) for check in checks]) if as_json else write_out(doctor.as_text(checks))
    if strict:
        fitness.require_fit(checks)
    if doctor.worst(checks) == "fail":
        raise typer.Exit(Exit.INFRASTRUCTURE)


@app.command("list")
def list_verb(as_json: Json = False) -> None:
    """List experiments, workloads, guests, series, and kernels in the cache."""
    from experiment import load
    from host import facts
    from kernels import cache as kernel_cache
    from kernels.patch_folder import known_series
    from workloads.spec import read_catalogue

    workloads, broken = read_catalogue()
    names: dict[str, list[str]] = {
        "experiments": list(load.known_experiments()),
        "workloads": [
            *(f"{workload.name}: {workload.title}" for workload in workloads.values()),
            *(f"{name}: cannot be used: {'; '.join(why)}" for name, why in broken.items()),
        ],
        "guests": list(load.known_guests()),
        "series": list(known_series(CHECKOUT)),
        "kernels": [
            f"{kernel.identity.key}  {kernel.identity.release} {kernel.identity.flavour}, "
            f"{len(kernel.identity.patches)} patches on {kernel.identity.source}"
            for kernel in kernel_cache.cached_kernels(facts.cache_folder())
        ],
    }
    if as_json:
        emit(names)
        return
    for title, entries in names.items():
        write_out(f"{title}:")
        write_out("\n".join(f"  {entry}" for entry in entries) or "  none")


@app.command("fetch")
def fetch_verb(
    package: Annotated[
        str,
        typer.Argument(
            metavar="PACKAGE",
            help="linux-source-7.3, linux-source (the newest), linux-image-RELEASE",
        ),
    ],
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="FOLDER", help="unpack it there as well; a new folder"),
    ] = None,
    suite: Annotated[
        list[str] | None,
        typer.Option("--suite", help="releases to look in; default: sid, backports, testing"),
    ] = None,
    mirror: Annotated[
        str, typer.Option("--mirror", metavar="URL", help="archive; default: the host's own")
    ] = "",
    keyring: Annotated[
        str, typer.Option("--keyring", metavar="FILE", help="keys of the archive")
    ] = "",
) -> None:
    """Fetch a kernel of a newer Debian than this host's; nothing is installed.

    Lists and package are kept in the cache, by apt and its keys; the host's own lists stay as they
    are. Afterwards the package can be named like the host's own ones.
    """
    from host import facts
    from kernels import cache as kernel_cache
    from kernels import packages, source

    newest_source = package == packages.NEWEST
    if not newest_source:
        packages.parts(package)
    cache = facts.cache_folder()
    packages.update(cache, mirror=mirror, suites=suite or (), keyring=keyring)
    name = packages.newest_source(cache) if newest_source else package
    newest = packages.find(packages.fetched(name, cache) or name, cache)
    spec = f"deb:{newest.name_and_version}"
    is_source = newest.name.startswith("linux-source")
    with kernel_cache.locked(cache, kernel_cache.PACKAGES_LOCK):
        files = [packages.fetch(each, cache) for each in (newest, *newest.rest)]
    if into is not None and into.exists():
        raise UsageError("is there already", where=str(into), next_step="name a new folder")
    if into is not None and is_source:
        source.unpack(source.identify(spec, checkout=CHECKOUT, cache=cache), into)
    elif into is not None:
        for file in files:
            packages.unpack(file, into)
    write_out(f"{'--source' if is_source else '--arm'} {spec}")


@app.command("clean")
def clean_verb(
    max_gib: Annotated[
        float, typer.Option(min=0, help="size that the cache may keep, in GiB")
    ] = 20.0,
) -> None:
    """Shrink the cache: downloaded packages go first, then what was not used for longest."""
    from host import facts
    from kernels import cache as kernel_cache

    cleaned = kernel_cache.clean(facts.cache_folder(), max_gib)
    for entry in cleaned.removed:
        write_out(entry)
    log(f"{cleaned.freed >> 20} MiB freed, {cleaned.left >> 20} MiB left")
