"""The lab as a user starts it, its session folder, and the guests it may leave."""

import io
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import pytest

import lab
from results.record import RunRecord
from results.store import SessionStore
from tests.waiting import wait_until

CHECKOUT = Path(__file__).resolve().parent.parent.parent
SMALL = str(Path(__file__).with_name("small.toml"))
SMALL_SESSION = (SMALL, "--set", "blocks=2")
FORMS = ("report.html", "report.md", "samples.csv", "samples.parquet")
# Ten minutes are a kernel from nothing on two cores; other guests may run as well.
TIMEOUT_S = 1800.0
# Of every report, so that those of two sessions can be compared.
DATE = {"SOURCE_DATE_EPOCH": "1767225600"}
Lab = subprocess.Popen[str]


def start(*arguments: str) -> Lab:
    """Start ``lab.py`` with these arguments and a fixed date.

    A shell that starts something in the background lets it ignore SIGINT, and its
    children with it; a lab at a terminal does not.
    """
    plain = ["env", "--default-signal=INT"]
    return subprocess.Popen(
        [*plain, sys.executable, str(CHECKOUT / "lab.py"), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **DATE},
    )


def finish(lab: Lab) -> subprocess.CompletedProcess[str]:
    """Wait for a lab to end by itself."""
    out, err = lab.communicate(timeout=TIMEOUT_S)
    return subprocess.CompletedProcess(lab.args, lab.returncode, out, err)


def run_lab(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``lab.py`` to its end, in this process: an interpreter's start takes seconds.

    For whoever sends it no signal.
    """
    out, err = io.StringIO(), io.StringIO()
    before = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(out), redirect_stderr(err):
        for name, value in DATE.items():
            patched.setenv(name, value)
        # It would bind to a stream that ends with this call.
        patched.setattr(logging, "basicConfig", lambda **_: None)
        try:
            status = lab.main([*arguments])
        finally:
            signal.signal(signal.SIGTERM, before)
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


def guests_of(folder: Path) -> list[int]:
    """Process ids of every QEMU that names ``folder`` in its arguments."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                argv = (entry / "cmdline").read_bytes().split(b"\0")
                if argv[0].endswith(b"qemu-system-x86_64") and any(
                    os.fsencode(folder) + b"/" in word for word in argv
                ):
                    pids.append(int(entry.name))
    return pids


def processes(session_of: int) -> dict[int, str]:
    """Command by process id of every process whose session a child of ours leads."""
    commands = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().partition(" (")[2].rpartition(") ")
            leader = int(rest.split()[3])
            parent = int(Path(f"/proc/{leader}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        if parent == session_of and leader != session_of:
            commands[int(folder.name)] = name
    return commands


def kill(lab: Lab, number: signal.Signals) -> subprocess.CompletedProcess[str]:
    """Send a signal to the lab's process alone, not to its children."""
    lab.send_signal(number)
    return finish(lab)


def kill_at_once(lab: Lab, folder: Path) -> bool:
    """Kill the lab; fail the test where guests of the session outlive it.

    Returns whether it was killed, and had not ended before.
    """
    killed = kill(lab, signal.SIGKILL).returncode == -signal.SIGKILL
    wait_until(lambda: not guests_of(folder), "end of the killed lab's guests")
    return killed


@contextmanager
def busy_host(folder: Path, loops: int = 2) -> Iterator[None]:
    """Load the host, and let the main threads of the session's QEMUs run last.

    A QEMU whose vCPU thread always outruns its main loop has lost every race
    between the two.
    """
    # They leave the cores to other tests and outrun by far what runs last.
    argv = ["nice", "-n", "10", sys.executable, "-c", "while True: pass"]
    over = threading.Event()

    def demote() -> None:
        while not over.wait(0.1):
            for pid in guests_of(folder):
                # A process id is its main thread's id, and only that one is meant.  It still runs:
                # as SCHED_IDLE on a machine that others load, too, it waited for ever.
                with suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, pid, 19)

    loaders = [subprocess.Popen(argv) for _ in range(loops)]
    thread = threading.Thread(target=demote)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for loader in loaders:
            loader.kill()
            loader.wait()


def records_of(folder: Path) -> dict[str, RunRecord]:
    """The session's records by run id."""
    return {record.run_id: record for record in SessionStore(folder).records()}


def written_ids(folder: Path) -> list[str]:
    """The run id of each line in the record file, as often as it is there."""
    lines = (folder / "runs.jsonl").read_text().splitlines()
    return [RunRecord.model_validate_json(line).run_id for line in lines]


def bytes_of(folder: Path, names: Sequence[str] = FORMS) -> dict[str, bytes]:
    """Content of the report files."""
    return {name: (folder / name).read_bytes() for name in names}
