"""The file system of the shipped workloads: the same disk whatever mkfs.xfs is installed."""

import shlex
import struct
from pathlib import Path

import pytest

from guests.initramfs import XFS_OPTIONS, known_options
from guests.programs import MKFS_XFS
from host.packages import locate
from tests.waiting import completed
from workloads.check import MKFS
from workloads.spec import load_catalogue

IN_THE_GUEST = "/etc/xfs.conf"
# Every brd of the shipped experiments in the shipped guests, in MiB.
BRDS_MIB = (64, 80, 128, 160, 240, 480, 16384, 20480, 61440)
BLOCK = 4096
LOG_BLOCKS = (7 << 20) // BLOCK
# Headers, roots of trees and their reserve in four groups.
USED_BLOCKS = 40
UUID = "5477696e626f6f740000000000000001"
# XFS_SB_VERSION_ATTRBIT: an inode has had an attribute.  Newer versions of mkfs set it
# beforehand, the kernel does with the first one, and there is no option for it.
ATTRIBUTES = 0x0010


def commands() -> dict[str, str]:
    """Each mkfs line that makes XFS, by who has it."""
    lines = {name: each.mkfs for name, each in load_catalogue().items()} | {"the gate": MKFS}
    return {name: line for name, line in lines.items() if line.startswith("mkfs.xfs ")}


def made(tmp_path: Path, mib: int) -> bytes:
    """The first superblock that the host's mkfs.xfs writes on a disk of this size."""
    program = locate(Path(MKFS_XFS).name)
    assert program is not None
    options = tmp_path / "xfs.conf"
    options.write_text(known_options(XFS_OPTIONS.read_text(), program.read_bytes()))
    disk = tmp_path / "disk"
    with disk.open("wb") as stream:
        stream.truncate(mib << 20)
    words = shlex.split(MKFS.replace(IN_THE_GUEST, str(options)))[1:]
    completed([program, *words, disk])
    with disk.open("rb") as stream:
        return stream.read(512)


def number(superblock: bytes, at: int, kind: str) -> int:
    """A field of xfs_dsb, fs/xfs/libxfs/xfs_format.h; all are of the other byte order."""
    (value,) = struct.unpack_from(f">{kind}", superblock, at)
    return int(value)


@pytest.mark.parametrize("mib", BRDS_MIB)
def test_every_version_of_mkfs_makes_this_disk(mib: int, tmp_path: Path) -> None:
    block = made(tmp_path, mib)
    blocks = (mib << 20) // BLOCK
    assert block[:4] == b"XFSB"
    assert block[32:48].hex() == UUID
    assert {
        "block size": number(block, 4, "I"),
        "blocks": number(block, 8, "Q"),
        "blocks of a group": number(block, 84, "I"),
        "groups": number(block, 88, "I"),
        "log blocks": number(block, 96, "I"),
        "version": number(block, 100, "H") | ATTRIBUTES,
        "sector": number(block, 102, "H"),
        "inode": number(block, 104, "H"),
        "inodes": number(block, 128, "Q"),
        "free inodes": number(block, 136, "Q"),
        "free blocks": number(block, 144, "Q"),
        "log sector": number(block, 194, "H"),
        "log stripe": number(block, 196, "I"),
        "features2": number(block, 200, "I"),
        "compatible": number(block, 208, "I"),
        "read-only compatible": number(block, 212, "I"),
        "incompatible": number(block, 216, "I"),
    } == {
        "block size": BLOCK,
        "blocks": blocks,
        "blocks of a group": blocks // 4,
        "groups": 4,
        "log blocks": LOG_BLOCKS,
        # Version 5: NLINK, ALIGN, LOGV2, SECTOR, EXTFLG, DIRV2, MOREBITS.
        "version": 0xBCA5 | ATTRIBUTES,
        "sector": 4096,
        "inode": 512,
        "inodes": 64,
        "free inodes": 61,
        "free blocks": blocks - LOG_BLOCKS - USED_BLOCKS,
        "log sector": 4096,
        "log stripe": BLOCK,
        # LAZYSBCOUNT, ATTR2, PROJID32, CRC.
        "features2": 0x18A,
        "compatible": 0,
        # FINOBT, INOBTCNT: no RMAPBT, no REFLINK.
        "read-only compatible": 0x9,
        # FTYPE, SPINODES, BIGTIME: no NREXT64, no EXCHRANGE, no PARENT, no METADIR.
        "incompatible": 0xB,
    }


def test_nobody_has_options_of_its_own() -> None:
    assert set(commands()) >= {"filemap-4k", "filemap-thp", "iomap-dirty", "reclaim-overwrite"}
    assert set(commands().values()) == {MKFS}
    assert f"options={IN_THE_GUEST}" in MKFS
