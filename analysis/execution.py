"""What differs between the arms, and which of the functions that differ ran, phase by phase; pure.

What the arms differ by beyond the series is a banner on every form.  A phase in which no function
that differs ran executed the same code on both arms: what differs in it is what each arm's boot and
layout left, and no verdict on the series.  This is decided once, here; whoever judges or shows
reads it from ``Comparison.executions``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from analysis.counts import Recorded, profiled_phases
from analysis.explain.functions import HEADLINES
from analysis.verdict import CALLED, MISSING, Cause, Evidence, Judgement, Verdict
from experiment.spec import PREBUILT
from results.profile import PATH, Calls, Profile, stem
from results.record import ArmRecord, Manifest, Record, RunRecord, patches_apart
from text import enumerated, in_words

DIGEST = 12
# Said of a setting that an arm leaves as it is.
UNSET = "not set"
# Said of an option that a kernel does not have, or whose menu is closed.
ABSENT = "absent"
# Two releases differ by hundreds of options: all of them are in a table that is folded.
NAMED = 8
LEAD = "Beyond the series the arms differ"


class ArmDifference(NamedTuple):
    """One thing that is not the same on all arms; ``values`` has one text an arm."""

    name: str
    values: tuple[str, ...]


def differences(arms: Sequence[ArmRecord]) -> tuple[ArmDifference, ...]:
    """Everything but the patches that differs: source, configuration, compiler, settings.

    Settings are those of :attr:`experiment.arms.ArmSpec.settings`: sysctls, mount options,
    command line and guest shape.
    """
    settings = list(dict.fromkeys(name for arm in arms for name in arm.settings))
    rows = [
        ("source", [arm.kernel.source for arm in arms]),
        ("flavour", [arm.kernel.flavour for arm in arms]),
        ("pages, KiB", [str(arm.kernel.page_kib) for arm in arms]),
        ("configuration, SHA-256", [arm.kernel.config_sha256[:DIGEST] for arm in arms]),
        *((each.name, [*each.values]) for each in options(arms)[:NAMED]),
        ("compiler", [arm.kernel.compiler for arm in arms]),
        *((name, [arm.settings.get(name, UNSET) for arm in arms]) for name in sorted(settings)),
    ]
    return tuple(
        ArmDifference(name, tuple(values)) for name, values in rows if len(set(values)) > 1
    )


def options(arms: Sequence[ArmRecord]) -> tuple[ArmDifference, ...]:
    """Every option of the kernels' configurations that is not the same on all arms.

    First what stands in the place of something else, or is wanted and not there: between two
    releases that may be the preemption model, among hundreds of options that mean nothing.
    """
    before = {option.name: option.before for arm in arms for option in arm.options}
    after = [{option.name: option.after for option in arm.options} for arm in arms]
    notes = " ".join(note for arm in arms for note in arm.kernel.options)
    noted = set(re.findall(r"CONFIG_\w+", notes))
    rows = (
        ArmDifference(name, tuple(own.get(name, value) or ABSENT for own in after))
        for name, value in sorted(before.items(), key=lambda each: each[0] not in noted)
    )
    # What differs from the session's base need not do so between other arms.
    return tuple(row for row in rows if len(set(row.values)) > 1)


def sentences(arms: Sequence[ArmRecord]) -> list[str]:
    """One sentence a difference: ``sysctl vm.swappiness: 10 in swappy, not set in base``."""
    each = []
    for difference in differences(arms):
        having: dict[str, list[str]] = {}
        for arm, value in zip(arms, difference.values, strict=True):
            having.setdefault(value, []).append(arm.name)
        # What was set comes first; what was left alone is the rest.
        ordered = sorted(having.items(), key=lambda item: item[0] == UNSET)
        sides = "; ".join(f"{value} in {in_words(names)}" for value, names in ordered)
        each.append(f"{difference.name}: {sides}")
    return each


# What the compiler splits off a function, and what it puts in front of one.
COLD, PADDING = ".cold", ("__pfx_", "__cfi_")


# What one vCPU that never waits does in a time, as well as the path, is made of its instructions.
BANDWIDTH = "bw"


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


def changed_files(manifest: Manifest) -> tuple[str, ...]:
    """Files of the patches that the two arms differ by, each once."""
    base, patched = (arm.kernel for arm in manifest.arms[:2])
    patches = [patch for series in manifest.series for patch in series.patches]
    own = patches_apart(patches, base, patched)
    return tuple(dict.fromkeys(file for patch in own for file in patch.files))


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
        reason = "no function's code differs: data, layout or this pair's boot made it"
        return _unexplained(judgement, reason) if only_data and called else judgement
    if executed.ran or judgement.cause is Cause.SAME_CODE:
        return judgement
    once = calls.named(calls.boot) if calls else set()
    booted = [name for name in executed.never if name in once]
    before = [f"{enumerated(executed.earlier)} ran before it"] * bool(executed.earlier)
    before += [f"{enumerated(booted)} ran at boot"] * bool(booted)
    # Of what both kernels have, with other contents, which code that is the same may read; what one
    # kernel alone has is read by functions that differ.
    data = [
        each.name
        for each in (triage.data if triage else None) or ()
        if None not in (each.before, each.after)
    ]
    before += [f"data differs ({enumerated(data)})"] * bool(data)
    reason = f"none of the changed functions ran ({enumerated(executed.changed)})"
    if before:
        reason = f"{reason}; {' and '.join(before)}"
    if before and called:
        return _unexplained(judgement, f"{reason}, and what that left in memory may have made it")
    return _instead(judgement, Verdict.NOT_TESTED, Cause.NOT_EXECUTED, reason)


def as_explained(
    judgement: Judgement, evidence: Evidence, recorded: Recorded, at: tuple[str, str]
) -> Judgement:
    """The judgement of a path, or a bandwidth, of which functions that differ executed a part.

    *Unexplained* where the rest, which they cannot have made, is larger than what they and the
    functions that they are linked with moved by, or hides it, in the case and phase ``at``.
    With several vCPUs who waits for whom is in memory, so that nothing is divided there.
    """
    manifest, name = recorded.manifest, evidence.metric.partition(".")[2]
    called, change = judgement.verdict in CALLED, judgement.change
    if manifest.guest.vcpus > 1 or differ_in_settings(manifest):
        return judgement
    # Only instructions for some work or the reciprocal, that moved as these did.
    if change is None or not (name == PATH or name.endswith(BANDWIDTH)):
        return judgement
    # What is counted is looked at where it may matter alone: that takes time.
    if not (called or judgement.verdict is Verdict.NO_CHANGE) or not recorded.ran.get(at):
        return judgement
    of = next((each for each in HEADLINES.made(recorded) if (each.case, each.phase) == at), None)
    if of is None or (split := of.split) is None:
        return judgement
    costlier = (change.estimate > 0) == (name == PATH)
    if called and costlier != (split.total.difference > 0):
        return judgement
    least = manifest.experiment.thresholds.of(evidence.case, evidence.metric).change
    hidden = judgement.verdict is Verdict.NO_CHANGE and split.hides(least)
    if not hidden and (not called or split.stands):
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


def _unexplained(judgement: Judgement, reason: str) -> Judgement:
    return _instead(judgement, Verdict.UNEXPLAINED, Cause.UNEXPLAINED, reason)


def _instead(judgement: Judgement, verdict: Verdict, cause: Cause, reason: str) -> Judgement:
    """The same size with another verdict; what was said of a limit goes with the old one."""
    update = {"verdict": verdict, "cause": cause, "reason": reason, "limit": None}
    return judgement.model_copy(update=update)


def _left_out(manifest: Manifest) -> str:
    """Why two kernels of the same code say nothing of a series; empty where that says all."""
    triage = manifest.triage
    if triage is None or triage.verdict != "same code":
        return ""
    files = sorted(changed_files(manifest))
    kconfig = [file for file in files if file.rpartition("/")[2].startswith("Kconfig")]
    if triage.left_out:
        left_out = enumerated(triage.left_out)
        return f"nothing that the series changes is in this kernel: {left_out}"
    apart = [f"{each.name} {' -> '.join(each.values[:2])}" for each in options(manifest.arms[:2])]
    if apart:
        return f"the kernels differ in their configuration alone: {enumerated(apart)}"
    if kconfig:
        same = "and both kernels have the same configuration"
        return f"the series changes {enumerated(kconfig)}, {same}"
    return ""
