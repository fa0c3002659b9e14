"""What two builds of a kernel differ in: functions, data, modules, callers, what is left out."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from errors import InfraError, LabError
from experiment.spec import PREBUILT
from files import written_beside
from host import limited
from kernels import addresses, compiled, config, symbols, vmlinux
from kernels.addresses import FunctionMap, functions_of
from kernels.blame import new_warnings
from kernels.cache import Kernel
from kernels.compiled import Touched
from kernels.config import KCONFIG
from kernels.symbols import FunctionCode, differing, renamed
from results.profile import Calls, calls_of, stem
from results.record import FunctionRecord, OptionRecord, PatchRecord, TriageRecord, patches_apart

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
    """Compare two builds by their tables of functions, the series' files in it and new warnings."""
    changes = () if same_code else differing(before, after)
    functions = tuple(_function(change, touched, patches) for change in changes)
    others = {} if same_code else renamed(before, after)
    # What got another name is in a file's change, and so is who calls it.
    names = {*others.values()}
    callers = {name for name in after if not names.isdisjoint(after[name].names.split())}
    moved = {*map(stem, (*(function.name for function in functions), *names, *callers))}
    left_out, findings = [], []
    for entry in dict.fromkeys(touched):
        options = "; ".join(entry.options)
        names = {stem(name) for name in entry.functions}
        if KCONFIG.search(entry.file):
            finding = f"adds options that are off: {options}" if options else ""
        elif not entry.built:
            why = f": {options}" if options else "; no option that decides it was found"
            finding = f"is not built in this configuration{why}"
        elif same_code or not names & moved:
            why = f": its change is compiled out, {options}" if options else ""
            finding = f"is built, and none of its functions changed{why}"
        else:
            finding = ""
        if finding:
            findings.append(f"{entry.file} {finding}")
        if finding and (options or not entry.built):
            short = "; ".join(option.partition(" (")[0] for option in entry.options)
            left_out.append(f"{entry.file} ({short})" if short else entry.file)
    return TriageRecord(
        verdict="same code" if same_code else "functions" if functions else "data or layout",
        functions=functions,
        renamed=tuple(others.items()),
        left_out=tuple(left_out),
        findings=tuple(findings),
        warnings=tuple(warnings),
    )


def _function(
    change: FunctionRecord, touched: Sequence[Touched], patches: Sequence[PatchRecord]
) -> FunctionRecord:
    name, _, where = change.name.partition("@")
    plain = stem(name)
    files = [
        entry.file
        for entry in touched
        if any(stem(function) == plain for function in entry.functions)
        and (not where or entry.file.rpartition("/")[2] == where.partition("#")[0])
    ]
    file = files[0] if len(files) == 1 else ""
    by = [patch.name for patch in patches if file and file in patch.files]
    if not by:  # code of a header is in every function that uses it
        by = [patch.name for patch in patches if any(f.endswith(HEADERS) for f in patch.files)]
    return change.model_copy(update={"file": file, "patches": tuple(by)})


SIZES_ONLY = (
    "the kernels are prebuilt: their functions were compared by size, and those of one size "
    "may differ too"
)


