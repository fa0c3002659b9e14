"""What kinds an instruction is of, by its bytes; the words are those of ``llvm-mc``."""

import ctypes
from pathlib import Path

import pytest

from guests import programs
from guests.probe import plugin
from results.profile import KINDS

SOURCE = plugin.HERE / "kinds.c"
LETTERS = dict(zip("LSABDY", KINDS, strict=True))


def cases_of(machine: str) -> dict[str, tuple[str, ...]]:
    """Kinds by bytes and words of an instruction."""
    lines = (Path(__file__).parent / f"kinds-{machine}.txt").read_text().splitlines()[1:]
    return {text[4:]: tuple(LETTERS[each] for each in text[:4].strip("- ")) for text in lines}


X86_64, ARM64 = cases_of("x86-64"), cases_of("arm64")


def library(folder: Path, *flags: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(programs.build(SOURCE, (*programs.SHARED_LIBRARY, *flags), folder)))


@pytest.fixture(scope="module", params=["x86-64", "arm64"])
def decoded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ctypes.CDLL, dict[str, tuple[str, ...]]]:
    arm = request.param == "arm64"
    flags = ("-DPROBE_API=1", *(["-DPROBE_ARM64"] if arm else []))
    return library(tmp_path_factory.mktemp(request.param), *flags), ARM64 if arm else X86_64


def kinds(decoder: ctypes.CDLL, code: bytes) -> tuple[str, ...]:
    counts = (ctypes.c_uint16 * len(KINDS))()
    decoder.add_kinds(code, ctypes.c_size_t(len(code)), counts)
    assert set(counts) <= {0, 1}
    return tuple(kind for kind, count in zip(KINDS, counts, strict=True) if count)


def test_every_form_is_of_its_kinds(
    decoded: tuple[ctypes.CDLL, dict[str, tuple[str, ...]]],
) -> None:
    decoder, cases = decoded
    classified = {text: kinds(decoder, bytes.fromhex(text.partition(" ")[0])) for text in cases}
    assert classified == cases


def test_no_instruction_is_read_beyond_its_end(
    decoded: tuple[ctypes.CDLL, dict[str, tuple[str, ...]]],
) -> None:
    """QEMU 7.2 lists one that is in two pages with the bytes of the first page alone."""
    decoder, cases = decoded
    for text in cases:
        code = bytes.fromhex(text.partition(" ")[0])
        for size in range(len(code)):
            # What follows would be read as operands in memory.
            counts = (ctypes.c_uint16 * len(KINDS))()
            rest = (ctypes.c_uint16 * len(KINDS))()
            decoder.add_kinds(code[:size] + b"\x00" * 16, ctypes.c_size_t(size), counts)
            decoder.add_kinds(code[:size] + b"\xff" * 16, ctypes.c_size_t(size), rest)
            assert list(counts) == list(rest)
