"""What a change of the code can have made of a phase's difference, and what it cannot have.  Pure.

Both arms of a session differ in some functions.  A function whose code is the same executes the
same for each call, as long as it is given the same and finds the same in memory.  So the difference
of a phase, in instructions per unit of work, is split into what was executed

1. in the functions that differ,
2. in those that they call or are called from.  Directly, whatever moved there, as far as the
   functions that differ can have called it, which takes an instruction each time, or were called.
   Further away as far as calls carry it: code that is the same calls what it calls as often
   each time, so that a function is called at most as much more (or less), relatively, as the one
   of its callers whose calls moved most.  Of all paths on which a change may have come to a
   function, the one that lets most through counts (the widest path; Pollack 1960, "The maximum
   capacity through a network", solved as Dijkstra's shortest path).  Who leaves work for later
   (``DEFERRED``) calls who does it then,
3. and the rest: there the same code found something else in memory, be it what the change left
   there or what this pair of boots drew.

The sums are exact for each seed; which share of a function's difference is in 2 is decided by its
means over the seeds.  A change is called by the rules of ``analysis.verdict`` for the whole, and it
stands where 1 and 2 together are at least as large as the rest, and have its sign.  How often that
is wrong is simulated and measured (docs/notebook/evidence.md).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from analysis.counts import Floats, Paired, pair
from results.coverage import TRACING
from results.profile import Calls, stem
from results.record import Record

Bools = npt.NDArray[np.bool_]
# Tracepoints call what traces them through trampolines of these names.
TRACEPOINTS = ("__SCT__tp_func_", "__traceiter_")
# Who leaves work for later, with the function that later does it: a flag or a list tells it to, so
# that one is called no more often and calls others more often.
DEFERRED = {
    "task_work_add": (
        "exit_to_user_mode_loop",
        "syscall_exit_to_user_mode",
        "irqentry_exit_to_user_mode",
    ),
    "call_rcu": ("rcu_do_batch", "rcu_core"),
    "__queue_work": ("process_one_work",),
    "raise_softirq_irqoff": ("handle_softirqs",),
    "__raise_softirq_irqoff": ("handle_softirqs",),
}
# Functions of the rest that are named.
NAMED = 4
# Of a function's difference, that makes it one of those that changed.
MOST = 0.5


class Part(Record):
    """A function's share of the rest, in instructions per unit of work."""

    name: str
    difference: float


class Split(Record):
    """A phase's difference in three parts that add up to ``total``, in instructions per unit.

    ``functions`` are those that most of ``rest`` was executed in, the largest first;
    ``linked_with`` are the functions that differ and those of whose difference most was carried to
    them by calls.
    """

    total: Paired
    changed: Paired
    linked: Paired
    rest: Paired
    functions: tuple[Part, ...]
    linked_with: tuple[str, ...] = Field(default=(), exclude=True)

    @property
    def explained(self) -> float:
        """What the functions that differ and those they are linked with moved by."""
        return self.changed.difference + self.linked.difference

    def share(self, part: float) -> float:
        """A difference as a fraction of the base arm."""
        return part / self.total.base if self.total.base else 0.0

    @property
    def stands(self) -> bool:
        """Whether a change of the whole may be called one of what differs."""
        return self.explained * self.total.difference > 0 and abs(self.explained) >= abs(
            self.rest.difference
        )

    def hides(self, change: float) -> bool:
        """Whether the rest hides what the changed code made: both matter, and go against it."""
        explained, rest = self.share(self.explained), self.share(self.rest.difference)
        return explained * rest < 0 and min(abs(explained), abs(rest)) >= change


class Counted(NamedTuple):
    """Kernel functions of one phase, per unit of work: arrays are (seeds, functions) by arm.

    ``total`` is the whole by arm, with what is not in a function: (seeds).
    """

    names: Sequence[str]
    instructions: tuple[Floats, Floats]
    calls: tuple[Floats, Floats]
    total: Sequence[Floats]


class Network(NamedTuple):
    """Who calls whom among the functions of a phase, by their numbers in it."""

    callees: list[list[int]]
    pointed: list[int]
    indirect: frozenset[int]


