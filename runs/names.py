"""Names of a kernel that the lab leans on: functions, files and counters, looked up in one kernel.

Numbers per function are by name, and a name that a release does not have counts nothing.  So each
is looked up, and what is not there is told with what is not counted for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from guests.probe import fold, places
from kernels import btf
from kernels.addresses import text_of
from kernels.cache import Kernel
from workloads.spec import Workload, load_catalogue

# What the compiler makes of a function's name: f.isra.0, f.cold.
PLAIN = re.compile(r"^[0-9a-f]+ [tTwW] ([^.\s]+)", re.M)
# Where the names of counters stand in a source.
COUNTERS = ("mm/vmstat.c", "mm/memcontrol.c", "mm/memcontrol-v1.c", "mm/swap.c")


class NameUse(NamedTuple):
    """A name of a ``kind`` (function, counter, or file without its ending), and who leans on it.

    With ``instead`` the others of the same place do its work where a kernel does not have it.
    """

    name: str
    kind: str
    place: str
    instead: bool = False


def of_workload(workload: Workload) -> Iterator[NameUse]:
    """What one workload counts by: its units, costs and ratios."""
    where = f"workload {workload.name}"
    variants = ("default", *workload.variants)
    for phase in (phase for each in variants for phase in workload.phases_of(each)):
        for unit in (*phase.units, *phase.costs):
            of_unit = f"{where}: {unit.title}"
            yield from (NameUse(name, "function", of_unit) for name in unit.calls)
            counters = filter(None, (unit.counter, unit.cgroup_counter))
            yield from (NameUse(name, "counter", of_unit) for name in counters)
        for ratio in phase.ratios:
            names = (*ratio.calls, *ratio.less)
            yield from (NameUse(name, "function", f"{where}: {ratio.title}") for name in names)


def of_lab() -> Iterator[NameUse]:
    """What the probe watches, and the files whose types are kept."""
    for kind, name in fold.WAITING:
        yield NameUse(name, "function", f"probe: vCPUs that are {kind}", instead=True)
    for kind, names in places.FUNCTIONS.items():
        # That of another architecture does for the one of x86-64.
        instead = kind == "slow"
        yield from (NameUse(name, "function", f"probe: locks, {kind}", instead) for name in names)
    yield from (NameUse(name, "file", "types of structures") for name in btf.FILES)


def every_name() -> tuple[NameUse, ...]:
    """All of them, each once a place."""
    workloads = load_catalogue().values()
    of_all = (use for workload in workloads for use in of_workload(workload))
    return tuple(dict.fromkeys((*of_all, *of_lab())))


def missing(
    uses: Iterable[NameUse], kernel: Kernel, src: Path | None = None
) -> tuple[NameUse, ...]:
    """Those that a kernel does not have; counters and files only where its source is at hand."""
    functions = set(PLAIN.findall(text_of(kernel.system_map)))
    files = [src / file for file in COUNTERS] if src else []
    texts = "".join(file.read_text(errors="replace") for file in files if file.is_file())

    def is_there(use: NameUse) -> bool:
        if use.kind == "function":
            return use.name in functions
        if src is None:
            return True
        if use.kind == "file":
            return (src / f"{use.name}.c").is_file()
        # Some are put together by macros: ITEM("pgscan"), [I(PGSCAN)].
        return re.search(rf"\b{use.name}\b", texts, re.I) is not None

    every = tuple(uses)
    served = {use.place for use in every if use.instead and is_there(use)}
    return tuple(use for use in every if not is_there(use) and use.place not in served)


def sentences(uses: Iterable[NameUse], kernel: Kernel) -> tuple[str, ...]:
    """One line a name: that a kernel does not have it, and everything that leans on it."""
    places: dict[tuple[str, str], list[str]] = {}
    for use in uses:
        places.setdefault((use.kind, use.name), []).append(use.place)
    return tuple(
        f"the {kind} {name} is not in {kernel.identity.release}: {'; '.join(dict.fromkeys(where))}"
        for (kind, name), where in places.items()
    )
