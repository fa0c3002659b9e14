"""A kernel that nobody has tried: configured, built, booted, measured against itself, and read.

One workload with one seed: the kernel twice as two arms, and one of the runs once more.  What is
not as it has to be comes with its next step.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from errors import LabError
from host import facts
from host.doctor import DoctorCheck
from kernels import cache
from kernels.cache import Kernel
from reports.lock_identity import catalogue
from reports.many import SessionComparison
from reports.write import read_comparison
from results.record import RunRecord
from results.session import open_session
from runs import names
from runs.coverage import functions_of, shipped
from runs.names import NameUse
from runs.request import Request
from verbs.actions import session
from verbs.invocation import options
from verbs.options import Measuring

WORKLOAD = "filemap-4k"
# Names and options beyond these are counted only.
NAMED = 8
WITHOUT_IT = "what it is for is not measured, or is under another name"


@dataclass(frozen=True)
class KernelTrial:
    """What was tried, in order, and where the runs are; ``session`` is empty where none began."""

    checks: tuple[DoctorCheck, ...]
    session: str = ""


def source_of(kernel: str, here: Path) -> str:
    """A kernel's source by what a user names: a tree's folder is its HEAD, else itself."""
    place = here / Path(kernel).expanduser()
    if not place.is_dir():
        return kernel
    return f"git:{place.resolve()}" if (place / ".git").exists() else f"dir:{place.resolve()}"


def try_kernel(source: str, folder: Path | None = None) -> KernelTrial:
    """Try a kernel; the session is kept in ``folder``, or in a temporary one."""
    target = folder or Path(tempfile.mkdtemp(prefix="kernel-trial-")) / "session"
    request = Request(
        arms=(source, source), workloads=WORKLOAD, overrides=("guest=smoke",), twins=False, seeds=1
    )
    where = Measuring(measure_anyway=True)
    try:
        session.measure(request, options(where), where, folder=target)
    except LabError as error:
        # Of what a kernel has to pass the first that it does not; no run, nothing more to read.
        return KernelTrial((_failed("configuration and build", error),))
    comparison = read_comparison(target)
    manifest = comparison.manifest
    kernel = cache.load(facts.cache_folder(), manifest.arms[0].kernel.key)
    checks = [*_of_runs(comparison, open_session(target).records, target)]
    if kernel is not None:
        checks = [_of_configuration(kernel), *checks, *_of_names(kernel), _of_coverage(kernel)]
    return KernelTrial(tuple(checks), str(target))


def _failed(name: str, error: LabError) -> DoctorCheck:
    return DoctorCheck(name, "fail", error.what, error.where, error.next_step)


def _of_configuration(kernel: Kernel) -> DoctorCheck:
    notes = kernel.identity.options
    if not notes:
        return DoctorCheck("configuration", "ok", "every option came out as asked", "")
    return DoctorCheck(
        "configuration", "warn", f"{kernel.identity.release}: {'; '.join(notes)}",
        "other releases were measured with the option that was asked first",
        "nothing, or --config CONFIG_X=y for another choice; configs/kconfig/options.toml has them",
    )  # fmt: skip


def _of_runs(
    comparison: SessionComparison, records: Sequence[RunRecord], folder: Path
) -> Iterator[DoctorCheck]:
    failed = [record for record in records if record.failure is not None]
    done = len(records) - len(failed)
    if failed:
        failure = failed[0].failure
        assert failure is not None
        yield DoctorCheck(
            f"boot and {WORKLOAD}", "fail", f"{len(failed)} of {len(failed) + done} runs failed",
            f"{failure.kind}: {failure.message}; {'; '.join(failure.evidence[:2])}",
            f"see the console in {folder}, and ./lab.py run noop for a kernel that is known",
        )  # fmt: skip
        return
    yield DoctorCheck(f"boot and {WORKLOAD}", "ok", f"{done} runs, each valid", "")
    exactness = comparison.exactness
    exact = exactness.status == "bit-exact"
    yield DoctorCheck(
        "repeated run", "ok" if exact else "fail", exactness.text,
        "; ".join(exactness.fields), "" if exact else "./lab.py doctor --exact",
    )  # fmt: skip
    first, *others = [dict(each.samples or {}) for each in records if not each.repeat]
    differing = sorted(
        {name for name in first for other in others if other.get(name) != first[name]}
    )
    yield DoctorCheck(
        "A/A", "fail" if differing else "ok",
        f"{len(differing)} of {len(first)} numbers differ" if differing
        else f"{len(first)} numbers, all equal",
        ", ".join(differing[:NAMED]), "./lab.py doctor --exact" if differing else "",
    )  # fmt: skip


def lock_names() -> tuple[NameUse, ...]:
    """The functions that well-known locks are recognised by; each has others beside it."""
    return tuple(
        NameUse(name, "function", f"lock {lock.label}", instead=True)
        for lock in catalogue()
        for name in lock.taken_in
    )


def every_name() -> tuple[NameUse, ...]:
    """All names that the lab leans on, those of reports included."""
    return (*names.every_name(), *lock_names())


def _of_names(kernel: Kernel) -> Iterator[DoctorCheck]:
    uses = every_name()
    absent = names.missing(uses, kernel)
    total = len({(use.kind, use.name) for use in uses})
    if not absent:
        yield DoctorCheck("names", "ok", f"{total} names of functions are looked up by", "")
        return
    lines = names.sentences(absent, kernel)
    more = f"; and {len(lines) - NAMED} more" if len(lines) > NAMED else ""
    yield DoctorCheck(
        "names", "warn", f"{len(lines)} of {total} names are not in {kernel.identity.release}",
        f"{'; '.join(lines[:NAMED])}{more}: {WITHOUT_IT}",
        "add the release's own name beside it, in the file that has it",
    )  # fmt: skip


def _of_coverage(kernel: Kernel) -> DoctorCheck:
    """How many of the kernel's functions the shipped coverage has, which `suggest` goes by."""
    table = shipped(release=kernel.identity.release)
    own = {name for _, name in functions_of(kernel)}
    known = {name for _, name in table.calls}
    share = len(own & known) / len(own) if own else 0.0
    return DoctorCheck(
        "coverage", "ok" if share > 0.9 else "warn",
        f"{share:.0%} of the functions are in the coverage of {table.release}",
        "workloads are chosen by it",
        "" if share > 0.9 else "./lab.py coverage add SESSION, of a session with --workloads all",
    )  # fmt: skip
