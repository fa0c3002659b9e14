"""A kernel's configuration: asked for, adapted to the release, and checked.  make does the rest.

The source alone is configured from nothing and what is asked; a series that changes Kconfig from
that, so that arms differ by what the series does.  What a release does not have is looked for under
other names, of ``configs/kconfig/options.toml``.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from errors import InfraError, SeriesError, SpecError, UsageError
from experiment.architecture import X86_64, Architecture
from experiment.arms import KernelSpec
from experiment.frozen import Frozen
from experiment.load import read_toml, validated
from host.process import run
from kernels import products
from kernels.series import Patch
from results import door

CONFIG_FOLDER = Path("configs/kconfig")
ADDITIONS = CONFIG_FOLDER / "additions"
BASE = "base"
SINCE = "since"
WALL = "wall"
# All that a kernel is asked that is a process of the host, whatever its flavour.
UM = "um"
VIRTME = "virtme-ng"
# Names of fragments that are no files: a user's options, and those in the place of others.
OWN = "--config"
NO_OPTION = "this source has no such option"
FILE = CONFIG_FOLDER / "options.toml"
INSTEAD = str(FILE)
QUERY_TIMEOUT_S = 60.0
# Left out of "depends on" lines: operators and constants are no options.
WORD = re.compile(r"!?\b[A-Z0-9][A-Z0-9_]*\b")
# Facts of the compilers that Kconfig asks for them, such as RUSTC_VERSION and CC_HAS_ASM_INLINE.
OF_TOOLS = re.compile(
    r"(CC|GCC|CLANG|AS|LD|LLD|RUSTC|BINDGEN|PAHOLE)_(LLVM_)?"
    r"(VERSION(_TEXT)?|(HAS|IS|CAN|HAVE)_\w+)|RUST_IS_AVAILABLE|TOOLS_SUPPORT_\w+"
)
# The first line of a flavour that is another one and a few options.
ON_TOP_OF = re.compile(r"# on top of (\w+)\.config\n")


@dataclass(frozen=True)
class Fragment:
    """One file of options: ``options`` maps names without CONFIG_ to raw values."""

    name: str
    options: Mapping[str, str]


@dataclass(frozen=True)
class Lost:
    """An option that did not come out as asked."""

    option: str
    requested: str
    final: str
    fragment: str


def number_of(version: str) -> tuple[int, ...]:
    """A version's parts, to be compared: 6.9 is before 6.12."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def known_flavours(checkout: Path) -> tuple[str, ...]:
    """Names of the kernel configurations: the fragments other than those under every one."""
    names = (path.stem for path in (checkout / CONFIG_FOLDER).glob("*.config"))
    return tuple(sorted(name for name in names if name not in (BASE, WALL, UM)))


def known_additions(checkout: Path) -> tuple[str, ...]:
    """Names of the options that a flavour may have besides."""
    return tuple(sorted(path.stem for path in (checkout / ADDITIONS).glob("*.config")))


def module_folders(checkout: Path, additions: Sequence[str]) -> tuple[Path, ...]:
    """Sources of modules that additions have besides their options, a Kbuild in each folder."""
    folders = (checkout / ADDITIONS / name for name in additions)
    return tuple(folder for folder in folders if (folder / "Kbuild").is_file())


def parse(text: str) -> dict[str, str]:
    """Options of a .config or fragment, "is not set" as ``n``; later lines win."""
    options = {}
    for line in text.splitlines():
        if match := re.match(r"\s*# CONFIG_(\w+) is not set", line):
            options[match[1]] = "n"
        elif match := re.match(r"\s*CONFIG_(\w+)=(.*\S)", line):
            options[match[1]] = match[2]
    return options


def fragments(checkout: Path, spec: KernelSpec, release: str = "") -> tuple[Fragment, ...]:
    """What is asked, in the order of the merge: base, the flavour, what is added to it.

    A ``release`` as 7.3 is asked for what releases since its like have apart from other options.
    Another architecture's own, and the size of its pages, are between the two, as is what
    wall guests need; virtme-ng's own, which only they need, comes first.  Of a kernel that is a
    process of the host it is one fragment, whatever the flavour.
    Raises UsageError: no such flavour or addition; the known ones are named; InfraError: virtme-ng
    is wanted and not installed.
    """
    if spec.mode == "native":
        return (_fragment(checkout, UM),)
    flavour, flavours = spec.flavour, known_flavours(checkout)
    if flavour not in flavours:
        close = difflib.get_close_matches(flavour, flavours, 1)
        hint = f"did you mean {close[0]}? " if close else ""
        what = f"no such kernel flavour: {flavour}"
        step = f"{hint}known flavours: {', '.join(flavours) or 'none'}"
        raise UsageError(what, where=str(CONFIG_FOLDER / f"{flavour}.config"), next_step=step)
    missing = [name for name in spec.additions if name not in known_additions(checkout)]
    if missing:
        what = f"no such addition to a kernel's configuration: {missing[0]}"
        step = f"known additions: {', '.join(known_additions(checkout)) or 'none'}"
        raise UsageError(what, where=str(ADDITIONS / f"{missing[0]}.config"), next_step=step)
    in_wall = spec.mode == "wall"
    since = [
        f"{SINCE}/{file.stem}"
        for file in sorted((checkout / CONFIG_FOLDER / SINCE).glob("*.config"))
        if release and number_of(file.stem) <= number_of(release)
    ]
    own = of_architecture(spec.architecture, spec.page_kib)
    names = [BASE, *since, *own, *([WALL] if in_wall else []), *_stack(checkout, flavour)]
    names += [f"{ADDITIONS.name}/{name}" for name in spec.additions]
    virtme = [Fragment(VIRTME, parse(virtme_fragment(spec.architecture)))] if in_wall else []
    return (*virtme, *(_fragment(checkout, name) for name in dict.fromkeys(names)))


