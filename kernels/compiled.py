"""What a build holds: files a series touches, what keeps them out, and all that is kept of it."""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import TypeAdapter, ValidationError

from errors import LabError
from host import folders, limited
from host.process import run
from kernels import addresses, btf, symbols
from kernels.addresses import ARCHIVE, Origin
from kernels.config import KCONFIG, NO_OPTION, added_options, likely_reason, parse
from kernels.products import ProductError, require_size
from kernels.series import Patch
from kernels.symbols import FunctionCode, Variables
from results.record import Record

TIMEOUT_S = 120.0
# Folders of programs that run while a kernel is built.
HOST_PROGRAMS = ("scripts", "tools", "usr")
# Of nested conditions.
DEEPEST = 64
COMPILED = (".c", ".S", ".rs")
ASSIGNED = re.compile(
    r"^\s*(?P<name>[\w./-]+?)-(?P<when>y|m|objs|\$\(CONFIG_\w+\))\s*[:+]?=(?P<parts>.*)$", re.M
)
DEFINED = re.compile(r"^\s*(?:menu)?config\s+(\w+)", re.M)
OPTION = re.compile(r"CONFIG_(\w+)")
CONDITION = re.compile(r"^\s*#\s*(?P<word>if|ifdef|ifndef|elif|else|endif)\b(?P<rest>.*)$")


class Touched(Record):
    """A file of the series in one build.

    ``functions`` are those of its object, named as in the table of symbols.  Where it was not
    built, ``options`` are those that keep it out, each with what is known; where it was, those that
    keep changed lines out; of a Kconfig file those that the series adds there and that are off.
    """

    file: str
    built: bool
    functions: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


def touched_files(
    patches: Sequence[Patch], src: Path, objects: Path, config: str
) -> tuple[Touched, ...]:
    """Look at every compiled file that ``patches`` touch, in a tree that was just built."""
    values = parse(config)
    files = dict.fromkeys(name for patch in patches for name in patch.files)
    changed = _changed_lines(patches)
    touched = []
    for file in files:
        place, built = src / file, objects / PurePosixPath(file).with_suffix(".o")
        if not place.is_file():
            continue
        text = place.read_text(errors="replace")
        if KCONFIG.search(file):
            defined = set(DEFINED.findall(text))
            off = [n for n in added_options(patches) if n in defined and values.get(n, "n") == "n"]
            options = _explained(off, src, values, "patched:")
            touched.append(Touched(file=file, built=True, options=options))
        if not file.endswith(COMPILED):
            continue
        names: Iterable[str] = ()
        if built.is_file():
            names = {re.split("[@#]", name)[0] for name in symbols.functions(built)}
            # Those that keep every one of the changed lines out; none if any line is in.
            kept_out = unmet(text, changed.get(file, ()), values)
            every = kept_out if all(kept_out) else []
            off = list(dict.fromkeys(option for options in every for option in options))
        else:
            off = [name for name in governing(file, src) if values.get(name, "n") == "n"]
        touched.append(
            Touched(
                file=file,
                built=built.is_file(),
                functions=tuple(sorted(names)),
                options=_explained(off, src, values),
            )
        )
    return tuple(touched)


def forget_left_out(src: Path, objects: Path, config: str) -> tuple[str, ...]:
    """Remove objects that an option keeps out of a kernel (in a copied folder); return names."""
    values = parse(config)
    argv = ["ar", "t", ARCHIVE]
    linked = set(run(argv, cwd=objects, timeout_s=TIMEOUT_S).stdout.split())
    removed = []
    for file, entry in folders.entries(objects):
        if not file.endswith(".o") or file in linked or file.partition("/")[0] in HOST_PROGRAMS:
            continue
        if any(values.get(option, "n") == "n" for option in governing(file, src)):
            Path(entry.path).unlink()
            Path(entry.path).with_name(f".{entry.name}.cmd").unlink(missing_ok=True)
            removed.append(file)
    return tuple(sorted(removed))


def dependent(objects: Path, options: Iterable[str], files: Iterable[str] = ()) -> int:
    """How many objects kbuild compiles again where these change, by its own records.

    ``files`` are paths in the source, whose object folder is right inside it.
    """
    changed = [rf"include/config/{re.escape(name)}\)" for name in options]
    changed += [rf"\s\.\./{re.escape(name)}\s" for name in files]
    pattern = re.compile("|".join(changed).encode())
    records = objects.rglob(".*.o.cmd") if changed else ()
    return sum(bool(pattern.search(path.read_bytes())) for path in records)


def save(touched: Sequence[Touched], path: Path) -> None:
    """Write what ``look`` found."""
    path.write_bytes(TypeAdapter(tuple[Touched, ...]).dump_json(tuple(touched), indent=1))


def load(path: Path) -> tuple[Touched, ...]:
    """Read what ``save`` wrote; nothing where there is none."""
    try:
        return TypeAdapter(tuple[Touched, ...]).validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return ()


def governing(file: str, src: Path) -> tuple[str, ...]:
    """Options in the makefiles that decide whether ``file`` is built, the nearest first."""
    path = PurePosixPath(file)
    options = list(_options_for(src / path.parent, f"{path.stem}.o"))
    for folder in path.parents:
        if folder.name:
            options += _options_for(src / folder.parent, f"{folder.name}/")
    return tuple(dict.fromkeys(options))


