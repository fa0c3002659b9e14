"""The script that makes a root of another release, up to where it would fetch one."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.values import data, script
from tests.waiting import completed

SCRIPT = Path(__file__).with_name("debian.sh")
# Of a host with a security archive besides, as `apt-get indextargets` prints it.
INDEX = data(__file__, "index")


@dataclass
class Host:
    """Programs that stand before the host's, and what debootstrap was called with."""

    programs: Path
    calls: Path

    def call(self, *arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
        return completed(
            ["sh", SCRIPT, *arguments],
            check=False,
            env={"PATH": f"{self.programs}:/usr/bin:/bin", **env},
        )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    host = Host(tmp_path / "programs", tmp_path / "calls")
    host.programs.mkdir()
    script(host.programs / "id", "echo 0")
    script(host.programs / "apt-get", INDEX)
    noted = f'echo "$@" >"{host.calls}"'
    script(host.programs / "debootstrap", f"{noted}\necho the reason\nexit 1")
    return host


@pytest.mark.parametrize(
    ("index", "env", "mirror"),
    [
        (INDEX, {}, "http://mirror.example/debian"),
        (INDEX, {"DEBIAN_MIRROR": "http://own.example/debian"}, "http://own.example/debian"),
        ("exit 1", {}, "http://deb.debian.org/debian"),
    ],
)
def test_the_archive_is_the_hosts(
    host: Host, index: str, env: dict[str, str], mirror: str, tmp_path: Path
) -> None:
    script(host.programs / "apt-get", index)
    done = host.call("trixie", tmp_path / "root", "true", **env)
    assert host.calls.read_text().split()[-3:] == ["trixie", f"{tmp_path}/root.new", mirror]
    assert done.returncode == 3
    assert f"its output is in {tmp_path}/root.log" in done.stderr
    assert (tmp_path / "root.log").read_text() == "the reason\n"
    assert not (tmp_path / "root").exists()


def test_a_folder_that_it_did_not_make_is_left_alone(host: Host, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    done = host.call("trixie", tmp_path / "mine", "true")
    assert done.returncode == 2
    assert f"{tmp_path}/mine is there and was not made by this program" in done.stderr
    assert list((tmp_path / "mine").iterdir()) == []
    assert not host.calls.exists()


@pytest.mark.parametrize("arguments", [(), ("trixie", "/root-of-it"), ("--root", "trixie", "/x")])
def test_a_call_without_a_command_is_refused(host: Host, arguments: tuple[str, ...]) -> None:
    done = host.call(*arguments)
    assert done.returncode == 2
    assert "usage: debian.sh" in done.stderr


def test_an_ordinary_user_is_refused(host: Host, tmp_path: Path) -> None:
    script(host.programs / "id", "echo 1000")
    done = host.call("trixie", tmp_path / "root", "true")
    assert done.returncode == 2
    assert not host.calls.exists()
