"""Boot a wall guest through virtme-ng, pin its vCPUs, and hear what it found.

virtme-ng's exit status says too little, so a run has ended well when a whole result came through
the guest's port; else the console says how it ended.  ``watch`` is called several times a second
with the agent's last word; it may raise to end the guest.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from errors import InfraError
from experiment.plan import Size
from experiment.spec import Guest
from guests import channel
from guests.argv import REFUSED_CALLS, joined
from guests.initramfs import AGENT
from host import sandbox
from host.accelerator import DEVICE, QEMU, Accelerator, AcceleratorTest, machine_options
from host.facts import text_of
from host.fitness import Placement
from host.process import Process, cpu_s_of, ended, spawn
from results import door

VNG = "vng"
SHARE_IN_GUEST = "/run/twinboot-share"
ENTER_NAME = "enter.sh"
PORT_NAME = "twinboot.result"
CPU_MODELS: dict[Accelerator, str] = {
    "kvm": "host",
    "kvm,arch-capabilities=off": "host,arch-capabilities=off",
    "tcg": "max",
}
# QEMU's stdout and stderr must be a pipe: virtme-ng has several chardevs open them by
# name, and each would truncate a file.  A lab that is killed outright takes the shell
# with it by SIGTERM, and the shell its group: virtme-ng's own children do not follow
# it.  Its status says too little to be used (255 for a panic, an abort, a signal),
# but belongs to the evidence.
SHELL_LINE = (
    'trap "kill -KILL 0" TERM; '
    '{ "$@" 2>&1; echo "twinboot-host: vng ended with status $?"; } | cat & wait $!'
)


class WallFiles:
    """Host files of one boot, all in one ``folder`` of its own with a plain name.

    ``kernel`` is the image or a link to it.  ``share``, with agent and texts, is offered to the
    guest read-only; ``result``, of its port, and ``monitor`` are made by QEMU.  ``home`` is empty:
    virtme-ng's configuration file overrides its flags.  ``temporary`` is for its own files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.kernel, self.share = folder, folder / "bzImage", folder / "share"
        self.result, self.monitor = folder / "result", folder / "monitor"
        self.home, self.temporary = folder / "home", folder / "tmp"


def environment(files: WallFiles) -> dict[str, str]:
    """What virtme-ng's environment holds beside the lab's own."""
    home = str(files.home)
    return {"HOME": home, "XDG_CONFIG_HOME": home, "TMPDIR": str(files.temporary)}


def kernel_command_line(size: Size, more: Sequence[str] = ()) -> str:
    """What is added to virtme-ng's kernel command line."""
    brd = (f"brd.rd_nr={int(size.brd_mib > 0)}", f"brd.rd_size={size.brd_mib * 1024}")
    # On a busy host a translated guest's first ticks come late, and Linux panics: "IO-APIC + timer
    # doesn't work!". Guests of KVM leave the check out themselves.
    return " ".join(["panic=-1", "no_timer_check", *brd, *more])


def vng_argv(
    guest: Guest,
    size: Size,
    files: WallFiles,
    accelerator: Accelerator,
    placement: Placement | None = None,
    cmdline: Sequence[str] = (),
) -> list[str]:
    """The virtme-ng command line of a run; QEMU starts stopped, so that vCPUs get pinned."""
    argv = [VNG, "--run", str(files.kernel), "--verbose", "--user", "root"]
    argv += ["--disable-microvm", "--force-9p", "--cpus", str(guest.vcpus)]
    argv += ["--memory", f"{guest.memory_mib}M", "--rodir", f"{SHARE_IN_GUEST}={files.share}"]
    argv += ["--append", kernel_command_line(size, cmdline)]
    argv += ["--disable-kvm"] if accelerator == "tcg" else []
    port = f"virtserialport,name={PORT_NAME},chardev=twinboot-result"
    monitor = ("socket", "id=twinboot-monitor", f"path={files.monitor}", "server=on", "wait=off")
    # Of QEMU, behind those of virtme-ng.
    options = [*machine_options(accelerator), "-cpu", guest.wall.cpu or CPU_MODELS[accelerator]]
    options += _memory_options(guest, placement)
    options += ["-chardev", joined("file", "id=twinboot-result", f"path={files.result}")]
    options += ["-device", port, "-chardev", joined(*monitor)]
    options += ["-mon", "chardev=twinboot-monitor,mode=control", "-sandbox", REFUSED_CALLS, "-S"]
    execute = ["--exec", f"sh {SHARE_IN_GUEST}/{ENTER_NAME}"]
    return [*argv, f"--qemu-opts={shlex.join(options)}", *execute]


