"""A wall guest that KVM gives back, with QEMU's own word for it."""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from errors import InfraError
from experiment.load import load_guest
from experiment.plan import Size
from experiment.spec import Guest, WallShape
from guests import virtme
from guests.channel import Follower
from guests.virtme import PORT_NAME, WallFiles, environment, vng_argv, wrapped
from host.accelerator import ACCELERATORS, Accelerator
from host.fitness import Placement
from host.process import run
from tests.guests.test_argv import LAPTOP_SIZE
from tests.values import but, script

CONSOLE = "[    0.1] SLUB: HWalign=64\nKVM internal error. Suberror: 1\nextra data[0]: 0\nRAX=0\n"


class StatusMonitor:
    """What QEMU answers."""

    def __init__(self, status: str) -> None:
        self.status = status

    def command(self, name: str) -> dict[str, str]:
        assert name == "query-status"
        return {"status": self.status}

    def close(self) -> None:
        pass


def waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, text: str
) -> virtme._WallGuest:
    log = tmp_path / "console.log"
    log.write_text(text)
    monkeypatch.setattr(virtme, "ended", lambda process: False)
    monkeypatch.setattr(virtme, "cpu_s_of", lambda pid: 0.0)
    monkeypatch.setattr(virtme._WallGuest, "_monitor", lambda guest: StatusMonitor(status))
    shape = SimpleNamespace(boot_timeout_s=0.3, silence_timeout_s=1.0, run_timeout_s=1.0)
    return virtme._WallGuest(
        cast(Any, SimpleNamespace(guest=shape, patience=1)),
        cast(Any, SimpleNamespace(result=tmp_path / "result")),
        cast(Any, None),
        Follower(log),
        time.monotonic(),
    )


def test_a_guest_that_kvm_cannot_run_is_ended_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest = waiting(tmp_path, monkeypatch, "internal-error", CONSOLE)
    with pytest.raises(InfraError, match=r"KVM internal error. Suberror: 1\n"):
        guest.to_end(lambda word: None)


@pytest.mark.parametrize(
    ("status", "text"), [("running", CONSOLE), ("internal-error", "a KVM internal error\n")]
)
def test_a_console_alone_blames_no_kvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, text: str
) -> None:
    guest = waiting(tmp_path, monkeypatch, status, text)
    assert guest.to_end(lambda word: None).ending.kind == "boot"


VIRTME_NG = "virtme-ng"
GOLDEN = Path(__file__).parent / "golden"
FILES = WallFiles(Path("/tmp/twinboot-test"))
ONE_NODE = Placement(vcpus=(1,), lab=(0,), nodes=(), isolated=True)
TWO_NODES = Placement(
    vcpus=tuple(range(1, 9)) + tuple(range(12, 20)), lab=(0,), nodes=(0, 1), isolated=True
)


def guest(name: str, **wall: object) -> Guest:
    return but(load_guest(Path(name)), wall=WallShape.model_validate(wall))


LARGE = but(guest("full", huge_pages=True), numa_nodes=2)
LARGE_SIZE = Size(cgroup_limit_mib=8192, brd_mib=16384, file_mib=13312, jobs=16)
CASES: dict[str, tuple[Guest, Size, Accelerator, Placement | None]] = {
    "wall-laptop-tcg": (guest("laptop"), LAPTOP_SIZE, "tcg", ONE_NODE),
    "wall-laptop-kvm": (guest("laptop"), LAPTOP_SIZE, "kvm", None),
    "wall-full-two-nodes": (LARGE, LARGE_SIZE, "kvm,arch-capabilities=off", TWO_NODES),
}


