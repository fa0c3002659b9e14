"""A machine with a working KVM, emulated: QEMU's translator has AMD's SVM with nested paging.

A root in memory with QEMU, the kernel of a Debian package and one shell script.  What takes a
whole Debian, with this checkout in it, is tests/systems/kvm.sh.
"""

import re
import shutil
from pathlib import Path

from guests.initramfs import pack
from host.process import run
from kernels import packages
from tests.values import data

QEMU = Path("/usr/bin/qemu-system-x86_64")
# What a machine without graphics or network reads as it starts.
FIRMWARE = ("bios-256k.bin", "kvmvapic.bin", "linuxboot_dma.bin")
FIRMWARE_FOLDERS = (Path("/usr/share/seabios"), Path("/usr/share/qemu"))
# Without what is kept in a state whose size a guest changes: the translator does not tell a
# hypervisor of it, and a guest's kernel then warns of sizes that do not fit ("XSAVE consistency").
CPU = "EPYC-Rome,+svm,-xsave,-xsaves,-xsavec,-xsaveopt,-avx,-avx2,-fma,-f16c"
DEADLINE_S = 600.0
INIT = data(__file__, "init")


def run_in(folder: Path, package: str, cache: Path, files: dict[str, Path], program: str) -> str:
    """Boot a machine, run a shell script as root, and return its console.

    ``package`` names a kernel package; ``files`` are put at absolute paths.
    """
    with packages.unpacked(packages.find(package, cache), cache) as shipped:
        modules = {
            path.name.partition(".")[0].replace("-", "_"): path for path in shipped.rglob("*.ko*")
        }
        root = folder / "root"
        names = _needed("kvm_amd", modules, root)
        kernel = folder / "vmlinuz"
        shutil.copy(next((shipped / "boot").glob("vmlinuz-*")), kernel)
    firmware = {
        name: place / name
        for name in FIRMWARE
        for place in FIRMWARE_FOLDERS
        if (place / name).exists()
    }
    needed = {f"/usr/share/qemu/{name}": path for name, path in firmware.items()}
    needed |= {str(QEMU): QEMU, "/bin/busybox": Path("/bin/busybox")}
    needed |= {library: Path(library) for library in _libraries(QEMU)} | files
    for name, path in needed.items():
        target = root / name.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    for name in ("proc", "dev", "tmp"):
        (root / name).mkdir()
    (root / "init").write_text(INIT.format(modules=" ".join(names)))
    (root / "init").chmod(0o755)
    (root / "program").write_text(program)
    pack(root, folder / "initrd")
    shutil.rmtree(root)
    argv = [
        # One CPU in a thread of its own: with two a kernel inside panicked now and then (one takes
        # the breakpoint of code that the other has finished patching), and where one thread runs
        # all CPUs, with or without -icount, a guest's timer is lost in most boots (QEMU 7.2).
        str(QEMU),
        "-machine",
        "q35",
        "-accel",
        "tcg,thread=multi",
        "-cpu",
        CPU,
        "-smp",
        "1",
        "-m",
        "1500",
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
        "-serial",
        "stdio",
        "-kernel",
        str(kernel),
        "-initrd",
        str(folder / "initrd"),
        "-append",
        "console=ttyS0 quiet panic=-1 rdinit=/init",
    ]
    return run(argv, timeout_s=DEADLINE_S).stdout


def _needed(name: str, modules: dict[str, Path], root: Path) -> list[str]:
    """Bring a module and those it depends on into the root; their files in order."""
    target = root / "modules" / f"{name}.ko"
    if name not in modules or target.exists():
        return []  # built in, or brought before
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(modules[name], target)
    depends = run(["/usr/sbin/modinfo", "-F", "depends", str(modules[name])], timeout_s=30).stdout
    below = [
        each
        for on in filter(None, depends.strip().split(","))
        for each in _needed(on.replace("-", "_"), modules, root)
    ]
    return [*below, target.name]


def _libraries(program: Path) -> list[str]:
    text = run(["ldd", str(program)], timeout_s=30).stdout
    return re.findall(r"(/\S+) \(0x", text)