def compare(base: Kernel, patched: Kernel, patches: Sequence[PatchRecord]) -> TriageRecord | None:
    """What the builds of both arms say of a series, by those of its patches that they differ by.

    None: one is prebuilt or names no functions.
    """
    same_code = base.identity.code_key == patched.identity.code_key
    prebuilt = {kernel.identity.flavour == PREBUILT for kernel in (base, patched)}
    named = base.symbols.exists() and patched.symbols.exists()
    if True in prebuilt and (False in prebuilt or not named):
        return None
    (before, old_data), (after, new_data) = map(symbols.load, (base.symbols, patched.symbols))
    if True in prebuilt:
        # A size that differs is a change, an equal one says nothing.
        by_size = triage(same_code=same_code, before=before, after=after, touched=(), patches=())
        if by_size.verdict == "data or layout":
            return None
        return by_size.model_copy(update={"findings": (SIZES_ONLY,) if by_size.functions else ()})
    try:
        warnings = limited.call(new_warnings, _log(base), _log(patched))
    except limited.LimitError as error:
        warnings = (f"the logs of the builds cannot be compared: {error.what}",)
    # With a series taken out, the base is the arm that has patches.
    touched = compiled.load(patched.touched) or compiled.load(base.touched)
    own = patches_apart(patches, base.identity, patched.identity)
    files = {file for patch in own for file in patch.files}
    of_code = triage(
        same_code=same_code,
        before=before,
        after=after,
        touched=[entry for entry in touched if not files or entry.file in files],
        patches=own,
        warnings=warnings,
    )
    # The variables that differ; None where a kernel's were not kept.
    data = None
    if old_data is not None and new_data is not None:
        data = symbols.differing_variables(old_data, new_data)
    # The files of modules whose code or data differs, or that one kernel alone has.
    old, new = (
        {file.name: symbols.code_key(file) for file in kernel.modules} for kernel in (base, patched)
    )
    modules = tuple(name for name in sorted({*old, *new}) if old.get(name) != new.get(name))
    return of_code.model_copy(update={"data": data, "modules": modules})


def options_apart(base: Kernel, other: Kernel) -> tuple[OptionRecord, ...]:
    """Options that two kernels have otherwise, but for what Kconfig found out of compilers."""
    if not (base.config.exists() and other.config.exists()):
        return ()
    first, second = (config.parse(kernel.config.read_text()) for kernel in (base, other))
    return tuple(
        OptionRecord(name=f"CONFIG_{name}", before=first.get(name, ""), after=second.get(name, ""))
        for name in config.differing(first, second)
        if not config.OF_TOOLS.fullmatch(name)
    )


def _log(kernel: Kernel) -> str:
    try:
        return kernel.build_log.read_text(errors="replace")
    except OSError:
        return ""


SHORT_JUMP = 0xEB
# ff /2 and ff /4: a call and a jump through a register or memory; else through a thunk.
THROUGH, MODRM, CALLS_IT, JUMPS_TO_IT = 0xFF, 0x38, 0x10, 0x20
THUNK = "__x86_indirect"
Longs = NDArray[np.int64]


class CodeReferences(NamedTuple):
    """What :class:`Calls` says of one kernel, by name."""

    edges: dict[str, set[str]]
    pointed: set[str]
    indirect: set[str]
    boot: set[str]

    @classmethod
    def in_table(cls, content: dict[str, Any]) -> CodeReferences:
        """What :func:`of_kernel` keeps."""
        edges = {caller: set(callees) for caller, callees in content["edges"].items()}
        return cls(edges, *(set(content[name]) for name in cls._fields[1:]))


def of_kernels(kernels: Iterable[Kernel]) -> Calls | None:
    """The calls of several kernels together; None where they are not known of all of them.

    A call that one of them makes is a call.
    """
    edges: dict[str, set[str]] = {}
    sets: tuple[set[str], ...] = (set(), set(), set())
    for kernel in {kernel.folder: kernel for kernel in kernels}.values():
        known = of_kernel(kernel)
        if known is None:
            return None
        for caller, callees in known.edges.items():
            edges.setdefault(caller, set()).update(callees)
        for names, more in zip(sets, known[1:], strict=True):
            names |= more
    return calls_of(edges, pointed=sets[0], indirect=sets[1], boot=sets[2])


