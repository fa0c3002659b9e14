"""CPUs that meet at one lock, as a closed queue: pure."""

from __future__ import annotations


def lock_throughput(cpus: int, apart: float, held: float, handover: float) -> float:
    """Acquisitions of one lock in a unit of time, by so many CPUs that do nothing else.

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
    if cpus < 1 or apart < 0 or held <= 0 or handover < 0:
        raise ValueError(f"no queue: {cpus} CPUs, times {apart}, {held}, {handover}")
    if apart == 0:
        return 1 / held if cpus == 1 else 1 / (held + handover)
    # Probabilities of k at the lock, relative to that of the one before it.
    weight, total, served = 1.0, 1.0, 0.0
    for at_lock in range(1, cpus + 1):
        rate = 1 / held if at_lock == 1 else 1 / (held + handover)
        weight *= (cpus - at_lock + 1) / apart / rate
        total += weight
        served += weight * rate
        # Thousands of CPUs at a lock that is hardly left would overflow.
        if total > 1e200:
            weight, total, served = weight / total, 1.0, served / total
    return served / total
