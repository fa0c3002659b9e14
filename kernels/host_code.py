"""What of a series the host executes, or reads, while a kernel is built: by file, pure.

Named is what a build runs by design: makefiles, scripts, programs for the host and what these are
compiled of, commands in Kconfig, and files of the host that the compiler is told to read.  Of any
other file nothing is promised: a header may be compiled into a program of the host.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from pathlib import PurePosixPath

MAKEFILE = re.compile(r"(?:Makefile|Kbuild|Makefile[._-].*|.*\.mk)$")
SCRIPT = re.compile(r".*\.(?:sh|py|pl|awk|sed|bc)$")
# Folders of programs that are built for the host and run, or are run as they are.
FOLDERS = re.compile(r"(?:scripts|tools|usr|certs|rust/macros|arch/\w+/(?:boot/)?tools)/")
# Programs for the host among the kernel's own files, and headers that they include.
PROGRAMS = re.compile(
    r".*/(?:gen_\w+|mkpiggy|mktables|mkcpustr|mkregtable|mkutf8data|vdso2c|vdsomunge|conmakehash|"
    r"genheaders|hex2hex|relocs\w*)\.[ch]$"
    r"|include/linux/(?:mod_devicetable|kconfig|compiler-version)\.h$"
    r"|arch/x86/(?:include/asm|lib)/(?:cpufeatures|vmxfeatures|insn\w*|inat\w*)\.[ch]$"
)
# What added lines have the compiler or the assembler read, wherever it lies.
READS = re.compile(
    r'\.incbin\b|\.include\s|#\s*embed\b|#\s*include\s*[<"]/|\binclude_(?:bytes|str)!|\benv!'
)
COMMAND = re.compile(r"\$\(")
EXECUTABLE = re.compile(r"^new (?:file )?mode 100755$", re.M)
SECTION = re.compile(r"^diff --git |^--- (?=.*\n\+\+\+ )", re.M)
NAME = re.compile(
    r"^(?:\+\+\+|---) (?:\"?[ab]/)?([^\t\n\"]+)|^diff --git \S+ \"?b/([^\n\"]+)", re.M
)


def host_code(texts: Iterable[str]) -> tuple[str, ...]:
    """``FILE (WHY)`` of each file of these patches that the host executes or is read on it."""
    reasons: dict[str, str] = {}
    for text in texts:
        starts = [match.start() for match in SECTION.finditer(text)]
        for start, end in itertools.pairwise([*starts, len(text)]):
            section = text[start:end]
            names = [match[1] or match[2] for match in NAME.finditer(section, 0, 1 << 14)]
            file = next((name for name in reversed(names) if name != "/dev/null"), "")
            if file and file not in reasons and (reason := _reason(file, section)):
                reasons[file] = reason
    return tuple(f"{file} ({reason})" for file, reason in reasons.items())


def _reason(file: str, section: str) -> str:
    """Why a file is named; nothing where it is not."""
    name = PurePosixPath(file).name
    if file.startswith("Documentation/"):
        return ""
    if MAKEFILE.match(name):
        return "a makefile"
    if FOLDERS.match(file):
        return "a program or script of the build"
    if SCRIPT.match(name) or EXECUTABLE.search(section):
        return "a script"
    if PROGRAMS.match(file):
        return "compiled into a program of the build"
    added = "\n".join(line for line in section.splitlines() if line.startswith("+"))
    if name.startswith("Kconfig") and COMMAND.search(added):
        return "a command in Kconfig"
    if READS.search(added):
        return "reads files of the host"
    return ""
