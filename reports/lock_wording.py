"""How locks are said, and what twins can and cannot say of them."""

from __future__ import annotations

from reports import count_wording as counts
from reports import wording
from reports.lock_identity import By
from reports.lock_model import LockComparison, LockRow, WaitRow
from reports.paired import Paired

ON_ONE = (
    "One vCPU: hold times and acquisitions are counted exactly, and nobody spins. Lock debugging "
    "is part of these times: they compare the arms and are not those of a kernel without it. A "
    "lock whose holder may sleep counts the sleep, and whoever ran meanwhile."
)
ON_SEVERAL = (
    "vCPUs take turns, so contention is a result of hold times and turns alone: exact and "
    "repeatable under the interleaving named above, and no prediction for a machine with as many "
    "CPUs. Hold times are not shown here, because they include the turns of other vCPUs."
)
REAL = (
    "Times are real nanoseconds of the guest's clock on this host, with its noise in them; twins "
    "have no A/A arm and few blocks, so small differences mean nothing."
)
REAL_ON_ONE = (
    "One vCPU: nobody spins. Lock debugging is part of these times, and so is whatever else the "
    "host did while a lock was held: they compare the arms, roughly."
)
REAL_ON_SEVERAL = (
    "Contention of vCPUs on this host, under lock debugging or tracing: it depends on where they "
    "ran and on what else ran there, and repeats only roughly. Hold times are not shown here."
)
SATURATION = (
    "“Saturates at” is virtual time over hold time: the number of CPUs that keep the lock held "
    "all the time. It assumes one instance of the lock, CPUs that share nothing else, and the "
    "times of this kernel."
)
SCATTER = (
    "A change in parentheses is within the scatter of these runs: it may as well be none "
    "(Student's interval at 95 %)."
)
# Callers of a wait that are named: the nearest say what was being done, the last how the
# kernel was entered.  The JSON form has them all.
NEAREST = 4
# What an identity rests on, where that has to be said.
BY: dict[By, str] = {
    "name": "",
    "sites": "; known by where it was waited for",
    "use": "; taken to be it, because no other of this name is taken nearly as often",
    "number": "; paired by this number alone",
}


def guest(found: LockComparison) -> str:
    """``flavour lockstat, 4 vCPUs, 4 jobs, a timer every 20 µs, 2 seeds``."""
    parts = [
        f"flavour {found.flavour}",
        "1 vCPU" if found.serial else f"{found.vcpus} vCPUs",
        f"{found.jobs} jobs",
    ]
    if found.metronome_ns and not found.in_wall:
        parts.append(f"a timer every {found.metronome_ns / 1000:g} µs")
    many = len(found.seeds)
    blocks = f"{many} block" if many == 1 else f"{many} blocks"
    return ", ".join([*parts, blocks if found.in_wall else wording.seeds(many)])


def banner(found: LockComparison) -> str:
    """Why none of a twin's numbers stand beside the measured ones."""
    if found.other_kernel:
        return "Diagnosis: another kernel, no bandwidth"
    return "Diagnosis: another guest, no bandwidth"


def limits(found: LockComparison) -> str:
    """What this twin can say of locks, and what it cannot."""
    said = ON_ONE if found.serial else ON_SEVERAL
    if found.in_wall:
        said = f"{REAL} {REAL_ON_ONE if found.serial else REAL_ON_SEVERAL}"
    return f"{said} {SCATTER}" if len(found.seeds) > 1 else said


def saturation(found: LockComparison) -> str:
    """What "saturates at" means, and what it assumes."""
    return SATURATION.replace("virtual time", "time") if found.in_wall else SATURATION


def slow_path(found: LockComparison) -> str:
    """How much ran in the slow path of locks; empty where that was not counted."""
    if found.slow_share is None:
        return ""
    before, after = (100 * x for x in (found.slow_share.base, found.slow_share.patched))
    if found.slow_entries is None:
        return (
            f"Slow paths of locks: {before:.2f} % -> {after:.2f} % of all samples of busy CPUs "
            "(perf, by the CPUs' clock)"
        )
    return (
        f"Spin-lock slow path: {before:.3f} % -> {after:.3f} % of all instructions; entered "
        f"{counts.few(found.slow_entries)} times per 1,000 {counts.plural(found.unit_title)}"
    )


def cpus(pair: Paired | None) -> str:
    """Both numbers of CPUs at which a lock saturates; empty where it cannot be said."""
    return "" if pair is None else f"{short_cpus(pair.base)} -> {short_cpus(pair.patched)}"


def short_cpus(value: float) -> str:
    """A number of CPUs; beyond a thousand nobody counts."""
    return f"{value:.1f}" if value < 1000 else "> 1000"


def waiters(row: LockRow) -> str:
    """``__filemap_add_folio 62.28 -> 46.61, ...``: where it was waited for."""
    return ", ".join(
        f"{site.function} {counts.short(site.base)} -> {counts.short(site.patched)}"
        for site in row.waiters
    )


def chain(row: WaitRow) -> str:
    """The nearest callers from the inside out, and the outermost: ``a < b < c < d < ... < e``."""
    callers = row.chain[1:]
    if len(callers) > NEAREST + 2:
        callers = (*callers[:NEAREST], "...", callers[-1])
    return " < ".join(callers)


def identity(row: LockRow) -> str:
    """How the kernels print the lock, and a warning where nothing else identifies it."""
    return f"{', '.join(row.printed)}{BY[row.by]}"
