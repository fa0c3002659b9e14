"""What a failed build says, and whose fault it is.  Pure: log text in, verdict out."""

from __future__ import annotations

import re

ERRORS_SHOWN = 3
# Trouble of the host; the first match decides, whatever else is in the log.
HOST_TROUBLE = re.compile(
    r"^.*(?:fatal error: Killed signal|\] Killed\b|\b\d+ Killed\b|\bKilled$"
    r"|virtual memory exhausted|out of memory allocating|Cannot allocate memory"
    r"|No space left on device|Disk quota exceeded|Read-only file system|Input/output error"
    r"|: not found$|: command not found|Text file busy|internal compiler error: Segmentation).*$",
    re.M,
)
COMPILER = re.compile(
    r"^(?P<file>[^\s:]+):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>.*)$", re.M
)
OTHER = re.compile(
    r"^(?P<text>.*(?:undefined reference to|multiple definition of|\berror: |\bError: "
    r"|\bERROR: modpost: ).*)$",
    re.M,
)
MAKE = re.compile(r"^(?P<text>make.*: \*\*\* .*)$", re.M)


def host_trouble(log: str) -> str:
    """The line that shows that the host failed (memory, disk, a missing tool), or nothing."""
    match = HOST_TROUBLE.search(log)
    return match[0].strip() if match else ""


def first_errors(log: str) -> tuple[str, ...]:
    """The first real errors, as ``file:line: text`` with paths from the tree's top."""
    found = [
        f"{match['file'].removeprefix('../')}:{match['line']}: {match['text']}"
        for match in COMPILER.finditer(log)
    ]
    for pattern in (OTHER, MAKE):
        if not found:
            found = [match["text"].strip() for match in pattern.finditer(log)]
    return tuple(dict.fromkeys(found))[:ERRORS_SHOWN]
