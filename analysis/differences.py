"""What the arms differ by beyond the series: a banner on every form; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from results.record import ArmRecord
from text import in_words

DIGEST = 12
# Said of a setting that an arm leaves as it is.
UNSET = "not set"
# Said of an option that a kernel does not have, or whose menu is closed.
ABSENT = "absent"
# Two releases differ by hundreds of options: all of them are in a table that is folded.
NAMED = 8
LEAD = "Beyond the series the arms differ"


class ArmDifference(NamedTuple):
    """One thing that is not the same on all arms; ``values`` has one text an arm."""

    name: str
    values: tuple[str, ...]


def differences(arms: Sequence[ArmRecord]) -> tuple[ArmDifference, ...]:
    """Everything but the patches that differs: source, configuration, compiler, settings.

    Settings are those of :attr:`experiment.arms.ArmSpec.settings`: sysctls, mount options,
    command line and guest shape.
    """
    settings = list(dict.fromkeys(name for arm in arms for name in arm.settings))
    rows = [
        ("source", [arm.kernel.source for arm in arms]),
        ("flavour", [arm.kernel.flavour for arm in arms]),
        ("pages, KiB", [str(arm.kernel.page_kib) for arm in arms]),
        ("configuration, SHA-256", [arm.kernel.config_sha256[:DIGEST] for arm in arms]),
        *((each.name, [*each.values]) for each in options(arms)[:NAMED]),
        ("compiler", [arm.kernel.compiler for arm in arms]),
        *((name, [arm.settings.get(name, UNSET) for arm in arms]) for name in sorted(settings)),
    ]
    return tuple(
        ArmDifference(name, tuple(values)) for name, values in rows if len(set(values)) > 1
    )


def options(arms: Sequence[ArmRecord]) -> tuple[ArmDifference, ...]:
    """Every option of the kernels' configurations that is not the same on all arms."""
    before = {option.name: option.before for arm in arms for option in arm.options}
    after = [{option.name: option.after for option in arm.options} for arm in arms]
    return tuple(
        ArmDifference(name, tuple(own.get(name, value) or ABSENT for own in after))
        for name, value in before.items()
    )


def sentences(arms: Sequence[ArmRecord]) -> list[str]:
    """One sentence a difference: ``sysctl vm.swappiness: 10 in swappy, not set in base``."""
    return [_sentence(difference, [arm.name for arm in arms]) for difference in differences(arms)]


def _sentence(difference: ArmDifference, names: Sequence[str]) -> str:
    having: dict[str, list[str]] = {}
    for name, value in zip(names, difference.values, strict=True):
        having.setdefault(value, []).append(name)
    # What was set comes first; what was left alone is the rest.
    ordered = sorted(having.items(), key=lambda item: item[0] == UNSET)
    sides = "; ".join(f"{value} in {in_words(arms)}" for value, arms in ordered)
    return f"{difference.name}: {sides}"
