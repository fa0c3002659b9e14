"""ELF files read in bulk: sections by name, symbols and relocations as numpy tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection
from numpy.typing import NDArray

from errors import InfraError

SHF_ALLOC = 0x2
SHF_EXECINSTR = 0x4
SHF_STRINGS = 0x20
STT_OBJECT = 1
STT_FUNC = 2
STT_SECTION = 3
STT_FILE = 4

# Elf64_Sym and Elf64_Rela of the System V ABI, little-endian.
SYMBOL = np.dtype(
    [
        ("name", "<u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("section", "<u2"),
        ("value", "<u8"),
        ("size", "<u8"),
    ]
)
RELOCATION = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
Table = NDArray[np.void]


@dataclass(frozen=True)
class Section:
    """One section: header fields, and its bytes (empty for NOBITS)."""

    index: int
    name: str
    kind: str
    flags: int
    address: int
    size: int
    data: bytes

    @property
    def is_code(self) -> bool:
        """Whether it holds instructions that are loaded."""
        return bool(self.flags & SHF_EXECINSTR and self.flags & SHF_ALLOC)


@dataclass(frozen=True)
class Elf:
    """One file: its machine, sections by index, the symbols, and their names' string table."""

    machine: str
    sections: tuple[Section, ...]
    symbols: Table
    strings: bytes
    relocations: dict[int, Table]

    def name(self, offset: int) -> str:
        """The string at ``offset`` of the symbols' string table."""
        return self.strings[offset : self.strings.index(b"\0", offset)].decode(errors="replace")


def read(path: Path) -> Elf:
    """Read a 64-bit little-endian ELF file.

    Raises:
        InfraError: it is none.
    """
    try:
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            if elf.elfclass != 64 or not elf.little_endian:
                raise InfraError("not a 64-bit little-endian ELF file", where=str(path))
            return _read(elf)
    except (ELFError, OSError, ValueError) as error:  # an offset that no file has
        raise InfraError(f"cannot be read as ELF: {error}", where=str(path)) from None


def build_id(path: Path) -> str:
    """The linker's build id (hexadecimal); empty when the file has none."""
    with path.open("rb") as stream:
        for section in ELFFile(stream).iter_sections():
            if isinstance(section, NoteSection):
                for note in section.iter_notes():
                    # Other owners, as Xen, number their notes themselves.
                    if (note["n_name"], note["n_type"]) == ("GNU", "NT_GNU_BUILD_ID"):
                        return str(note["n_desc"])
    return ""


def _read(elf: ELFFile) -> Elf:
    sections = []
    symbols = np.zeros(0, SYMBOL)
    strings = b"\0"
    relocations: dict[int, Table] = {}
    for index, section in enumerate(elf.iter_sections()):
        kind = section["sh_type"]
        data = b"" if kind in ("SHT_NOBITS", "SHT_NULL") else bytes(section.data())
        if kind == "SHT_SYMTAB":
            symbols = np.frombuffer(data, SYMBOL)
            strings = bytes(elf.get_section(section["sh_link"]).data())
        elif kind == "SHT_RELA":
            relocations[section["sh_info"]] = np.frombuffer(data, RELOCATION)
        sections.append(
            Section(
                index,
                section.name,
                kind,
                section["sh_flags"],
                section["sh_addr"],
                section["sh_size"],
                data,
            )
        )
    return Elf(str(elf["e_machine"]), tuple(sections), symbols, strings, relocations)
