import re
from pathlib import Path

import pytest

from host import packages as module
from host.errors import InfraError
from host.packages import install_line, locate, package_of, packages, parse


def test_a_line_becomes_a_package() -> None:
    (package,) = parse("# comment\n\nxfsprogs | required | mkfs.xfs /sbin/x | makes it; twice\n")
    assert package.name == "xfsprogs"
    assert package.need == "required"
    assert package.provides == ("mkfs.xfs", "/sbin/x")
    assert package.why == "makes it; twice"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("fio | required | fio", "four fields"),
        ("fio | required | | why", "four fields"),
        ("fio | required | fio | why | more", "four fields"),
        ("fio | needed | fio | why", "unknown need 'needed'"),
    ],
)
def test_a_bad_line_is_named(line: str, said: str) -> None:
    with pytest.raises(InfraError, match=r"packages.txt:2") as error:
        parse(f"# comment\n{line}\n")
    assert said in str(error.value)


def test_the_shipped_list_names_each_package_and_program_once() -> None:
    names = [package.name for package in packages()]
    provided = [each for package in packages() for each in package.provides]
    assert len(set(names)) == len(names)
    assert len(set(provided)) == len(provided)
    assert all(package.why for package in packages())


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


def test_no_package_is_looked_for_in_a_folder_of_one_release() -> None:
    provided = [each for package in packages() for each in package.provides]
    assert not [path for path in provided if re.search(r"/python3\.\d", path)]


def test_a_programs_package_is_known() -> None:
    assert package_of("mkfs.xfs") == "xfsprogs"
    assert package_of("setpriv") == "util-linux"
    assert package_of("emacs") == ""


def test_the_install_line_can_be_pasted() -> None:
    assert install_line(["fio", "bc"]) == "apt-get install --no-install-recommends fio bc"
