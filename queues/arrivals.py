"""What a mailbox hands on: new mails in the order they came, and where it is after them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

Positions = Mapping[str, str]


@dataclass(frozen=True)
class Arrival:
    """A mail as it came; ``at`` is when, in seconds since 1970, ``place`` where in the mailbox.

    ``deleted`` is a mail that was taken out of the mailbox.
    """

    raw: bytes
    at: float
    place: str
    deleted: bool = False


@dataclass(frozen=True)
class MailBatch:
    """Some new mails, where the mailbox is after them, and what is to be said of it."""

    arrivals: tuple[Arrival, ...]
    positions: Positions
    notes: tuple[str, ...] = ()


class Mailbox(Protocol):
    """Anything that mails come from."""

    def new(self, positions: Positions, *, since: float, now: float) -> Iterator[MailBatch]:
        """What came after ``positions``, which are empty at the first look.

        A first look hands on no mails from before ``since``.

        Raises:
            InfraError: the mailbox cannot be read; batches before it are good.
        """
        ...
