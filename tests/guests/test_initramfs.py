import hashlib
import io
import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from errors import InfraError
from guests import initramfs, programs
from tests.values import spaced
from tests.waiting import completed


@dataclass(frozen=True)
class ArchiveMember:
    mode: int
    uid: int
    gid: int
    mtime: int
    content: bytes


def members(archive: bytes) -> dict[str, ArchiveMember]:
    """Read a newc archive: fields of 8 hexadecimal digits behind a magic of 6 bytes."""
    files: dict[str, ArchiveMember] = {}
    at = 0
    while True:
        assert archive[at : at + 6] == b"070701"
        fields = [int(archive[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        size, name_size = fields[6], fields[11]
        name = archive[at + 110 : at + 110 + name_size - 1].decode()
        content_at = (at + 110 + name_size + 3) // 4 * 4
        if name == "TRAILER!!!":
            return files
        content = archive[content_at : content_at + size]
        files[name] = ArchiveMember(fields[1], fields[2], fields[3], fields[5], content)
        at = (content_at + size + 3) // 4 * 4


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> initramfs.Initramfs:
    return initramfs.provide(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def root(built: initramfs.Initramfs) -> dict[str, ArchiveMember]:
    return members(built.path.read_bytes())


def test_same_bytes_in_another_cache(built: initramfs.Initramfs, tmp_path: Path) -> None:
    again = initramfs.provide(tmp_path)
    assert again.path.name == built.path.name
    assert again.sha256 == built.sha256
    assert hashlib.sha256(again.path.read_bytes()).hexdigest() == again.sha256


def test_agent_is_init(root: dict[str, ArchiveMember]) -> None:
    assert root["init"].content == initramfs.AGENT.read_bytes()
    assert root["init"].mode == stat.S_IFREG | 0o755


def test_options_of_mkfs_are_those_that_it_knows(root: dict[str, ArchiveMember]) -> None:
    usage = completed([programs.MKFS_XFS], check=False).stderr
    shipped = initramfs.XFS_OPTIONS.read_text().splitlines()
    options = [line for line in shipped if initramfs.OPTION.match(line)]
    known = [line for line in options if line.partition("=")[0] + "=" in usage]
    given = root["etc/xfs.conf"].content.decode().splitlines()
    assert [line for line in given if initramfs.OPTION.match(line)] == known
    assert "nrext64=0" in known
    assert [line for line in given if line[:1] == "["] == [
        line for line in shipped if line[:1] == "["
    ]


@pytest.mark.parametrize(
    ("usage", "left"),
    [
        (b"crc=0|1,uuid=xxx\0nrext64=0|1]", "nrext64=0\n"),
        (b"nrext64=0|1,\n\t\texchange=0|1]", "nrext64=0\nexchange=0\n"),
    ],
)
def test_option_that_is_newer_than_mkfs_is_left_out(usage: bytes, left: str) -> None:
    text = "# parent=1\n[inode]\nnrext64=0\nexchange=0\n[naming]\nparent=0\n"
    assert initramfs.known_options(text, usage) == f"# parent=1\n[inode]\n{left}[naming]\n"


def test_an_archive_is_what_cpio_makes_but_for_what_it_counts(tmp_path: Path) -> None:
    folder = tmp_path / "root"
    for name in ("b/c", "b/d", "a"):
        (folder / name).mkdir(parents=True)
    (folder / "b/c/file").write_bytes(b"content")
    (folder / "b/empty").touch(mode=0o755)
    (folder / "a/to-a-folder").symlink_to("../b")
    initramfs.pack(folder, tmp_path / "ours")
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    for name in names:
        os.utime(folder / name, (0, 0), follow_symlinks=False)
    subprocess.run(
        [
            *spaced("cpio --create --format=newc --reproducible --owner=+0:+0 --quiet"),
            f"--file={tmp_path / 'theirs'}",
        ],
        cwd=folder,
        input="\n".join(names),
        text=True,
        check=True,
    )
    ours, theirs = ((tmp_path / each).read_bytes() for each in ("ours", "theirs"))
    assert members(ours) == members(theirs)
    assert len(ours) == len(theirs)
    listed = subprocess.run(
        ["cpio", "--list", "--quiet"], input=ours, capture_output=True, check=True
    )
    assert listed.stdout.decode().split() == names
    links = {
        name: int(ours[at + 38 : at + 46], 16)
        for name in ("b", "b/c", "a")
        for at in [ours.index(name.encode() + b"\0") - 110]
    }
    assert links == {"b": 4, "b/c": 2, "a": 2}


def test_nothing_of_the_host_but_contents(root: dict[str, ArchiveMember]) -> None:
    assert {(member.uid, member.gid, member.mtime) for member in root.values()} == {(0, 0, 0)}


def test_programs_that_the_agent_calls_are_there(root: dict[str, ArchiveMember]) -> None:
    for program in (*programs.PROGRAMS, programs.BUSYBOX, "/bin/add_entropy"):
        assert root[program.lstrip("/")].mode == stat.S_IFREG | 0o755, program
    for applet in ("adjtimex", "taskset", "sh", "tar", "gzip", "sha256sum", "stty", "mount", "wc"):
        assert root[f"bin/{applet}"].content == b"busybox", applet


def test_libraries_of_every_program_are_there(root: dict[str, ArchiveMember]) -> None:
    files = {Path(name).name for name in root}
    for name, member in root.items():
        if member.content.startswith(b"\x7fELF"):
            dynamic = ELFFile(io.BytesIO(member.content)).get_section_by_name(".dynamic")
            tags = dynamic.iter_tags("DT_NEEDED") if isinstance(dynamic, DynamicSection) else ()
            needed = {vars(tag)["needed"] for tag in tags}
            assert needed <= files, name


def test_nothing_half_is_left_beside_it_and_it_is_used_as_it_is(
    built: initramfs.Initramfs,
) -> None:
    names = {path.name for path in built.path.parent.iterdir()} - {"lock"}
    assert names == {built.path.name, f"{built.path.stem}.sha256"}
    assert built.mib == -(-built.path.stat().st_size // 2**20)
    before = built.path.stat().st_ino
    assert initramfs.provide(built.path.parents[1]) == built
    assert built.path.stat().st_ino == before


@pytest.fixture
def fake_build(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Building without its cost; the list has what was built."""
    made: list[Path] = []

    def build(files: object, helpers: object, image: Path, *_: object) -> None:
        image.write_bytes(b"image")
        made.append(image)

    monkeypatch.setattr(initramfs, "_build", build)
    return made


@pytest.fixture
def cache(built: initramfs.Initramfs, tmp_path: Path) -> Path:
    """One that has the lab's own programs, and no image."""
    native = built.path.parents[1] / "native"
    return shutil.copytree(native, tmp_path / "cache/native").parent


@pytest.mark.parametrize("name", ["AGENT", "XFS_OPTIONS"])
def test_another_agent_and_other_options_of_mkfs_are_another_image(
    fake_build: list[Path],
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    first = initramfs.provide(cache)
    copy = tmp_path / "copy"
    copy.write_bytes(getattr(initramfs, name).read_bytes())
    monkeypatch.setattr(initramfs, name, copy)
    assert initramfs.provide(cache).path == first.path
    copy.write_text(copy.read_text() + "# changed\n")
    assert initramfs.provide(cache).path != first.path
    assert len(fake_build) == 2


def test_image_that_was_removed_or_whose_digest_was_cut_short_is_built_again(
    fake_build: list[Path], cache: Path
) -> None:
    first = initramfs.provide(cache)
    first.path.unlink()
    assert initramfs.provide(cache) == first
    assert first.path.exists()
    first.path.with_suffix(".sha256").write_text("")
    assert initramfs.provide(cache).sha256 == hashlib.sha256(b"image").hexdigest()
    assert len(fake_build) == 3


def test_missing_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "PROGRAMS", ("/usr/bin/fio", "/sbin/mkfs.nonesuch"))
    with pytest.raises(InfraError, match=r"not installed: /sbin/mkfs\.nonesuch"):
        initramfs.provide(tmp_path)
