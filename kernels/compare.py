"""Two finished kernels read from the cache and compared, for ``kernels.triage``."""

from __future__ import annotations

from collections.abc import Sequence

from kernels import compiled, symbols
from kernels.blame import new_warnings
from kernels.cache import Kernel
from kernels.triage import triage
from results.record import PatchRecord, TriageRecord


def compare(base: Kernel, patched: Kernel, patches: Sequence[PatchRecord]) -> TriageRecord:
    """What the builds of both arms say of a series; either arm may be the one with patches.

    Raises:
        InfraError: a table of symbols cannot be read.
    """
    # With a series taken out, the base is the arm that has patches.
    touched = compiled.load(patched.touched) or compiled.load(base.touched)
    return triage(
        same_code=base.identity.code_key == patched.identity.code_key,
        before=symbols.load(base.symbols),
        after=symbols.load(patched.symbols),
        touched=touched,
        patches=patches,
        warnings=new_warnings(_log(base), _log(patched)),
    )


def _log(kernel: Kernel) -> str:
    try:
        return kernel.build_log.read_text(errors="replace")
    except OSError:
        return ""
