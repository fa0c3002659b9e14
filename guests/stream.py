"""What QEMU's migration stream says about virtual time: pure, over the saved bytes."""

from __future__ import annotations

from dataclasses import dataclass

from errors import InfraError

# A subsection: type byte 5, length of its name, the name, a version of 4 bytes,
# then the fields.  Those of timer/icount are two signed 64-bit big-endian numbers
# (vmstate_icount in QEMU's softmmu/cpu-timers.c, from 2.4 on the same).
HEADER = b"\x05\x0ctimer/icount"
VERSION_BYTES = 4


class StreamError(InfraError):
    """The stream has no icount state: QEMU ran without -icount, or its format changed."""


@dataclass(frozen=True)
class VirtualTime:
    """Instructions executed, and nanoseconds the clock was moved without executing any."""

    instructions: int
    warped_ns: int


def virtual_time(stream: bytes) -> VirtualTime:
    """Return the virtual time in a saved stream.

    Raises:
        StreamError: there is none in it.
    """
    at = stream.find(HEADER)
    fields = stream[at + len(HEADER) + VERSION_BYTES :][:16]
    if at < 0 or len(fields) < 16:
        raise StreamError("no icount state in the migration stream")
    bias, instructions = (
        int.from_bytes(fields[offset : offset + 8], "big", signed=True) for offset in (0, 8)
    )
    return VirtualTime(instructions=instructions, warped_ns=bias)