def _options_for(folder: Path, part: str) -> Iterable[str]:
    """Options that a makefile lists a part under, also through objects made of several."""
    # kbuild prefers the first.
    makefiles = [folder / name for name in ("Kbuild", "Makefile") if (folder / name).is_file()]
    if not makefiles:
        return
    makefile = makefiles[0]
    stat = makefile.stat()
    listed = _listed(makefile, (stat.st_ino, stat.st_size, stat.st_mtime_ns))
    waiting, visited = [part], set()
    while waiting:
        part = waiting.pop()
        visited.add(part)
        for name, when in listed.get(part, ()):
            if option := OPTION.search(when):
                yield option[1]
            whole = f"{name}.o"
            if name != "obj" and whole not in visited:
                waiting.append(whole)


@functools.lru_cache(maxsize=256)
def _listed(makefile: Path, stamp: tuple[int, ...]) -> dict[str, list[tuple[str, str]]]:
    """Each part that a makefile lists, and under which names and conditions; read once."""
    text = re.sub(r"#.*", "", makefile.read_text(errors="replace").replace("\\\n", " "))
    listed: dict[str, list[tuple[str, str]]] = {}
    for match in ASSIGNED.finditer(text):
        for part in dict.fromkeys(match["parts"].split()):
            listed.setdefault(part, []).append((match["name"], match["when"]))
    return listed


def unmet(text: str, lines: Sequence[int], values: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Options whose preprocessor conditions (of one option each) keep lines out."""
    stack: list[tuple[str, bool | None]] = []
    numbers = set(lines)
    options: dict[int, tuple[str, ...]] = {}
    contents = text.split("\n")
    # A line behind the last one is where the file ends.
    for at, content in enumerate([*contents, *[""] * (max(numbers, default=0) > len(contents))], 1):
        if at in numbers or at > len(contents):
            options[at] = tuple(option for option, truth in stack[:DEEPEST] if truth is False)
        match = CONDITION.match(content)
        if match is None:
            continue
        word, rest = match["word"], match["rest"].strip()
        if word in ("if", "ifdef", "ifndef"):
            stack.append(_truth(word, rest, values))
        elif word == "endif" and stack:
            stack.pop()
        elif word == "else" and stack:
            option, truth = stack[-1]
            stack[-1] = (option, None if truth is None else not truth)
        elif word == "elif" and stack:
            stack[-1] = ("", None)
    return [options[min(line, len(contents) + 1)] if line > 0 else () for line in lines]


def _truth(word: str, rest: str, values: Mapping[str, str]) -> tuple[str, bool | None]:
    plain = re.fullmatch(
        r"(?P<not>!?)\s*(?:defined\s*\(?\s*|IS_ENABLED\(|IS_BUILTIN\()?CONFIG_(?P<name>\w+)\s*\)?",
        re.sub(r"/\*.*?\*/|//.*", "", rest).strip(),
    )
    if plain is None:
        return "", None
    truth = values.get(plain["name"], "n") != "n"
    turned = (word == "ifndef") != bool(plain["not"])
    return plain["name"], truth != turned


def _changed_lines(patches: Sequence[Patch]) -> dict[str, tuple[int, ...]]:
    """Where the one patch that touches a file changed it; nothing where there are several."""
    count = Counter(file for patch in patches for file in patch.files)
    lines: dict[str, list[int]] = {}
    for patch in patches:
        for hunk in patch.hunks:
            if count[hunk.file] == 1:
                lines.setdefault(hunk.file, []).append(hunk.changed)
    return {file: tuple(numbers) for file, numbers in lines.items()}


def _explained(
    options: Iterable[str], src: Path, values: Mapping[str, str], arm: str = ""
) -> tuple[str, ...]:
    return tuple(
        f"CONFIG_{option} is {values.get(option, 'n')} ({reason})"
        + f"; switch it on with --config {arm}CONFIG_{option}=y" * (reason != NO_OPTION)
        for option in options
        if (reason := likely_reason(src, option, values))
    )


VMLINUX, RELOCATABLE = "vmlinux", "vmlinux.o"


@dataclass(frozen=True)
class Parsed:
    """What a build's ELF files say; ``types`` by the name of their file."""

    functions: dict[str, FunctionCode]
    variables: Variables
    code_key: str
    build_id: str
    touched: tuple[Touched, ...]
    origins: dict[int, Origin]
    types: tuple[tuple[str, bytes], ...]


def parsed(
    objects: Path, source: Path, patches: Sequence[Patch], config: str, modules: Sequence[str]
) -> Parsed:
    """What a build's ELF files say; ProductError: one is missing, too large, or takes too long."""
    for name in (VMLINUX, RELOCATABLE, *modules):
        if name != RELOCATABLE or os.path.lexists(objects / name):
            require_size(objects, name)
    try:
        return limited.call(_parse, objects, source, tuple(patches), config, tuple(modules))
    except LabError as error:
        raise ProductError(f"{error.where}: {error.what}") from error


def _parse(
    objects: Path, source: Path, patches: Sequence[Patch], config: str, modules: Sequence[str]
) -> Parsed:
    vmlinux = objects / VMLINUX
    linked = objects / RELOCATABLE if (objects / RELOCATABLE).exists() else vmlinux
    return Parsed(
        functions=symbols.functions(linked),
        variables=symbols.variables(linked),
        code_key=symbols.code_key(vmlinux, [objects / name for name in modules]),
        build_id=symbols.build_id(vmlinux),
        touched=touched_files(patches, source, objects, config),
        origins=addresses.collect(objects, source),
        types=tuple(btf.collected(objects)),
    )
