"""A series on disk: its patches, turned around, and what of them a build executes on the host."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from email.errors import MessageError
from email.header import decode_header, make_header
from functools import partial
from pathlib import Path, PurePosixPath

from errors import SeriesError, UsageError
from host import sandbox
from host.process import Finished, TimedOutError, run
from host.sandbox import Box
from kernels.diff import HUNK, Diff, Hunk, hunk_numbers, read_diff
from text import clean

# Of all patches of a series together.
APPLY_TIMEOUT_S = 600.0
# The user's git settings (apply.whitespace) and a surrounding hook's variables
# (GIT_DIR) would change what "applies" means.
FOREIGN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
# Of a patch and of a series; the largest patch of a release (generated register headers) has 10 MB.
LARGEST = 32 << 20
LONGEST_HEADER = 4096
RELEASE = re.compile(r"-\d+\.\d+$")
FAILED = re.compile(r"patch failed: (?P<file>.+):(?P<line>\d+)$", re.M)


@dataclass(frozen=True)
class Patch:
    """One patch file, read: ``files`` are all paths it names, old and new, ``made`` new files."""

    path: Path
    subject: str
    files: tuple[str, ...]
    hunks: tuple[Hunk, ...]
    made: tuple[str, ...] = ()

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
    patch = Patch(path, subject, diff.files, diff.hunks, diff.made)
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
    if not boxed:
        for patch in patches:
            _apply_one(patch, patch.path.resolve(), folder, None, until)
        return
    resolved = folder.resolve()
    # Copies that the user of the box may read, wherever the patches are.
    with tempfile.TemporaryDirectory(prefix="twinboot-patches-") as name:
        place = Path(name).resolve()
        place.chmod(0o755)
        box = sandbox.box((resolved, resolved), readable=(place, *sandbox.programs("git")))
        with box.owned():
            for number, patch in enumerate(patches):
                copy = place / f"{number:04d}.patch"
                copy.write_bytes(patch.path.read_bytes())
                copy.chmod(0o644)
                _apply_one(patch, copy, resolved, box, until)


def _apply_one(patch: Patch, file: Path, folder: Path, box: Box | None, until: float) -> None:
    git = partial(_git_apply, patch, file, folder, box, until)
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


def _git_apply(
    patch: Patch, file: Path, folder: Path, box: Box | None, until: float, *options: str
) -> Finished:
    env = {
        "GIT_CEILING_DIRECTORIES": str(folder.resolve().parent),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "LC_ALL": "C",
    }
    unset = ["env", *(word for name in FOREIGN for word in ("-u", name))]
    full = [*unset, "git", "apply", *options, str(file)]
    try:
        return run(
            box.argv(full, folder, env) if box else full,
            timeout_s=max(1.0, until - time.monotonic()),
            cwd=folder,
            env=env,
            check=False,
        )
    except TimedOutError as error:
        what = f"git apply takes more than {APPLY_TIMEOUT_S:.0f} s for the series"
        raise patch.error(what, "split the patch") from error


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
