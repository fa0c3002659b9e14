"""Verbs about this host, its cache, and a kernel that nobody has tried: doctor, list,
fetch, clean.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from errors import Exit, LabError, UsageError
from host import facts
from host.doctor import DoctorCheck, judged
from runs.request import Request
from verbs import session
from verbs.invocation import emit, log, options, write_out
from verbs.options import CHECKOUT, Folder, Json, Measuring, opt

if TYPE_CHECKING:
    from analysis.many import SessionComparison
    from kernels.cache import Kernel
    from results.record import RunRecord
    from runs.manifest import NameUse

app = typer.Typer(add_completion=False)


@app.command("doctor")
def doctor_verb(
    wall: Annotated[
        bool, opt("--wall", "also check whether this host is fit for wall mode")
    ] = False,
    strict: Annotated[bool, opt("--strict", "exit 3 if there is any warning")] = False,
    kernel: Annotated[
        str,
        opt(
            "--kernel TREE",
            "try a kernel instead: configure, build, boot and measure it, and look names up",
        ),
    ] = "",
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Check this host, and print the command that fixes each problem.

    Examples:
    ./lab.py doctor  # what is missing, and the command that installs it
    ./lab.py doctor --wall --strict  # whether this host is fit for wall mode
    ./lab.py doctor --kernel ../linux  # whether a kernel that nobody tried works
    """
    from experiment import load
    from host import doctor, facts, fitness

    if (folder and not kernel) or (wall and kernel):
        name = "--wall" if kernel else "--session"
        what = "is of checks without --kernel" if kernel else "none is made without --kernel"
        raise UsageError(what, where=name, next_step="leave it out, or see doctor --help")
    if kernel:
        checks = try_kernel(source_of(kernel, Path.cwd()), folder)
        emit(checks) if as_json else write_out(doctor.as_text(checks))
        if doctor.worst(checks) == "fail" or (strict and doctor.worst(checks) != "ok"):
            raise typer.Exit(Exit.INFRASTRUCTURE)
        return
    checks = doctor.run_checks()
    if wall:
        guest = load.load_guest(Path("wall"))
        checks = (
            *checks,
            *fitness.wall_checks(
                facts.cache_folder(), guest_mib=guest.memory_mib, vcpus=guest.vcpus
            ),
        )
    text = f"{doctor.as_text(checks)}\n\n{doctor.conclusion(checks)}"
    emit(checks) if as_json else write_out(text)
    if strict:
        fitness.require_fit(checks)
    if doctor.worst(checks) == "fail":
        raise typer.Exit(Exit.INFRASTRUCTURE)


@app.command("list")
def list_verb(as_json: Json = False) -> None:
    """List experiments, workloads, guests, series and cached kernels.

    Examples:
    ./lab.py list  # names that other commands accept
    ./lab.py list --json  # the same for a script
    """
    from experiment import load
    from experiment.machine import names_in
    from host import facts
    from kernels import cache as kernel_cache
    from kernels.series import known_series
    from workloads.spec import read_catalogue

    workloads, broken = read_catalogue()
    names: dict[str, list[str]] = {
        "experiments": list(names_in(load.EXPERIMENTS)),
        "workloads": [
            *(f"{workload.name}: {workload.title}" for workload in workloads.values()),
            *(f"{name}: cannot be used: {'; '.join(why)}" for name, why in broken.items()),
        ],
        "guests": list(names_in(load.GUESTS)),
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
        Path | None, opt("--into FOLDER", "unpack it there as well; a new folder")
    ] = None,
    suite: Annotated[
        list[str] | None, opt("--suite", "releases to look in; default: sid, backports, testing")
    ] = None,
    mirror: Annotated[str, opt("--mirror URL", "archive; default: the host's own")] = "",
    keyring: Annotated[str, opt("--keyring FILE", "keys of the archive")] = "",
) -> None:
    """Fetch a kernel of a newer Debian than this host's; nothing is installed.

    Lists and package are kept in the cache, by apt and its keys; the host's own lists stay as they
    are. Afterwards the package can be named like the host's own ones.

    Examples:
    ./lab.py fetch linux-source-7.3  # then: --source deb:linux-source-7.3
    ./lab.py fetch linux-source-7.3 --into ../linux-7.3  # lay it out as well
    """
    from host import facts
    from kernels import cache as kernel_cache
    from kernels import packages, source

    if into is not None and into.exists():
        raise UsageError("is there already", where=str(into), next_step="name a new folder")
    if keyring and not Path(keyring).is_file():
        raise UsageError("no such file", where=f"--keyring {keyring}", next_step="name a file")
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
    ] = 6.0,
) -> None:
    """Shrink the cache: downloaded packages go first, then what was not used for longest.

    Examples:
    ./lab.py clean  # shrink the cache to 6 GiB
    ./lab.py clean --max-gib 5  # keep less
    """
    from host import facts
    from kernels import cache as kernel_cache

    cleaned = kernel_cache.clean(facts.cache_folder(), max_gib)
    for entry in cleaned.removed:
        write_out(entry)
    log(f"{cleaned.freed >> 20} MiB freed, {cleaned.left >> 20} MiB left")


WORKLOAD = "filemap-4k"
# Names and options beyond these are counted only.
NAMED = 8


