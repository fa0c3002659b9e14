"""Lines of optimised code: what ran, against gcov's counts of the same program unoptimised."""

import re
import shutil
from bisect import bisect_left
from collections import Counter
from pathlib import Path

import pytest

from errors import InfraError
from experiment.architecture import ARM64
from kernels import addresses, linetable
from kernels.symbols import ARM64_WORD
from tests.waiting import completed

HERE = Path(__file__).parent / "counted_lines"
WORK = HERE / "work.c"
BRANCH = re.compile(r"^ *([0-9a-f]+):\t(?:bnd )?(?:j|call|ret|b[. ]|b\t|bl|cb|tb|br)", re.M)
# A block that QEMU enters; it ends at a branch, and at the end of a page.
TRACED = re.compile(r"^Trace \d+: \S+ \[\w+/0*([0-9a-f]+)/", re.M)
PAGE = 4096
ROUNDS = "40"
Lines = linetable.ObjectLines
Places = dict[str, int]
COMPILER = ("gcc", "-O2", "-fno-tree-vectorize", "-fno-pie")


def tool(*argv: str | Path, cwd: Path) -> str:
    done = completed(argv, cwd=cwd)
    return done.stdout


class Program:
    """The program of known counts, compiled without and with its lines, and linked."""

    tools = ""
    flags: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "work.c").write_bytes(WORK.read_bytes())
        self.compile("-c", "-o", "built.o", "work.c")
        self.compile("-c", "-o", "chosen.o", HERE / "chosen.c")
        self.compile(*linetable.FLAGS.split(), "-c", "-o", "again.o", "work.c")
        self.link()
        self.lines = linetable.read(folder / "again.o", folder / "built.o", {"work.c"})
        bounds = "0 T _text\nffffffffffffffff T _etext\n"
        shown = tool(f"{self.tools}nm", "work", cwd=folder).splitlines()
        symbols = [line for line in shown if line[:1] != " "]
        self.table = addresses.parse(bounds + "\n".join(symbols))

    def compile(self, *argv: str | Path) -> None:
        compiler, *flags = COMPILER
        tool(f"{self.tools}{compiler}", *flags, *self.flags, *argv, cwd=self.folder)

    def link(self) -> None:
        tool("gcc", "-O1", "-o", "steps", HERE / "steps.c", cwd=self.folder)
        tool("gcc", "-static", "-no-pie", "-o", "work", "built.o", "chosen.o", cwd=self.folder)

    def branches(self) -> set[int]:
        argv = (f"{self.tools}objdump", "-d", "--no-show-raw-insn", "work")
        return {int(match[1], 16) for match in BRANCH.finditer(tool(*argv, cwd=self.folder))}

    def blocks(self, places: Places) -> list[tuple[int, int, int]]:
        """Blocks as a translator makes them, up to the next branch: from single steps."""
        ends = [places[name] + at for name in places for at in self.lines.instructions[name]]
        argv = ["./steps", hex(min(ends)), hex(max(ends) + 16), "./work", ROUNDS]
        branches, blocks = self.branches(), Counter[tuple[int, int]]()
        begin, count = 0, 0
        for at in (int(word, 16) for word in tool(*argv, cwd=self.folder).split()):
            begin, count = (begin if count else at), count + 1
            if at in branches:
                blocks[begin, count] += 1
                count = 0
        return [(*key, entries) for key, entries in blocks.items()]


