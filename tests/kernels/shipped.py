"""Prebuilt kernels in small: boot images, modules, packages, and an archive of them for apt."""

import gzip
import hashlib
import lzma
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

TEXT = 0xFFFFFFFF81000000
BANNER = b"Linux version 6.1.2-test (a@b) (gcc-12 (Test) 12.2.0, GNU ld 2.40) #1 SMP\n\0"
SYMBOLS = (
    ("T", "_stext", 0),
    ("T", "schedule", 0x100),
    ("t", "helper_1234567890", 0x180),
    ("t", "helper_1234567890", 0x200),
    ("T", "vfs_read", 0x300),
    ("D", "jiffies", 0x2000),
    ("T", "_etext", 0x1000),
    # No kernel has so few symbols that one marker would do.
    *(("D", f"variable_{number}", 0x3000 + 8 * number) for number in range(400)),
)


def tables(
    symbols: Sequence[tuple[str, str, int]],
    *,
    old: bool = False,
    percpu: bool = False,
    own_places: bool = False,
) -> bytes:
    """What scripts/kallsyms.c writes: (type, name, offset from the base) packed by tokens.

    ``old`` is the order up to 6.3; with ``percpu`` an offset that is negative is an
    absolute address, and the others are counted downwards.  With ``own_places``, as since
    7.1, each is counted from where it stands, and tables are at multiples of 4.
    """
    # Two codes that occur in no name stand for pairs.
    pairs = {1: b"he", 2: b"lp"}
    tokens = [bytes([code]) if code > 2 else pairs.get(code, b"xx") for code in range(256)]
    tokens = [b"?" if token == b"\0" else token for token in tokens]
    names, markers = bytearray(), []
    for number, (kind, name, _) in enumerate(symbols):
        if number % 256 == 0:
            markers.append(len(names))
        packed = (kind + name).encode()
        for code, pair in pairs.items():
            packed = packed.replace(pair, bytes([code]))
        size = len(packed)
        names += bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])
        names += packed
    index, at = [], 0
    for token in tokens:
        index.append(at)
        at += len(token) + 1

    def offset(value: int) -> int:
        if not percpu:
            return value
        return -value if value < 0 else -1 - value

    offsets = b"".join(struct.pack("<i", offset(value)) for _, _, value in symbols)
    base = struct.pack("<Q", TEXT)
    count = struct.pack("<I", len(symbols))
    packed_names = [
        count,
        bytes(names),
        b"".join(struct.pack("<I", marker) for marker in markers),
        b"".join(token + b"\0" for token in tokens),
        b"".join(struct.pack("<H", where) for where in index),
    ]
    parts = [offsets, base, *packed_names] if old else [*packed_names, offsets, base]
    align = 8
    if own_places:
        values = [value - 4 * n - 0x1234 for n, (_, _, value) in enumerate(symbols)]
        parts = [*packed_names, b"".join(struct.pack("<i", value) for value in values)]
        align = 4
    blob = b"".join(part + bytes(-len(part) % align) for part in parts)
    return b"\x11" * 64 + blob + b"\x22" * 64


def elf(folder: Path, mark: str = "") -> bytes:
    """A small ELF file with a build id, the banner and tables of symbols behind it."""
    source = folder / "kernel.c"
    source.write_text(f'const char mark[] = "{mark}"; int main(void) {{ return mark[0]; }}\n')
    target = folder / "kernel.elf"
    subprocess.run(
        ["gcc", "-nostdlib", "-static", "-Wl,-e,main", "-Wl,--build-id", "-o", target, source],
        check=True,
    )
    data = target.read_bytes()
    return data + bytes(-len(data) % 8) + BANNER + bytes(-len(BANNER) % 8) + tables(SYMBOLS)


def packed(data: bytes, how: str, folder: Path) -> bytes:
    """The kernel as kbuild compresses it, its length behind it where the format has none."""
    if how == "gzip":
        return gzip.compress(data)
    length = struct.pack("<I", len(data))
    if how == "xz":
        return lzma.compress(data, check=lzma.CHECK_CRC32) + length
    plain, target = folder / "plain", folder / "packed"
    plain.write_bytes(data)
    options = ["-o"] if how == "zstd" else []
    legacy = ["-l"] if how == "lz4" else []
    subprocess.run([how, "-q", "-f", *legacy, plain, *options, target], check=True)
    return target.read_bytes() + length


