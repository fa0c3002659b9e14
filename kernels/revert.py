"""A patch turned around: what it adds is removed.  Pure, text in, text out."""

from __future__ import annotations

import re

from errors import SeriesError
from kernels.diff import HUNK, hunk_numbers

SIGNS = str.maketrans("+-", "-+")
SWAPPED = {
    "new file mode": "deleted file mode",
    "deleted file mode": "new file mode",
    "old mode": "new mode",
    "new mode": "old mode",
    "rename from": "rename to",
    "rename to": "rename from",
}
HEADER = re.compile(rf"({'|'.join(SWAPPED)}) (.+)$")
INDEX = re.compile(r"index ([0-9a-f]+)\.\.([0-9a-f]+)(.*)$")
NAMES = re.compile(r"diff --git (\S+) (\S+)$")


def reverted(text: str, where: str) -> str:
    """The diffs in ``text``, which ``kernels.diff`` has read, each turned around.

    The words around them stay.  ``where`` names the patch.

    Raises:
        SeriesError: it copies a file, which nothing takes back, or counts lines that no file has.
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
            output += [_side(lines[at], "---"), _side(line, "+++")]
            at += 1
        elif match := HUNK.match(line):
            _, old, _, new = hunk_numbers(match, where)
            before, after = line[4 : match.end() - 3].split(" +")
            output.append(f"@@ -{after} +{before} @@{line[match.end() :]}")
        elif line.startswith(("copy from ", "copy to ")):
            raise SeriesError(
                "copies a file, which cannot be turned around", where=where,
                next_step="format the series without copies: git format-patch --no-renames",
            )  # fmt: skip
        else:
            output.append(_header(line))
    return "\n".join(output)


def _side(line: str, sign: str) -> str:
    name = line[4:]
    if name.startswith(("a/", "b/", '"a/', '"b/')):
        quote = name[: name.index("/") - 1]
        name = f"{quote}{'a' if sign == '---' else 'b'}{name[name.index('/') :]}"
    return f"{sign} {name}"


def _header(line: str) -> str:
    if match := HEADER.match(line):
        return f"{SWAPPED[match[1]]} {match[2]}"
    if match := INDEX.match(line):
        return f"index {match[2]}..{match[1]}{match[3]}"
    if (match := NAMES.match(line)) and match[1][:2] == "a/" and match[2][:2] == "b/":
        return f"diff --git a/{match[2][2:]} b/{match[1][2:]}"
    return line
