"""Source lines of a kernel's code: where the statements of each begin, and how often these ran.

Objects are compiled once more with debug information.  Their code is that of the objects that were
linked, byte for byte, or they say nothing.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from elftools.elf.elffile import ELFFile

from errors import InfraError
from host.process import run
from kernels import btf, symbols
from kernels.addresses import AddressTable
from kernels.symbols import ARM64_WORD, STT_FUNC, Elf

# The compiler marks where each statement begins, once in each copy; nothing else is wanted of it.
FLAGS = "-gdwarf-5 -g1 -gstatement-frontiers -gcolumn-info"
PREFIX = "twinboot-lines-"
TIMEOUT_S = 120.0
DISASSEMBLED = re.compile(
    r"^Disassembly of section (?P<section>\S+):|^ *(?P<at>[0-9a-f]+):\t", re.M
)
SET_ADDRESS = 2
STB_WEAK = 2
DEBUG_LINE = ".debug_line"


class Statement(NamedTuple):
    """A row of a line table; a statement ``begins`` there, of a file asked for or ''."""

    section: str
    offset: int
    file: str
    line: int
    column: int
    begins: bool


class ObjectLines(NamedTuple):
    """An object: its statements, and by section where instructions and functions begin.

    Weak functions are none of them: the linker may have chosen another object's.
    """

    statements: tuple[Statement, ...]
    instructions: dict[str, tuple[int, ...]]
    functions: dict[str, dict[str, int]]


def script(objects: Path, folder: str, files: Iterable[str]) -> str:
    """Shell commands that compile these files once more in ``folder``, those that were built."""
    lines = [f"cd {folder}", f"rm -f {PREFIX}*.o"]
    stems = {file: file.rpartition(".")[0] for file in files}
    lines += [
        btf.again(objects, stem, name_of(file), FLAGS, whole=True) for file, stem in stems.items()
    ]
    return "\n".join([*filter(None, lines), "wait"])


def name_of(file: str) -> str:
    """The object that ``script`` makes of a source file."""
    return f"{PREFIX}{file.rpartition('.')[0].replace('/', '-')}.o"


@symbols.of_a_build
def read(path: Path, built: Path, files: Collection[str]) -> ObjectLines:
    """The lines of ``files`` in an object built with -g; InfraError: not the code of ``built``."""
    elf, linked = symbols.read(path), symbols.read(built)
    codes = [
        [(section.name, section.data) for section in each.sections if section.is_code]
        for each in (elf, linked)
    ]
    if codes[0] != codes[1]:
        raise InfraError("compiled with -g its code is not the same", where=built.name)
    functions: dict[str, dict[str, int]] = defaultdict(dict)
    kinds, weak = elf.symbols["info"] & 0xF, elf.symbols["info"] >> 4 == STB_WEAK
    for index in np.flatnonzero((kinds == STT_FUNC) & (elf.symbols["size"] > 0) & ~weak).tolist():
        symbol = elf.symbols[index]
        section = elf.sections[int(symbol["section"])]
        functions[section.name][elf.name(int(symbol["name"]))] = int(symbol["value"])
    rows = dict.fromkeys(
        row if row.file in files else Statement(*row[:2], "", 0, 0, begins=False)
        for row in statements(path, elf)
    )
    return ObjectLines(tuple(rows), instructions(path, elf), dict(functions))


def statements(path: Path, elf: Elf) -> Iterable[Statement]:
    """Every row of an object's line tables, its files from the top of the source."""
    # Addresses count from the beginning of a section, which the relocations name.
    at = next(section.index for section in elf.sections if section.name == DEBUG_LINE)
    table = elf.relocations[at]
    targets = table["symbol"][np.argsort(table["offset"], kind="stable")].tolist()
    places = [elf.sections[int(elf.symbols[target]["section"])] for target in targets]
    sections = iter([place.name for place in places if place.is_code])
    with path.open("rb") as stream:
        info = ELFFile(stream).get_dwarf_info()
        for unit in info.iter_CUs():
            program = info.line_program_for_CU(unit)
            if program is None:
                continue
            # The folder of the objects is right inside the source.
            folders = [each.decode(errors="replace") for each in program["include_directory"]]
            names = [
                posixpath.normpath(
                    posixpath.join(
                        folders[entry.dir_index] if entry.dir_index else "",
                        entry.name.decode(errors="replace"),
                    )
                ).removeprefix("../")
                for entry in program["file_entry"]
            ]
            section = ""
            for entry in program.get_entries():
                if entry.is_extended and entry.command == SET_ADDRESS:
                    section = next(sections)
                state = entry.state
                if state is not None and not state.end_sequence:
                    place = (names[state.file], state.line, state.column)
                    yield Statement(section, state.address, *place, bool(state.is_stmt))


