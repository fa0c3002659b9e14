"""A series on disk: its files in order, patches, turned around, and what a build executes of it.

A ``series`` file of quilt's says which files of a folder are a series: in the folder, in
``patches/`` or ``debian/patches/`` in it, or beside a folder ``patches``.  Without one these are
all patches of the folder, in the order in which people count: 2 before 10.
"""

from __future__ import annotations

import difflib
import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from email.errors import MessageError
from email.header import decode_header, make_header
from itertools import islice
from pathlib import Path, PurePosixPath

from errors import SeriesError, UsageError
from experiment.frozen import likely
from experiment.series_name import FILES, kind_of, split_mail
from host import sandbox
from host.process import Finished, TimedOutError, run
from host.sandbox import Box
from kernels.diff import HUNK, Diff, Hunk, hunk_numbers, read_diff
from text import clean

SERIES_FOLDER = Path("configs/series")
ORDER = "series"
ENDINGS = (".patch", ".diff")
COVER = "cover-letter"
# Where people keep patches in what they name.
INSIDE = ("", "patches", "debian/patches")
# The most lines of a series file, and files of a folder, that are looked at.
MOST_ENTRIES = 10_000
# git format-patch -v2 puts its files beside those of the version before.
FORMATTED = re.compile(r"(?:v(?P<version>\d{1,3})-)?\d{4}-.")
# "stg export" says what its series applies to.
BASE = re.compile(r"^# This series applies on GIT commit ([0-9a-f]{12,64})\s*$", re.M)
LEVEL = re.compile(r"-p(\d)")


@dataclass(frozen=True)
class PatchFile:
    """One patch of a folder; ``level`` is that of ``-pN`` in a series file, None where none is."""

    path: Path
    level: int | None = None
    reverse: bool = False


@dataclass(frozen=True)
class PatchFolder:
    """The patches of a folder in their order; ``ordered_by`` is the series file, if there is one.

    ``left_out`` names what looks like a patch there and is none of them; the folder can stand for
    the series where ``is_plain``: names alone say what it is.
    """

    patches: tuple[PatchFile, ...]
    covers: tuple[Path, ...]
    left_out: tuple[str, ...]
    is_plain: bool
    ordered_by: Path | None = None
    base_commit: str = ""


def known_series(checkout: Path) -> tuple[str, ...]:
    """Folders with patches that come with the lab, relative to the checkout."""
    folders = {patch.parent for patch in (checkout / SERIES_FOLDER).rglob("*.patch")}
    return tuple(sorted(str(folder.relative_to(checkout)) for folder in folders))


def read_folder(checkout: Path, path: str) -> PatchFolder:
    """The patch files of a series, covers apart; UsageError: none, or one named is not there."""
    named = checkout / Path(path).expanduser()
    if named.name == ORDER and named.is_file():
        named = named.parent
    if named.is_dir():
        own = [path for path in named.iterdir() if path.suffix in ENDINGS and path.is_file()]
        own = [path for path in own if not path.name.startswith(".")]
        places = [(named / inside / ORDER, named / inside) for inside in INSIDE]
        # Quilt also looks for the file where it is run, which is beside the patches' folder.
        places.append((named / ORDER, named / "patches"))
        if named.name == "patches":
            places.append((named.parent / ORDER, named))
        orders = [(order, at) for order, at in places if order.is_file() and at.is_dir()]
        # Patches of its own come before those of a folder in it.
        if orders and not (own and all(named in patches.parents for _, patches in orders)):
            for order, patches in orders:
                first = next(_lines(order), None)
                if first is not None and (patches / first[1]).is_file():
                    return _in_order(order, patches)
            return _in_order(*orders[0])
        if own:
            return _by_names(named, sorted(own, key=lambda path: as_counted(path.name)))
    raise missing(path, checkout)