def boot_image(payload: bytes, release: str = "6.1.2-test") -> bytes:
    """A boot image of protocol 2.15 around a compressed kernel."""
    setup = bytearray(512 * 2)
    setup[0x1F1] = 1
    setup[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", setup, 0x206, 0x20F)
    struct.pack_into("<H", setup, 0x20E, 0x100)
    text = f"{release} (a@b) #1 SMP".encode() + b"\0"
    setup[0x300 : 0x300 + len(text)] = text
    struct.pack_into("<II", setup, 0x248, 16, len(payload))
    return bytes(setup) + bytes(16) + payload + bytes(100)


def module(path: Path, *, depends: str = "") -> bytes:
    """A file that modinfo takes for a module; packed as the ending of its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source, built = path.with_suffix(".c"), path.with_suffix(".o")
    text = f'const char d[] __attribute__((section(".modinfo"))) = "depends={depends}";'
    source.write_text(f"{text}\nint {path.name.partition('.')[0].replace('-', '_')};\n")
    subprocess.run(["gcc", "-c", "-o", built, source], check=True)
    data = built.read_bytes()
    source.unlink()
    built.unlink()
    if path.suffix == ".zst":
        plain = path.with_suffix("")
        plain.write_bytes(data)
        subprocess.run(["zstd", "-q", "-f", "--rm", plain, "-o", path], check=True)
    else:
        packed_data = lzma.compress(data) if path.suffix == ".xz" else data
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else packed_data)
    return data


def modules_folder(folder: Path) -> Path:
    """Modules of one release: xfs needs libcrc32c, ext4 is built in."""
    module(folder / "kernel/drivers/firmware/qemu_fw_cfg.ko.xz")
    module(folder / "kernel/drivers/block/brd.ko.gz")
    module(folder / "kernel/fs/xfs/xfs.ko.zst", depends="libcrc32c")
    module(folder / "kernel/lib/libcrc32c.ko.xz")
    module(folder / "kernel/drivers/net/dummy.ko.xz")
    (folder / "modules.builtin").write_text("kernel/fs/ext4/ext4.ko\nkernel/crypto/crc32c-x.ko\n")
    return folder


def shipped(root: Path, mark: str = "") -> Path:
    """What a kernel package holds, below ``root``."""
    (root / "boot").mkdir(parents=True)
    image = boot_image(packed(elf(root, mark), "zstd", root))
    for left in ("kernel.c", "kernel.elf", "plain", "packed"):
        (root / left).unlink()
    (root / "boot/vmlinuz-6.1.2-test").write_bytes(image)
    (root / "boot/config-6.1.2-test").write_text("CONFIG_SMP=y\n")
    modules_folder(root / "lib/modules/6.1.2-test")
    return root


class Archive:
    """A Debian archive in a folder, with an apt of its own that knows nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("pool", "state/lists/partial", "cache/archives/partial", "etc"):
            (folder / name).mkdir(parents=True)
        self.entries: list[str] = []
        self.config = folder / "apt.conf"
        self.config.write_text(
            f'Dir::State "{folder}/state"; Dir::Cache "{folder}/cache";\n'
            f'Dir::Etc "{folder}/etc"; Dir::State::status "{folder}/state/status";\n'
            'APT::Architecture "amd64"; APT::Sandbox::User "";\n'
        )
        (folder / "state/status").touch()
        (folder / "etc/sources.list").write_text(f"deb [trusted=yes] file:{folder}/pool ./\n")

    def add(self, name: str, version: str, content: Path | None = None, depends: str = "") -> Path:
        """Add a package; its file is returned."""
        root = content or self.folder / f"empty-{name}-{version}"
        (root / "DEBIAN").mkdir(parents=True)
        control = f"Package: {name}\nVersion: {version}\nArchitecture: amd64\n"
        control += "Maintainer: T <t@example.org>\nDescription: a test\n"
        control += f"Depends: {depends}\n" if depends else ""
        (root / "DEBIAN/control").write_text(control)
        file = self.folder / "pool" / f"{name}_{version}_amd64.deb"
        subprocess.run(["dpkg-deb", "-Znone", "-b", root, file], check=True, capture_output=True)
        data = file.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        self.entries.append(
            f"{control}Filename: ./{file.name}\nSize: {len(data)}\nSHA256: {digest}\n"
        )
        self.update()
        return file

    def drop_all(self) -> None:
        """The archive no longer has any of its packages."""
        self.entries.clear()
        for file in (self.folder / "pool").glob("*.deb"):
            file.unlink()
        self.update()

    def update(self) -> None:
        """What apt-get update does."""
        (self.folder / "pool/Packages").write_text("\n".join(self.entries))
        subprocess.run(
            ["apt-get", "-q", "update"],
            check=True,
            capture_output=True,
            env={"APT_CONFIG": str(self.config), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
        )
