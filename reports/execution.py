"""Which of the functions that differ between two arms ran, phase by phase; pure.

A phase in which none of them ran executed the same code on both arms: what differs in it is what
each arm's boot and layout left, and no verdict on the series.  This is decided once, here; whoever
judges or shows reads it from ``Comparison.executions``.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiment.spec import PREBUILT
from reports import sentences
from reports.attribution import profiled_phases
from reports.verdict import CALLED, Cause, Judgement, Verdict
from results.profile import Profile
from results.record import Manifest, Record, RunRecord

# What the compiler splits off a function, and what it puts in front of one.
COLD, PADDING = ".cold", ("__pfx_", "__cfi_")


class Execution(Record):
    """The functions that differ between two arms, by what became of them in one phase of a case.

    ``ran`` are those that an arm executed in it with some seed; ``earlier`` are others that the
    same guests executed in a phase before, or in preparation, and whose data may be used in this
    one; ``never`` are the rest.  What a boot executes is not counted.
    """

    case: str
    phase: str
    ran: tuple[str, ...]
    earlier: tuple[str, ...]
    never: tuple[str, ...]

    @property
    def changed(self) -> tuple[str, ...]:
        """All functions that differ."""
        return (*self.ran, *self.earlier, *self.never)


def executions(
    manifest: Manifest, records: Sequence[RunRecord], profiles: Sequence[Profile]
) -> tuple[Execution, ...]:
    """One for each phase that was counted on both arms, in the order of the manifest."""
    names = changed_functions(manifest)
    every: list[Execution] = []
    before: dict[str, set[str]] = {}
    for case, phase, blocks in profiled_phases(manifest, records, profiles) if names else ():
        counted = {
            name
            for block in blocks
            for profile in (block.base, block.patched)
            for function in profile.kernel
            if function.instructions
            for name in (function.name, _stem(function.name))
        }
        ran = [name for name in names if (name if COLD in name else _stem(name)) in counted]
        known = before.setdefault(case.name, set())
        others = [name for name in names if name not in ran]
        every.append(
            Execution(
                case=case.name,
                phase=phase.name,
                ran=tuple(ran),
                earlier=tuple(name for name in others if name in known),
                never=tuple(name for name in others if name not in known),
            )
        )
        known.update(ran)
    return tuple(every)


def changed_functions(manifest: Manifest) -> tuple[str, ...]:
    """The functions whose code differs between the arms, as the kernel's list of symbols has them.

    Empty where that is not known: nothing compared the builds, the kernels are prebuilt and were
    compared by size alone, or no function's code differs.
    """
    triage = manifest.triage
    if triage is None or any(arm.kernel.flavour == PREBUILT for arm in manifest.arms):
        return ()
    plain = (each.name.partition("@")[0].partition("#")[0] for each in triage.functions)
    return tuple(dict.fromkeys(name for name in plain if not name.startswith(PADDING)))


def _stem(name: str) -> str:
    """A function without a suffix of the compiler's, as ``.isra.0``."""
    return name.partition(".")[0]


def differ_in_settings(manifest: Manifest) -> bool:
    """Whether the arms differ in more than their kernels, so that all code may act otherwise."""
    base, patched = manifest.arms[:2]
    return base.settings != patched.settings or base.guest != patched.guest


def as_tested(judgement: Judgement, manifest: Manifest, executed: Execution | None) -> Judgement:
    """The judgement of a metric of this phase; *not tested* where nothing that differs ran in it.

    The size stays: it is the noise of this pair of kernels.  Where a function ran earlier in the
    same guests, what it left may act in this phase: a change stays called then, and only "no
    change" is not said.
    """
    if executed is None or executed.ran or differ_in_settings(manifest):
        return judgement
    if judgement.verdict in (None, Verdict.FAILED) or judgement.cause is Cause.SAME_CODE:
        return judgement
    if executed.earlier and judgement.verdict in CALLED:
        return judgement
    reason = f"none of the changed functions ran ({sentences.listed(executed.changed)})"
    if executed.earlier:
        reason = f"{reason}; before it ran {sentences.listed(executed.earlier)}"
    return judgement.model_copy(
        update={"verdict": Verdict.NOT_TESTED, "reason": reason, "cause": Cause.NOT_EXECUTED}
    )
