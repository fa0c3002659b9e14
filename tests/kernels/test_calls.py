"""Who calls whom, from bytes of code and data whose every reference is known."""

from __future__ import annotations

import struct
from pathlib import Path

from experiment.architecture import Arch
from experiment.spec import PREBUILT
from host.process import run
from kernels import addresses, compare
from kernels.cache import Kernel
from kernels.symbols import SHF_ALLOC, SHF_EXECINSTR, Section
from results.calls import Calls, calls_of, together
from results.record import KernelIdentity
from tests.kernels.shipped import boot_image, packed

START = 0xFFFFFFFF81000000
FUNCTIONS = {
    "caller": 0x00, "jumper": 0x20, "neighbour": 0x40, "holder": 0x50, "loader": 0x70,
    "through": 0x90, "callee": 0xC0, "far": 0x100, "setup": 0x1000,
}  # fmt: skip
MAP = "\n".join((
    f"{START:x} T _stext",
    *(f"{START + at:x} T {name}" for name, at in FUNCTIONS.items()),
    f"{START + 0xE0:x} t caller.cold",
    f"{START + 0x200:x} T _etext",
    f"{START + 0x1000:x} T _sinittext",
    f"{START + 0x1100:x} T _einittext",
    f"{START + 0x2000:x} D table",
    f"{START + 0x3000:x} D end",
))  # fmt: skip


def code(pieces: dict[int, bytes], size: int, address: int) -> Section:
    data = bytearray(b"\xcc" * size)
    for at, piece in pieces.items():
        data[at : at + len(piece)] = piece
    return Section(
        1, ".text", "SHT_PROGBITS", SHF_ALLOC | SHF_EXECINSTR, address, size, bytes(data)
    )


def relative(at: int, target: str, behind: int = 4) -> bytes:
    return struct.pack("<i", FUNCTIONS[target] - (at + behind))


def references() -> Calls:
    text = code({
        0x04: b"\xe8" + relative(0x05, "callee"),
        # The part that was split off belongs to its function; into the middle leads nothing.
        0xE4: b"\xe9" + relative(0xE5, "far"),
        0x10: b"\xe8" + struct.pack("<i", 0xC8 - 0x15),
        0x24: b"\x0f\x84" + relative(0x26, "callee"),
        0x30: b"\xeb" + struct.pack("<b", 0x40 - 0x32),
        # mov $callee, %rdi and lea far(%rip), %rsi
        0x54: b"\x48\xc7\xc7" + struct.pack("<i", START + FUNCTIONS["callee"] - (1 << 64)),
        0x74: b"\x48\x8d\x35" + relative(0x77, "far"),
        # call *0x10(%rax)
        0x94: b"\xff\x50\x10",
    }, 0x200, START)  # fmt: skip
    init = code({0x04: b"\xe8" + relative(0x1005, "callee")}, 0x100, START + 0x1000)
    table = struct.pack("<3Q", 7, START + FUNCTIONS["loader"], START + FUNCTIONS["loader"] + 1)
    data = Section(2, ".data", "SHT_PROGBITS", SHF_ALLOC, START + 0x2000, len(table), table)
    note = Section(3, ".debug", "SHT_PROGBITS", 0, 0, 8, struct.pack("<Q", START + 0xC0))
    functions = addresses.functions(addresses.parse(MAP))
    return compare.read(functions, (text, init, data, note), range(START + 0x1000, START + 0x1100))


def test_every_kind_of_reference() -> None:
    edges = {caller: callees for caller, callees in references().edges().items() if callees}
    assert edges == {
        "caller": {"callee", "far"},
        "jumper": {"callee", "neighbour"},
        "holder": {"callee"},
        "loader": {"far"},
        "setup": {"callee"},
    }


def test_pointers_and_what_is_thrown_away() -> None:
    known = references()
    assert known.named(known.pointed) == {"loader"}
    assert known.named(known.indirect) == {"through"}
    assert known.named(known.boot) == {"setup"}


def test_a_call_that_one_of_several_kernels_makes_is_a_call() -> None:
    first = calls_of({"a": {"b"}}, pointed=["b"])
    second = calls_of({"a": {"c"}, "c": {"a"}}, indirect=["c"], boot=["d"])
    both = together([first, second])
    assert both.edges() == {"a": {"b", "c"}, "b": set(), "c": {"a"}, "d": set()}
    assert [both.named(which) for which in (both.pointed, both.indirect, both.boot)] == [
        {"b"}, {"c"}, {"d"},
    ]  # fmt: skip
    assert together([second, first]) == both


SOURCE = """
__attribute__((noinline)) int callee(int x) { __asm__ volatile(""); return x + 1; }
__attribute__((noinline)) int by_pointer(int x) { __asm__ volatile(""); return x + 2; }
int (*table)(int) = by_pointer;
int caller(int x) { return callee(x) + table(x); }
"""
# Where a kernel's code begins and ends, as its linker script has it.
BOUNDS = '__asm__(".globl _stext\\n_stext:");\n{}\n__asm__(".globl _etext\\n_etext:");\n'


def test_a_real_image_of_a_kernel_in_the_cache(tmp_path: Path) -> None:
    source, image = tmp_path / "kernel.c", tmp_path / "vmlinux"
    source.write_text(BOUNDS.format(SOURCE))
    flags = ["-O1", "-fno-toplevel-reorder", "-fno-pie", "-mcmodel=kernel", "-fcf-protection=none"]
    link = ["-nostdlib", "-static", "-no-pie", f"-Wl,-Ttext={START:#x},-e,caller,--build-id=none"]
    run(["gcc", *flags, *link, str(source), "-o", str(image)], timeout_s=60)
    (tmp_path / "System.map").write_text(run(["nm", str(image)], timeout_s=60).stdout)
    (tmp_path / "bzImage").write_bytes(boot_image(packed(image.read_bytes(), "gzip", tmp_path)))
    kernel = Kernel(tmp_path, identity())
    known = compare.of_kernel(kernel)
    assert known is not None
    assert known.edges()["caller"] == {"callee"}
    assert "by_pointer" in known.named(known.pointed)
    assert "caller" in known.named(known.indirect)
    assert compare.of_kernels([kernel, kernel]) == known
    for unknown in (identity(arch="arm64"), identity(flavour=PREBUILT)):
        assert compare.of_kernels([kernel, Kernel(tmp_path / "other", unknown)]) is None


def identity(arch: Arch = "x86_64", flavour: str = "perf") -> KernelIdentity:
    return KernelIdentity(
        key="k", arch=arch, release="6.12", source="s", patches=(), flavour=flavour,
        compiler="gcc", config_sha256="0", code_key="0",
    )  # fmt: skip
