"""Packages come from a real apt, whose archive is a folder of the test's."""

from __future__ import annotations

from pathlib import Path

import pytest

from errors import InfraError, UsageError
from kernels import packages
from tests.kernels.shipped import Archive

NAME = "linux-image-6.1.2-test"


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    archive = Archive(tmp_path / "archive")
    archive.add(NAME, "6.1.2-1~deb12u1")
    monkeypatch.setenv("APT_CONFIG", str(archive.config))
    return archive


def test_newest_version_or_the_one_that_is_named(archive: Archive, tmp_path: Path) -> None:
    archive.add(NAME, "6.1.2-3")
    assert packages.find(NAME, tmp_path).name_and_version == f"{NAME}=6.1.2-3"
    assert packages.find(f"{NAME}=6.1.2-1~deb12u1", tmp_path).version == "6.1.2-1~deb12u1"


def test_package_that_stands_for_another(archive: Archive, tmp_path: Path) -> None:
    archive.add("linux-image-test", "6.1+9", depends=f"{NAME} (= 6.1.2-1~deb12u1)")
    assert packages.find("linux-image-test", tmp_path).name_and_version == f"{NAME}=6.1.2-1~deb12u1"


def test_a_kernel_in_packages_of_its_own_is_unpacked_as_one(
    archive: Archive, tmp_path: Path
) -> None:
    image, version = "linux-image-7.3.4-test", "7.3.4-1~bpo13+1"
    rest = [image.replace("image", kind) for kind in ("base", "binary", "modules")]
    for name in rest:
        content = tmp_path / name
        (content / "boot").mkdir(parents=True)
        (content / "boot" / name).write_text(name)
        archive.add(name, version, content=content)
    depends = ", ".join(["dracut | initramfs-tools", *(f"{name} (= {version})" for name in rest)])
    archive.add(image, version, depends=depends)
    package = packages.find(image, tmp_path)
    assert [each.name for each in package.rest] == rest
    with packages.unpacked(package, tmp_path) as root:
        assert sorted(path.name for path in (root / "boot").iterdir()) == rest
    assert [argv[-1] for argv in packages.fetch_argvs(image, tmp_path)] == [
        image, *(f"{name}={version}" for name in rest),
    ]  # fmt: skip


def test_package_that_apt_does_not_know(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(InfraError) as caught:
        packages.find("linux-image-9.9=1-1", tmp_path)
    assert caught.value.next_step.startswith("./lab.py fetch linux-image-9.9,")


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


def test_file_that_was_tampered_with_is_refused(archive: Archive, tmp_path: Path) -> None:
    package = packages.find(NAME, tmp_path)
    (file,) = (archive.folder / "pool").glob("*.deb")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(InfraError, match="apt-get cannot fetch it"):
        packages.fetch(package, tmp_path)
    assert list(packages.folder(tmp_path).iterdir()) == []


def test_package_that_is_gone(archive: Archive, tmp_path: Path) -> None:
    package = packages.find(NAME, tmp_path)
    (file,) = (archive.folder / "pool").glob("*.deb")
    file.unlink()
    with pytest.raises(InfraError, match=rf"{NAME}=6\.1\.2-1~deb12u1: apt-get cannot fetch it"):
        packages.fetch(package, tmp_path)


def test_damaged_package_is_not_unpacked(tmp_path: Path) -> None:
    file = tmp_path / "a.deb"
    file.write_text("no package")
    with pytest.raises(InfraError, match="dpkg-deb"):
        packages.unpack(file, tmp_path / "root")