def _fragment(checkout: Path, name: str) -> Fragment:
    file = CONFIG_FOLDER / f"{name}.config"
    return Fragment(str(file), parse((checkout / file).read_text()))


def _stack(checkout: Path, flavour: str) -> list[str]:
    """Names of a flavour and those it is on top of, the lowest first."""
    below = ON_TOP_OF.match((checkout / CONFIG_FOLDER / f"{flavour}.config").read_text())
    return [*(_stack(checkout, below[1]) if below else []), flavour]


def of_architecture(architecture: Architecture, page_kib: int) -> tuple[str, ...]:
    """Names of the fragments that an architecture has of its own."""
    folder = architecture.build.fragments
    return (f"{folder}/arch", f"{folder}/pages-{page_kib}k") if folder else ()


def virtme_fragment(architecture: Architecture = X86_64) -> str:
    """virtme-ng's own fragment, without a user's additions; InfraError: not installed."""
    # Its file in the home folder adds and overrides options.
    env = {"HOME": os.devnull, "XDG_CONFIG_HOME": os.devnull}
    module = [sys.executable, "-m", "virtme.commands.configkernel"]
    argv = [*module, "--arch", architecture.name, "--defconfig", "--dry-run"]
    return run(argv, timeout_s=QUERY_TIMEOUT_S, env=env).stdout


