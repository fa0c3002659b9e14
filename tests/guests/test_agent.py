"""The agents are workloads/*.sh; what they share with guests/ is held equal here."""

import re
import subprocess
from pathlib import Path

import pytest

from experiment.architecture import ARM64, X86_64
from guests.argv import qemu_argv
from guests.channel import MAGIC, READY
from guests.initramfs import AGENT, PREBUILT_AGENT
from guests.virtme import ENTER, ENTER_NAME, PORT_NAME, ROOT_NAME, WALL_AGENT
from tests.guests.test_argv import LAPTOP_SIZE, files, guest
from tests.values import script
from tests.waiting import completed

TEXT = AGENT.read_text()
PORT_WRITE = re.compile(
    r"printf '\\(\d{3})' \| (?:taskset \S+ )?dd of=/dev/port bs=1 seek=(\d+) count=1"
)
# Everything up to where the agent begins to act.
FUNCTIONS = TEXT.partition("\nmounts\n")[0]
ARM64_AGENT = AGENT.with_name(ARM64.root.agent)


@pytest.mark.parametrize("shell", [["sh"], ["busybox", "sh"]], ids=["sh", "busybox"])
@pytest.mark.parametrize(
    "agent", [AGENT, ARM64_AGENT, PREBUILT_AGENT, WALL_AGENT, ENTER], ids=lambda agent: agent.stem
)
def test_syntax(shell: list[str], agent: Path) -> None:
    done = completed([*shell, "-n", str(agent)], check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_agent_of_arm64_is_the_same_but_for_its_machine() -> None:
    """Ports become devices on the PCI bus; all else it says and does is agent.sh's."""
    text = ARM64_AGENT.read_text()
    sent = re.search(r"^send\(\) \{\n.*?^\}", text, re.MULTILINE | re.DOTALL)
    of_x86 = re.search(r"^send\(\) \{\n.*?^\}", TEXT, re.MULTILINE | re.DOTALL)
    assert sent is not None
    assert of_x86 is not None
    mine = sent[0].splitlines()
    theirs = [line for line in of_x86[0].splitlines() if "isa-debug-exit" not in line]
    theirs = [line.replace("ttyS1", "ttyS0") for line in theirs if "/dev/port" not in line]
    assert mine == theirs
    steps = re.compile(r"^(?:mounts|never_idle|prepare|stop_point|all_phases|send)$", re.MULTILINE)
    assert steps.findall(text) == steps.findall(TEXT)


def test_the_agent_of_arm64_knows_where_its_devices_are() -> None:
    text = ARM64_AGENT.read_text()
    slot = re.search(r"^PVPANIC=/sys/bus/pci/devices/0000:00:(\d\d)\.0$", text, re.MULTILINE)
    assert slot
    assert ARM64.board.devices == (f"pvpanic-pci,addr={slot[1]}.0",)
    assert f"addr={slot[1]}" not in ARM64.board.result[1]


def test_ports_and_the_status_of_a_run_that_is_done() -> None:
    (status, exit_port), (_, panic_port) = PORT_WRITE.findall(TEXT)
    panic, leave = X86_64.board.devices
    assert panic.endswith(f"ioport={panic_port}")
    assert f"iobase={int(exit_port):#x}," in leave
    assert (int(status, 8) << 1) | 1 == X86_64.board.done_status


def test_files_it_reads_are_those_qemu_offers() -> None:
    folder = re.search(r"^FW_CFG=/sys/firmware/qemu_fw_cfg/by_name/(.*)$", TEXT, re.MULTILINE)
    assert folder
    fetched = re.findall(r"^\s*fetch (\w+)$", TEXT, re.MULTILINE)
    assert fetched == ["prepare", "job"]
    offered = [
        argument.removeprefix("name=").partition(",")[0]
        for argument in qemu_argv(guest("laptop"), LAPTOP_SIZE, files())
        if argument.startswith("name=opt/")
    ]
    assert offered == [f"{folder[1]}/{name}" for name in fetched]


def test_header_is_the_one_the_lab_looks_for() -> None:
    assert f'echo "{MAGIC.decode()} $1 $2"; cat /tmp/payload' in TEXT


def agent(commands: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run some of the agent's functions, with what needs a guest taken out."""
    stand_ins = 'say() { echo "said: $*"; }\nsend() { exit 42; }\nadd_entropy() { :; }\n'
    where = f'OUT="{folder}"\nFW_CFG="{folder}/fw_cfg"\n'
    return completed(
        ["busybox", "sh", "-c", f"{FUNCTIONS}\n{stand_ins}{where}{commands}\necho went on"],
        check=False,
    )


@pytest.mark.parametrize(("commands", "name"), [("prepare", "prepare"), ("fetch job", "job")])
def test_text_that_was_not_sent_is_reported_missing(
    commands: str, name: str, tmp_path: Path
) -> None:
    done = agent(commands, tmp_path)
    assert done.stdout == f"said: failed: {name}: not sent\n"
    assert done.returncode == 42
    assert (tmp_path / "failure").read_text() == f"{name}: not sent\n"


def test_text_that_was_sent_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "fw_cfg" / "job").mkdir(parents=True)
    (tmp_path / "fw_cfg" / "job" / "raw").write_text("PHASES=2\n" + "\n" * 100)
    done = agent('fetch job; echo "$PHASES"', tmp_path)
    assert done.stdout == "2\nwent on\n"


def test_a_file_is_laid_out_over_nodes_from_the_emptiest(tmp_path: Path) -> None:
    """Pieces go to the node with the most memory left, the last piece is what remains."""
    for node, free_kib in enumerate((9000, 5000)):
        folder = tmp_path / f"node{node}"
        folder.mkdir()
        (folder / "meminfo").write_text(
            f"Node {node} MemTotal: 1 kB\nNode {node} MemFree: {free_kib} kB\nNode {node} X: 2 kB\n"
        )
        (folder / "cpulist").write_text(f"{node}\n")
    # Each piece of 4 MiB that is written takes them from its node.
    writes = f"""
taskset() {{
    free=$(sed -n 's/.*MemFree: \\(.*\\) kB/\\1/p' "{tmp_path}/node$2/meminfo")
    sed -i "s/MemFree: .*/MemFree: $((free - 4096)) kB/" "{tmp_path}/node$2/meminfo"
    echo "node $2: $7 $8 $9"
}}
"""
    done = agent(f'{writes}NODES="{tmp_path}"\nFILE_MIB=14\nlayout_over_nodes /file', tmp_path)
    assert done.stdout.splitlines() == [
        "node 0: seek=0 count=4 oflag=direct",
        "node 1: seek=4 count=4 oflag=direct",
        "node 0: seek=8 count=4 oflag=direct",
        "node 1: seek=12 count=2 oflag=direct",
        "went on",
    ]


@pytest.mark.parametrize(
    "before",
    ["", "mke2fs 1.47.0 (5-Feb-2023)", "Parameters parsed from config file /x successfully"],
)
def test_reason_of_a_failed_mkfs_is_its_first_line(before: str, tmp_path: Path) -> None:
    (tmp_path / "fw_cfg" / "prepare").mkdir(parents=True)
    program = tmp_path / "mkfs"
    output = "\n".join(line for line in (before, "the reason", "usage", "more usage") if line)
    script(program, f"cat <<EOF\n{output}\nEOF\nexit 1")
    (tmp_path / "fw_cfg" / "prepare" / "raw").write_text(
        f"MKFS={program}\nMOUNT_OPTIONS=\nFILES=x\nFILE_MIB=1\n"
    )
    assert "failed: mkfs: the reason\n" in agent("prepare", tmp_path).stdout


@pytest.mark.parametrize(
    ("mkfs", "mounted"),
    [
        ("", "mount -o huge=always -t tmpfs tmpfs /mnt"),
        ("true", "mount -o huge=always /dev/ram0 /mnt"),
    ],
)
def test_files_are_laid_out_one_by_one(mkfs: str, mounted: str, tmp_path: Path) -> None:
    """tmpfs has no device: nothing is made, and nothing else differs."""
    (tmp_path / "fw_cfg" / "prepare").mkdir(parents=True)
    (tmp_path / "fw_cfg" / "prepare" / "raw").write_text(
        f"MKFS={mkfs}\nMOUNT_OPTIONS=huge=always\nFILES='a b'\nFILE_MIB=8\n"
    )
    stand_ins = 'mount() { echo "mount $*"; }\ndd() { echo "dd $*"; }\nsync() { exit 0; }\n'
    done = agent(f"{stand_ins}prepare", tmp_path)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("said: ")]
    assert lines == [
        mounted,
        "dd if=/dev/zero of=a bs=1M count=8",
        "dd if=/dev/zero of=b bs=1M count=8",
    ]


@pytest.mark.parametrize("entries", [0, 12])
def test_a_perturbation_is_made_as_given_and_stays(entries: int, tmp_path: Path) -> None:
    """Of nothing it makes nothing, and still goes on."""
    place = tmp_path / "entries"
    stand_ins = 'dd() { echo "$*"; }\n' + "".join(
        f'{name}() {{ command {name} "{place}"; }}\n' for name in ("mkdir", "cd")
    )
    done = agent(f"{stand_ins}DELAY=3 PAGES=7 ENTRIES={entries}\nperturb\necho $turns", tmp_path)
    assert done.stdout.splitlines() == [
        "if=/dev/zero of=/tmp/perturb bs=4k count=7",
        "3",
        "went on",
    ]
    assert len(list(place.iterdir())) == entries


WALL = WALL_AGENT.read_text()
OUTER = ENTER.read_text()


def shell(script: str) -> subprocess.CompletedProcess[str]:
    return completed(["busybox", "sh", "-c", script], check=False)


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