def source_of(kernel: str, here: Path) -> str:
    """A kernel's source by what a user names: a tree's folder is its HEAD, else itself."""
    place = here / Path(kernel).expanduser()
    if not place.is_dir():
        if ":" not in kernel:
            step = "name a kernel tree, deb:PACKAGE, tarball:FILE, git:FOLDER@REF or image:FILE"
            raise UsageError("no such folder", where=f"--kernel {kernel}", next_step=step)
        return kernel
    return f"git:{place.resolve()}" if (place / ".git").exists() else f"dir:{place.resolve()}"


def try_kernel(source: str, folder: Path | None = None) -> tuple[DoctorCheck, ...]:
    """Try a kernel, check by check; the session is kept in ``folder``, or in a temporary one."""
    from guests.channel import read_result
    from kernels import cache
    from reports.forms import read_comparison
    from results.session import open_session

    target = folder or Path(tempfile.mkdtemp(prefix="kernel-trial-")) / "session"
    request = Request(
        arms=(source, source), workloads=WORKLOAD, overrides=("guest=smoke",), twins=False, seeds=1
    )
    where = Measuring(measure_anyway=True, measure_again=True)
    try:
        session.measure(request, options(where), where, folder=target)
    except UsageError:
        raise  # nobody tried: it is no kernel
    except LabError as error:
        # Of what a kernel has to pass the first that it does not; no run, nothing more to read.
        name = "configuration and build"
        return (DoctorCheck(name, "fail", error.what, error.where, error.next_step),)
    comparison = read_comparison(target)
    kernel = cache.load(facts.cache_folder(), comparison.manifest.arms[0].kernel.key)
    records = open_session(target).records
    of_runs = _of_runs(comparison, records, target)
    valid = (record.run_id for record in records if record.failure is None)
    sent = read_result(target / "raw" / run / "result") if (run := next(valid, "")) else {}
    account = b"\n".join(sent.values()).decode(errors="replace")
    return (*(_of_kernel(kernel, account) if kernel is not None else ()), *of_runs)


def _of_runs(
    comparison: SessionComparison, records: Sequence[RunRecord], folder: Path
) -> Iterator[DoctorCheck]:
    name = f"boot and {WORKLOAD}"
    failures = [record.failure for record in records if record.failure is not None]
    if failures:
        first = failures[0]
        yield DoctorCheck(
            name,
            "fail",
            f"{len(failures)} of {len(records)} runs failed",
            f"{first.kind}: {first.message}; {'; '.join(first.evidence[:2])}",
            f"see the console in {folder}, and ./lab.py run noop for a kernel that is known",
        )
        return
    yield DoctorCheck(name, "ok", f"{len(records)} runs, each valid", "")
    exactness, mend = comparison.exactness, "use another QEMU (docs/systems.md)"
    inexact, fields = exactness.status != "bit-exact", "; ".join(exactness.fields)
    yield judged("repeated run", exactness.text, "fail" if inexact else "", fields, mend)
    base, *others = [dict(each.samples or {}) for each in records if not each.repeat]
    differing = sorted({name for name in base for each in others if each.get(name) != base[name]})
    equal = f"{len(base)} numbers, all equal"
    text = f"{len(differing)} of {len(base)} numbers differ" if differing else equal
    yield judged("A/A", text, "fail" if differing else "", ", ".join(differing[:NAMED]), mend)


def every_name() -> tuple[NameUse, ...]:
    """All names that the lab leans on, those too by which reports know locks and subsystems."""
    from analysis.explain.functions import BY_BOOT, files_by_heart
    from analysis.explain.locks import catalogue
    from runs import manifest

    by_boot = "functions that are counted apart"
    return (
        *manifest.every_name(),
        *(manifest.NameUse(name, "function", by_boot) for name in BY_BOOT),
        # Under its own name or a later one.
        *(
            manifest.NameUse(name, "file", f"functions of the subsystem of {file}", instead=True)
            for file, later in files_by_heart()
            for name in dict.fromkeys((file, later))
        ),
        # Each has others beside it.
        *(
            manifest.NameUse(name, "function", f"lock {lock.label}", instead=True)
            for lock in catalogue()
            for name in lock.taken_in
        ),
    )


def _of_kernel(kernel: Kernel, account: str) -> Iterator[DoctorCheck]:
    """Its configuration, the names that the lab leans on, and how far `suggest` knows it."""
    from runs import manifest
    from runs.coverage import functions_of, shipped

    release, notes = kernel.identity.release, kernel.identity.options
    yield judged(
        "configuration",
        f"{release}: {'; '.join(notes)}" if notes else "every option came out as asked",
        bool(notes),
        "other releases were measured with the option that was asked first",
        "nothing, or --config CONFIG_X=y for another choice; configs/kconfig/options.toml has them",
    )
    uses = every_name()
    total = len({(use.kind, use.name) for use in uses})
    lines = manifest.sentences(manifest.missing(uses, kernel, account), kernel)
    more = f"; and {len(lines) - NAMED} more" if len(lines) > NAMED else ""
    there = f"{total} names of functions, files and counters"
    yield judged(
        "names",
        f"{len(lines)} of {total} names are not in {release}" if lines else there,
        bool(lines),
        f"{'; '.join(lines[:NAMED])}{more}: what it is for is not measured, or is under another "
        "name",
        "add the release's own name beside it, in the file that has it",
    )
    table = shipped(release=release)
    own, known = ({name for _, name in pairs} for pairs in (functions_of(kernel), table.calls))
    share = len(own & known) / len(own) if own else 0.0
    yield judged(
        "coverage",
        f"{share:.0%} of the functions are in the coverage of {table.release}",
        share <= 0.9,
        "workloads are chosen by it",
        "./lab.py dev coverage add SESSION, of one with --workloads all",
    )