def wrapped(argv: Sequence[str]) -> list[str]:
    """``argv`` behind a shell that makes the pipe and ends the group with the lab."""
    return ["setpriv", "--pdeathsig", "TERM", "--", "sh", "-c", SHELL_LINE, "twinboot", *argv]


def _memory_options(guest: Guest, placement: Placement | None) -> list[str]:
    """Guest memory and NUMA nodes; nothing where virtme-ng's plain memory serves."""
    nodes, wall = guest.numa_nodes, guest.wall
    bound = placement.nodes if placement else ()
    if nodes == 1 and not wall.huge_pages and not bound:
        return []
    options: list[str] = []
    for node in range(nodes):
        backend = f"memory-backend-memfd,id=ram{node},size={guest.memory_mib // nodes}M,share=off"
        if wall.huge_pages:
            backend += ",hugetlb=on,hugetlbsize=2M,prealloc=on"
        if bound:
            backend += f",host-nodes={bound[node]},policy=bind"
        options += ["-object", backend]
    if nodes == 1:
        return [*options, "-machine", "memory-backend=ram0"]
    share = guest.vcpus // nodes
    for node in range(nodes):
        first, last = node * share, (node + 1) * share - 1
        options += ["-numa", f"node,nodeid={node},memdev=ram{node},cpus={first}-{last}"]
    return options


START_TIMEOUT_S = 60.0
PREFIX = "twinboot-"
WALL_AGENT = AGENT.with_name("wall.sh")
ENTER = Path(__file__).with_name(ENTER_NAME)
ROOT_NAME = "root.cpio"
TAIL = 500
# Translated code runs ten times slower than the host's own, on any host.
TRANSLATED_PATIENCE = 5
# The kernel keeps so much of a program's name.
COMM_LENGTH = 15
# Of a guest's root, where its init mounts.
MOUNTED_ON = tuple(map(Path, ("/etc", "/home", "/mnt", "/root", "/run", "/sys", "/var")))
# QEMU's monitor is a socket, and memory by node or in huge pages a file without a name.
ALLOWED = ("socket", "socketpair", "memfd_create")
# The run's own clocks end it before.
ALL_CPU_S = 7 * 24 * 3600


@dataclass(frozen=True, kw_only=True)
class WallMachine(channel.Machine):
    """A machine in real time: by what it runs, and where on the host (None: unpinned)."""

    accelerator: Accelerator
    placement: Placement | None = None
    patience: int = 1


def on_host(
    machine: channel.Machine, result: AcceleratorTest, placement: Placement | None
) -> WallMachine:
    """A machine as a host boots it in real time, where that host has room for it."""
    return WallMachine(
        **vars(machine),
        accelerator=result.accelerator,
        placement=placement,
        patience=1 if result.real_time else TRANSLATED_PATIENCE,
    )


