"""What two builds say about a series before anything is booted.  Pure.

From the tables of functions of both kernels: the same code, a change of these
functions only, or a change of data and layout only; and which touched files are not in
the kernel at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernels.compiled import Touched
from kernels.configure import KCONFIG
from kernels.symbols import CodeChange, FunctionCode, differing
from results.record import FunctionRecord, PatchRecord, TriageRecord

HEADERS = (".h", ".lds.S", ".inc")


def triage(
    *,
    same_code: bool,
    before: Mapping[str, FunctionCode],
    after: Mapping[str, FunctionCode],
    touched: Sequence[Touched],
    patches: Sequence[PatchRecord],
    warnings: Sequence[str] = (),
) -> TriageRecord:
    """Compare two builds.

    ``same_code`` says that all that is loaded is equal; ``before`` and ``after`` are
    the tables of functions of base and patched arm, ``touched`` the files of the
    series in the build that has its patches, ``warnings`` those new in the patched arm.
    """
    changes = () if same_code else differing(before, after)
    functions = tuple(_function(change, touched, patches) for change in changes)
    if same_code:
        verdict = "same code"
    elif functions:
        verdict = "functions"
    else:
        verdict = "data or layout"
    moved = {function.name.partition("@")[0].partition(".")[0] for function in functions}
    findings = {
        entry: finding for entry in touched if (finding := _left_out(entry, moved, same_code))
    }
    return TriageRecord(
        verdict=verdict,
        functions=functions,
        left_out=tuple(_short(entry) for entry in findings if not entry.built or entry.options),
        findings=tuple(findings.values()),
        warnings=tuple(warnings),
    )


def _function(
    change: CodeChange, touched: Sequence[Touched], patches: Sequence[PatchRecord]
) -> FunctionRecord:
    name, _, where = change.name.partition("@")
    # gcc names parts and copies of a function f.cold, f.isra.0, f.constprop.0.
    plain = name.partition("#")[0].partition(".")[0]
    files = [
        entry.file
        for entry in touched
        if any(function.partition(".")[0] == plain for function in entry.functions)
        and (not where or entry.file.rpartition("/")[2] == where.partition("#")[0])
    ]
    file = files[0] if len(files) == 1 else ""
    by = [patch.name for patch in patches if file and file in patch.files]
    if not by:  # code of a header is in every function that uses it
        by = [patch.name for patch in patches if any(f.endswith(HEADERS) for f in patch.files)]
    return FunctionRecord(
        name=change.name, before=change.before, after=change.after, file=file, patches=tuple(by)
    )


def _short(entry: Touched) -> str:
    """``mm/numa.c (CONFIG_NUMA is n)``."""
    options = "; ".join(option.partition(" (")[0] for option in entry.options)
    return f"{entry.file} ({options})" if options else entry.file


def _left_out(entry: Touched, moved: set[str], same_code: bool) -> str:
    options = "; ".join(entry.options)
    if KCONFIG.search(entry.file):
        return f"{entry.file} adds options that are off: {options}" if options else ""
    if not entry.built:
        why = f": {options}" if options else "; no option that decides it was found"
        return f"{entry.file} is not built in this configuration{why}"
    names = {name.partition(".")[0] for name in entry.functions}
    if not same_code and names & moved:
        return ""
    why = f": its change is compiled out, {options}" if options else ""
    return f"{entry.file} is built, and none of its functions changed{why}"
