"""Units as they are shown: what exact mode counts in virtual time says so."""

from __future__ import annotations

from experiment.spec import Mode
from results.profile import PATH
from results.record import Manifest

# Durations, and what is per second: in exact mode their time is virtual.
DURATIONS = ("s", "ms", "us", "ns")
RATES = ("/s",)
VIRTUAL = "virtual"
# What a path is called where people read it.
INSTRUCTIONS = "instructions"


def shown_unit(unit: str, mode: Mode) -> str:
    """The unit as printed: ``virtual MiB/s`` and ``virtual ns`` in exact mode, else as it is.

    Exact mode counts instructions, and calls one of them a nanosecond: no host has such time.
    A unit that says so already is kept.
    """
    in_time = unit in DURATIONS or unit.endswith(RATES)
    return f"{VIRTUAL} {unit}" if mode == "exact" and in_time and not is_virtual(unit) else unit


def is_virtual(unit: str) -> bool:
    """Whether a unit, as it is shown, is one of virtual time."""
    return unit.startswith(f"{VIRTUAL} ")


def with_shown_units(manifest: Manifest) -> Manifest:
    """The head of a session with the units of its metrics as they are shown."""
    mode = manifest.experiment.mode
    cases = tuple(
        case.model_copy(
            update={
                "metrics": tuple(
                    metric.model_copy(update={"unit": shown_unit(metric.unit, mode)})
                    for metric in case.metrics
                )
            }
        )
        for case in manifest.cases
    )
    return manifest.model_copy(update={"cases": cases})


def shown_name(name: str, unit: str) -> str:
    """A metric's name where no unit stands beside it: ``4k.virtual_bw`` for ``4k.bw``.

    ``unit`` is as shown: only what is in virtual time has another name.
    """
    phase, dot, short = name.rpartition(".")
    return f"{phase}{dot}{VIRTUAL}_{short}" if is_virtual(unit) else name


def read_name(name: str) -> str:
    """A metric's name as people read it: ``4k.instructions`` for what is recorded as ``4k.path``.

    The index that is judged is counted per a standard amount of work; people read what it says of
    one read or operation (:mod:`analysis.operations`).
    """
    phase, dot, short = name.rpartition(".")
    return f"{phase}{dot}{INSTRUCTIONS}" if dot and short == PATH else name


def recorded_name(name: str) -> str:
    """The name on record of a metric that is named either way."""
    phase, dot, short = name.rpartition(".")
    return f"{phase}{dot}{PATH}" if dot and short == INSTRUCTIONS else name