def missing(name: str, checkout: Path) -> UsageError:
    """What is wrong with a file or folder that holds no series, with what is most like it."""
    place = checkout / split_mail(name)[0]
    if kind_of(name) == "file":
        what, beside = "no such file", sorted(path.name for path in place.parent.glob("*"))
        near = likely(place.name, (each for each in beside if each.endswith(FILES)))
        step = f"name an mbox or patch file{f'; beside it are {near}' if near else ''}"
    else:
        what = "no such file or folder"
        if place.expanduser().is_dir():
            what = "no *.patch or *.diff file in this folder"
        near = likely(name, known_series(checkout)) or "none comes with the lab"
        step = f"name a folder of patches, or a series of the lab's: {near}"
    return UsageError(what, where=clean(name), next_step=clean(step))


def _lines(order: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Number, name and options of each line of a series file that names a patch."""
    text = order.read_text(encoding="utf-8-sig", errors="replace")
    for number, line in enumerate(text.splitlines()[:MOST_ENTRIES], 1):
        words = re.sub(r"(^|\s)#.*", "", line).split()
        if words:
            yield number, words[0], words[1:]


def _in_order(order: Path, folder: Path) -> PatchFolder:
    """The series as a series file has it."""
    below = _patches_below(folder)
    there = [str(path.relative_to(folder)) for path in below]
    patches: list[PatchFile] = []
    for number, name, options in _lines(order):
        what = step = ""
        level, reverse = None, False
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            what = f"names a patch outside of the folder: {clean(name)}"
            step = "copy it into the folder"
        elif not (folder / path).is_file():
            close = clean(" or ".join(difflib.get_close_matches(name, there, 5)))
            what = f"no such patch: {clean(name)}"
            step = f"did you mean {close}?" if close else "add it, or put # before the line"
        for word in re.sub(r"-p\s+", "-p", " ".join(options)).split():
            if word == "-R":
                reverse = True
            elif match := LEVEL.fullmatch(word.replace("-pab", "-p1")):
                level = int(match[1])
            elif not what:
                what = f"unknown option of a patch: {clean(word)}"
                step = "one of: -p0, -p1, ... -p9, -pab, -R"
        if what:
            raise UsageError(what, where=f"{clean(str(order))}:{number}", next_step=step)
        patches.append(PatchFile(folder / path, level, reverse))
    if not patches:
        step = "take a # away, or the file"
        raise UsageError("names no patch", where=clean(str(order)), next_step=step)
    taken = {str(patch.path.relative_to(folder)) for patch in patches}
    base = BASE.search(order.read_text(encoding="utf-8", errors="replace"))
    return PatchFolder(
        tuple(patches),
        tuple(path for path in below if COVER in path.name),
        tuple(name for name in there if name not in taken and COVER not in name),
        False,
        order,
        base[1] if base else "",
    )


def _by_names(folder: Path, own: list[Path]) -> PatchFolder:
    versions = [FORMATTED.match(path.name) for path in own]
    numbers = [int(match["version"] or 1) if match else 0 for match in versions]
    # Only where all are so formatted are those of another version older.
    newest = max(numbers) if all(versions) else None
    older = [path for path, n in zip(own, numbers, strict=True) if newest not in (None, n)]
    files = [path for path in own if path not in older and COVER not in path.name]
    others = [path for path in _patches_below(folder) if path not in own]
    return PatchFolder(
        tuple(map(PatchFile, files)),
        tuple(path for path in own if path not in older and COVER in path.name),
        tuple(str(path.relative_to(folder)) for path in (*older, *others)),
        all(path.suffix == ENDINGS[0] for path in files),
    )


def _patches_below(folder: Path) -> list[Path]:
    """All files that are named like patches, in the order in which people count."""
    paths = islice(folder.rglob("*"), MOST_ENTRIES)
    patches = [path for path in paths if path.suffix in ENDINGS and path.is_file()]
    return sorted(patches, key=lambda path: as_counted(str(path)))


def as_counted(name: str) -> tuple[tuple[str, int], ...]:
    """A key by which names with numbers in them sort as people count."""
    parts = re.split(r"([0-9]+)", name)
    numbers = [*(int(digits) for digits in parts[1::2]), 0]
    return tuple(zip(parts[::2], numbers, strict=True))


# Of all patches of a series together.
APPLY_TIMEOUT_S = 600.0
# The user's git settings (apply.whitespace) would change what "applies" means.
PLAIN_GIT = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
# Of a patch and of a series; the largest patch of a release (generated register headers) has 10 MB.
LARGEST = 32 << 20
LONGEST_HEADER = 4096
RELEASE = re.compile(r"-\d+\.\d+$")
FAILED = re.compile(r"patch failed: (?P<file>.+):(?P<line>\d+)$", re.M)


@dataclass(frozen=True)
class Patch:
    """One patch file, read: ``files`` are all paths it names, old and new."""

    path: Path
    subject: str
    files: tuple[str, ...]
    hunks: tuple[Hunk, ...]

    @property
    def name(self) -> str:
        """The file's name, which is how messages call the patch."""
        return self.path.name

    def error(self, what: str, next_step: str) -> SeriesError:
        """What is wrong with it, for whoever sent it."""
        return SeriesError(what, where=f"{self.name} ({self.subject})", next_step=next_step)


def read_patch(path: Path) -> Patch:
    """Read a patch; UsageError: the file cannot be read; SeriesError as :func:`patch_of`."""
    try:
        size = path.stat().st_size
        content = path.read_bytes() if size <= LARGEST else b""
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=clean(str(path))) from None
    if size > LARGEST:
        raise too_large(size, clean(path.name))
    return patch_of(path, content)[0]


