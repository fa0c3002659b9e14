"""Who is believed: exact runs are the same bytes everywhere, so workers check each other.  Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

State = Literal["unverified", "verified", "open", "undecided"]


@dataclass(frozen=True)
class Standing:
    """What the answers of several workers to one question say.

    ``verified``: two or more agree, and they are more than any others; ``liars`` are those
    who said something else.  ``open``: they differ and nobody has a majority yet.
    ``undecided``: three or more, and all of them differ.
    """

    state: State
    digest: str = ""
    liars: tuple[str, ...] = ()


def standing(votes: Mapping[str, str]) -> Standing:
    """Judge the digests that workers gave, by worker.

    Two equal answers are believed: a disturbed guest differs somewhere in its hundreds of
    files, and no two disturbances are alike.
    """
    if not votes:
        return Standing("unverified")
    counted = Counter(votes.values()).most_common(2)
    digest, most = counted[0]
    second = counted[1][1] if len(counted) > 1 else 0
    if most > 1 and most > second:
        liars = tuple(sorted(worker for worker, vote in votes.items() if vote != digest))
        return Standing("verified", digest, liars)
    if len(votes) == 1:
        return Standing("unverified", digest)
    return Standing("undecided" if most == 1 and len(votes) > 2 else "open")


def sampled(question: str, one_in: int) -> bool:
    """Whether a question belongs to the share that is always asked twice.

    Drawn by the question itself: a resumed session checks the same ones.  0 checks none.
    """
    if one_in <= 0:
        return False
    drawn = hashlib.sha256(f"check {question}".encode()).digest()
    return int.from_bytes(drawn[:8], "big") % one_in == 0
