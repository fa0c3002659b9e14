"""After how many seeds an exact session is judged, where it may add seeds until it is decided."""

from __future__ import annotations

from typing import NamedTuple

# Each look has a fifth to a half more seeds than the one before: more looks would each have a
# smaller share of the error rates, fewer would measure many seeds that were not needed.
SEED_LOOKS = (8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768)


class Looks(NamedTuple):
    """Numbers of seeds after which a session was or will be judged, in ascending order.

    ``sequential`` is true where seeds are added until the verdicts are decided; then each look
    has a share of the error rates (``reports.looks``).  Otherwise there is one look.
    """

    seeds: tuple[int, ...]
    sequential: bool


def looks_of(first: int, most: int | None, until: int | None = None) -> Looks:
    """The looks of a session that begins with ``first`` seeds and has ``most`` at most.

    ``most`` is None for a fixed number of seeds.  ``until`` ends the looks before ``most``: what
    a session with that many seeds has had so far.
    """
    if most is None:
        return Looks((first,), sequential=False)
    end = most if until is None else min(most, until)
    between = tuple(seeds for seeds in SEED_LOOKS if first < seeds <= end)
    return Looks((first, *between), sequential=True)


def budgets(first: int) -> tuple[int, ...]:
    """The numbers of seeds that may be the most of a session that begins with ``first``."""
    return (first, *(seeds for seeds in SEED_LOOKS if seeds > first))
