"""Run a command with an end to the memory, processes and disk space of all its processes together.

A program of its own, between the lab and a box: ``bounded.py MEMORY DISK PROCESSES PLACE... --
COMMAND``, sizes in bytes.  rlimits hold for each process; of a whole tree of them only a control
group knows the sum, and it counts all that the tree holds.  Where one may be made, the command is
in it: below the group of the lab itself, or in a scope that systemd makes.  Elsewhere this looks,
twice a second, at every page that a process can hold, and ends the box that has too much; what
holds pages and is no process is refused inside (``host/filtered.py``).

It is started without the lab's packages, and imports the standard library alone.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

POLL_S = 0.5
# Walking a folder of objects takes a tenth of a second.
WALK_S = 5.0
# Of -1000 to 1000: the kernel ends what has more first.
OOM_SCORE = 500
BLOCK_BYTES = 512
# Of a file's inode and name, where it is in memory.
INODE_BYTES = 1536
MOST_FILES = 2_000_000
GIB = 1 << 30
SEPARATOR = "--"
GROUP = "twinboot-"
# What is written where, in the folder of a group: version 2, then 1.
MEMORY_2 = ("memory.max", "memory.swap.max", "memory.oom.group")
MEMORY_1 = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
EVENTS = ("memory.events", "memory.oom_control")
ENDED = re.compile(r"^oom_kill ([1-9]\d*)$", re.M)
# A process' own, KiB.
OWN = re.compile(r"^(?:RssAnon|VmSwap|VmPTE):\s+(\d+)", re.M)
# Memory that processes share and that is no file's, by the name of its mapping.
SHARED = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ (\d+) +/(?:dev/zero|memfd:|SYSV).*$", re.M
)
SYSTEMD = Path("/run/systemd/system")
JOIN = 'for group in $1; do echo $$ > "$group/cgroup.procs" || exit 125; done; shift; exec "$@"'
TRIAL_S = 10.0


def own_groups(proc: Path = Path("/proc/self")) -> Mapping[str, Path]:
    """The folders of this process' control groups: of version 2 (``""``), of memory and of pids."""
    mounts: dict[str, tuple[Path, str]] = {}
    for line in (proc / "mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        place = (Path(before.split()[4]), before.split()[3])
        if kind == "cgroup2":
            mounts.setdefault("", place)
        elif kind == "cgroup":
            mounts |= dict.fromkeys({"memory", "pids"} & set(options.split(",")), place)
    groups = {}
    for line in (proc / "cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            if name in mounts:
                mounted, root = mounts[name]
                groups[name] = mounted / os.path.relpath(path, root)
    return groups


def make_groups(memory: int, processes: int) -> tuple[Path, ...]:
    """Folders of a new control group with these bounds and no swap; none where none may be made."""
    with suppress(OSError):
        own = own_groups()
        if "memory" in own and "pids" in own:
            return _made(
                {
                    own["memory"]: dict.fromkeys(MEMORY_1, memory),
                    own["pids"]: {"pids.max": processes},
                }
            )
        # Only a group without processes may have groups with bounds: the one above, mostly.
        for above in (own[""], own[""].parent) if "" in own else ():
            with suppress(OSError):
                control = above / "cgroup.subtree_control"
                if not {"memory", "pids"} <= set(control.read_text().split()):
                    control.write_text("+memory +pids")
                bounds = dict(zip(MEMORY_2, (memory, 0, 1), strict=True))
                return _made({above: {**bounds, "pids.max": processes}})
    return ()


def _made(bounds_of: Mapping[Path, Mapping[str, int]]) -> tuple[Path, ...]:
    made: list[Path] = []
    try:
        for above, bounds in bounds_of.items():
            for left in above.glob(f"{GROUP}*"):  # of a lab that was killed
                if not Path("/proc", left.name.removeprefix(GROUP)).exists():
                    with suppress(OSError):
                        left.rmdir()
            group = above / f"{GROUP}{os.getpid()}"
            group.mkdir()
            made.append(group)
            for name, value in bounds.items():
                # Without swap a kernel has no bound of it.
                if (group / name).exists():
                    (group / name).write_text(str(value))
        return tuple(made)
    except OSError:
        remove_groups(made)
        raise


def remove_groups(groups: Sequence[Path]) -> None:
    """Remove control groups whose processes have ended, or do so in a moment."""
    for group in groups:
        for _ in range(50):
            with suppress(OSError):
                group.rmdir()
            if not group.exists():
                break
            time.sleep(0.1)


def scope_argv(memory: int, processes: int) -> list[str]:
    """The command that has systemd put another one into a group; empty where it does not."""
    if not SYSTEMD.exists():
        return []
    user = [] if os.getuid() == 0 else ["--user"]
    os.environ.setdefault("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    argv = ["systemd-run", *user, "--scope", "--quiet", "--collect"]
    argv += [f"--property=MemoryMax={memory}", "--property=MemorySwapMax=0"]
    argv += [f"--property=TasksMax={processes}", "--"]
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            [*argv, "true"],
            timeout=TRIAL_S,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return argv if done.returncode == 0 else []
    return []


def accounting() -> str:
    """How the memory of a box is bounded on this host, in words."""
    groups = make_groups(GIB, 64)
    remove_groups(groups)
    if groups:
        return f"a control group below {groups[0].parent}"
    if scope_argv(GIB, 64):
        return "a control group of systemd's (systemd-run --scope)"
    return "counted page by page twice a second: no control group may be made here"


def memory_bytes(pid: int) -> int:
    """What a process and all that it started hold in memory that is no file's on a disk."""
    total, shared = 0, dict[str, int]()
    for each in _tree(pid):
        with suppress(OSError):
            # One that has ended, and was not waited for, has none.
            total += sum(map(int, OWN.findall(Path(f"/proc/{each}/status").read_text()))) << 10
        with suppress(OSError):
            for match in SHARED.finditer(Path(f"/proc/{each}/maps").read_text()):
                size = int(match[2], 16) - int(match[1], 16)
                shared[match[3]] = max(size, shared.get(match[3], 0))
    # In a box's own /tmp a file is memory, too.
    with suppress(OSError):
        # The process that was started last is inside of a box, whatever is between.
        own = Path(f"/proc/{max(_tree(pid))}/root/tmp")
        if own.stat().st_dev != Path("/tmp").stat().st_dev:  # noqa: S108
            held = os.statvfs(own)
            total += (held.f_blocks - held.f_bfree) * held.f_frsize
            total += (held.f_files - held.f_ffree) * INODE_BYTES
    return total + sum(shared.values())


def _tree(pid: int) -> Iterator[int]:
    pending = [pid]
    while pending:
        each = pending.pop()
        yield each
        with suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                with suppress(OSError):
                    pending += map(int, (task / "children").read_text().split())


def disk_bytes(place: Path) -> int:
    """What a file, or files below a folder, occupy; OSError, OverflowError: not known."""
    total, count, pending = place.lstat().st_blocks * BLOCK_BYTES, 0, [str(place)]
    while pending:
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(pending.pop()) as listing:
            for entry in listing:
                count += 1
                if count > MOST_FILES:
                    raise OverflowError(f"more than {MOST_FILES} files")
                with suppress(FileNotFoundError):
                    total += entry.stat(follow_symlinks=False).st_blocks * BLOCK_BYTES
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
    return total


def _free(places: Sequence[Path]) -> tuple[int, int]:
    """Bytes and files that there is still room for."""
    rooms = [os.statvfs(each) for each in places]
    return (
        min((room.f_bavail * room.f_frsize for room in rooms), default=0),
        min((room.f_favail for room in rooms), default=0),
    )


def excess(
    pid: int, limits: tuple[int, int], places: Sequence[Path], groups: Sequence[Path] = ()
) -> str:
    """Wait for the end of a child; say what it took too much of, or nothing."""
    memory, disk = limits
    end = os.pidfd_open(pid)
    free, files = _free(places)
    walked = -WALK_S
    while True:
        ended = select.select([end], [], [], POLL_S)[0]
        over = not groups and not ended and memory_bytes(pid) > memory
        for path in (group / name for group in groups for name in EVENTS):
            with suppress(OSError):  # the kernel ended a process that had too much memory
                over = over or ENDED.search(path.read_text()) is not None
        if over:
            return f"its processes hold more than {memory / GIB:.1f} GiB of memory together"
        if ended:
            return ""
        # Others write to the same disk: only what is in its places is the box's.
        now, files_now = _free(places)
        suspect = free - now > disk // 2 or files - files_now > MOST_FILES // 2
        if suspect and time.monotonic() - walked > WALK_S:
            walked = time.monotonic()
            try:
                if sum(map(disk_bytes, places)) > disk:
                    return f"its files take more than {disk / GIB:.1f} GiB of disk together"
            except (OSError, OverflowError) as error:
                return f"its files cannot be counted: {error}"


def main(arguments: list[str]) -> int:
    """Run the command; return its status, or 1 after what it took was too much."""
    if arguments == ["--accounting"]:
        print(accounting())
        return 0
    split = arguments.index(SEPARATOR)
    memory, disk, processes, *places = arguments[:split]
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
    groups = make_groups(int(memory), int(processes))
    scope = [] if groups else scope_argv(int(memory), int(processes))
    join = ["sh", "-c", JOIN, "sh", " ".join(map(str, groups))] if groups else scope
    # Without a signal at this process' death the box would outlive it.
    argv = ["setpriv", "--pdeathsig", "KILL", "--", *join, *arguments[split + 1 :]]
    try:
        with subprocess.Popen(argv, close_fds=False) as box:
            try:
                reason = excess(
                    box.pid, (int(memory), int(disk)), [Path(each) for each in places], groups
                )
            except Exception as error:
                reason = f"it cannot be watched: {error!r}"
            if reason:
                box.kill()
                print(f"error: {reason}", file=sys.stderr)
    finally:
        remove_groups(groups)
    if box.returncode < 0 and not reason:
        os.kill(os.getpid(), -box.returncode)
    return 1 if reason else box.returncode


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise SystemExit(main(sys.argv[1:]))
