"""A kernel's configuration: asked for, adapted to the release, and checked.  make does the rest.

The source alone is configured from nothing and what is asked; a series that changes Kconfig from
that, so that arms differ by what the series does.  What a release does not have is looked for under
other names, of ``configs/kconfig/options.toml``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from errors import InfraError, SeriesError, SpecError, UsageError
from experiment.frozen import Frozen
from experiment.load import read_toml, validated
from kernels import config, products
from kernels.config import CONFIG_FOLDER, VIRTME, Fragment, Lost
from kernels.series import Patch
from results import door

# What is asked of a release that has other names, beside what is asked of every one.
ADAPTED = "adapted.config"
KCONFIG = re.compile(r"(?:^|/)Kconfig[^/]*$|^scripts/kconfig/")
ADDED = re.compile(r"^\+[ \t]*(?:menu)?config[ \t]+(\w+)[ \t\r]*$", re.M)
TAKEN = re.compile(r"^-[ \t]*(?:menu)?config[ \t]+(\w+)[ \t\r]*$", re.M)

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
        number = config.number_of(version)
        after = not self.since or number >= config.number_of(self.since)
        return after and (not self.until or number < config.number_of(self.until))


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
    """Options in place of others (empty: nothing), and one line for each choice."""

    instead: Mapping[str, str]
    notes: tuple[str, ...]


def load_reasons(checkout: Path) -> Reasons:
    """Read the file; a checkout without one has no reasons.  Raises SpecError: it is wrong."""
    file = checkout / FILE
    if not file.is_file():
        return Reasons()
    reasons, problems = validated(read_toml(file), Reasons)
    if reasons is None or problems:
        raise SpecError([problem.line(str(FILE)) for problem in problems])
    return reasons


def adapt(lost: Sequence[Lost], refused: frozenset[str], reasons: Reasons) -> Adapted:
    """What to ask in place of options that are ``lost``, and never what was ``refused`` before."""
    instead: dict[str, str] = {}
    notes = []
    for each in lost:
        name = each.option
        if each.requested == "n" or each.fragment == VIRTME:
            continue
        renamed = next((r for r in reasons.renamed if r.option == name), None)
        several = next((a for a in reasons.alternatives if name in a.names), None)
        gone = next((g for g in reasons.gone if name in g.options), None)
        others: list[tuple[str, str]] = []
        if renamed:
            when = f"since {renamed.since}" if renamed.since else f"before {renamed.until}"
            others = [(renamed.now, f"{when} {renamed.why}")]
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


def agreed(
    requested: Mapping[str, str], versions: Sequence[str], reasons: Reasons
) -> dict[str, str]:
    """Options to ask of arms of releases, so that they take the same alternatives."""
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


# Runs one make by its targets and variables; whether it ended well.
Make = Callable[[Sequence[str]], bool]


@dataclass(frozen=True)
class Configured:
    """A final .config, a line for each choice, and options asked ``instead`` of others."""

    text: str
    notes: tuple[str, ...] = ()
    instead: Mapping[str, str] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Keep it for the arms with a series."""
        door.write(path.parent, path.name, TypeAdapter(Configured).dump_json(self))

    @classmethod
    def load(cls, path: Path) -> Configured | None:
        """What was kept; None where nothing is."""
        try:
            return TypeAdapter(Configured).validate_json(path.read_bytes())
        except (OSError, ValidationError):
            return None


class MakeFailedError(Exception):
    """Kconfig ended with an error; ``targets`` are those it was asked for."""

    def __init__(self, targets: Sequence[str]) -> None:
        super().__init__(" ".join(targets))
        self.targets = tuple(targets)


def changes_kconfig(patches: Sequence[Patch]) -> bool:
    """Whether a series may change which options there are."""
    return any(KCONFIG.search(file) for patch in patches for file in patch.files)


def added_options(patches: Sequence[Patch]) -> tuple[str, ...]:
    """Options that a series brings, by its own lines, without CONFIG_."""
    texts = [patch.path.read_text(errors="replace") for patch in patches]
    removed = {name for text in texts for name in TAKEN.findall(text)}
    added = (name for text in texts for name in ADDED.findall(text))
    return tuple(name for name in dict.fromkeys(added) if name not in removed)


