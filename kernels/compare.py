"""Two finished kernels read from the cache and compared, for ``kernels.triage``."""

from __future__ import annotations

from collections.abc import Sequence

from experiment.spec import PREBUILT
from host import limited
from kernels import compiled, config, symbols
from kernels.blame import new_warnings
from kernels.cache import Kernel
from kernels.triage import triage
from results.record import FunctionRecord, OptionRecord, PatchRecord, TriageRecord

SIZES_ONLY = (
    "the kernels are prebuilt: their functions were compared by size, and those of one size "
    "may differ too"
)


def compare(base: Kernel, patched: Kernel, patches: Sequence[PatchRecord]) -> TriageRecord | None:
    """What the builds of both arms say of a series; either arm may be the one with patches.

    None where they say nothing: a kernel does not name its functions, or only one of
    them is prebuilt.

    Raises:
        InfraError: a table of symbols cannot be read.
    """
    prebuilt = {kernel.identity.flavour == PREBUILT for kernel in (base, patched)}
    if True in prebuilt:
        return _by_size(base, patched) if prebuilt == {True} else None
    # With a series taken out, the base is the arm that has patches.
    touched = compiled.load(patched.touched) or compiled.load(base.touched)
    of_code = triage(
        same_code=base.identity.code_key == patched.identity.code_key,
        before=symbols.load(base.symbols),
        after=symbols.load(patched.symbols),
        touched=touched,
        patches=patches,
        warnings=_warnings(_log(base), _log(patched)),
    )
    besides = {"data": _data(base, patched), "modules": _modules(base, patched)}
    return of_code.model_copy(update=besides)


def _data(base: Kernel, patched: Kernel) -> tuple[FunctionRecord, ...] | None:
    """The variables that differ; None where a kernel's were not kept."""
    before, after = symbols.load_variables(base.symbols), symbols.load_variables(patched.symbols)
    if before is None or after is None:
        return None
    return tuple(
        FunctionRecord(name=each.name, before=each.before, after=each.after)
        for each in symbols.differing_variables(before, after)
    )


def _modules(base: Kernel, patched: Kernel) -> tuple[str, ...]:
    """The files of modules whose code or data differs, or that one kernel alone has."""
    before, after = (
        {file.name: symbols.code_key(file) for file in kernel.modules} for kernel in (base, patched)
    )
    return tuple(n for n in sorted({*before, *after}) if before.get(n) != after.get(n))


def options_apart(base: Kernel, other: Kernel) -> tuple[OptionRecord, ...]:
    """Options that two kernels have otherwise; none where a configuration is not known.

    What Kconfig found out of the host's compilers nobody chose, and a box hides some of them.
    """
    if not (base.config.exists() and other.config.exists()):
        return ()
    first, second = (config.parse(kernel.config.read_text()) for kernel in (base, other))
    return tuple(
        OptionRecord(name=f"CONFIG_{name}", before=first.get(name, ""), after=second.get(name, ""))
        for name in config.differing(first, second)
        if not config.OF_TOOLS.fullmatch(name)
    )


def _warnings(base_log: str, patched_log: str) -> tuple[str, ...]:
    try:
        return limited.call(new_warnings, base_log, patched_log)
    except limited.LimitError as error:
        return (f"the logs of the builds cannot be compared: {error.what}",)


def _by_size(base: Kernel, patched: Kernel) -> TriageRecord | None:
    """Two prebuilt kernels: a size that differs is a change, an equal one says nothing."""
    if not (base.symbols.exists() and patched.symbols.exists()):
        return None
    result = triage(
        same_code=base.identity.code_key == patched.identity.code_key,
        before=symbols.load(base.symbols),
        after=symbols.load(patched.symbols),
        touched=(),
        patches=(),
    )
    if result.verdict == "data or layout":
        return None
    return result.model_copy(update={"findings": (SIZES_ONLY,)} if result.functions else {})


def _log(kernel: Kernel) -> str:
    try:
        return kernel.build_log.read_text(errors="replace")
    except OSError:
        return ""
