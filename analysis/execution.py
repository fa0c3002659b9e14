"""Which of the functions that differ between two arms ran, phase by phase; pure.

A phase in which none of them ran executed the same code on both arms: what differs in it is what
each arm's boot and layout left, and no verdict on the series.  This is decided once, here; whoever
judges or shows reads it from ``Comparison.executions``.
"""

from __future__ import annotations

from collections.abc import Sequence

from analysis.counts import Recorded, profiled_phases
from analysis.differences import options
from analysis.explain.functions import Attribution
from analysis.linked import Split, stem
from analysis.verdict import CALLED, MISSING, Cause, Evidence, Judgement, Verdict
from experiment.spec import PREBUILT
from results.calls import Calls
from results.profile import PATH, Profile
from results.record import Manifest, Record, RunRecord
from text import enumerated

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
    for case, phase, blocks in (
        profiled_phases(Recorded(manifest, records, profiles)) if names else ()
    ):
        counted = {
            name
            for block in blocks
            for profile in (block.base, block.patched)
            for function in profile.kernel
            if function.instructions
            for name in (function.name, stem(function.name))
        }
        ran = [name for name in names if (name if COLD in name else stem(name)) in counted]
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
    compared by size alone, a module differs, or no function's code does.
    """
    triage = manifest.triage
    if (
        triage is None
        or triage.modules
        or any(arm.kernel.flavour == PREBUILT for arm in manifest.arms)
    ):
        return ()
    plain = (each.name.partition("@")[0].partition("#")[0] for each in triage.functions)
    return tuple(dict.fromkeys(name for name in plain if not name.startswith(PADDING)))


def differ_in_settings(manifest: Manifest) -> bool:
    """Whether the arms differ in more than their kernels, so that all code may act otherwise."""
    base, patched = manifest.arms[:2]
    return base.settings != patched.settings or base.guest != patched.guest


def as_tested(
    judgement: Judgement, manifest: Manifest, executed: Execution | None, calls: Calls | None
) -> Judgement:
    """The judgement of a metric of this phase, where nothing that differs ran in it.

    *Not tested*, and the size stays: it is the noise of this pair of kernels.  Where something that
    differs may have left something in memory that acts in this phase, a change is *unexplained*
    instead: functions that ran earlier in the same guests, or at boot alone, and data.
    """
    if differ_in_settings(manifest) or judgement.verdict in (None, *MISSING):
        return judgement
    left_out = _left_out(manifest)
    if left_out and judgement.verdict is Verdict.NO_CHANGE:
        return _instead(judgement, Verdict.NOT_TESTED, Cause.NOT_BUILT, left_out)
    triage, called = manifest.triage, judgement.verdict in CALLED
    if executed is None:
        only_data = triage and triage.verdict == "data or layout" and not triage.modules
        return _unexplained(judgement, ONLY_DATA) if only_data and called else judgement
    if executed.ran or judgement.cause is Cause.SAME_CODE:
        return judgement
    once = calls.named(calls.boot) if calls else set()
    booted = [name for name in executed.never if name in once]
    before = [f"before it ran {enumerated(executed.earlier)}"] * bool(executed.earlier)
    before += [f"at boot {enumerated(booted)}"] * bool(booted)
    data = data_in_place(manifest)
    before += [f"data differs ({enumerated(data)})"] * bool(data)
    reason = f"none of the changed functions ran ({enumerated(executed.changed)})"
    if before:
        reason = f"{reason}; {' and '.join(before)}"
    if before and called:
        return _unexplained(judgement, f"{reason}, and what that left in memory may have made it")
    return _instead(judgement, Verdict.NOT_TESTED, Cause.NOT_EXECUTED, reason)


def as_explained(
    judgement: Judgement, evidence: Evidence, manifest: Manifest, of: Attribution | None
) -> Judgement:
    """The judgement of a path, or a bandwidth, of which functions that differ executed a part.

    *Unexplained* where the rest, which they cannot have made, is larger than what they and the
    functions that they are linked with moved by, or hides it.  ``of`` is the phase's headline.
    With several vCPUs who waits for whom is in memory, so that nothing is divided there.
    """
    split = of.split if of else None
    if split is None or of is None or manifest.guest.vcpus > 1 or differ_in_settings(manifest):
        return judgement
    if not _follows(judgement, evidence.metric, split):
        return judgement
    change = manifest.experiment.thresholds.of(evidence.case, evidence.metric).change
    hidden = judgement.verdict is Verdict.NO_CHANGE and split.hides(change)
    if not hidden and (judgement.verdict not in CALLED or split.stands):
        return judgement
    functions = ", ".join(f"{part.name} {part.difference:+,.0f}" for part in split.functions)
    named = f": {functions} instructions per {of.unit_title}" if functions else ""
    explained, rest = split.share(split.explained), split.share(split.rest.difference)
    return _unexplained(
        judgement,
        f"the changed functions with what they call and are called from make "
        f"{100 * explained:+.2f} %, code that is the same {100 * rest:+.2f} % (memory or this "
        f"pair's boots){named}",
    )


def _follows(judgement: Judgement, metric: str, split: Split) -> bool:
    """Whether a metric is instructions for some work, or the reciprocal, and moved as they did."""
    name = metric.partition(".")[2]
    if judgement.change is None or not (name == PATH or name.endswith(BANDWIDTH)):
        return False
    costlier = (judgement.change.estimate > 0) == (name == PATH)
    return judgement.verdict not in CALLED or costlier == (split.total.difference > 0)


# What one vCPU that never waits does in a time, as well as the path, is made of its instructions.
BANDWIDTH = "bw"
# Of two kernels whose functions are the same.
ONLY_DATA = "no function's code differs: data, layout or this pair's boot made it"


def _unexplained(judgement: Judgement, reason: str) -> Judgement:
    return _instead(judgement, Verdict.UNEXPLAINED, Cause.UNEXPLAINED, reason)


def _instead(judgement: Judgement, verdict: Verdict, cause: Cause, reason: str) -> Judgement:
    """The same size with another verdict; what was said of a limit goes with the old one."""
    update = {"verdict": verdict, "cause": cause, "reason": reason, "limit": None}
    return judgement.model_copy(update=update)


def data_in_place(manifest: Manifest) -> tuple[str, ...]:
    """Variables that both kernels have with other contents, which code that is the same may read.

    What one kernel alone has is read by functions that differ.  Empty where it is not known.
    """
    data = manifest.triage.data if manifest.triage else None
    return tuple(each.name for each in data or () if None not in (each.before, each.after))


def _left_out(manifest: Manifest) -> str:
    """Why two kernels of the same code say nothing of a series; empty where that says all."""
    triage = manifest.triage
    if triage is None or triage.verdict != "same code":
        return ""
    files = {file for series in manifest.series for patch in series.patches for file in patch.files}
    kconfig = sorted(file for file in files if file.rpartition("/")[2].startswith("Kconfig"))
    if triage.left_out:
        names = enumerated(triage.left_out)
        return f"nothing that the series changes is in this kernel: {names}"
    apart = [f"{each.name} {' -> '.join(each.values[:2])}" for each in options(manifest.arms[:2])]
    if apart:
        names = enumerated(apart)
        return f"the kernels differ in their configuration alone: {names}"
    if kconfig:
        names = enumerated(kconfig)
        return f"the series changes {names}, and both kernels have the same configuration"
    return ""
