"""What explains a verdict: a module each, which is found by being in this folder.

A module has an :class:`Explanation`, named ``EXPLANATION``; a count is whole in its module: what it
reads of a profile, its record and its comparison.  Its name is its key in the JSON, and where the
reports have no section of its own for it they make one of its rows.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, cast

from analysis.counts import Recorded
from results.record import Record

R = TypeVar("R", bound=Record)


class HasExplained(Protocol):
    """What has explanations, by name."""

    @property
    def explained(self) -> Mapping[str, tuple[Record, ...]]:
        """A record for each phase, by the explanation's name."""


@dataclass(frozen=True)
class Explanation(Generic[R]):
    """One kind of explanation: ``record`` is what it says of a phase.

    ``rank`` orders explanations.  ``shortened`` is what the JSON has of a record.  A ``part`` is
    what others are made of, and is not shown by itself.
    """

    name: str
    title: str
    rank: int
    record: type[R]
    compare: Callable[[Recorded], Iterable[R]]
    shortened: Callable[[R], R] = lambda record: record
    part: bool = False

    def made(self, recorded: Recorded) -> tuple[R, ...]:
        """A record for each phase that was counted on both arms; made once."""
        return recorded.once(self.name, lambda: tuple(self.compare(recorded)))

    def of(self, compared: HasExplained) -> tuple[R, ...]:
        """The same of two arms that were compared."""
        return cast(tuple[R, ...], compared.explained.get(self.name, ()))


@functools.cache
def by_name() -> dict[str, Explanation[Record]]:
    """Those of all modules of this folder, by their ranks and names."""
    modules = [
        importlib.import_module(f"{__name__}.{each.name}")
        for each in pkgutil.iter_modules(__path__)
    ]
    every = [each for module in modules for each in vars(module).values()]
    named = {each.name: each for each in every if isinstance(each, Explanation)}
    return dict(sorted(named.items(), key=lambda each: each[1].rank))


def explanations() -> tuple[Explanation[Record], ...]:
    """Those that are shown, by their ranks."""
    return tuple(each for each in by_name().values() if not each.part)


class Explained(Mapping[str, tuple[Record, ...]]):
    """Records by the names of explanations, each made at its first use: most forms show few."""

    def __init__(self, make: Callable[[str], tuple[Record, ...]]) -> None:
        self._make = functools.cache(make)

    def __getitem__(self, name: str) -> tuple[Record, ...]:
        return self._make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(by_name())

    def __len__(self) -> int:
        return len(by_name())


def explain(recorded: Recorded) -> Explained:
    """Every explanation of two arms."""
    return Explained(lambda name: by_name()[name].made(recorded))