def differing(first: Mapping[str, str], second: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the options that two configurations have otherwise, sorted; absent is ``n``."""
    names = {*first, *second}
    return tuple(sorted(x for x in names if first.get(x, "n") != second.get(x, "n")))


def merge(parts: Iterable[Fragment]) -> str:
    """All fragments as one, later ones win; sorted, so that equal wishes are equal bytes."""
    merged: dict[str, str] = {}
    for part in parts:
        merged.update(part.options)
    return "".join(f"CONFIG_{name}={value}\n" for name, value in sorted(merged.items()))


def with_options(parts: Sequence[Fragment], options: Mapping[str, str]) -> tuple[Fragment, ...]:
    """The fragments with a user's own options (``CONFIG_X`` to a value) on top."""
    own = {name.removeprefix("CONFIG_"): value for name, value in options.items()}
    return (*parts, Fragment(OWN, own)) if own else tuple(parts)


def replaced(parts: Sequence[Fragment], instead: Mapping[str, str]) -> tuple[Fragment, ...]:
    """The fragments with other options in the place of some; an empty name leaves one out."""
    values = {name: value for part in parts for name, value in part.options.items()}
    without = [
        Fragment(part.name, {k: v for k, v in part.options.items() if k not in instead})
        for part in parts
    ]
    added: dict[str, str] = {}
    for name, other in instead.items():
        # One in the place of another may itself be one that is not there.
        value = added.pop(name, values.get(name))
        if other and value:
            added[other] = value
    # Below what a user asks for.
    at = len(without) - (parts[-1].name == OWN)
    return (*without[:at], Fragment(INSTEAD, added), *without[at:])


def lost_options(parts: Sequence[Fragment], config: str) -> tuple[Lost, ...]:
    """Options whose final value differs from what the last fragment asked."""
    options = parse(config)
    requested = {name: (value, part.name) for part in parts for name, value in part.options.items()}
    return tuple(
        Lost(name, value, options.get(name, "n"), origin)
        for name, (value, origin) in sorted(requested.items())
        if options.get(name, "n") != value
    )


def kconfigs(src: Path) -> list[Path]:
    """The files of a tree that say which options there are, sorted."""
    paths = []
    for at, folders, names in os.walk(src):
        folders[:] = [name for name in folders if not name.startswith(("obj-", "."))]
        paths += [Path(at) / name for name in names if name.startswith("Kconfig")]
    return sorted(paths)


def likely_reason(src: Path, option: str, options: Mapping[str, str]) -> str:
    """Why an option may not be settable, from its Kconfig entry."""
    begins = re.compile(
        rf"^(?:menu)?config[ \t]+{option}[ \t]*\n(?P<body>(?:[ \t#].*(?:\n|\Z)|\n)*)", re.M
    )
    for path in kconfigs(src):
        text = path.read_text(errors="replace")
        if entry := begins.search(text):
            break
    else:
        return NO_OPTION
    where = f"{path.relative_to(src)}:{text.count(chr(10), 0, entry.start()) + 1}"
    lines = [line.strip() for line in entry["body"].splitlines()]
    depends = [
        line.removeprefix("depends on").strip() for line in lines if line.startswith("depends on")
    ]
    reasons = []
    for word in WORD.findall(" ".join(depends)):
        name = word.lstrip("!")
        value = options.get(name, "n")
        if (value == "n") != word.startswith("!"):
            reasons.append(f"{name} is {value}")
    if reasons:
        return f"{where}: depends on {' && '.join(depends)}, and {', '.join(reasons)}"
    if depends:
        return f"{where}: depends on {' && '.join(depends)}"
    return f"{where}: see the menu or `if` around it, or what selects it"


# What is asked of a release that has other names, beside what is asked of every one.
ADAPTED = "adapted.config"
KCONFIG = re.compile(r"(?:^|/)Kconfig[^/]*$|^scripts/kconfig/")
ADDED = re.compile(r"^\+[ \t]*(?:menu)?config[ \t]+(\w+)[ \t\r]*$", re.M)
TAKEN = re.compile(r"^-[ \t]*(?:menu)?config[ \t]+(\w+)[ \t\r]*$", re.M)
# One line in the place of the other: the same option under another name.
RENAMES = re.compile(
    r"^-[ \t]*(?:menu)?config[ \t]+(\w+)[ \t\r]*\n\+[ \t]*(?:menu)?config[ \t]+(\w+)[ \t\r]*$", re.M
)

OptionName = Annotated[str, Field(pattern=r"^[A-Z0-9][A-Za-z0-9_]*$")]
Version = Annotated[str, Field(pattern=r"^(\d+\.\d+)?$")]


class Alternative(Frozen):
    """One option of several: it can be had from version ``since`` on and before ``until``."""

    name: OptionName
    since: Version = ""
    until: Version = ""

    def is_in(self, version: str) -> bool:
        """Whether a release has it, as far as the file knows."""
        number = number_of(version)
        after = not self.since or number >= number_of(self.since)
        return after and (not self.until or number < number_of(self.until))


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


def renamed_options(patches: Sequence[Patch]) -> dict[str, str]:
    """Options that a series gives other names, and those names, without CONFIG_."""
    texts = [patch.path.read_text(errors="replace") for patch in patches]
    return {old: new for text in texts for old, new in RENAMES.findall(text) if old != new}


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
        lost = lost_options(parts, final)
        refused |= {each.option for each in lost}
        adapted = adapt(lost, frozenset(refused), reasons)
        if not adapted.instead:
            notes += [
                f"CONFIG_{x.option} is {x.final}, {x.requested} is wanted for comparability"
                for x in lost
                if x.fragment not in (VIRTME, OWN) and not reasons.needed_by(x.option)
            ]
            return Configured(final, tuple(notes), instead)
        parts, requested = replaced(parts, adapted.instead), ADAPTED
        notes += adapted.notes
        instead |= adapted.instead
        (objects / ADAPTED).write_text(merge(parts))


def from_base(
    base: Configured,
    parts: Sequence[Fragment],
    patches: Sequence[Patch],
    own: Mapping[str, str],
    objects: Path,
    make: Make,
) -> Configured:
    """Configure a tree with a series from that without it; MakeFailedError: Kconfig fails.

    An option that the series renames keeps its value: a new name is no option switched off.
    """
    # A number or a text that nobody asks for is a default, and the series may have another.
    requested = {name for part in replaced(parts, base.instead) for name in part.options}
    lines = [
        line
        for line in base.text.splitlines()
        if not line.startswith("CONFIG_")
        or line.endswith(("=y", "=m"))
        or line.removeprefix("CONFIG_").partition("=")[0] in requested
    ]
    kept = parse("\n".join(lines))
    renamed: dict[str, str] = {}
    for old, new in renamed_options(patches).items():
        # A later patch may rename it again.
        if kept.get(old, "n") != "n":
            renamed[old], kept[new] = new, kept[old]
    lines += [f"CONFIG_{new}={kept[new]}" for new in renamed.values()]
    lines += [f"{name}={value}" for name, value in sorted(own.items())]
    (objects / ".config").write_text("\n".join(lines) + "\n")
    if not make(["olddefconfig"]):
        raise MakeFailedError(["olddefconfig"])
    text = products.text(objects, ".config", "configuration")
    return replace(base, text=text, instead={**base.instead, **renamed})


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
    options = parse(configured.text)
    before = parse(base.text) if base else {}
    lost = lost_options(replaced(parts, configured.instead), configured.text)
    own = [each for each in lost if each.fragment == OWN]
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
        f"instead in {INSTEAD}, or ask for what the option depends on: --config CONFIG_X=y",
    )


def _line(lost: Lost, src: Path, options: Mapping[str, str]) -> str:
    return (
        f"CONFIG_{lost.option}: {lost.fragment} sets {lost.requested}, the result is "
        f"{lost.final}; {likely_reason(src, lost.option, options)}"
    )