def patch_of(path: Path, content: bytes, level: int | None = None) -> tuple[Patch, bytes, Diff]:
    """A patch of this name and content, the content with git's prefixes, and what was read of it.

    ``level`` is that of ``kernels.diff.read_diff``.
    Raises SeriesError: the patch was damaged, or names or makes what no patch may, see
    ``kernels.diff``.
    """
    where = clean(path.name)
    if where != path.name:
        raise SeriesError(
            "a file name with control characters, or too long", where=where, next_step="rename it"
        )
    text = content.decode(errors="surrogateescape")
    diff = read_diff(text, where, level)
    same = diff.text == text
    content = content if same else diff.text.encode(errors="surrogateescape")
    subject = subject_of(text) or re.sub(r"^[0-9]{4}-", "", path.stem)
    patch = Patch(path, subject, diff.files, diff.hunks)
    return patch, content, diff


def too_large(size: int, where: str) -> SeriesError:
    """The refusal of a patch, or of a whole series, of ``size`` bytes."""
    what = f"has {size / (1 << 20):.1f} MiB, more than {LARGEST >> 20}"
    return SeriesError(what, where=where, next_step="split it, or take the generated files out")


def apply(patches: Sequence[Patch], folder: Path, *, boxed: bool = False) -> None:
    """Apply the patches in ``folder``, one after another, each checked as a whole first.

    With ``boxed`` git runs in a box (``host.sandbox``).
    Raises SeriesError: one does not apply; names patch, source file, line and hunk, and says if
    only white space is in the way. Patches before it stay applied.
    """
    until = time.monotonic() + APPLY_TIMEOUT_S
    resolved, box = folder.resolve(), None
    # Copies that the user of a box may read, wherever the patches are.
    with tempfile.TemporaryDirectory(prefix="twinboot-patches-") as name:
        place = Path(name).resolve()
        place.chmod(0o755)
        if boxed:
            box = sandbox.box((resolved, resolved), readable=(place, *sandbox.programs("git")))
        with box.owned() if box else nullcontext():
            for number, patch in enumerate(patches):
                copy = place / f"{number:04d}.patch"
                copy.write_bytes(patch.path.read_bytes())
                copy.chmod(0o644)
                _apply_one(patch, copy, resolved, box, until)


