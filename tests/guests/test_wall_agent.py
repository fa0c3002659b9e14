"""The wall agent's shell: what it shares with the host's side is held equal here."""

import re
import subprocess
from pathlib import Path

import pytest

from guests.channel import MAGIC, READY
from guests.initramfs import AGENT
from guests.virtme import ENTER, ENTER_NAME, PORT_NAME, ROOT_NAME, WALL_AGENT
from tests.waiting import completed

WALL = WALL_AGENT.read_text()
OUTER = ENTER.read_text()


def shell(script: str) -> subprocess.CompletedProcess[str]:
    return completed(["busybox", "sh", "-c", script], check=False)


@pytest.mark.parametrize("program", [["sh"], ["busybox", "sh"]], ids=["sh", "busybox"])
@pytest.mark.parametrize("script", [WALL_AGENT, ENTER], ids=lambda path: path.name)
def test_syntax(program: list[str], script: Path) -> None:
    done = completed([*program, "-n", str(script)], check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_names_are_those_of_the_host_side() -> None:
    assert re.search(r"^PORT_NAME=(.*)$", WALL, re.M).group(1) == PORT_NAME  # type: ignore[union-attr]
    assert f'echo "{MAGIC.decode()} $1 $2"; cat /tmp/payload' in WALL
    assert f'say "{READY}"' in WALL
    assert f'"$SHARE/{ROOT_NAME}"' in OUTER
    assert f'"$SHARE"/{WALL_AGENT.name}' in OUTER
    assert ENTER.name == ENTER_NAME


def test_only_the_functions_of_the_agent_are_taken() -> None:
    """Nothing of the exact guest's own course runs: it would mount, spin and stop."""
    done = shell(f"TWINBOOT_FUNCTIONS_ONLY=1; . {AGENT}; type all_phases prepare; echo $?")
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "0"


def test_agent_itself_goes_on_to_its_course() -> None:
    """The guard is for being read; process 1 of an exact guest must not end at it."""
    course = AGENT.read_text().partition("|| return 0\n")[2].split()
    assert course == ["mounts", "never_idle", "prepare", "stop_point", "all_phases", "send"]


def test_port_is_identified_by_its_name(tmp_path: Path) -> None:
    for number, name in enumerate(("virtme.ret", PORT_NAME, "virtme.stdin")):
        (tmp_path / f"vport1p{number}").mkdir()
        (tmp_path / f"vport1p{number}" / "name").write_text(f"{name}\n")
    function = WALL[WALL.index("port() {") : WALL.index("# virtme-ng's init powers off")]
    function = function.replace("/sys/class/virtio-ports", str(tmp_path))
    assert shell(f"PORT_NAME={PORT_NAME}\n{function}\nport").stdout == "/dev/vport1p1\n"
