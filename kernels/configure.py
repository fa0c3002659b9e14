"""A kernel's configuration: asked for, adapted to the release, and checked.  make does the rest.

The source without a series is configured from nothing, ``allnoconfig`` and what is asked.  What
it does not have is looked for under other names (``kernels.options``).  A series that changes
Kconfig is configured from that: new options have the values that their authors gave them, and
what the series takes away is away.  So the arms differ by what the series does, and no more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from errors import InfraError, SeriesError, UsageError
from kernels import config, products
from kernels.config import Fragment, Lost
from kernels.options import Reasons, adapt
from kernels.series import Patch
from results import door

# What is asked of a release that has other names, beside what is asked of every one.
ADAPTED = "adapted.config"
KCONFIG = re.compile(r"(?:^|/)Kconfig[^/]*$|^scripts/kconfig/")
ADDED = re.compile(r"^\+\s*(?:menu)?config\s+(\w+)\s*$", re.M)
TAKEN = re.compile(r"^-\s*(?:menu)?config\s+(\w+)\s*$", re.M)

# Runs one make by its targets and variables; whether it ended well.
Make = Callable[[Sequence[str]], bool]


@dataclass(frozen=True)
class Configured:
    """A final .config, and one line for each choice that was made on the way.

    ``instead`` are options that were asked for in the place of others (empty: nothing was).
    """

    text: str
    notes: tuple[str, ...] = ()
    instead: Mapping[str, str] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Keep it for the arms with a series."""
        door.write(path.parent, path.name, json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Configured | None:
        """What was kept; None where nothing is."""
        try:
            data = json.loads(path.read_text())
            return cls(data["text"], tuple(data["notes"]), dict(data["instead"]))
        except (OSError, ValueError, KeyError, TypeError):
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


def targets_of(requested: str) -> list[str]:
    """The make that configures from nothing and the file ``requested``."""
    return [f"KCONFIG_ALLCONFIG={requested}", "allnoconfig"]


def from_nothing(
    parts: Sequence[Fragment], reasons: Reasons, objects: Path, requested: str, make: Make
) -> Configured:
    """Configure the source in ``objects``, where the file ``requested`` has the fragments.

    Raises:
        MakeFailedError: Kconfig itself fails.
    """
    notes: list[str] = []
    instead: dict[str, str] = {}
    refused: set[str] = set()
    while True:
        targets = targets_of(requested)
        if not make(targets):
            raise MakeFailedError(targets)
        final = products.text(objects, ".config", "configuration")
        lost = config.lost_options(parts, final)
        refused |= {each.option for each in lost}
        adapted = adapt(lost, frozenset(refused), reasons)
        if not adapted.instead:
            return Configured(final, (*notes, *_lacking(lost, reasons)), instead)
        parts, requested = config.replaced(parts, adapted.instead), ADAPTED
        notes += adapted.notes
        instead |= adapted.instead
        (objects / ADAPTED).write_text(config.merge(parts))


def from_base(base: Configured, own: Mapping[str, str], objects: Path, make: Make) -> Configured:
    """Configure a tree with a series from the configuration without it, and a user's options.

    Raises:
        MakeFailedError: Kconfig itself fails.
    """
    lines = "".join(f"{name}={value}\n" for name, value in sorted(own.items()))
    (objects / ".config").write_text(base.text + lines)
    if not make(["olddefconfig"]):
        raise MakeFailedError(["olddefconfig"])
    return replace(base, text=products.text(objects, ".config", "configuration"))


def _lacking(lost: Sequence[Lost], reasons: Reasons) -> list[str]:
    """A line for each option that is there for comparability alone, and is not there."""
    return [
        f"CONFIG_{each.option} is {each.final}, {each.requested} is wanted for comparability"
        for each in lost
        if each.fragment not in (config.VIRTME, config.OWN) and not reasons.needed_by(each.option)
    ]


def verify(
    parts: Sequence[Fragment],
    configured: Configured,
    src: Path,
    reasons: Reasons,
    base: Configured | None = None,
) -> None:
    """Refuse a configuration that what is measured, or a user, cannot do with.

    ``base`` is that of the source without the series: what was not there is not the series' doing.

    Raises:
        UsageError: an option of ``--config`` did not come out.
        InfraError: an option that is needed is not there; names what needs it.
        SeriesError: the same, and it is there without the series.
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
        next_step=f"name what this release has instead in {config.INSTEAD}, or ask for what the "
        "option depends on: --config CONFIG_X=y",
    )


def _line(lost: Lost, src: Path, options: Mapping[str, str]) -> str:
    return (
        f"CONFIG_{lost.option}: {lost.fragment} sets {lost.requested}, the result is "
        f"{lost.final}; {config.likely_reason(src, lost.option, options)}"
    )
