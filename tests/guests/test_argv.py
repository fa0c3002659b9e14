import shlex
import tomllib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from experiment.plan import Size
from experiment.spec import Guest
from guests.argv import ExactFiles, environment, kernel_command_line, machine_argv, qemu_argv
from guests.probe.plugin import Probe
from host.process import paste
from tests.values import but

CHECKOUT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"
LAPTOP_SIZE = Size(cgroup_limit_mib=64, brd_mib=128, file_mib=104, jobs=4)
FULL_SIZE = Size(cgroup_limit_mib=8192, brd_mib=16384, file_mib=13312, jobs=16)


def guest(name: str) -> Guest:
    text = (CHECKOUT / "configs" / "guests" / f"{name}.toml").read_text()
    return Guest.model_validate(tomllib.loads(text))


def files(*, memory_shared: bool = True) -> ExactFiles:
    work = Path("/w")
    return ExactFiles(
        kernel=Path("/k/bzImage"),
        initramfs=Path("/i.cpio"),
        memory=work / "memory",
        memory_shared=memory_shared,
        console=work / "console.log",
        result=work / "result",
        prepare=work / "prepare",
        job=work / "job",
    )


def probe(path: str, **more: Any) -> Probe:
    return Probe(Path(path), "", 0, "", **more)


def restored(machine: Guest, **more: Any) -> list[str]:
    rest = {"monitor_fd": 5, "incoming": True, **more}
    return qemu_argv(machine, LAPTOP_SIZE, files(memory_shared=False), **rest)


AT = 0xFFFFFFFF81000000
ARM64 = but(guest("laptop"), arch="arm64")
NODES = but(guest("laptop"), vcpus=8, numa_nodes=4)
ARGVS = {
    "laptop-by-hand": qemu_argv(guest("laptop"), LAPTOP_SIZE, files()),
    "laptop-cold": qemu_argv(guest("laptop"), LAPTOP_SIZE, files(), monitor_fd=5),
    "laptop-restored": restored(guest("laptop")),
    "laptop-probed": restored(
        guest("laptop"), plugin=probe("/c/native/probe-1").argument(Path("/w/counts"), "")
    ),
    "nodes-cold": qemu_argv(NODES, LAPTOP_SIZE, files(), monitor_fd=5),
    "nodes-restored": restored(NODES),
    "arm64-cold": qemu_argv(ARM64, LAPTOP_SIZE, files(), monitor_fd=5),
    "arm64-restored": restored(ARM64),
    "full-by-hand": qemu_argv(guest("full"), FULL_SIZE, files()),
}


def options(argv: list[str]) -> str:
    """One option a line, with its value."""
    return paste(argv).replace(" -", "\n  -") + "\n"


@pytest.mark.parametrize("name", sorted(ARGVS))
def test_command_line(name: str) -> None:
    """Changed on purpose? Then write tests/guests/golden/NAME.txt anew and read the diff."""
    assert options(ARGVS[name]) == (GOLDEN / f"{name}.txt").read_text()
    # What is pasted is the same command.
    assert shlex.split(paste(ARGVS[name])) == ARGVS[name]


@pytest.mark.parametrize("name", ["laptop", "nodes", "arm64"])
def test_snapshot_and_restored_guest_differ_only_in_how_they_come_up(name: str) -> None:
    cold = ARGVS[f"{name}-cold"]
    swapped = [argument.replace("share=on", "share=off") for argument in cold]
    assert [*swapped[:-1], "-incoming", "defer"] == ARGVS[f"{name}-restored"]
    assert cold[-1] == "-S"


def test_probed_guest_differs_only_by_the_plugin() -> None:
    probed = ARGVS["laptop-probed"]
    at = probed.index("-plugin")
    assert probed[:at] + probed[at + 2 :] == ARGVS["laptop-restored"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"window": 1000}, "window=1000"),
        ({"spans": ((AT, AT + 16), (1, 2))}, f"span={AT:x}-{AT + 16:x},span=1-2"),
        ({"locks": (("spin", AT, AT + 16), ("free", 1, 2))}, f"spin={AT:x}-{AT + 16:x},free=1-2"),
        ({"model": ("cache=l2:1:2", "bits=64")}, "cache=l2:1:2,bits=64,ram=/memfd:m"),
        ({"functions": Path("/m,ap"), "stacks": ("begin=1",)}, "functions=/m,,ap,begin=1"),
    ],
)
def test_plugin_is_given_what_the_probe_reads(more: dict[str, Any], words: str) -> None:
    """Commas in a path end no value."""
    argument = probe("/a,b/probe", **more).argument(Path("/c,d/counts"), "/memfd:m")
    assert argument == f"file=/a,,b/probe,out=/c,,d/counts,{words}"
    argv = qemu_argv(guest("laptop"), LAPTOP_SIZE, files(), plugin=argument)
    assert argv[argv.index("-plugin") + 1] == argument


def test_commas_in_the_places_of_files_end_no_value() -> None:
    """Of a session or a cache whose path has one."""
    plain = files()
    paths: dict[str, Any] = {
        key: Path(f"/a,b{value}") for key, value in vars(plain).items() if key != "memory_shared"
    }
    moved = replace(plain, **paths)
    for shape in (guest("laptop"), NODES):
        argvs = [qemu_argv(shape, LAPTOP_SIZE, each) for each in (moved, plain)]
        for word, before in zip(*argvs, strict=True):
            # Two commas are one to QEMU; -kernel and -initrd are given paths and no values.
            parts = word if word.startswith("/") else word.replace(",,", ",")
            assert parts.replace("/a,b/", "/") == before
            assert word.startswith("/") or "/a,b" not in word


def test_metronome_ticks_only_where_it_is_requested() -> None:
    quiet = guest("laptop")
    ticking = but(quiet, metronome_ns=20_000)
    assert environment(Path("/p.so"), quiet) == {"LD_PRELOAD": "/p.so"}
    assert environment(Path("/p.so"), ticking) == {
        "LD_PRELOAD": "/p.so",
        "TWINBOOT_METRONOME_NS": "20000",
    }


@pytest.mark.parametrize("name", ["smoke", "laptop", "full"])
def test_every_guest_counts_instructions_and_has_no_randomness_of_its_own(name: str) -> None:
    argv = machine_argv(guest(name))
    pairs = dict(pairwise(argv))
    assert pairs["-accel"] == "tcg"
    assert pairs["-icount"] == "shift=0,sleep=off"
    assert pairs["-rtc"].startswith("clock=vm,base=")
    assert pairs["-seed"] == "1"
    # Nehalem has neither RDRAND nor RDSEED.
    assert pairs["-cpu"].split(",")[0] == "Nehalem"
    words = set(kernel_command_line(guest(name), LAPTOP_SIZE).split())
    assert {"nolapic_timer", "no_hash_pointers", "nokaslr", "norandmaps"} <= words
    # One vCPU alone never halts.
    assert ("idle=poll" in words) == (guest(name).vcpus == 1)
    assert not [argument for argument in argv if "virtio" in argument or "kvm" in argument]
