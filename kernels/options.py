"""What options are for, and what becomes of those that a release does not have.

The fragments are written for one release and are asked of every other one.  This file says,
from ``configs/kconfig/options.toml``, what to ask instead of an option that did not survive, and
what cannot be measured without it.  Pure but for reading that file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from errors import SpecError
from experiment.frozen import Frozen
from experiment.load import read_toml, validated
from kernels.config import CONFIG_FOLDER, VIRTME, Lost

FILE = CONFIG_FOLDER / "options.toml"
OptionName = Annotated[str, Field(pattern=r"^[A-Z0-9][A-Za-z0-9_]*$")]
Version = Annotated[str, Field(pattern=r"^(\d+\.\d+)?$")]


class Alternative(Frozen):
    """One option of several: it can be had from version ``since`` on and before ``until``."""

    name: OptionName
    since: Version = ""
    until: Version = ""

    def is_in(self, version: str) -> bool:
        """Whether a release has it, as far as the file knows."""
        number = _number(version)
        after = not self.since or number >= _number(self.since)
        return after and (not self.until or number < _number(self.until))


class Alternatives(Frozen):
    """Options of which one is wanted: the first that can be had."""

    options: tuple[Alternative, ...]
    why: str

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, the first wanted first."""
        return tuple(each.name for each in self.options)


class Renamed(Frozen):
    """An option that other releases have under another name, since or until a version."""

    option: OptionName
    now: OptionName
    since: Version = ""
    until: Version = ""
    why: str


class Gone(Frozen):
    """Options that releases since a version do without."""

    options: tuple[OptionName, ...]
    since: Version
    why: str


class Needed(Frozen):
    """Options without which something cannot be measured."""

    by: str
    options: tuple[OptionName, ...]


class Reasons(Frozen):
    """The whole file."""

    alternatives: tuple[Alternatives, ...] = ()
    renamed: tuple[Renamed, ...] = ()
    gone: tuple[Gone, ...] = ()
    needed: tuple[Needed, ...] = ()

    def needed_by(self, option: str) -> str:
        """What cannot be measured without it; empty for one of comparability alone."""
        return next((each.by for each in self.needed if option in each.options), "")


@dataclass(frozen=True)
class Adapted:
    """What is asked in the place of options: the other one's name, empty where there is none.

    ``notes`` has one line for each choice.
    """

    instead: Mapping[str, str]
    notes: tuple[str, ...]


def load_reasons(checkout: Path) -> Reasons:
    """Read the file; a checkout without one has no reasons.

    Raises:
        SpecError: it is wrong.
    """
    file = checkout / FILE
    if not file.is_file():
        return Reasons()
    reasons, problems = validated(read_toml(file), Reasons)
    if reasons is None or problems:
        raise SpecError([problem.line(str(FILE)) for problem in problems])
    return reasons


def adapt(lost: Sequence[Lost], refused: frozenset[str], reasons: Reasons) -> Adapted:
    """What to ask of a source that does not have the options that are ``lost``.

    ``refused`` are those that were asked before and lost as well, so that nothing is asked twice.
    """
    instead: dict[str, str] = {}
    notes = []
    for each in lost:
        name = each.option
        if each.requested == "n" or each.fragment == VIRTME:
            continue
        renamed = next((r for r in reasons.renamed if r.option == name), None)
        several = next((a for a in reasons.alternatives if name in a.names), None)
        gone = next((g for g in reasons.gone if name in g.options), None)
        others = [(renamed.now, f"{_when(renamed)} {renamed.why}")] if renamed else []
        if several:
            later = several.names[several.names.index(name) + 1 :]
            others += [(other, several.why) for other in later]
        other, why = next((each for each in others if each[0] not in refused), ("", ""))
        if other:
            notes.append(f"CONFIG_{other} in the place of CONFIG_{name}: {why}")
        elif gone:
            notes.append(f"no CONFIG_{name}: since {gone.since} {gone.why}")
        else:
            continue
        instead[name] = other
    return Adapted(instead, tuple(notes))


def _when(renamed: Renamed) -> str:
    return f"since {renamed.since}" if renamed.since else f"before {renamed.until}"


def agreed(
    requested: Mapping[str, str], versions: Sequence[str], reasons: Reasons
) -> dict[str, str]:
    """Options to ask of arms of these releases so that they agree where they can.

    Of alternatives of which one is asked: the first that all the releases have, where that is
    not the one that each of them would have had.
    """
    options: dict[str, str] = {}
    for alternatives in reasons.alternatives:
        first = next(
            (each for each in alternatives.options if requested.get(each.name) == "y"), None
        )
        if first is None or all(first.is_in(version) for version in versions):
            continue
        common = next(
            (a for a in alternatives.options if all(a.is_in(version) for version in versions)), None
        )
        if common:
            options |= {f"CONFIG_{first.name}": "n", f"CONFIG_{common.name}": "y"}
    return options


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