def _apply_one(patch: Patch, file: Path, folder: Path, box: Box | None, until: float) -> None:
    above = str(folder.resolve().parent)
    env = {**PLAIN_GIT, "GIT_CEILING_DIRECTORIES": above, "LC_ALL": "C"}

    def git(*options: str) -> Finished:
        argv = ["git", "apply", *options, str(file)]
        left_s = max(1.0, until - time.monotonic())
        try:
            whole = box.argv(argv, folder, env) if box else argv
            return run(whole, timeout_s=left_s, cwd=folder, env=env, check=False)
        except TimedOutError as error:
            what = f"git apply takes more than {APPLY_TIMEOUT_S:.0f} s for the series"
            raise patch.error(what, "split the patch") from error

    checked = git("--check", "--numstat", "-z")
    if checked.returncode != 0:
        _require_host(patch, folder, box)
        loosely = git("--check", "--ignore-whitespace")
        raise _does_not_apply(patch, checked.stderr, only_whitespace=loosely.returncode == 0)
    # What git sees and ``read_diff`` did not was not vetted.
    of_git = {entry.split("\t", 2)[-1] for entry in checked.stdout.split("\0") if entry}
    unseen = sorted(of_git - set(patch.files))
    if unseen:
        what = f"git finds changes in it that a reader does not: {clean(', '.join(unseen))}"
        raise patch.error(what, "make it anew with git format-patch")
    if (done := git()).returncode != 0:
        _require_host(patch, folder, box)
        raise _does_not_apply(patch, done.stderr)


def _require_host(patch: Patch, folder: Path, box: Box | None) -> None:
    """See that git runs here, and can write its files; InfraError, OSError: it cannot."""
    argv = ["git", "--version"]
    run(box.argv(argv, folder) if box else argv, timeout_s=APPLY_TIMEOUT_S)
    paths = [patch.path, *(folder / name for name in patch.files)]
    with tempfile.TemporaryFile(dir=folder) as file:
        size = sum(path.lstat().st_size for path in paths if os.path.lexists(path))
        os.posix_fallocate(file.fileno(), 0, size)


def _does_not_apply(patch: Patch, message: str, *, only_whitespace: bool = False) -> SeriesError:
    match = FAILED.search(message)
    if match is None:
        what = f"does not apply: {clean(message, LONGEST_HEADER) or 'git apply gave no reason'}"
    else:
        what = f"does not apply to {clean(match['file'])} at line {match['line']}"
        of_file = [hunk for hunk in patch.hunks if hunk.file == match["file"]]
        for hunk in of_file:
            if hunk.line == int(match["line"]):
                what += f" (hunk {hunk.number} of {len(of_file)}: {clean(hunk.header)})"
    next_step = "rebase the series onto this kernel source, or choose its own base as source"
    folder = patch.path.parent
    if folder.parent.parts[-2:] == ("configs", "series"):
        # One that comes with the lab: NAME is for 6.12, NAME-7.3 beside it for that release.
        name = RELEASE.sub("", folder.name)
        there = {each.name for each in folder.parent.glob(f"{name}*")} - {folder.name}
        others = " or ".join(sorted(each for each in there if RELEASE.sub("", each) == name))
        next_step = (
            f"{folder.name} is for linux-source-{folder.name[len(name) + 1 :] or '6.12'}; for "
            + f"another: {others or 'none'} (configs/series/README.md)"
        )
    if only_whitespace:
        what += "; it would if white space did not count"
        next_step = "tabs or line ends were changed on its way: take the patch from git"
    return patch.error(what, next_step)


def subject_of(text: str) -> str:
    """The subject of a patch file without its brackets, fit to be shown."""
    match = re.search(r"^Subject: (.+(?:\n[ \t].+)*)", text, re.M)
    if match is None:
        return ""
    subject = re.sub(r"\s*\n[ \t]+", " ", match[1][:LONGEST_HEADER])
    return clean(re.sub(r"^(\[[^\]]*\]\s*)+", "", decoded_header(subject)))


def decoded_header(value: str) -> str:
    """A mail header's value with its encoded words decoded, as far as they can be."""
    try:
        return str(make_header(decode_header(value)))
    except (LookupError, ValueError, MessageError):
        return value


