"""What a console says of a broken kernel: pure functions over its text, patterns as data.

The patterns are in ``splats.toml``.  A console is read whole: the kernels of the gate do
not panic at a warning, and what follows the first splat is found, too.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PATTERNS = Path(__file__).with_name("splats.toml")
STAMP = re.compile(r"^(?:<\d+>)?\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? ?")
# Where it happened, in the words of lockdep, of an oops in the kernel, and of a warning.
PLACES = (
    re.compile(r"(?:trying to (?:acquire|release) lock|takes)[^\n]*\n[^\n]* at: ([\w.]+)\+0x"),
    re.compile(r"RIP: 0010:([\w.]+)\+0x"),
    re.compile(r" at (?:\S+:\d+ )?([\w.]+)\+0x"),
)
TRACED = re.compile(r"^ +([\w.]+)\+0x[0-9a-f]+/0x[0-9a-f]+$")
# What prints the splat or gives out memory, not what it is about.
TELLERS = re.compile(
    r"^(dump_stack|dump_stack_lvl|__might_resched|__might_sleep|print_\w+|check_\w+|mark_lock\w*"
    r"|__lock_acquire\w*|lock_acquire\w*|lock_release\w*|lockdep_\w+|__schedule\w*|schedule\w*"
    r"|_raw_\w+|kasan_\w+|slab_err\w*|bad_page\w*|dump_page|rcu_\w+|asm_\w+|sysvec_\w+"
    r"|kmem_cache_alloc\w*|__kmalloc\w*|kmalloc\w*|__alloc_pages\w*|alloc_pages\w*)$"
)
EVIDENCE_LINES = 100
# Ends the evidence of a splat, with the line itself.
END = re.compile(r"</TASK>|---\[ end (?:trace|Kernel panic)|^twinboot: ")
# The same splat again and again says nothing new.
MOST = 20


@dataclass(frozen=True)
class Splat:
    """One complaint of the kernel: its kind, its first line, where, and the lines of it.

    ``where`` is a function, or empty; lines have no time stamps.
    """

    kind: str
    title: str
    line: str
    where: str
    evidence: tuple[str, ...]


@cache
def kinds(path: Path = PATTERNS) -> tuple[tuple[str, str, re.Pattern[str]], ...]:
    """Kind, title and pattern of every kind of splat, in the order they are tried."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    return tuple(
        (entry["kind"], entry["title"], re.compile("|".join(f"(?:{p})" for p in entry["patterns"])))
        for entry in data["splats"]
    )


def find(console: str) -> tuple[Splat, ...]:
    """Every splat of a console, in its order, each kind of line once for each place.

    A panic that another splat led to is no finding of its own.
    """
    lines = [STAMP.sub("", line.rstrip("\r")) for line in console.splitlines()]
    splats: dict[tuple[str, str], Splat] = {}
    for splat in _all(lines):
        if splat.kind != "panic" or not splats:
            splats.setdefault((splat.kind, same(splat)), splat)
        if len(splats) == MOST:
            break
    return tuple(splats.values())


def same(splat: Splat) -> str:
    """What two splats have in common that are of one cause: numbers and addresses are not."""
    return f"{re.sub(r'0x[0-9a-f]+|[0-9a-f]{16}|[0-9]+', '#', splat.line)} {splat.where}".strip()


def _all(lines: list[str]) -> Iterator[Splat]:
    number = 0
    while number < len(lines):
        match = _kind(lines[number])
        if match is None:
            number += 1
            continue
        end = _end(lines, number)
        evidence = tuple(line for line in lines[number:end] if line.strip())
        yield Splat(match[0], match[1], lines[number].strip(), _where(evidence), evidence)
        number = max(end, number + 1)


def _kind(line: str) -> tuple[str, str] | None:
    return next(((kind, title) for kind, title, pattern in kinds() if pattern.search(line)), None)


def _end(lines: list[str], begin: int) -> int:
    """One past the last line of the splat that begins there; a line of its own kind is its."""
    first = _kind(lines[begin])
    last = min(len(lines), begin + EVIDENCE_LINES)
    for number in range(begin + 1, last):
        if lines[number].startswith("twinboot: "):
            return number
        if END.search(lines[number]):
            return number + 1
        if _kind(lines[number]) not in (None, first):
            return number
    return last


def _where(evidence: tuple[str, ...]) -> str:
    text = "\n".join(evidence)
    for place in PLACES:
        if match := place.search(text):
            return match[1]
    for line in evidence:
        match = TRACED.match(line)
        if match and not TELLERS.match(match[1]):
            return match[1]
    return ""
