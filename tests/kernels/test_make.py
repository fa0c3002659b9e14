from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from errors import InfraError
from kernels.make import LogError, MakeProgress, run_make, wait_until_idle

REPOSITORY = Path(__file__).parents[2]
MAKE_ELSEWHERE = """
import sys
from pathlib import Path
from kernels.make import run_make
at = Path(sys.argv[1])
run_make(["make", "-j2"], cwd=at, log=at / "log", busy=at / "busy", timeout_s=60,
         most_log_bytes=1 << 20)
"""


def wait_for(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    """A make with a sub-make, as kbuild is: each writes its shell's process id and sleeps."""
    (tmp_path / "Makefile").write_text("all: one two\none two:\n\t@$(MAKE) -f sub.mk pid-$@\n")
    (tmp_path / "sub.mk").write_text("pid-%:\n\techo $$$$ > $@; sleep 60; touch survived-$@\n")
    return tmp_path


def run(folder: Path, *targets: str, **more: object) -> tuple[int, int]:
    arguments = {"timeout_s": 30.0, "most_log_bytes": 1 << 20, **more}
    return run_make(
        ["make", *targets],
        cwd=folder,
        log=folder / "log",
        busy=folder / "busy",
        **arguments,  # type: ignore[arg-type]
    )


def test_status_steps_and_log(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(
        'all:\n\t@echo "  CC      a.o"\n\t@echo "  not a step"\n\t@echo "make[1]: x"\n'
        '\t@echo "  LD [M]  b.ko"; exit 3\n'
    )
    status, steps = run(tmp_path)
    assert (status, steps) == (2, 2)
    log = (tmp_path / "log").read_text()
    assert log.startswith(f"$ cd {tmp_path} && make\n")
    assert "Error 3" in log


def test_progress_tells_steps_while_make_runs(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(
        "all:\n" + "".join(f'\t@echo "  CC      {name}.o"; sleep 0.4\n' for name in ("a", "b", "c"))
    )
    steps: list[MakeProgress] = []
    assert run(tmp_path, expected=2, progress=steps.append) == (0, 3)
    assert {step.done for step in steps} >= {1, 2, 3}
    assert next(step.total for step in steps if step.done == 1) == 2
    assert steps[-1].total == 2, "an estimate that was too small is not made to fit"
    assert 1.0 < steps[-1].seconds < 20


def test_deadline_kills_sub_makes_too(nested: Path) -> None:
    # As long as a busy host takes to begin two of them.
    with pytest.raises(InfraError, match="timed out after 3 s"):
        run(nested, "-j2", timeout_s=3.0)
    pids = [int(path.read_text()) for path in nested.glob("pid-*")]
    assert len(pids) == 2
    wait_for(lambda: not any(alive(pid) for pid in pids))


def test_a_callback_that_raises_leaves_nothing_running(nested: Path) -> None:
    def stop(progress: MakeProgress) -> None:
        if len([path for path in nested.glob("pid-*") if path.read_text()]) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(nested, "-j2", progress=stop)
    pids = [int(path.read_text()) for path in nested.glob("pid-*")]
    wait_for(lambda: not any(alive(pid) for pid in pids))


def test_a_killed_lab_leaves_no_sub_make_behind(nested: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", MAKE_ELSEWHERE, str(nested)], cwd=REPOSITORY)
    wait_for(lambda: len([p for p in nested.glob("pid-*") if p.read_text()]) == 2)
    pids = [int(path.read_text()) for path in nested.glob("pid-*")]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: not any(alive(pid) for pid in pids))


@pytest.fixture
def predecessor(tmp_path: Path) -> Iterator[Path]:
    """A file that a process which holds the lock writes when it ends."""
    begun, over = tmp_path / "begun", tmp_path / "over"
    script = f"touch {begun}; sleep 0.7; touch {over}"
    process = subprocess.Popen(["flock", str(tmp_path / "busy"), "sh", "-c", script])
    wait_for(begun.exists)
    yield over
    assert process.wait() == 0


def test_idle_is_waited_for(tmp_path: Path, predecessor: Path) -> None:
    wait_until_idle(tmp_path / "busy")
    assert predecessor.exists()


def test_make_waits_for_the_last_process_of_a_predecessor(
    tmp_path: Path, predecessor: Path
) -> None:
    (tmp_path / "Makefile").write_text(f"all:\n\t@test -e {predecessor}\n")
    assert run(tmp_path) == (0, 0)


def test_a_make_that_prints_without_an_end_is_ended(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("all:\n\t@yes; touch ended\n")
    with pytest.raises(LogError, match="prints more than 1 MiB"):
        run(tmp_path)
    assert (tmp_path / "log").stat().st_size == 1 << 20
    assert not (tmp_path / "ended").exists()