SIGNS = str.maketrans("+-", "-+")
# A header that is turned around, and what it is then; the first that fits.
TURNED = tuple(
    (re.compile(f"^{pattern}"), turned)
    for pattern, turned in (
        (r"new file mode (.+)$", r"deleted file mode \1"),
        (r"deleted file mode (.+)$", r"new file mode \1"),
        (r"old mode (.+)$", r"new mode \1"),
        (r"new mode (.+)$", r"old mode \1"),
        (r"rename from (.+)$", r"rename to \1"),
        (r"rename to (.+)$", r"rename from \1"),
        (r"index ([0-9a-f]+)\.\.([0-9a-f]+)(.*)$", r"index \2..\1\3"),
        (r"diff --git a/(\S*) b/(\S*)$", r"diff --git a/\2 b/\1"),
    )
)
# The two sides of a file, whose prefixes stay with their places.
SIDE = re.compile(r'(?:---|\+\+\+) ("?)[ab]/')


def reverted(text: str, where: str) -> str:
    """The diffs in ``text``, which ``kernels.diff`` has read, each turned around.

    The words around them stay.  ``where`` names the patch.
    Raises SeriesError: it copies a file, which nothing takes back, or counts lines that no file
    has.
    """
    lines = text.split("\n")
    output: list[str] = []
    old = new = at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if old > 0 or new > 0:
            kind = line[:1] or " "
            old -= kind in " -"
            new -= kind in " +"
            output.append(line[:1].translate(SIGNS) + line[1:])
        elif line.startswith("--- ") and lines[at : at + 1] and lines[at].startswith("+++ "):
            for sign, prefix, side in (("---", "a/", lines[at]), ("+++", "b/", line)):
                match = SIDE.match(side)
                rest = f"{match[1]}{prefix}{side[match.end() :]}" if match else side[4:]
                output.append(f"{sign} {rest}")
            at += 1
        elif match := HUNK.match(line):
            _, old, _, new = hunk_numbers(match, where)
            before, after = line[4 : match.end() - 3].split(" +")
            output.append(f"@@ -{after} +{before} @@{line[match.end() :]}")
        elif line.startswith(("copy from ", "copy to ")):
            what = "copies a file, which cannot be turned around"
            step = "format the series without copies: git format-patch --no-renames"
            raise SeriesError(what, where=where, next_step=step)
        else:
            turned = (pattern.subn(other, line) for pattern, other in TURNED)
            output.append(next((header for header, count in turned if count), line))
    return "\n".join(output)


MAKEFILE = re.compile(r"(?:(?:GNUm|m|M)akefile|Kbuild|Makefile[._-].*|.*\.mk)$")
# A name without a dot is a script's, as lib/build_OID_registry, but for these and a TODO.
SCRIPT = re.compile(
    r".*\.(?:sh|py|pl|awk|sed|bc)$|(?!Kconfig)(?=.*[a-z])(?!.*defconfig$)[^.]+$", re.S
)
# Folders of programs that are built for the host and run, or are run as they are.
FOLDERS = re.compile(
    r"(?:scripts|tools|usr|certs|rust/(?:macros|pin-init|proc-macro2|quote|syn)"
    r"|arch/\w+/(?:boot/)?tools|.*/aicasm)/"
)
# Programs for the host among the kernel's own files, and headers that they include.
PROGRAMS = re.compile(
    r".*/(?:(?:\w+_)?gen[_-][\w-]+|mkpiggy|mktables|mkcpustr|mkregtable|mkutf8data|vdso2c|vdsomunge"
    r"|conmakehash|pnmtologo|makemapdata|genmap|relacheck|genheaders|hex2hex|relocs\w*)\.[ch]$"
    r"|include/linux/(?:mod_devicetable|kconfig|compiler-version)\.h$"
    r"|arch/x86/(?:include/asm|lib)/(?:cpufeatures|vmxfeatures|insn\w*|inat\w*)\.[ch]$"
)
# What added lines have the compiler, the assembler or the linker read, wherever it lies; before,
# they are put together as a compiler does it: lines, comments, other spellings, pieces of strings.
WRITTEN = (
    (re.compile(r"\\\n\+"), ""),
    (re.compile(r"/\*.{0,200}?\*/", re.S), " "),
    (re.compile("%:"), "#"),
    (re.compile(r'"[ \t\n+]*"'), ""),
)
READS = re.compile(
    r"[./]incbin\b|\.include\s|/include/\s*\"|#\s*embed\b|\binclude(?:_bytes|_str)?!|\benv!"
    r"|(?:#\s*(?:import|include(?:_next)?|pragma\s+GCC\s+dependency)|__has_(?:include|embed)\s*\()"
    r'\s*[<"](?:/|(?:\.\./){6})'
)
LINKED, LINKER = (
    re.compile(r".*\.lds(?:\.[hS])?$"),
    re.compile(r"\b(?:INCLUDE|INPUT|GROUP|STARTUP)\b"),
)
# A command, or a file of another name that may have one.
COMMAND = re.compile(r'\$\(|^\+\s*o?r?source\s+(?!["\'](?:[^"\']*/)?Kconfig[^/"\']*["\'])', re.M)
EXECUTABLE = re.compile(r"new (?:file )?mode\s+[0-7]*[1357][0-7]{2}\b")