def lines(argv: list[str]) -> str:
    """An option and its value a line, as a person reads a command line."""
    text = ""
    for word in argv:
        new = word.startswith("-") or not text
        text += ("\n" if new and text else " " if text else "") + shlex.quote(word)
    return text + "\n"


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    machine, size, accelerator, placement = CASES[name]
    text = lines(vng_argv(machine, size, FILES, accelerator, placement))
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("TWINBOOT_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.fixture(scope="module", params=["pinned", pytest.param("newest", marks=pytest.mark.long)])
def virtme_ng(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """The virtme-ng of requirements.lock, and the newest that the package index has."""
    with pytest.MonkeyPatch.context() as environ:
        if request.param == "newest":
            place = tmp_path_factory.mktemp("newest")
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(place)]
            done = run([*pip, VIRTME_NG], timeout_s=300, check=False)
            if done.returncode:
                pytest.skip(f"no package index within reach: {done.stderr.strip()[-200:]}")
            environ.setenv("PATH", f"{place / 'bin'}:{os.environ['PATH']}")
            environ.setenv("PYTHONPATH", str(place))
            (metadata,) = place.glob("virtme_ng-*.dist-info")
            version = metadata.name.removeprefix("virtme_ng-").removesuffix(".dist-info")
            assert run(["vng", "--version"], timeout_s=300).stdout == f"virtme-ng {version}\n"
        yield


def dry_run(
    folder: Path, machine: Guest, accelerator: Accelerator, placement: Placement | None
) -> list[str]:
    """The QEMU command line that virtme-ng makes of ours on this host."""
    files = WallFiles(folder)
    for place in (files.home, files.temporary, files.share):
        place.mkdir()
    # The least that passes for a kernel: its boot header.
    files.kernel.write_bytes(b"\0" * 0x202 + b"HdrS" + b"\0" * 0x400)
    argv = vng_argv(machine, LAPTOP_SIZE, files, accelerator, placement)
    done = run([*argv, "--dry-run"], timeout_s=300, env=environment(files), cwd=Path("/"))
    # An empty home stays empty: nothing was looked for in the user's own.
    assert [path.name for path in files.home.rglob("*") if path.is_file()] == []
    return shlex.split(done.stdout)


@pytest.mark.usefixtures("virtme_ng")
@pytest.mark.parametrize("accelerator", ACCELERATORS)
def test_virtme_ng_chooses_nothing_that_we_chose(accelerator: Accelerator, tmp_path: Path) -> None:
    words = dry_run(tmp_path, guest("laptop"), accelerator, ONE_NODE)
    pairs: dict[str, list[str]] = {}
    for option, value in pairwise(words):
        pairs.setdefault(option, []).append(value)
    # No "kvm:tcg": KVM that does not work must not become TCG without a word.
    under = (pairs["-machine"][-1], pairs.get("-accel"))
    translated = accelerator == "tcg"
    assert under == (("q35", ["tcg,thread=single"]) if translated else ("q35,accel=kvm", None))
    # QEMU takes one of the two spellings, so virtme-ng must not have used the other.
    assert not (translated and any("accel=" in value for value in pairs["-machine"]))
    assert pairs["-cpu"][-1].split(",")[0] == ("max" if translated else "host")
    assert ("arch-capabilities=off" in pairs["-cpu"][-1]) == accelerator.endswith("=off")
    assert pairs["-m"] == ["768M"]
    shares = pairs["-fsdev"]
    assert len(shares) == 2
    assert all("readonly=on" in value for value in shares)
    assert not [word for word in words if "virtiofs" in word and "id=virtfs" not in word]
    assert f"virtserialport,name={PORT_NAME},chardev=twinboot-result" in pairs["-device"]
    assert "brd.rd_size=131072" in pairs["-append"][0].split()


@pytest.mark.usefixtures("virtme_ng")
def test_virtme_ng_serves_by_9p_and_pins_nothing_where_it_could(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes virtiofs where the host has its daemon, and pins where its configuration says."""
    programs, called = tmp_path / "programs", tmp_path / "called"
    programs.mkdir()
    script(programs / "virtiofsd", f'echo "$@" >>{called}\nexec sleep 60')
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    configuration = tmp_path / "user/.config/virtme-ng/virtme-ng.conf"
    configuration.parent.mkdir(parents=True)
    configuration.write_text('{"default_opts": {"pin": "0", "cpus": "3", "rw": true}}')
    (tmp_path / "run").mkdir()
    words = dry_run(tmp_path / "run", guest("laptop"), "tcg", ONE_NODE)
    assert not called.exists()
    pairs = list(pairwise(words))
    assert [value for option, value in pairs if option == "-smp"] == ["1"]
    shares = [value for option, value in pairs if option == "-fsdev"]
    assert [("local,id=" in share, ",readonly=on" in share) for share in shares] == [
        (True,) * 2
    ] * 2
    devices = [value for option, value in pairs if option == "-device"]
    assert len([device for device in devices if device.startswith("virtio-9p")]) == len(shares)
    assert not [device for device in devices if "vhost-user-fs" in device]


def test_numa_nodes_and_huge_pages_are_whole_guests() -> None:
    words = shlex.split(
        next(
            word.partition("=")[2]
            for word in vng_argv(LARGE, LARGE_SIZE, FILES, "kvm", TWO_NODES)
            if word.startswith("--qemu-opts=")
        )
    )
    memory = [value for option, value in pairwise(words) if option == "-object"]
    assert [value.split(",size=")[1].split(",")[0] for value in memory] == ["16384M"] * 2
    assert all("hugetlb=on" in value and "policy=bind" in value for value in memory)
    nodes = [value for option, value in pairwise(words) if option == "-numa"]
    assert [value.split("cpus=")[1] for value in nodes] == ["0-7", "8-15"]


def test_shell_makes_a_pipe_and_keeps_the_status_as_evidence() -> None:
    script = "test -p /dev/stdout && echo a pipe; echo to stderr >&2; exit 7"
    done = run(wrapped(["sh", "-c", script]), timeout_s=300)
    assert done.stdout.splitlines() == [
        "a pipe",
        "to stderr",
        "twinboot-host: vng ended with status 7",
    ]


def test_shell_takes_its_group_along() -> None:
    """SIGTERM is what the kernel sends when the lab is gone."""
    argv = wrapped(["sh", "-c", "sh -c 'sleep 60; :' & echo started; wait"])
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.terminate()
    # The pipe ends when its last writer is gone, not before.
    assert process.stdout.read() == ""
    assert process.wait(timeout=300) == -9
