"""Run a command with an end to the memory and the disk space of all its processes together.

A program of its own, between the lab and a box: ``bounded.py MEMORY DISK PLACE... -- COMMAND``,
both in bytes.  rlimits hold for each process; of a whole tree of them only a cgroup knows the sum,
and few users may make one.  So this looks, twice a second, and ends the box that has too much.
What is faster than that meets the host's own end of memory, where the box goes first.

It is started without the lab's packages, and imports the standard library alone.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

POLL_S = 0.5
# Walking a folder of objects takes a tenth of a second.
WALK_S = 5.0
# Of -1000 to 1000: the kernel ends what has more first.
OOM_SCORE = 500
BLOCK_BYTES = 512
GIB = 1 << 30
SEPARATOR = "--"


def memory_bytes(pid: int) -> int:
    """What a process and all that it started hold in memory that is no file's."""
    return sum(_own_memory_bytes(each) for each in _tree(pid))


def _tree(pid: int) -> Iterator[int]:
    yield pid
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _tree(int(child))


def _own_memory_bytes(pid: int) -> int:
    with suppress(OSError):
        fields = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        # One that has ended, and was not waited for, has neither.
        kib = [int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem") if name in fields]
        return sum(kib) << 10
    return 0


def disk_bytes(place: Path) -> int:
    """What a file, or the files below a folder, occupy."""
    below = (Path(at) / name for at, _, names in os.walk(place) for name in names)
    total = 0
    for path in (place, *below):
        with suppress(OSError):
            total += path.lstat().st_blocks * BLOCK_BYTES
    return total


def _free_bytes(places: Sequence[Path]) -> int:
    return min(
        (os.statvfs(each).f_bavail * os.statvfs(each).f_frsize for each in places), default=0
    )


def excess(pid: int, limits: tuple[int, int], places: Sequence[Path]) -> str:
    """Wait for the end of a child; say what it took too much of, or nothing."""
    memory, disk = limits
    end = os.pidfd_open(pid)
    free, walked = _free_bytes(places), -WALK_S
    while not select.select([end], [], [], POLL_S)[0]:
        if memory_bytes(pid) > memory:
            return f"its processes hold more than {memory / GIB:.1f} GiB of memory together"
        # Others write to the same disk: only what is in its places is the box's.
        if free - _free_bytes(places) > disk // 2 and time.monotonic() - walked > WALK_S:
            walked = time.monotonic()
            if sum(map(disk_bytes, places)) > disk:
                return f"its files take more than {disk / GIB:.1f} GiB of disk together"
    return ""


def main(arguments: list[str]) -> int:
    """Run the command; return its status, or 1 after what it took was too much."""
    split = arguments.index(SEPARATOR)
    memory, disk, *places = arguments[:split]
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
    # Without a signal at this process' death the box would outlive it.
    argv = ["setpriv", "--pdeathsig", "KILL", "--", *arguments[split + 1 :]]
    with subprocess.Popen(argv, close_fds=False) as box:
        reason = excess(box.pid, (int(memory), int(disk)), [Path(each) for each in places])
        if reason:
            box.kill()
            print(f"error: {reason}", file=sys.stderr)
    if box.returncode < 0 and not reason:
        os.kill(os.getpid(), -box.returncode)
    return 1 if reason else box.returncode


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise SystemExit(main(sys.argv[1:]))