def instructions(path: Path, elf: Elf) -> dict[str, tuple[int, ...]]:
    """Where instructions begin, by section of code."""
    if elf.machine == "EM_AARCH64":
        codes = [section for section in elf.sections if section.is_code]
        return {code.name: tuple(range(0, code.size, ARM64_WORD)) for code in codes}
    argv = ["objdump", "-dwz", "--no-show-raw-insn", str(path)]
    output = run(argv, timeout_s=TIMEOUT_S, env={"LC_ALL": "C"}).stdout
    starts: dict[str, list[int]] = defaultdict(list)
    section = ""
    for match in DISASSEMBLED.finditer(output):
        section = match["section"] or section
        if match["at"]:
            starts[section].append(int(match["at"], 16))
    return {name: tuple(where) for name, where in starts.items()}


def placed(lines: ObjectLines, table: AddressTable) -> dict[str, int]:
    """Where the linker put the sections of an object, those where all functions agree on it."""
    places = {}
    for section, functions in lines.functions.items():
        votes = Counter(
            address - offset
            for name, offset in functions.items()
            for address in table.at.get(name, ())
        )
        (start, votes_for), *_ = votes.most_common(1) or [(0, 0)]
        if votes_for == len(functions):
            places[section] = start
    return places


# A block that was counted: where it begins, how many instructions it has, how often it was entered.
Blocks = Iterable[tuple[int, int, int]]


def executions(
    lines: ObjectLines, places: Mapping[str, int], blocks: Blocks
) -> dict[tuple[str, int], tuple[int, int, bool]]:
    """File and line → how often it ran, its instructions, and whether that is exact.

    A statement runs as often as the instruction that it begins at; where the compiler made copies
    of it, inlined or not, these are added up.  Of a line with several statements it is the one that
    ran most often.  A statement that left no instruction where it begins, and to which something
    jumped, may be one that ended before: such lines are not exact, and left out where they seem
    never to have run.  Of a line where no statement begins code was moved: it ran at most as often
    as the most executed of its instructions.
    """
    blocks = list(blocks)
    entered = {address for address, _, _ in blocks}
    begun: dict[tuple[str, int], Counter[int]] = defaultdict(Counter)
    doubtful: set[tuple[str, int, int]] = set()
    moved: Counter[tuple[str, int]] = Counter()
    spent: Counter[tuple[str, int]] = Counter()
    for section, start in places.items():
        at = np.array(lines.instructions.get(section, ()), np.int64)
        steps = np.zeros(len(at) + 1, np.int64)
        for address, count, entries in blocks:
            first = int(np.searchsorted(at, address - start))
            if first < len(at) and at[first] == address - start:
                steps[first] += entries
                steps[min(first + count, len(at))] -= entries
        rows = sorted(
            (row for row in lines.statements if row.section == section), key=lambda row: row.offset
        )
        # An instruction is of the last row that is not behind it.
        last = np.searchsorted([row.offset for row in rows], at, side="right") - 1
        owners = [(rows[row].file, rows[row].line) if row >= 0 else ("", 0) for row in last]
        ran = dict(zip(at.tolist(), np.cumsum(steps)[:-1].tolist(), strict=True))
        own = dict(zip(at.tolist(), owners, strict=True))
        for offset, count in ran.items():
            spent[own[offset]] += count
        for row in rows:
            key = (row.file, row.line)
            if not row.line or row.offset not in ran:
                continue
            if row.begins:
                begun[key][row.column] += ran[row.offset]
                if own[row.offset] != key and row.offset + start in entered:
                    doubtful.add((*key, row.column))
            else:
                moved[key] = max(ran[row.offset], moved[key])
    counted: dict[tuple[str, int], tuple[int, int, bool]] = {}
    for key in {**begun, **moved}:
        sure = [count for column, count in begun[key].items() if (*key, column) not in doubtful]
        ran_most = max(sure or begun[key].values() or [moved[key]])
        if ran_most or (sure and key in spent):
            counted[key] = (ran_most, spent.get(key, 0), bool(sure))
    return counted