class ProgramOfArm64(Program):
    """The same on a machine without a kernel, with the blocks that QEMU entered."""

    tools = ARM64.build.tools
    flags = ("-mgeneral-regs-only",)

    def link(self) -> None:
        self.compile(f'-DROUNDS="{ROUNDS}"', "-c", "-o", "arm64.o", HERE / "arm64.c")
        flags = ("-nostdlib", "-static", "-no-pie", "-Wl,-Ttext=0x40100000")
        self.compile(*flags, "-o", "work", "built.o", "chosen.o", "arm64.o")

    def blocks(self, places: Places) -> list[tuple[int, int, int]]:
        argv = (ARM64.board.qemu, "-M", "virt", "-cpu", "cortex-a57", "-nodefaults")
        more = ("-nographic", "-kernel", "work", "-d", "exec,nochain", "-D", "log")
        tool(*argv, *more, cwd=self.folder)
        traced = Counter(TRACED.findall((self.folder / "log").read_text()))
        branches = sorted(self.branches())
        blocks = []
        for word, entries in traced.items():
            at = int(word, 16)
            branch = branches[bisect_left(branches, at)]
            end = min(branch + ARM64_WORD, at // PAGE * PAGE + PAGE)
            blocks.append((at, (end - at) // ARM64_WORD, entries))
        return blocks


@pytest.fixture(scope="module", params=[Program, ProgramOfArm64])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    made: type[Program] = request.param
    if made.tools and not all(map(shutil.which, (ARM64.board.qemu, f"{made.tools}gcc"))):
        pytest.skip("no compiler and no QEMU of arm64 here")
    return made(tmp_path_factory.mktemp("lines"))


def of_gcov(folder: Path) -> dict[int, int]:
    tool("gcc", "-O0", "--coverage", "-o", "covered", "work.c", cwd=folder)
    tool("./covered", ROUNDS, cwd=folder)
    shown = tool("gcov", "-t", "covered-work.gcda", cwd=folder)
    rows = [line.split(":", 2) for line in shown.splitlines()]
    return {
        int(number): int(count.strip(" *#") or 0)
        for count, number, _ in rows
        if count.strip(" *#").isdigit() or "#" in count
    }


def test_exact_lines_are_those_of_gcov(program: Program) -> None:
    places = linetable.placed(program.lines, program.table)
    assert set(places) == {".text", ".text.startup"}
    blocks = program.blocks(places)
    ran = linetable.executions(program.lines, places, blocks)
    counted, texts = of_gcov(program.folder), WORK.read_text().splitlines()
    exact = {line: many for (_, line), (many, _, sure) in ran.items() if sure and line in counted}
    # The first test of a loop is not executed where its outcome is known to the compiler.
    apart = {line for line in exact if exact[line] != counted[line]}
    assert all("for (" in texts[line - 1] for line in apart)
    shown = {texts[line - 1].strip(): many for line, many in exact.items()}
    known = {"sink += x;": 401, "sink--;": 50, "sink = wanted;": 26, "sink += 5;": 14}
    assert shown.items() >= known.items()
    about = {line: many for (_, line), (many, _, sure) in ran.items() if not sure}
    assert len(exact) > len(about)
    assert all(many for many in about.values())
    total = sum(entries * count for _, count, entries in blocks)
    assert 0 < sum(spent for _, spent, _ in ran.values()) <= total


def test_code_that_never_ran_is_counted_so(program: Program) -> None:
    places = linetable.placed(program.lines, program.table)
    ran = linetable.executions(program.lines, places, [])
    assert {(many, spent) for many, spent, _ in ran.values()} == {(0, 0)}
    never = WORK.read_text().splitlines().index("\tsink = wanted;") + 1
    assert ran["work.c", never] == (0, 0, True)


def test_other_code_says_nothing(program: Program) -> None:
    folder = program.folder
    (folder / "other.c").write_text(WORK.read_text().replace("i * 3", "i * 5"))
    program.compile("-c", "-o", "other.o", "other.c")
    with pytest.raises(InfraError, match="its code is not the same"):
        linetable.read(folder / "again.o", folder / "other.o", {"work.c"})


def test_a_section_of_another_kernel_is_at_no_place(program: Program) -> None:
    lines = program.lines
    moved = {**lines.functions, ".text": {**lines.functions[".text"], "nowhere": 8}}
    places = linetable.placed(lines._replace(functions=moved), program.table)
    assert set(places) == {".text.startup"}
