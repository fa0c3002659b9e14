"""Lines of optimised code: what ran, against gcov's counts of the same program unoptimised."""

import re
from collections import Counter
from pathlib import Path

import pytest

from errors import InfraError
from kernels import addresses, linetable
from tests.waiting import completed

HERE = Path(__file__).parent / "counted_lines"
WORK = HERE / "work.c"
BRANCH = re.compile(r"^ *([0-9a-f]+):\t(?:bnd )?(?:j|call|ret|b[. ]|bl|cb|tb|br)", re.M)
ROUNDS = "40"
Lines = linetable.ObjectLines


def tool(*argv: str | Path, cwd: Path) -> str:
    done = completed(argv, cwd=cwd)
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lines")
    compiler = ["gcc", "-O2", "-fno-tree-vectorize", "-fno-pie"]
    tool("gcc", "-O1", "-o", "steps", HERE / "steps.c", cwd=folder)
    (folder / "work.c").write_bytes(WORK.read_bytes())
    tool(*compiler, "-c", "-o", "built.o", "work.c", cwd=folder)
    tool(*compiler, *linetable.FLAGS.split(), "-c", "-o", "again.o", "work.c", cwd=folder)
    tool("gcc", "-static", "-no-pie", "-o", "work", "built.o", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def lines(folder: Path) -> Lines:
    return linetable.read(folder / "again.o", folder / "built.o", {"work.c"})


def table_of(folder: Path) -> addresses.AddressTable:
    bounds = "0 T _text\nffffffffffffffff T _etext\n"
    symbols = [line for line in tool("nm", "work", cwd=folder).splitlines() if line[:1] != " "]
    return addresses.parse(bounds + "\n".join(symbols))


def blocks_of(folder: Path, lines: Lines, places: dict[str, int]) -> list[tuple[int, int, int]]:
    """Blocks as a translator makes them: up to the next branch."""
    ends = [places[name] + offset for name in places for offset in lines.instructions[name]]
    argv = ["./steps", hex(min(ends)), hex(max(ends) + 16), "./work", ROUNDS]
    shown = tool("objdump", "-d", "--no-show-raw-insn", "work", cwd=folder)
    branches = {int(match[1], 16) for match in BRANCH.finditer(shown)}
    blocks: Counter[tuple[int, int]] = Counter()
    begin, count = 0, 0
    for at in (int(word, 16) for word in tool(*argv, cwd=folder).split()):
        begin, count = (begin if count else at), count + 1
        if at in branches:
            blocks[begin, count] += 1
            count = 0
    return [(*key, entries) for key, entries in blocks.items()]


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


def test_exact_lines_are_those_of_gcov(folder: Path, lines: Lines) -> None:
    places = linetable.placed(lines, table_of(folder))
    assert set(places) == {".text", ".text.startup"}
    ran = linetable.executions(lines, places, blocks_of(folder, lines, places))
    counted, texts = of_gcov(folder), WORK.read_text().splitlines()
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
    total = sum(entries * count for _, count, entries in blocks_of(folder, lines, places))
    assert 0 < sum(spent for _, spent, _ in ran.values()) <= total


def test_code_that_never_ran_is_counted_so(folder: Path, lines: Lines) -> None:
    places = linetable.placed(lines, table_of(folder))
    ran = linetable.executions(lines, places, [])
    assert {(many, spent) for many, spent, _ in ran.values()} == {(0, 0)}
    assert ran["work.c", WORK.read_text().splitlines().index("\tsink = wanted;") + 1] == (
        0,
        0,
        True,
    )


def test_other_code_says_nothing(folder: Path) -> None:
    (folder / "other.c").write_text(WORK.read_text().replace("i * 3", "i * 5"))
    tool("gcc", "-O2", "-fno-pie", "-c", "-o", "other.o", "other.c", cwd=folder)
    with pytest.raises(InfraError, match="its code is not the same"):
        linetable.read(folder / "again.o", folder / "other.o", {"work.c"})


def test_a_section_of_another_kernel_is_at_no_place(folder: Path, lines: Lines) -> None:
    table = table_of(folder)
    moved = {**lines.functions, ".text": {**lines.functions[".text"], "nowhere": 8}}
    assert set(linetable.placed(lines._replace(functions=moved), table)) == {".text.startup"}
