"""What explains a verdict: a module each, which is found by being in this folder.

A module has an :class:`Explanation`, named ``EXPLANATION``; a count is whole in its module: what it
reads of a profile, its record and its comparison.  Its name is its key in the JSON, and where the
reports have no section of its own for it they make one of its rows.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, cast

from analysis.counts import Recorded
from results.record import Record

R = TypeVar("R", bound=Record)


class Explained(Protocol):
    """What has explanations, by name."""

    @property
    def explained(self) -> Mapping[str, tuple[Record, ...]]:
        """A record for each phase, by the explanation's name."""


@dataclass(frozen=True)
class Explanation(Generic[R]):
    """One kind of explanation: ``record`` is what it says of a phase.

    ``rank`` orders explanations: one of a higher rank may be made of those of lower ones.
    ``shortened`` is what the JSON has of a record.
    """

    name: str
    title: str
    rank: int
    record: type[R]
    compare: Callable[[Recorded], Iterable[R]]
    shortened: Callable[[R], R] = lambda record: record

    def made(self, recorded: Recorded) -> tuple[R, ...]:
        """A record for each phase that was counted on both arms."""
        return tuple(self.compare(recorded))

    def of(self, explained: Explained) -> tuple[R, ...]:
        """The same of what was explained."""
        return cast(tuple[R, ...], explained.explained.get(self.name, ()))


@functools.cache
def explanations() -> tuple[Explanation[Record], ...]:
    """Those of all modules of this folder, by their ranks."""
    modules = [
        importlib.import_module(f"{__name__}.{each.name}")
        for each in pkgutil.iter_modules(__path__)
    ]
    every = [each for module in modules for each in vars(module).values()]
    by_name = {each.name: each for each in every if isinstance(each, Explanation)}
    return tuple(sorted(by_name.values(), key=lambda each: each.rank))


def explain(recorded: Recorded) -> dict[str, tuple[Record, ...]]:
    """Every explanation of two arms, by name."""
    for each in explanations():
        recorded.explained[each.name] = each.made(recorded)
    return recorded.explained