# What code asks to know who runs it: the name of the task, the command line, the hypervisor.
ASKS = re.compile(
    r"(?:str\w*|mem)cmp\s*\([^;]{0,200}(?:->comm\b|command_line\b)|strstr\s*\([^;]{0,200}command_line\b"
    r"|\bX86_FEATURE_HYPERVISOR\b|\bhypervisor_is_type\b|\bx86_hyper_type\b"
)


def who_runs_it(diffs: Iterable[Diff]) -> tuple[str, ...]:
    """A finding for each file of these patches where added code depends on who runs it."""
    by_file: dict[str, str] = {}
    for names, section in _sections(diffs):
        added = " ".join(line[1:].strip() for line in section if line.startswith("+"))
        if names and (asks := ASKS.search(added)):
            by_file.setdefault(names[-1], asks[0])
    return tuple(
        f"{file} depends on who runs it ({clean(asks)[:60]}): other programs and machines may take "
        "another path than those measured here"
        for file, asks in by_file.items()
    )


def host_code(diffs: Iterable[Diff]) -> tuple[str, ...]:
    """``FILE (WHY)`` of each file of these patches that the host executes or is read on it."""
    reasons: dict[str, str] = {}
    for names, section in _sections(diffs):
        for file in names:
            if file not in reasons and (reason := _reason(file, section)):
                reasons[file] = reason
    return tuple(f"{file} ({reason})" for file, reason in reasons.items())


def _sections(diffs: Iterable[Diff]) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Each file's change in these patches: its old and new names, and its lines."""
    for diff in diffs:
        lines = diff.text.split("\n")
        for names, where in diff.parts:
            yield names, lines[where]


def _reason(file: str, section: Sequence[str]) -> str:
    """Why a file is named, by its name or the lines of its change; nothing where it is not."""
    name = PurePosixPath(file).name
    if file.startswith("Documentation/") and not name.startswith("Kconfig"):
        return ""
    if MAKEFILE.match(name):
        return "a makefile"
    if FOLDERS.match(file):
        return "a program or script of the build"
    if SCRIPT.match(name) or any(map(EXECUTABLE.match, section)):
        return "a script"
    if PROGRAMS.match(file):
        return "compiled into a program of the build"
    added = "\n".join(line for line in section if line.startswith("+"))
    if name.startswith("Kconfig") and COMMAND.search(added):
        return "a command in Kconfig"
    for spelling, plain in WRITTEN:
        added = spelling.sub(plain, added)
    if READS.search(added) or (LINKED.match(name) and LINKER.search(added)):
        return "reads files of the host"
    return ""