@lru_cache(maxsize=8)
def of_kernel(kernel: Kernel) -> CodeReferences | None:
    """The calls of one kernel, kept beside it; None of one that the lab did not build, or of arm64.

    Those that other code than this lab's has read are read anew.
    """
    if kernel.identity.arch != "x86_64" or kernel.identity.flavour == PREBUILT:
        return None
    readers = (Path(module.__file__ or "") for module in (addresses, symbols, vmlinux))
    code = b"".join(path.read_bytes() for path in (Path(__file__), *readers))
    version = sha256(code).hexdigest()
    with suppress(InfraError):
        return symbols.load_table(kernel.calls, version, CodeReferences.in_table)
    try:
        functions = functions_of(kernel)
        with tempfile.TemporaryDirectory() as folder:
            unpacked = Path(folder) / "vmlinux"
            vmlinux.extract(vmlinux.read(kernel.image), unpacked)
            sections = symbols.read(unpacked).sections
    except (LabError, OSError, UnicodeError):
        return None
    known = read(functions, sections, functions.table.init)
    fields = {name: sorted(names) for name, names in known._asdict().items() if name != "edges"}
    edges = {caller: sorted(callees) for caller, callees in known.edges.items()}
    with suppress(OSError), written_beside(kernel.calls) as beside:
        symbols.save_table(beside, {"format": version, "edges": edges, **fields})
    return known


def read(
    functions: FunctionMap, sections: Sequence[symbols.Section], init: range
) -> CodeReferences:
    """The calls in a kernel's ``sections``; ``init`` are addresses of what is thrown away."""
    starts = functions.table.starts.view(np.int64)
    names = [name for name, _ in functions.named]
    # One number a pair of caller and callee: numpy sorts numbers much faster than rows.
    pairs: list[Longs] = []
    pointed: set[str] = set()
    indirect: set[str] = set()

    def named(places: Longs) -> set[str]:
        return {names[number] for number in np.unique(functions.owner[places]).tolist()}

    def begun(values: Longs) -> tuple[Longs, Longs]:
        """Which of the values are first instructions of functions: their index and the place."""
        inside = np.flatnonzero((values >= starts[0]) & (values <= starts[-1]))
        places = np.searchsorted(starts, values[inside])
        hits = (starts[places] == values[inside]) & functions.is_entry[places]
        return inside[hits], places[hits]

    for section in sections:
        if not section.flags & symbols.SHF_ALLOC or len(section.data) < 8:
            continue
        data = np.frombuffer(section.data, np.uint8)
        if not section.is_code:
            words = data[: len(data) // 8 * 8].view("<i8").astype(np.int64)
            pointed |= named(begun(words)[1])
            continue
        fields = np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(data, 4))
        values = fields.view("<i4").ravel().astype(np.int64)
        first = np.array(section.address, np.uint64).view(np.int64)
        here = first + np.arange(len(values), dtype=np.int64)
        jumps = np.flatnonzero(data[:-1] == SHORT_JUMP)
        short = first + jumps + 2 + data[jumps + 1].view("<i1").astype(np.int64)
        for source, targets in ((here, here + 4 + values), (here, values), (first + jumps, short)):
            at, places = begun(targets)
            callers = np.searchsorted(starts, source[at], side="right") - 1
            pairs.append(functions.owner[callers] * len(names) + functions.owner[places])
        through = (data[:-1] == THROUGH) & np.isin(data[1:] & MODRM, (CALLS_IT, JUMPS_TO_IT))
        callers = np.searchsorted(starts, first + np.flatnonzero(through), side="right") - 1
        indirect |= named(np.unique(callers))
    edges: dict[str, set[str]] = {}
    for pair in np.unique(np.concatenate(pairs)).tolist() if pairs else ():
        caller, callee = divmod(pair, len(names))
        if caller != callee:
            edges.setdefault(names[caller], set()).add(names[callee])
    indirect |= {
        name for name, callees in edges.items() if any(each.startswith(THUNK) for each in callees)
    }
    low, high = (np.array(bound, np.uint64).view(np.int64) for bound in (init.start, init.stop))
    boot = named(np.flatnonzero((starts >= low) & (starts < high)))
    return CodeReferences(edges, pointed, indirect, boot)