def network(names: Sequence[str], calls: Calls) -> Network:
    """The calls among these functions; what a phase did not execute carries nothing.

    What a tracepoint runs is called by tracepoints alone, though its address is in data.
    """
    at = {name: number for number, name in enumerate(names)}
    callees: list[list[int]] = [[] for _ in names]
    probes = [number for name, number in at.items() if name.startswith(TRACING)]
    for caller, its in zip(calls.names, calls.callees, strict=True):
        if caller in at:
            known = (calls.names[callee] for callee in its)
            callees[at[caller]] = [at[name] for name in known if name in at]
            if caller.startswith(TRACEPOINTS):
                callees[at[caller]] += probes
    stems = {stem(name): number for name, number in at.items()}
    for leaving, doing in DEFERRED.items():
        later = [stems[name] for name in doing if name in stems]
        if leaving in stems:
            callees[stems[leaving]] += [*later, *(each for n in later for each in callees[n])]
    pointed, indirect = (
        [at[calls.names[position]] for position in positions if calls.names[position] in at]
        for positions in (calls.pointed, calls.indirect)
    )
    others = set(pointed) - set(probes)
    return Network(callees, sorted(others), frozenset(indirect))


def split(counted: Counted, changed: Collection[str], network: Network) -> Split:
    """The three parts of a phase's difference; ``changed`` are names of functions that differ.

    These are as a kernel's symbols have them; parts and clones that a compiler made of a function,
    and functions of one name in several files, are all changed where one of them is.
    """
    differences = counted.instructions[1] - counted.instructions[0]
    stems = {stem(name) for name in changed}
    is_changed = np.array([stem(name) in stems for name in counted.names], dtype=np.bool_)
    shares = np.where(is_changed, 0.0, _linked_shares(counted, is_changed, network))
    own = [np.where(is_changed, arm, 0.0).sum(axis=1) for arm in counted.instructions]
    linked = [(arm * shares).sum(axis=1) for arm in counted.instructions]
    rest = pair(
        *(
            whole - mine - theirs
            for whole, mine, theirs in zip(counted.total, own, linked, strict=True)
        )
    )
    left = differences.mean(axis=0) * np.where(is_changed, 0.0, 1 - shares)
    order = np.argsort(-left * np.sign(rest.difference), kind="stable")
    return Split(
        total=pair(*counted.total),
        changed=pair(*own),
        linked=pair(*linked),
        rest=rest,
        functions=tuple(
            Part(name=counted.names[at], difference=float(left[at]))
            for at in order[:NAMED].tolist()
            if left[at] * rest.difference > 0
        ),
        linked_with=tuple(
            counted.names[at] for at in np.flatnonzero(is_changed | (shares >= MOST)).tolist()
        ),
    )


def _linked_shares(counted: Counted, is_changed: Bools, network: Network) -> Floats:
    """Which share of each function's difference calls can have carried to it, 0 to 1."""
    callees, pointed, indirect = network
    entered = [arm.mean(axis=0) for arm in counted.calls]
    spent = [arm.mean(axis=0) for arm in counted.instructions]
    entries, executed = np.maximum(*entered), np.maximum(*spent)
    # How far two means are apart, of the larger one: 0 to 1.
    moved = _over(np.abs(entered[1] - entered[0]), entries)
    # How much of a relative change gets to a function, and on from it to those that it calls.
    from_changed, through = np.zeros(len(callees)), np.zeros(len(callees))
    for number in np.flatnonzero(is_changed).tolist():
        # Each call takes an instruction.
        near = list({*callees[number], *(pointed if number in indirect else ())})
        from_changed[near] += executed[number]
    width = np.minimum(1.0, _over(from_changed, entries))
    for number, names_of in enumerate(callees):
        its = [each for each in names_of if is_changed[each]]
        if its:
            # No more of its runs are others than call what differs, and it goes round as often.
            share = min(1.0, float(_over(entries[its].sum(), entries[number])))
            width[number] = max(width[number], share)
            through[number] = min(share, float(moved[its].max()))
    passes_on = np.maximum(through, np.minimum(moved, width))
    waiting = [(-passes_on[number], number) for number in np.flatnonzero(width).tolist()]
    heapq.heapify(waiting)
    pointers_reached = False
    while waiting:
        negative, number = heapq.heappop(waiting)
        if -negative < passes_on[number] or is_changed[number]:
            continue
        targets = callees[number]
        if number in indirect and not pointers_reached:
            # The first is the widest.
            targets, pointers_reached = [*targets, *pointed], True
        for target in targets:
            if passes_on[number] > width[target]:
                width[target] = passes_on[number]
                passes_on[target] = max(passes_on[target], min(moved[target], width[target]))
                heapq.heappush(waiting, (-passes_on[target], target))
    apart = np.abs(spent[1] - spent[0])
    return np.where(width >= 1.0, 1.0, _over(np.minimum(apart, width * executed), apart))


def _over(above: npt.ArrayLike, below: npt.ArrayLike) -> Floats:
    """Quotients, 0 where the divisor is not above zero."""
    top, bottom = np.broadcast_arrays(np.asarray(above, float), np.asarray(below, float))
    return np.asarray(np.divide(top, bottom, out=np.zeros(top.shape), where=bottom > 0))
