"""A box for programs that a stranger's series reaches: bubblewrap, or util-linux's unshare.

In a box are the system's programs and what is named, read-only, one folder that may be written,
and a small /tmp.  There is no network, no home, no process of outside and no way to gain a right;
root's own boxes run as a user that owns nothing.  SECURITY.md says what is left.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from errors import InfraError
from host import folders
from host.facts import memory_available_mib, text_of
from host.packages import install_line
from host.process import run
from text import clean, words

# Nobody's: above the users of distributions, below those that systemd gives out.
BOX_UID = 60_577
Tool = Literal["bwrap", "unshare"]
TOOLS: tuple[Tool, ...] = ("bwrap", "unshare")
# Of what no box is made of: the second is a word of ``host.filtered``.
NO_USER, NO_FILTER = "this user namespace has no user", "the kernel takes no filter"
TRIAL_TIMEOUT_S = 30.0
# What programs need of the system; what is not there is left out.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
# Where programs look up which of several is meant, and libraries.
ETC = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d")
TMP_BYTES = 1 << 30
BOUNDED = Path(__file__).resolve().with_name("bounded.py")
FILTERED = BOUNDED.with_name("filtered.py")
PYTHON = Path(sys.executable).resolve()
BIND = {"ro": "--ro-bind", "rw": "--bind", "dev": "--dev-bind"}


@dataclass(frozen=True)
class Limits:
    """Of each process in a box: CPU seconds, bytes of memory, bytes of a file; and their number.

    ``open_files`` of each bound what pipes and sockets hold, which is in no count.
    Of all of them together: bytes of memory, by default seven eighths of what is available when
    the box is made, and bytes of disk in its writable places (``host.bounded``).
    """

    cpu_s: int = 3600
    memory_bytes: int = 16 << 30
    file_bytes: int = 4 << 30
    processes: int = 4096
    open_files: int = 1024
    all_memory_bytes: int = field(default_factory=lambda: memory_available_mib() * 7 // 8 << 20)
    all_disk_bytes: int = 32 << 30


@dataclass(frozen=True)
class Box:
    """``writable`` folders by where they are seen in the box, and what else is ``readable``.

    ``shared`` files are written by several boxes at once, so they stay with the boxes' user.
    ``empty`` folders are there for what wants to mount on them; ``devices`` are opened with the
    rights of their files' groups.  ``allowed`` are system calls that other boxes are refused, by
    their names in ``host.filtered``.
    """

    tool: Tool
    writable: tuple[tuple[Path, Path], ...]
    readable: tuple[Path, ...] = ()
    limits: Limits = Limits()
    shared: tuple[Path, ...] = ()
    empty: tuple[Path, ...] = ()
    devices: tuple[Path, ...] = ()
    allowed: tuple[str, ...] = ()

    def argv(
        self, argv: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None
    ) -> list[str]:
        """The command that runs ``argv`` in ``cwd`` of the box, with these variables alone."""
        # All of it: what stays outside of a box can be asked for its environment from within.
        given = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", **(env or {})}
        outside = ["env", "-i", *(f"{name}={value}" for name, value in given.items())]
        bound = self.limits
        outside += [sys.executable, "-IS", str(BOUNDED), str(bound.all_memory_bytes)]
        outside += [str(bound.all_disk_bytes), str(bound.processes)]
        outside += [*(str(place) for place, _ in self.writable), "--"]
        limits = [str(PYTHON), "-IS", str(FILTERED), *(f"--allow={name}" for name in self.allowed)]
        limits += ["--", "prlimit", f"--cpu={bound.cpu_s}"]
        limits += [f"--as={bound.memory_bytes}", f"--fsize={bound.file_bytes}", "--core=0"]
        limits += [f"--nproc={bound.processes}", f"--nofile={bound.open_files}"]
        limits += ["--memlock=0", "--"]
        if self.tool == "bwrap":
            dropped = ["setpriv", f"--reuid={BOX_UID}", f"--regid={BOX_UID}", _groups(self)]
            dropped += words("--no-new-privs --bounding-set=-all --inh-caps=-all --")
            as_root = dropped if os.getuid() == 0 else []
            return [*outside, *_bwrap(self, cwd), *as_root, *limits, *argv]
        # Arguments of UNSHARED: how, from where and to where each part is mounted.
        parts = _parts(self)
        mounts = [str(len(parts)), str(_uid()), str(TMP_BYTES)]
        mounts += [_groups(self), *(str(word) for part in parts for word in part)]
        return [*outside, "sh", "-c", UNSHARED, "sh", *mounts, str(cwd), *limits, *argv]

    @contextmanager
    def owned(self) -> Iterator[None]:
        """While the block lasts, what may be written is the box's user's, where that is another."""
        for place in (*(folder for folder, _ in self.writable), *self.shared):
            _chown_all(place, _uid())
        try:
            yield
        finally:
            for folder, _ in self.writable:
                _chown_all(folder, os.getuid())


def box(
    *writable: tuple[Path, Path], readable: Sequence[Path] = (), limits: Limits | None = None
) -> Box:
    """A box of what this host has.  Raises InfraError: it has nothing to make one of."""
    tool = available()
    if tool is None:
        what = f"no sandbox can be made: neither bwrap nor unshare works here{tried()[1]}"
        raise InfraError(clean(what), where="sandbox", next_step=remedy())
    return Box(tool, writable, tuple(readable), limits or Limits())


def remedy() -> str:
    """What to do where no box can be made."""
    if NO_USER in tried()[1]:
        return f"run as an ordinary user, or where the user namespace has a user {BOX_UID}"
    if NO_FILTER in tried()[1]:
        return "let this kernel or container filter system calls (CONFIG_SECCOMP_FILTER)"
    if shutil.which("bwrap"):
        return "let this kernel or container make user namespaces (SECURITY.md); bwrap is here"
    return install_line(["bubblewrap"])


def available(tools: tuple[Tool, ...] = TOOLS) -> Tool | None:
    """The first that makes boxes here, tried with a small program; None where none does."""
    return tried(tools)[0]


@functools.cache
def tried(tools: tuple[Tool, ...] = TOOLS) -> tuple[Tool | None, str]:
    """The first that makes boxes, or None and the last words of those that do not."""
    users = [line.split() for line in text_of(Path("/proc/self/uid_map")).splitlines()]
    if users and not any(0 <= _uid() - int(first) < int(count) for first, _, count in users):
        return None, f"; {NO_USER} {_uid()}, which root's boxes run as"
    last = ""
    for tool in tools:
        if shutil.which(tool) is None:
            continue
        with tempfile.TemporaryDirectory(prefix="twinboot-box-") as name:
            folder = Path(name)
            trial = Box(tool, ((folder, folder),))
            with trial.owned():
                done = run(
                    trial.argv(["touch", str(folder / "made")], folder),
                    timeout_s=TRIAL_TIMEOUT_S,
                    check=False,
                )
            if done.returncode == 0 and (folder / "made").exists():
                return tool, ""
            last += f"; {(done.tail().splitlines() or [''])[-1]}"
    return None, last


def accounting() -> str:
    """How the memory of a box is bounded on this host, in words."""
    argv = [str(PYTHON), "-IS", str(BOUNDED), "--accounting"]
    done = run(argv, timeout_s=TRIAL_TIMEOUT_S, check=False)
    return done.stdout.strip() or "unknown"


def programs(*names: str) -> tuple[Path, ...]:
    """Where programs of these names are if no system folder holds them: read-only parts of a box.

    With them comes this Python, which kernel builds run.
    """
    paths = [Path(path) for name in names if (path := shutil.which(name)) is not None]
    places = [place for path in paths for place in (path.absolute().parent, path.resolve().parent)]
    places += [Path(sys.prefix), Path(sys.prefix).resolve(), Path(sys.base_prefix)]
    never = (Path("/"), Path.home())
    outside = (place for place in places if not _in_system(place) and place not in never)
    return tuple(place for place in dict.fromkeys(outside) if place.is_dir())


def _in_system(place: Path) -> bool:
    return any(place.is_relative_to(top) for top in SYSTEM)


def _uid() -> int:
    return BOX_UID if os.getuid() == 0 else os.getuid()


def _chown_all(folder: Path, uid: int) -> None:
    if os.getuid() != 0:
        return
    os.chown(folder, uid, uid)
    if not folder.is_dir():  # a file that is written to, as a console
        return
    # Whoever looks at it next says what of a folder is strange.
    with suppress(folders.StrangeFolderError):
        for _, entry in folders.entries(folder):
            os.chown(entry.path, uid, uid, follow_symlinks=False)


def _parts(box: Box) -> list[tuple[str, Path, Path]]:
    """What is mounted: how, from where, to where; folders before what lies in them."""
    system = [(Path(place), Path(place)) for place in (*SYSTEM, *ETC) if Path(place).exists()]
    own = [FILTERED, *(place for place in (Path(sys.base_prefix),) if not _in_system(place))]
    readable = [(place, place) for place in dict.fromkeys((*own, *box.readable)) if place.exists()]
    parts = [
        ("ln", target.readlink(), target)
        if target.is_symlink() and _in_system(target)
        else ("ro", source, target)
        for source, target in (*system, *readable)
    ]
    parts += [("rw", *pair) for pair in box.writable]
    parts += [("rw", place, place) for place in box.shared]
    parts += [("dev", place, place) for place in box.devices]
    parts += [("dir", place, place) for place in box.empty]
    return sorted(parts, key=lambda part: (len(part[2].parts), part[2].as_posix()))


def _bwrap(box: Box, cwd: Path) -> list[str]:
    argv = list(words("bwrap --die-with-parent --unshare-net --unshare-pid --unshare-ipc"))
    argv += words("--unshare-uts --unshare-cgroup-try --hostname box")
    argv += words("--dev /dev --proc /proc --perms 1777 --size")
    argv += [str(TMP_BYTES), "--tmpfs", "/tmp"]  # noqa: S108
    # Root makes its box as root, and leaves that behind at its door.
    argv += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if os.getuid() == 0 else []
    argv += ["--cap-add", "CAP_SETPCAP"] if os.getuid() == 0 else ["--unshare-user"]
    made, mounted = {Path("/"), Path("/tmp")}, set[Path]()  # noqa: S108
    for how, source, target in _parts(box):
        for parent in reversed(target.parents):
            if parent not in made and not any(parent.is_relative_to(top) for top in mounted):
                argv += ["--perms", "0755", "--dir", str(parent)]
                made.add(parent)
        if how == "ln":
            argv += ["--symlink", str(source), str(target)]
        elif how == "dir":
            argv += ["--perms", "0755", "--dir", str(target)]
            made.add(target)
        else:
            argv += [BIND[how], str(source), str(target)]
            mounted.add(target)
    return [*argv, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", str(cwd), "--"]


def _groups(box: Box) -> str:
    groups = ",".join(str(device.stat().st_gid) for device in box.devices)
    return f"--groups={groups}" if groups else "--clear-groups"


# The same by util-linux alone.  An ordinary user needs two user namespaces: the outer one mounts,
# the inner one has no rights over what it mounted.  Root mounts as root, and then is nobody.
# Becoming somebody else clears the signal that --kill-child asked for, so it is asked for again.
# The root is made over /sys, which every host has and no part of a box is in: a folder made for it
# would stay behind outside, and could not be removed while the box is there.
UNSHARED = r"""
[ "$(id -u)" = 0 ] && user= || user='--user --map-root-user'
exec unshare $user --mount --net --ipc --uts --pid --fork --kill-child sh -ec '
own=$1 count=$2 uid=$3 bytes=$4 groups=$5; shift 5
root=/sys
mount -t tmpfs -o mode=755 box "$root"
mkdir -m 1777 "$root/tmp"; mkdir "$root/proc" "$root/dev"
mount -t tmpfs -o mode=1777,size=$bytes box "$root/tmp"
for device in null zero full random urandom; do
    : >"$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
while [ "$count" -gt 0 ]; do
    if [ "$1" = ln ]; then mkdir -p "$root${3%/*}"; ln -s "$2" "$root$3"
    elif [ "$1" = dir ]; then mkdir -p "$root$3"
    else
        if [ -d "$2" ]; then mkdir -p "$root$3"; else mkdir -p "$root${3%/*}"; : >"$root$3"; fi
        mount --rbind "$2" "$root$3"
        [ "$1" != ro ] || mount -o remount,bind,ro "$root$3"
    fi
    shift 3; count=$((count - 1))
done
mount -t proc box "$root/proc"
mount -o remount,bind,ro "$root"
cwd=$1; shift
if [ -n "$own" ]; then
    own="--user --map-user=$uid --map-group=$uid" drop=
else
    drop="--reuid=$uid --regid=$uid $groups"
fi
exec unshare $own --root="$root" --wd="$cwd" \
    setpriv $drop --pdeathsig KILL --no-new-privs --bounding-set=-all --inh-caps=-all -- "$@"
' sh "$user" "$@"
"""
