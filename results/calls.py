"""Who calls whom in the kernels of a session, as read from their images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import model_validator

from results.record import Record


class Calls(Record):
    """Functions of a kernel by name, as a profile has them, and what their code refers to.

    ``callees`` are, for each of ``names``, the positions in it of functions that its code calls,
    jumps to or holds the address of.  ``pointed`` are positions of functions whose address is in
    data, so that any function of ``indirect`` (which call through pointers) may call them, and
    ``boot`` those of functions that are executed at boot alone and thrown away.
    """

    names: tuple[str, ...]
    callees: tuple[tuple[int, ...], ...]
    pointed: tuple[int, ...] = ()
    indirect: tuple[int, ...] = ()
    boot: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _positions_are_of_names(self) -> Calls:
        positions = {*self.pointed, *self.indirect, *self.boot}.union(*self.callees)
        many = len(self.names)
        if len(self.callees) > many or not positions <= {*range(many)}:
            raise ValueError(f"there are {many} names, and a position is of none")
        return self

    def edges(self) -> dict[str, set[str]]:
        """Callees by caller."""
        return {
            self.names[caller]: {self.names[callee] for callee in callees}
            for caller, callees in enumerate(self.callees)
        }

    def named(self, positions: Iterable[int]) -> set[str]:
        """The names at some positions."""
        return {self.names[position] for position in positions}


def calls_of(
    edges: Mapping[str, Iterable[str]],
    *,
    pointed: Iterable[str] = (),
    indirect: Iterable[str] = (),
    boot: Iterable[str] = (),
) -> Calls:
    """The same of sets of names; a name that is nobody's caller has no callees."""
    called = (callee for callees in edges.values() for callee in callees)
    names = tuple(sorted({*edges, *called, *pointed, *indirect, *boot}))
    at = {name: position for position, name in enumerate(names)}

    def positions(of: Iterable[str]) -> tuple[int, ...]:
        return tuple(sorted(at[name] for name in of))

    return Calls(
        names=names,
        callees=tuple(positions(edges.get(name, ())) for name in names),
        pointed=positions(pointed),
        indirect=positions(indirect),
        boot=positions(boot),
    )


def together(all_calls: Iterable[Calls]) -> Calls:
    """What several kernels have, put together: a call that one of them makes is a call."""
    edges: dict[str, set[str]] = {}
    sets: tuple[set[str], set[str], set[str]] = (set(), set(), set())
    for calls in all_calls:
        for caller, callees in calls.edges().items():
            edges.setdefault(caller, set()).update(callees)
        for names, positions in zip(sets, (calls.pointed, calls.indirect, calls.boot), strict=True):
            names |= calls.named(positions)
    return calls_of(edges, pointed=sets[0], indirect=sets[1], boot=sets[2])