def run(
    machine: WallMachine, job_text: str, folder: Path, logs: Path, watch: Callable[[str], None]
) -> channel.Outcome:
    """Boot ``machine`` in ``folder`` and run ``job_text``.

    Console, result and pinning are left in ``logs``.  A machine that ends early is an
    :class:`Outcome` too, not an exception.
    Raises InfraError: virtme-ng or QEMU did not start, KVM cannot run the guest, or no box can be
    made here: a guest would read all that the lab may read.
    """
    folder.mkdir(parents=True)
    logs.mkdir(parents=True, exist_ok=True)
    with _plain_name(folder) as name:
        files, log, accelerator = WallFiles(name), logs / "console.log", machine.accelerator
        for part in (files.home, files.temporary, files.share):
            part.mkdir()
        files.kernel.symlink_to(machine.kernel.absolute())
        for script in (ENTER, WALL_AGENT):
            shutil.copyfile(script, files.share / script.name)
        shutil.copyfile(machine.initramfs, files.share / ROOT_NAME)
        # Named as fw_cfg shows its files, so that the agent reads them in both modes alike.
        for text_name, text in (("prepare", machine.prepare_text), ("job", job_text)):
            (files.share / text_name).mkdir()
            (files.share / text_name / "raw").write_text(text)
        log.write_bytes(b"")
        argv = vng_argv(
            machine.guest, machine.size, files, accelerator, machine.placement, machine.cmdline
        )
        # virtme-ng's root is the guest's: the system's programs and the run's files.
        box = sandbox.box(
            (folder.absolute(), files.folder),
            readable=(machine.kernel.absolute(), *sandbox.programs(VNG, QEMU)),
            limits=channel.limits(machine.guest, ALL_CPU_S),
        )
        kvm = (DEVICE,) if accelerator != "tcg" and DEVICE.exists() else ()
        box = replace(box, devices=kvm, empty=MOUNTED_ON, allowed=ALLOWED)
        # Out of "/": virtme-ng makes the folder it is started in writable in the guest.
        line = wrapped(box.argv(argv, Path("/"), environment(files)))
        started = time.monotonic()
        with box.owned(), spawn(line, log=log) as process:
            boot = _WallGuest(machine, files, process, channel.Follower(log), started)
            boot.start(logs / "pinning")
            outcome = boot.to_end(watch)
        with suppress(OSError, door.StoreError):  # there is none, or it is no result
            result = door.read(folder, files.result.name, channel.LARGEST)
            (logs / "result").write_bytes(result)
    return outcome


