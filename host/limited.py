"""Call a function that reads what others wrote, with an end to what that may take.

Everything that a guest sends is read by code that is bounded by its input, as far as anybody
knows; a pattern that takes an hour for a line is known when somebody sends the line.  So such
functions run in helper processes with limits of CPU time and memory, which stay for the next
call.  What is said here of one that runs out is an error like any other, and the thread that
asked goes on.

A helper that was taken over by what it reads can read what the lab can, and answer with records
of the lab and with nothing else: no other class and no function is looked up in its answers.
Where bubblewrap works it writes no file and reaches no network and no process.
"""

from __future__ import annotations

import atexit
import importlib
import io
import os
import pickle
import resource
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, ParamSpec, TypeVar

from errors import LabError
from host import sandbox
from host.process import Process, collect_seldom, helper, kill_group
from text import words

CHECKOUT = Path(__file__).resolve().parent.parent
CPU_S = 30
MEMORY_BYTES = 4 << 30
# Whose classes an answer may hold.
OWN = frozenset({"errors", "guests", "kernels", "results", "workloads"})
LENGTH_BYTES = 8
# The lab's files as they are, and nothing to write.  The shell is there to be bwrap's parent: the
# thread of the lab that starts a helper may end before it.
READING = (
    *("sh", "-c", '"$@"; exit $?', "sh"),
    *words("bwrap --die-with-parent --unshare-all --cap-drop ALL --ro-bind / / --dev /dev"),
    *words("--proc /proc --"),
)
P = ParamSpec("P")
Value = TypeVar("Value")
_idle: list[Process] = []
_lock = threading.Lock()


class ReadingError(Exception):
    """The cause of an error that a reader raised: of what it read, not of who asked."""


class LimitError(LabError):
    """Reading took more CPU time or memory than there is for it."""

    blame = "workload"


def call(function: Callable[P, Value], *arguments: P.args, **named: P.kwargs) -> Value:
    """Return what ``function`` returns, computed in a helper process.

    It is a function of a module of the lab; what goes in and comes out can be pickled.
    Raises LimitError: it took more than ``CPU_S`` seconds of CPU time or ``MEMORY_BYTES``;
    InfraError: the helper cannot be started; Exception: whatever the function raises.
    """
    request = pickle.dumps((function.__module__, function.__qualname__, arguments, named))
    with _lock:
        process = _idle.pop() if _idle else None
    if process is None:
        path = f"sys.path.insert(0, {str(CHECKOUT)!r})"
        code = f"import sys; {path}; from {__name__} import serve; serve()"
        box = READING if sandbox.available(("bwrap",)) else ()
        process = helper([*box, sys.executable, "-I", "-c", code])
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        _send(process.stdin, request)
        answer = _receive(process.stdout)
        good, value = _Answer(io.BytesIO(answer)).load()
    except (OSError, EOFError, pickle.UnpicklingError):
        kill_group(process)
        raise _ended(function, process.returncode) from None
    except BaseException:
        # It was asked and not heard: nobody else may get this answer.
        kill_group(process)
        raise
    with _lock:
        _idle.append(process)
    if good:
        result: Value = value
        return result
    if isinstance(value, MemoryError):
        raise _ended(function, 0)
    raise value from ReadingError(function.__qualname__)


def serve() -> None:
    """What a helper does: compute what it is asked, until nobody asks any more."""
    collect_seldom()
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        try:
            module, name, arguments, named = pickle.loads(_receive(incoming))  # noqa: S301
        except EOFError:
            return
        used = resource.getrusage(resource.RUSAGE_SELF)
        spent = int(used.ru_utime + used.ru_stime)
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (spent + CPU_S + 1, hard))
        try:
            answer = (True, getattr(importlib.import_module(module), name)(*arguments, **named))
            reply = pickle.dumps(answer)
        except Exception as error:
            # One of somebody else's class by its words alone.
            known = type(error).__module__ == "builtins" or isinstance(error, LabError)
            raised = error if known else ValueError(f"{type(error).__name__}: {error}")
            reply = pickle.dumps((False, raised.with_traceback(None)))
        _send(outgoing, reply)


def close() -> None:
    """End the helpers that wait; the next call starts another one."""
    with _lock:
        waiting = [_idle.pop() for _ in range(len(_idle))]
    for process in waiting:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.wait()


def _send(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes:
    length = pipe.read(LENGTH_BYTES)
    data = pipe.read(int.from_bytes(length, "big")) if len(length) == LENGTH_BYTES else b""
    if not data or len(data) != int.from_bytes(length, "big"):
        raise EOFError
    return data


def _ended(function: Callable[..., object], status: int | None) -> LimitError:
    of_time = status in (-signal.SIGXCPU, 128 + signal.SIGXCPU)
    excess = f"more than {CPU_S} s of CPU time" if of_time else "too much memory"
    return LimitError(f"reading it took {excess}", where=function.__qualname__)


class _Answer(pickle.Unpickler):
    """Reads an answer: plain values, records of the lab, and exceptions."""

    def find_class(self, module: str, name: str) -> Any:
        own = module.partition(".")[0] in OWN
        if "." not in name and (own or module == "builtins"):
            loaded = super().find_class(module, name)
            # What a module of the lab's imports is not the lab's: functools.partial calls.
            if isinstance(loaded, type) and (
                loaded.__module__.partition(".")[0] in OWN or issubclass(loaded, Exception)
            ):
                return loaded
        raise pickle.UnpicklingError(f"no record: {module}.{name}")


atexit.register(close)
