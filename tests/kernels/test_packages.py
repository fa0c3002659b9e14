"""Packages come from a real apt, whose archive is a folder of the test's."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from errors import InfraError, UsageError
from kernels import packages
from kernels.source import identify
from tests.kernels.shipped import Archive

NAME = "linux-image-6.1.2-test"


@pytest.fixture
def archive(archive: Archive) -> Archive:
    archive.add(NAME, "6.1.2-1~deb12u1")
    return archive


def test_newest_version_or_the_one_that_is_named(archive: Archive, tmp_path: Path) -> None:
    archive.add(NAME, "6.1.2-3")
    assert packages.find(NAME, tmp_path).name_and_version == f"{NAME}=6.1.2-3"
    assert packages.find(f"{NAME}=6.1.2-1~deb12u1", tmp_path).version == "6.1.2-1~deb12u1"


def test_package_that_stands_for_another(archive: Archive, tmp_path: Path) -> None:
    archive.add("linux-image-test", "6.1+9", depends=f"{NAME} (= 6.1.2-1~deb12u1)")
    assert packages.find("linux-image-test", tmp_path).name_and_version == f"{NAME}=6.1.2-1~deb12u1"


def test_package_that_apt_does_not_know(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        packages.find("linux-image-9.9=1-1", tmp_path)
    assert "./lab.py fetch linux-image-9.9," in caught.value.next_step
    # It was looked for there, too.
    lists = tmp_path / packages.LISTS
    lists.mkdir(parents=True)
    (lists / packages.SOURCES).touch()
    with pytest.raises(UsageError) as caught:
        packages.find("linux-image-9.9=1-1", tmp_path)
    assert "name a tree of your own, git:PATH@REF" in caught.value.next_step


@pytest.mark.parametrize(
    "name",
    ["bash", "-o=x", "linux-image-a b", "linux-image-a=", "linux-image-a=1 -y", "linux-image-../a"],
)
def test_names_that_are_none(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not the name of a kernel package"):
        packages.find(name, tmp_path)


def test_fetched_once_and_kept(archive: Archive, tmp_path: Path) -> None:
    package = packages.find(NAME, tmp_path)
    file = packages.fetch(package, tmp_path)
    assert file.name == f"{package.sha256}.deb"
    archive.drop_all()
    assert packages.fetch(package, tmp_path) == file
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_damaged_file_is_fetched_again(archive: Archive, tmp_path: Path) -> None:
    package = packages.find(NAME, tmp_path)
    file = packages.fetch(package, tmp_path)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert packages.fetch(package, tmp_path).read_bytes() == whole


@pytest.mark.parametrize("gone", [False, True])
def test_file_that_was_tampered_with_or_is_gone_is_refused(
    archive: Archive, tmp_path: Path, gone: bool
) -> None:
    package = packages.find(NAME, tmp_path)
    (file,) = (archive.folder / "pool").glob("*.deb")
    whole = file.read_bytes()
    file.unlink()
    if not gone:
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(InfraError, match=rf"{NAME}=6\.1\.2-1~deb12u1: apt-get cannot fetch it"):
        packages.fetch(package, tmp_path)
    assert list(packages.folder(tmp_path).iterdir()) == []


def test_damaged_package_is_not_unpacked(tmp_path: Path) -> None:
    file = tmp_path / "a.deb"
    file.write_text("no package")
    with pytest.raises(InfraError, match="dpkg-deb"):
        packages.unpack(file, tmp_path / "root")


SOURCE = "linux-source-9.9"


@pytest.fixture
def newer(tmp_path: Path, archive: Archive) -> Archive:
    """A release, signed, that has what the host's has not."""
    newer = Archive(tmp_path / "newer")
    newer.add(SOURCE, "9.9.1-1")
    pool, keys = newer.folder / "pool", tmp_path / "keys"
    keys.mkdir(mode=0o700)
    gpg = ["gpg", "--homedir", str(keys), "--batch", "--quiet", "--passphrase", ""]
    digest = hashlib.sha256((pool / "Packages").read_bytes()).hexdigest()
    size = (pool / "Packages").stat().st_size
    (pool / "Release").write_text(
        f"Origin: Debian\nSuite: newer\nDate: Thu, 01 Jan 2026 00:00:00 UTC\n"
        f"SHA256:\n {digest} {size} Packages\n"
    )
    for argv in (
        ["--quick-gen-key", "t@example.org", "ed25519", "sign", "never"],
        ["--clearsign", "--output", str(pool / "InRelease"), str(pool / "Release")],
        ["--output", str(tmp_path / "keys.gpg"), "--export"],
    ):
        subprocess.run([*gpg, *argv], check=True)
    # gpg leaves an agent running.
    subprocess.run(["gpgconf", "--homedir", str(keys), "--kill", "all"], check=True)
    return newer


def update(newer: Archive, cache: Path, *, suites: tuple[str, ...] = ("./",)) -> str:
    mirror = f"file:{newer.folder}/pool"
    keyring = str(newer.folder.parent / "keys.gpg")
    return packages.update(cache, mirror=mirror, suites=suites, keyring=keyring)


def files(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_what_the_host_lacks_is_in_lists_of_the_labs_own(
    archive: Archive, newer: Archive, tmp_path: Path
) -> None:
    cache, before = tmp_path / "cache", files(archive.folder)
    with pytest.raises(InfraError) as caught:
        packages.find(SOURCE, cache)
    assert caught.value.next_step.startswith(f"./lab.py fetch {SOURCE}")
    update(newer, cache)
    package = packages.find(SOURCE, cache)
    assert package.version == "9.9.1-1"
    assert packages.fetch(package, cache).is_file()
    assert packages.find(NAME, cache).options == ()
    assert files(archive.folder) == before


def test_a_source_that_was_fetched_needs_no_version(newer: Archive, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(InfraError) as caught:
        identify(f"deb:{SOURCE}", checkout=tmp_path, cache=cache)
    assert f"./lab.py fetch {SOURCE}" in caught.value.next_step
    update(newer, cache)
    source = identify(f"deb:{SOURCE}", checkout=tmp_path, cache=cache)
    assert source.identity == f"deb:{SOURCE}=9.9.1-1"
    assert packages.newest_source(cache) == SOURCE
    with pytest.raises(InfraError, match="no source of a kernel"):
        packages.newest_source(tmp_path / "other")


def test_a_source_of_the_hosts_own_release_that_was_fetched_needs_none_either(
    archive: Archive, tmp_path: Path
) -> None:
    archive.add(SOURCE, "6.1.2-1~deb12u1")
    assert packages.fetched(SOURCE, tmp_path) == ""
    packages.fetch(packages.find(SOURCE, tmp_path), tmp_path)
    assert packages.fetched(SOURCE, tmp_path) == f"{SOURCE}=6.1.2-1~deb12u1"


def test_a_suite_that_is_not_there_is_left_out_and_lists_stay_where_none_is(
    newer: Archive, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    update(newer, cache, suites=("no-such-suite", "./"))
    with pytest.raises(InfraError, match="no-such-suite"):
        update(newer, cache, suites=("no-such-suite",))
    assert packages.fetched(SOURCE, cache) == f"{SOURCE}=9.9.1-1"


def test_an_archive_signed_by_somebody_else_is_refused(newer: Archive, tmp_path: Path) -> None:
    (newer.folder / "pool/InRelease").write_text((newer.folder / "pool/Release").read_text())
    with pytest.raises(InfraError, match="can fetch no list"):
        update(newer, tmp_path / "cache")


@pytest.mark.usefixtures("archive")
def test_a_host_without_debians_archive_has_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="knows no archive"):
        packages.update(tmp_path)
