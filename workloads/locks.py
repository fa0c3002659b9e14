"""What a twin's run sent about locks, phase by phase: pure, from files to the record."""

from __future__ import annotations

import re
from collections.abc import Mapping

from experiment.spec import Observed
from results.locks import PhaseLocks
from workloads import contention, lock_stat, sampled
from workloads.parse import ParseError

CLOCK = re.compile(r"time\.tv_sec: +(\d+)\n.*time\.tv_usec: +(\d+)\n")


def phase_locks(files: Mapping[str, bytes], phase: str, observe: Observed) -> PhaseLocks:
    """Read the files of one run (path to content) for one phase.

    Raises:
        ParseError: names the file that is missing, cut short or not what it should be.
    """
    folder = f"{phase}/locks"
    virtual_ns = _clock_ns(files, f"{folder}/end") - _clock_ns(files, f"{folder}/begin")
    try:
        if observe == "lock_stat":
            classes = lock_stat.classes(
                _text(files, f"{folder}/lock_stat"), _text(files, f"{folder}/lockdep")
            )
            return PhaseLocks(phase=phase, virtual_ns=virtual_ns, classes=classes)
        if observe == "perf":
            waits, samples = sampled.waits(_text(files, f"{folder}/{sampled.FILE}"))
            return PhaseLocks(phase=phase, virtual_ns=virtual_ns, waits=waits, samples=samples)
        names = (contention.BEGINS, contention.ENDS, contention.WAITS)
        texts = {name: _text(files, f"{folder}/{name}") for name in names}
        waits, dropped = contention.waits(texts)
    except ParseError as error:
        message = str(error)
        known = message.startswith(folder)
        raise ParseError(message if known else f"{folder}: {message}") from None
    return PhaseLocks(phase=phase, virtual_ns=virtual_ns, waits=waits, dropped=dropped)


def _clock_ns(files: Mapping[str, bytes], name: str) -> int:
    """Nanoseconds of the guest's clock as busybox's ``adjtimex`` prints it."""
    match = CLOCK.search(_text(files, name))
    if match is None:
        raise ParseError(f"{name}: no time in it")
    return int(match[1]) * 10**9 + int(match[2]) * 1000


def _text(files: Mapping[str, bytes], name: str) -> str:
    try:
        return files[name].decode(errors="replace")
    except KeyError:
        raise ParseError(f"{name}: not among the files the guest sent") from None