def from_nothing(
    parts: Sequence[Fragment], reasons: Reasons, objects: Path, requested: str, make: Make
) -> Configured:
    """Configure the source in ``objects`` from nothing; MakeFailedError: Kconfig fails."""
    notes: list[str] = []
    instead: dict[str, str] = {}
    refused: set[str] = set()
    while True:
        targets = [f"KCONFIG_ALLCONFIG={requested}", "allnoconfig"]
        if not make(targets):
            raise MakeFailedError(targets)
        final = products.text(objects, ".config", "configuration")
        lost = config.lost_options(parts, final)
        refused |= {each.option for each in lost}
        adapted = adapt(lost, frozenset(refused), reasons)
        if not adapted.instead:
            notes += [
                f"CONFIG_{x.option} is {x.final}, {x.requested} is wanted for comparability"
                for x in lost
                if x.fragment not in (VIRTME, config.OWN) and not reasons.needed_by(x.option)
            ]
            return Configured(final, tuple(notes), instead)
        parts, requested = config.replaced(parts, adapted.instead), ADAPTED
        notes += adapted.notes
        instead |= adapted.instead
        (objects / ADAPTED).write_text(config.merge(parts))


def from_base(
    base: Configured, parts: Sequence[Fragment], own: Mapping[str, str], objects: Path, make: Make
) -> Configured:
    """Configure a tree with a series from that without it; MakeFailedError: Kconfig fails."""
    # A number or a text that nobody asks for is a default, and the series may have another.
    requested = {name for part in config.replaced(parts, base.instead) for name in part.options}
    lines = [
        line
        for line in base.text.splitlines()
        if not line.startswith("CONFIG_")
        or line.endswith(("=y", "=m"))
        or line.removeprefix("CONFIG_").partition("=")[0] in requested
    ]
    lines += [f"{name}={value}" for name, value in sorted(own.items())]
    (objects / ".config").write_text("\n".join(lines) + "\n")
    if not make(["olddefconfig"]):
        raise MakeFailedError(["olddefconfig"])
    return replace(base, text=products.text(objects, ".config", "configuration"))


def verify(
    parts: Sequence[Fragment],
    configured: Configured,
    src: Path,
    reasons: Reasons,
    base: Configured | None = None,
) -> None:
    """Refuse a configuration that what is measured, or a user, cannot do with.

    ``base`` is that of the source without the series: what was not there is not the series' doing.
    Raises UsageError: an option of ``--config`` did not come out; InfraError: an option that is
    needed is not there; names what needs it; SeriesError: the same, and it is there without the
    series.
    """
    options = config.parse(configured.text)
    before = config.parse(base.text) if base else {}
    lost = config.lost_options(config.replaced(parts, configured.instead), configured.text)
    own = [each for each in lost if each.fragment == config.OWN]
    if own:
        raise UsageError(
            "the configuration does not have what is asked\n"
            + "\n".join(_line(each, src, options) for each in own),
            where=" ".join(f"CONFIG_{each.option}={each.requested}" for each in own),
            next_step="ask for what it depends on as well, or of the arm that has it: "
            "--config ARM:CONFIG_X=y",
        )
    first = {other: name for name, other in configured.instead.items()}
    needed = [
        (each, by)
        for each in lost
        if (by := reasons.needed_by(each.option) or reasons.needed_by(first.get(each.option, "")))
    ]
    if not needed:
        return
    lines = [f"{_line(each, src, options)}; needed by {by}" for each, by in needed]
    of_series = any(before.get(each.option, "n") == each.requested for each, _ in needed)
    error = SeriesError if of_series else InfraError
    raise error(
        f"{'takes' if of_series else 'this source lacks'} options "
        f"{'away ' if of_series else ''}that the measurement needs\n" + "\n".join(lines),
        where=needed[0][0].fragment,
        next_step=f"{'leave it in the series, or ' if of_series else ''}name what this release has "
        f"instead in {config.INSTEAD}, or ask for what the option depends on: --config CONFIG_X=y",
    )


def _line(lost: Lost, src: Path, options: Mapping[str, str]) -> str:
    return (
        f"CONFIG_{lost.option}: {lost.fragment} sets {lost.requested}, the result is "
        f"{lost.final}; {config.likely_reason(src, lost.option, options)}"
    )
