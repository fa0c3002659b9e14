"""CPUs that meet at one lock, as a closed queue: pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def lock_throughput(
    cpus: int, apart: ArrayLike, held: ArrayLike, handover: ArrayLike
) -> NDArray[np.float64]:
    """Acquisitions of one lock in a unit of time, by so many CPUs that do nothing else.

    The times are numbers or arrays of one shape, which is the result's.

    A CPU spends ``apart`` without the lock and ``held`` with it, on average, both exponentially
    distributed; a lock that is let go of while somebody waits takes ``handover`` more until that
    one has it.  That is a birth and death process of the CPUs at the lock: one leaves without it
    at the rate (cpus - k) / apart, and one is done with it at 1 / held while it is alone, at
    1 / (held + handover) while others wait.  A lock that hands over along a queue (MCS, and
    Linux's qspinlock) takes as long however many wait, so the rate falls no further: Aksenov,
    Bolotov and Kuznetsov, arXiv 2110.05545 (2021), where their model of MCS locks is checked
    against machines; the chain is that of Boyd-Wickizer, Kaashoek, Morris and Zeldovich,
    "Non-scalable locks are dangerous" (Linux Symposium 2012).

    Raises:
        ValueError: no CPU, a time below zero, or a lock that takes no time.
    """
    apart, held, handover = np.broadcast_arrays(
        *(np.asarray(times, np.float64) for times in (apart, held, handover))
    )
    if cpus < 1 or (apart < 0).any() or (held <= 0).any() or (handover < 0).any():
        raise ValueError(f"no queue: {cpus} CPUs, times {apart}, {held}, {handover}")
    alone, waited_for = 1 / held, 1 / (held + handover)
    never = apart == 0
    arriving = np.where(never, 1.0, apart)
    # Probabilities of k at the lock, relative to that of the one before it.
    weight, total = np.ones(held.shape), np.ones(held.shape)
    served = np.zeros(held.shape)
    for at_lock in range(1, cpus + 1):
        rate = alone if at_lock == 1 else waited_for
        weight = weight * ((cpus - at_lock + 1) / arriving / rate)
        total = total + weight
        served = served + weight * rate
        # Thousands of CPUs at a lock that is hardly left would overflow.
        large = total > 1e200
        if large.any():
            by = np.where(large, total, 1.0)
            weight, total, served = weight / by, total / by, served / by
    return np.where(never, alone if cpus == 1 else waited_for, served / total)
