"""What the configuration is asked to be, and whether it came out so."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from errors import UsageError
from experiment.architecture import X86_64, Architecture
from experiment.arms import Mode
from host.process import run

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
INSTEAD = str(CONFIG_FOLDER / "options.toml")
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


def fragments(
    checkout: Path,
    flavour: str,
    architecture: Architecture = X86_64,
    page_kib: int = 4,
    mode: Mode = "exact",
    additions: Sequence[str] = (),
    release: str = "",
) -> tuple[Fragment, ...]:
    """What is asked, in the order of the merge: base, the flavour, what is added to it.

    A ``release`` as 7.3 is asked for what releases since its like have apart from other options.
    Another architecture's own, and the size of its pages, are between the two, as is what
    wall guests need; virtme-ng's own, which only they need, comes first.  Of a kernel that is a
    process of the host it is one fragment, whatever the flavour.
    Raises UsageError: no such flavour or addition; the known ones are named; InfraError: virtme-ng
    is wanted and not installed.
    """
    if mode == "native":
        file = CONFIG_FOLDER / f"{UM}.config"
        return (Fragment(str(file), parse((checkout / file).read_text())),)
    flavours = known_flavours(checkout)
    if flavour not in flavours:
        close = difflib.get_close_matches(flavour, flavours, 1)
        hint = f"did you mean {close[0]}? " if close else ""
        what = f"no such kernel flavour: {flavour}"
        step = f"{hint}known flavours: {', '.join(flavours) or 'none'}"
        raise UsageError(what, where=str(CONFIG_FOLDER / f"{flavour}.config"), next_step=step)
    missing = [name for name in additions if name not in known_additions(checkout)]
    if missing:
        what = f"no such addition to a kernel's configuration: {missing[0]}"
        step = f"known additions: {', '.join(known_additions(checkout)) or 'none'}"
        raise UsageError(what, where=str(ADDITIONS / f"{missing[0]}.config"), next_step=step)
    in_wall = mode == "wall"
    since = [
        f"{SINCE}/{file.stem}"
        for file in sorted((checkout / CONFIG_FOLDER / SINCE).glob("*.config"))
        if release and number_of(file.stem) <= number_of(release)
    ]
    names = [BASE, *since, *of_architecture(architecture, page_kib), *([WALL] if in_wall else [])]
    texts = {name: (checkout / CONFIG_FOLDER / f"{name}.config").read_text() for name in names}
    texts |= _stack(checkout, flavour)
    for name in additions:
        place = f"{ADDITIONS.name}/{name}"
        texts[place] = (checkout / CONFIG_FOLDER / f"{place}.config").read_text()
    ours = [
        Fragment(str(CONFIG_FOLDER / f"{name}.config"), parse(text)) for name, text in texts.items()
    ]
    virtme = [Fragment(VIRTME, parse(virtme_fragment(architecture)))] if in_wall else []
    return (*virtme, *ours)


def _stack(checkout: Path, flavour: str) -> dict[str, str]:
    """Texts of a flavour and those it is on top of by name, the lowest first."""
    text = (checkout / CONFIG_FOLDER / f"{flavour}.config").read_text()
    below = ON_TOP_OF.match(text)
    return {**(_stack(checkout, below[1]) if below else {}), flavour: text}


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
