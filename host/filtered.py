"""Run a command that cannot make namespaces, or memory that is nobody's.

The last program before what a box is for: ``filtered.py [--allow=NAME] -- COMMAND``, where NAME is
``socket``, ``socketpair`` or ``memfd_create``, and may be given several times.
Where no control group knows the memory of a box, its processes are counted page by page, and what a
process holds by a number alone (memfd_create, System V's memory and queues, buffers of sockets) is
in no count.  A user namespace gives the right to mount file systems in memory.  So the kernel
refuses these.

It is started without the lab's packages, and imports the standard library alone.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Collection, Sequence

# linux/audit.h, and numbers of system calls as (x86_64, aarch64): asm/unistd_64.h, asm-generic.
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
CLONE = (56, 220)
NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, -CGROUP, -UTS, -IPC, -USER, -PID, -NET
# A pointer to its flags, which no filter can follow: without it the C library takes clone.
CLONE3 = (435, 435)
REFUSED = {
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "fsopen": (430, 430),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "add_key": (248, 217),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "socket": (41, 198),
    "socketpair": (53, 199),
}
ALLOW_OPTION = "--allow="
# Of x86_64, whose calls have a second set of numbers.
X32 = 0x40000000

# linux/filter.h: load a word of seccomp_data, compare, return.
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, MODE_FILTER = 22, 38, 2


def program(machine: str, allowed: Collection[str] = ()) -> bytes:
    """The filter for a machine of ``os.uname()``; KeyError: one whose numbers are not known.

    ``allowed`` are names of ``REFUSED`` that are not refused.
    """
    column, audit = ARCHITECTURES[machine]
    calls = [numbers[column] for name, numbers in REFUSED.items() if name not in allowed]
    # Each step: code, operand, and how many steps are left out where it is true, and where not.
    steps = [
        (LOAD, ARCHITECTURE, 0, 0),
        (EQUAL, audit, 1, 0),
        (RETURN, ERRNO | errno.ENOSYS, 0, 0),
        (LOAD, NUMBER, 0, 0),
        (AT_LEAST, X32, 0, 1),
        (RETURN, ERRNO | errno.ENOSYS, 0, 0),
        (EQUAL, CLONE3[column], 0, 1),
        (RETURN, ERRNO | errno.ENOSYS, 0, 0),
    ]
    for number in calls:
        steps += [(EQUAL, number, 0, 1), (RETURN, ERRNO | errno.EPERM, 0, 0)]
    steps += [
        (EQUAL, CLONE[column], 0, 3),
        (LOAD, FIRST_ARGUMENT, 0, 0),
        (ANY_BIT, NEW_NAMESPACES, 0, 1),
        (RETURN, ERRNO | errno.EPERM, 0, 0),
        (RETURN, ALLOW, 0, 0),
    ]
    # struct sock_filter: code, jumps, operand.
    return b"".join(struct.pack("=HBBI", code, true, false, of) for code, of, true, false in steps)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def restrict(allowed: Collection[str]) -> None:
    """Have the kernel refuse calls to this process and its children; OSError: it cannot."""
    steps = program(os.uname().machine, allowed)
    filtered = _Program(len(steps) // 8, steps)
    library = ctypes.CDLL(None, use_errno=True)
    for call in (
        (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(filtered), 0, 0),
    ):
        if library.prctl(*call):
            raise OSError(ctypes.get_errno(), "the kernel takes no filter of system calls")


def main(arguments: Sequence[str]) -> None:
    """Run the command behind ``--``."""
    split = arguments.index("--")
    restrict([option.removeprefix(ALLOW_OPTION) for option in arguments[:split]])
    command = list(arguments[split + 1 :])
    os.execvp(command[0], command)  # noqa: S606, TID251 -- it becomes the command


if __name__ == "__main__":
    main(sys.argv[1:])
