"""What machine code points at, in words that do not move when code moves.

A function's bytes change when its neighbours grow: through relocations that
name a section and an offset, and through calls inside one file, which the
assembler resolves by itself.  Here both become the name of what is meant.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from kernels.elf import RELOCATION, SHF_STRINGS, STT_SECTION, Elf, Section, Table

# R_X86_64_PC32 and PLT32 count from the end of their own 4 bytes.
PC_RELATIVE = (2, 4)
CALL, JUMP = 0xE8, 0xE9
TWO_BYTE, JCC = 0x0F, 0x80  # 0f 80 to 0f 8f: conditional jumps
SHORT_JUMP, SHORT_JCC = 0xEB, 0x70
SHORTEST = 8  # bytes; anything less holds no call
# arm64: instructions that branch, as mask, bits, and where in the word the distance is.
ARM64_WORD = 4
ARM64_BRANCHES = (
    (0x7C000000, 0x14000000, 0, 26),  # b, bl
    (0xFF000000, 0x54000000, 5, 19),  # b.cond
    (0x7E000000, 0x34000000, 5, 19),  # cbz, cbnz
    (0x7E000000, 0x36000000, 5, 14),  # tbz, tbnz
)


@dataclass(frozen=True)
class Pointer:
    """At ``offset`` of a section the code refers to ``label``."""

    offset: int
    label: str


class References:
    """The references of one file's sections."""

    def __init__(self, elf: Elf) -> None:
        self._elf = elf
        self._known: dict[tuple[int, int, int], str] = {}
        self._starts: dict[int, tuple[list[int], list[int]]] = {}

    def of(
        self, section: Section, starts: Mapping[int, str]
    ) -> tuple[bytes, list[Pointer], list[Pointer]]:
        """The section's bytes with resolved calls blanked, its relocations, these calls.

        ``starts`` maps offsets in the section to the functions that begin there.
        Both lists are in the order of their offsets.
        """
        relocations = self._elf.relocations.get(section.index, np.zeros(0, RELOCATION))
        blank = BLANK.get(self._elf.machine, _blank_nothing)
        data, calls = blank(section, starts, relocations)
        ordered = relocations[np.argsort(relocations["offset"], kind="stable")]
        pointers = [
            Pointer(offset, f"{kind} {self._label(target, kind, addend)}")
            for offset, kind, target, addend in ordered.tolist()
        ]
        return data, pointers, calls

    def _label(self, target: int, kind: int, addend: int) -> str:
        key = (target, kind, addend)
        if key not in self._known:
            self._known[key] = self._look_up(target, kind, addend)
        return self._known[key]

    def _look_up(self, target: int, kind: int, addend: int) -> str:
        symbol = self._elf.symbols[target]
        if symbol["info"] & 0xF != STT_SECTION:
            return f"{self._plain(target)}{addend:+d}"
        section = self._elf.sections[int(symbol["section"])]
        position = addend + 4 if kind in PC_RELATIVE else addend
        if section.flags & SHF_STRINGS:
            end = section.data.find(b"\0", max(position, 0))
            return f"{section.name} {section.data[max(position, 0) : end]!r}"
        starts, indices = self._objects(section.index)
        at = bisect_right(starts, position) - 1
        if at >= 0 and position < starts[at] + int(self._elf.symbols["size"][indices[at]]):
            return f"{self._plain(indices[at])}{position - starts[at]:+d}"
        return section.name  # unnamed constants and jump tables

    def _plain(self, index: int) -> str:
        # gcc numbers static variables in a file: "__already_done.12".
        return re.sub(r"\.\d+$", "", self._elf.name(int(self._elf.symbols["name"][index])))

    def _objects(self, section: int) -> tuple[list[int], list[int]]:
        if section not in self._starts:
            symbols = self._elf.symbols
            indices = np.flatnonzero((symbols["section"] == section) & (symbols["size"] > 0))
            ordered = indices[np.argsort(symbols["value"][indices], kind="stable")]
            self._starts[section] = (symbols["value"][ordered].tolist(), ordered.tolist())
        return self._starts[section]


def _blank_calls(
    section: Section, starts: Mapping[int, str], relocations: Table
) -> tuple[bytes, list[Pointer]]:
    """Blank every displacement that leads to the start of a function of the section.

    Not a disassembler: bytes may only look like such a call (about one in a whole
    kernel).  A jump that becomes short because its target moved nearer still
    counts as a difference.
    """
    code = np.frombuffer(section.data, np.uint8)
    data = bytearray(section.data)
    if len(code) < SHORTEST or not starts:
        return bytes(data), []
    begins = np.fromiter(starts, np.int64)
    opcode = code[:-4]
    near = (opcode == CALL) | (opcode == JUMP)
    near[1:] |= (opcode[1:] & 0xF0 == JCC) & (opcode[:-1] == TWO_BYTE)
    short = (opcode == SHORT_JUMP) | (opcode & 0xF0 == SHORT_JCC)
    calls = []
    for opcodes, width in ((near, 4), (short, 1)):
        fields = np.flatnonzero(opcodes) + 1
        fields = fields[~np.isin(fields, relocations["offset"])]
        distances = code[fields[:, None] + np.arange(width)].view(f"<i{width}").ravel()
        targets = fields + width + distances
        hits = np.isin(targets, begins)
        for offset, target in zip(fields[hits].tolist(), targets[hits].tolist(), strict=True):
            data[offset : offset + width] = bytes(width)
            calls.append(Pointer(offset, f"call {starts[target]}"))
    return bytes(data), sorted(calls, key=lambda call: call.offset)


def _blank_branches(
    section: Section, starts: Mapping[int, str], relocations: Table
) -> tuple[bytes, list[Pointer]]:
    """The same for arm64, whose instructions are words: none is taken for another."""
    whole = len(section.data) // ARM64_WORD * ARM64_WORD
    words = np.frombuffer(section.data[:whole], "<u4").copy()
    at = np.arange(len(words), dtype=np.int64) * ARM64_WORD
    begins = np.fromiter(starts, np.int64)
    free = ~np.isin(at, relocations["offset"])
    calls = []
    for mask, bits, shift, width in ARM64_BRANCHES:
        places = np.flatnonzero(((words & np.uint32(mask)) == bits) & free)
        field = (words[places].astype(np.int64) >> shift) & ((1 << width) - 1)
        distances = (field - ((field >> (width - 1)) << width)) * ARM64_WORD
        targets = at[places] + distances
        hits = np.isin(targets, begins)
        words[places[hits]] &= np.uint32(~(((1 << width) - 1) << shift) & 0xFFFFFFFF)
        for offset, target in zip(at[places[hits]].tolist(), targets[hits].tolist(), strict=True):
            calls.append(Pointer(offset, f"call {starts[target]}"))
    data = words.tobytes() + section.data[whole:]
    return data, sorted(calls, key=lambda call: call.offset)


def _blank_nothing(
    section: Section, starts: Mapping[int, str], relocations: Table
) -> tuple[bytes, list[Pointer]]:
    """Nothing is known of this machine's code: what the assembler resolved stays."""
    return section.data, []


Blank = Callable[[Section, Mapping[int, str], Table], tuple[bytes, list[Pointer]]]
BLANK: Mapping[str, Blank] = {"EM_X86_64": _blank_calls, "EM_AARCH64": _blank_branches}