@dataclass
class _WallGuest:
    """One virtme-ng process group with its clocks."""

    machine: WallMachine
    files: WallFiles
    process: Process
    follower: channel.Follower
    started: float
    qemu_pid: int = 0
    cpu_s: float = 0.0

    def start(self, pinning: Path) -> None:
        """Pin the vCPUs of the stopped machine, write down where they are, and let it go."""
        monitor = self._monitor()
        try:
            self.qemu_pid, tasks = _qemu_of(self.process.pid)
            threads = {
                int(vcpu["cpu-index"]): tasks[int(vcpu["thread-id"])]
                for vcpu in monitor.command("query-cpus-fast")
            }
            if self.machine.placement is not None:
                self._pin(threads, self.machine.placement)
            with pinning.open("w") as shown:
                for index, thread in sorted(threads.items()):
                    with suppress(ProcessLookupError):
                        cpus = ",".join(map(str, sorted(os.sched_getaffinity(thread))))
                        shown.write(f"vcpu {index}: host CPUs {cpus}\n")
            monitor.command("cont")
        finally:
            monitor.close()

    def _pin(self, threads: dict[int, int], placement: Placement) -> None:
        """Put vCPUs on their CPUs, the rest of QEMU where the lab is; InfraError: not possible."""
        tasks = {int(task.name) for task in Path(f"/proc/{self.qemu_pid}/task").glob("*")}
        try:
            for task in tasks - set(threads.values()):
                # Threads of QEMU's worker pool come and go.
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(task, placement.lab)
            for index, thread in threads.items():
                os.sched_setaffinity(thread, {placement.vcpus[index]})
        except OSError as error:
            what = f"cannot pin vCPUs to host CPUs {placement.vcpus}: {error}"
            raise InfraError(what, where="QEMU") from None

    def to_end(self, watch: Callable[[str], None]) -> channel.Outcome:
        """Wait for the guest's end, or end it when a clock runs out."""
        clock = self._wait(watch)
        files: dict[str, bytes] | None = None
        broken = ""
        # A result counts only when it is whole; it is looked for after the agent's
        # own word too, since a guest may hang while it powers off.
        if self._result_bytes():
            files, broken = channel.sent_files(self.files.result)
        ending = channel.ending_of(self.follower.path, agent_done=files is not None, clock=clock)
        if ending.kind == "lost" and broken:
            ending = channel.Ending("unreadable", broken, ending.evidence)
        if ending.kind == "boot":
            # What else the classifier says about a silent boot is true of -icount only.
            message = "timed out: the guest was not ready in time"
            ending = channel.Ending("boot", message, ending.evidence, by_clock=True)
        return channel.Outcome(files, ending, self.cpu_s, time.monotonic() - self.started)

    def _wait(self, watch: Callable[[str], None]) -> channel.Clock:
        guest, patience = self.machine.guest, self.machine.patience
        last_size, grown_at = -1, time.monotonic()
        ready_at: float | None = None
        while not ended(self.process):
            time.sleep(channel.POLL_S)
            now = time.monotonic()
            self.cpu_s = max(self.cpu_s, cpu_s_of(self.qemu_pid))
            watch(self.follower.more())
            size = self.follower.size + self._result_bytes()
            if size != last_size:
                last_size, grown_at = size, now
            if ready_at is None and self.follower.ready:
                ready_at = now
            if max(self.follower.size, self._result_bytes()) > channel.LARGEST:
                return "flood"
            if self.follower.kvm_error:
                # Whether QEMU says so as well, and not only the guest's console.
                status = ""
                with suppress(InfraError), closing(self._monitor()) as monitor:
                    status = str(monitor.command("query-status")["status"])
                if status == "internal-error":
                    what = f"KVM cannot run the guest any further: {self.follower.kvm_error}"
                    step = "./lab.py doctor --wall"
                    raise InfraError(what, where=str(self.follower.path), next_step=step)
            if ready_at is None and now - self.started > patience * guest.boot_timeout_s:
                return "boot"
            if ready_at is not None and now - grown_at > patience * guest.silence_timeout_s:
                return "silence"
            if ready_at is not None and now - ready_at > patience * guest.run_timeout_s:
                return "run"
        return ""

    def _monitor(self) -> channel.Monitor:
        """Connect to QEMU, which virtme-ng takes a second to start."""
        limit = time.monotonic() + START_TIMEOUT_S
        while not ended(self.process) and time.monotonic() < limit:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.connect(str(self.files.monitor))
            except OSError:
                sock.close()
                time.sleep(channel.POLL_S)
                continue
            monitor = channel.Monitor(sock)
            # QEMU listens before it knows whether its accelerator works.
            with suppress(InfraError):
                monitor.connect()
                return monitor
            break
        tail = channel.read_console(self.follower.path).strip()[-TAIL:]
        what = f"virtme-ng started no guest: {tail}"
        raise InfraError(what, where=str(self.follower.path), next_step="./lab.py doctor")

    def _result_bytes(self) -> int:
        return self.files.result.stat().st_size if self.files.result.exists() else 0


@contextmanager
def _plain_name(folder: Path) -> Iterator[Path]:
    """A short, plain name for ``folder``: a socket's has at most 107 characters, and
    commas and spaces mean something to QEMU and to virtme-ng's shell.
    """
    # Stale names of labs that were killed: their folder is gone.
    for place in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        name = place / "run"
        # Into what another user made we cannot look.
        with suppress(OSError):
            ours = place.lstat().st_uid == os.getuid()
            if ours and name.is_symlink() and not name.exists():
                shutil.rmtree(place, ignore_errors=True)
    place = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        name = place / "run"
        name.symlink_to(folder.absolute())
        yield name
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _qemu_of(pid: int) -> tuple[int, dict[int, int]]:
    """The QEMU below a process, and its threads by their ids in its box; InfraError: gone."""
    waiting = [pid]
    while waiting:
        at = waiting.pop()
        if text_of(Path(f"/proc/{at}/comm")).startswith(QEMU[:COMM_LENGTH]):
            threads = {}
            for task in (int(each.name) for each in Path(f"/proc/{at}/task").glob("*")):
                lines = text_of(Path(f"/proc/{task}/status")).splitlines()
                # Its id in the innermost of its namespaces is the last.
                ids = [line.split() for line in lines if line.startswith("NSpid:")]
                threads[int(ids[0][-1]) if ids else task] = task
            return at, threads
        waiting += map(int, text_of(Path(f"/proc/{at}/task/{at}/children")).split())
    raise InfraError("QEMU is gone", where="QEMU")
