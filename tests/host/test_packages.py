import re
from pathlib import Path

import pytest

from errors import InfraError
from host import packages as module
from host.packages import (
    SYSTEMS,
    UNKNOWN,
    install_line,
    locate,
    package_of,
    packages,
    parse,
    parse_systems,
    system_of,
)
from tests.values import data

EVERY = parse_systems(SYSTEMS.read_text())
BY_ID = {system.id: system for system in EVERY}
DEBIAN = BY_ID["debian"]


@pytest.fixture
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's os-release, which a test may write anew."""
    path = tmp_path / "os-release"
    path.write_text("ID=debian\n")
    monkeypatch.setattr(module, "OS_RELEASE", path)
    return path


def test_a_line_becomes_a_package() -> None:
    (package,) = parse("# comment\n\nxfsprogs | required | mkfs.xfs /sbin/x | makes it; twice\n")
    assert package.name == "xfsprogs"
    assert package.need == "required"
    assert package.provides == ("mkfs.xfs", "/sbin/x")
    assert package.why == "makes it; twice"


@pytest.mark.parametrize(("line", "message"), data(__file__, "a_bad_line_is_named"))
def test_a_bad_line_is_named(line: str, message: str) -> None:
    with pytest.raises(InfraError, match=r"packages.txt:2") as error:
        parse(f"# comment\n{line}\n")
    assert message in str(error.value)


def test_the_shipped_list_names_each_package_and_program_once() -> None:
    names = [package.name for package in packages(DEBIAN)]
    provided = [each for package in packages(DEBIAN) for each in package.provides]
    assert len(set(names)) == len(names)
    assert len(set(provided)) == len(provided)
    assert all(package.why for package in packages(DEBIAN))
    # None is looked for in a folder of one release.
    assert not [path for path in provided if re.search(r"/python3\.\d", path)]


def test_a_missing_list_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIST", tmp_path / "none.txt")
    with pytest.raises(InfraError, match="cannot be read"):
        packages()


def test_programs_are_located_on_the_path_then_in_system_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bin/both", "sbin/both", "sbin/mkfs.xfs"):
        place = tmp_path / name
        place.parent.mkdir(exist_ok=True)
        place.touch(mode=0o755)
    (tmp_path / "bin/plain").touch(mode=0o644)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(module, "SYSTEM_FOLDERS", (str(tmp_path / "sbin"),))
    assert locate("both") == tmp_path / "bin/both"
    assert locate("mkfs.xfs") == tmp_path / "sbin/mkfs.xfs"
    assert locate("plain") is None
    assert locate(str(tmp_path / "bin/plain")) == tmp_path / "bin/plain"
    assert locate(str(tmp_path / "none")) is None


def test_a_file_is_located_whatever_the_release_calls_its_folder(tmp_path: Path) -> None:
    for name in ("python3.11", "python3.13"):
        (tmp_path / name / "ensurepip").mkdir(parents=True)
    assert locate(f"{tmp_path}/python3*/ensurepip") == tmp_path / "python3.13/ensurepip"
    assert locate(f"{tmp_path}/python4*/ensurepip") is None
    # Of several places one is enough.
    (tmp_path / "two").touch()
    assert locate(f"{tmp_path}/one,{tmp_path}/two") == tmp_path / "two"
    assert locate(f"{tmp_path}/one,{tmp_path}/three") is None


def test_a_programs_package_is_known(debian: Path) -> None:
    assert package_of("mkfs.xfs") == "xfsprogs"
    assert package_of("setpriv") == "util-linux"
    assert package_of("emacs") == ""
    debian.write_text("ID=fedora\n")
    assert package_of("qemu-system-x86_64") == "qemu-system-x86-core"


@pytest.mark.parametrize(("os_release", "line"), data(__file__, "the_install_line_is_the_systems"))
def test_the_install_line_is_the_systems(debian: Path, os_release: str, line: str) -> None:
    debian.write_text(os_release)
    assert install_line(["fio", "bc"]) == line
    debian.unlink()  # a machine without one is not known
    assert install_line(["fio"]) == "install what Debian calls fio"


@pytest.mark.parametrize(
    ("text", "name"), data(__file__, "a_system_is_known_by_its_id_then_by_what_it_is_like")
)
def test_a_system_is_known_by_its_id_then_by_what_it_is_like(text: str, name: str) -> None:
    assert system_of(text, EVERY) == BY_ID.get(name, UNKNOWN)


def test_both_lists_have_the_same_packages() -> None:
    debians = [package.name for package in parse(module.LIST.read_text())]
    for system in EVERY:
        assert list(system.names) == debians
    assert [system.id for system in EVERY] == ["debian", "ubuntu", "fedora", "arch"]
    # Only Debian has the kernel source of the shipped experiments.
    assert {s.id for s in EVERY if s.names["linux-source-6.12"]} == {"debian"}


def test_what_a_system_does_not_have_is_not_required() -> None:
    arch = [package.name for package in packages(BY_ID["arch"])]
    assert "qemu-system-x86" in arch
    assert "libelf" in arch
    assert not {"apt", "dpkg", "linux-source-6.12", "", "-", "="} & set(arch)


@pytest.mark.parametrize(("text", "message"), data(__file__, "a_bad_list_of_systems_is_named"))
def test_a_bad_list_of_systems_is_named(text: str, message: str) -> None:
    with pytest.raises(InfraError, match=message):
        parse_systems(text)
