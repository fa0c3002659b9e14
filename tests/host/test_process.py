import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from errors import Exit, InfraError
from host.process import cpu_s, ended, paste, run, spawn, wait_for_end
from tests.values import script
from tests.waiting import alive, wait_until

REPOSITORY = Path(__file__).parents[2]


def written_pid(path: Path) -> int:
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"), "beginning")
    return int(path.read_text())


def test_output_status_and_time_are_returned() -> None:
    done = run(
        ["sh", "-c", "echo out; echo err >&2; sleep 0.1; exit 3"], timeout_s=300, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
    assert done.elapsed_s >= 0.1


def test_tail_prefers_standard_error_and_is_short() -> None:
    lots = run(["sh", "-c", "echo out; seq 100 >&2"], timeout_s=300)
    assert lots.tail().splitlines()[-1] == "100"
    assert len(lots.tail().splitlines()) == 15
    assert run(["echo", "only out"], timeout_s=300).tail() == "only out"


def test_failure_names_command_status_and_last_lines_or_the_log(tmp_path: Path) -> None:
    with pytest.raises(InfraError) as caught:
        run(["sh", "-c", "echo the reason >&2; exit 4"], timeout_s=300)
    assert caught.value.exit_code == Exit.INFRASTRUCTURE
    assert "exit status 4\nthe reason" in caught.value.what
    assert shlex.split(caught.value.where) == ["sh", "-c", "echo the reason >&2; exit 4"]
    with pytest.raises(InfraError, match="why") as caught:
        run(["sh", "-c", "echo why; exit 1"], timeout_s=300, log=tmp_path / "log")
    assert caught.value.next_step == f"see {tmp_path / 'log'}"
    # A full disk is no mystery to be run by hand.
    with pytest.raises(InfraError, match="No space left on device") as caught:
        run(["dd", "if=/dev/zero", "of=/dev/full", "count=1"], timeout_s=300)
    assert "./lab.py clean" in caught.value.next_step


def test_missing_program_is_named() -> None:
    with pytest.raises(InfraError, match="program not found") as caught:
        run(["no-such-program", "--version"], timeout_s=300)
    assert caught.value.where == "no-such-program"


def test_program_is_looked_for_where_the_child_would_look(tmp_path: Path) -> None:
    script(tmp_path / "mine", "echo found")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert run(["mine"], timeout_s=300, env=env).stdout == "found\n"


def test_deadline_kills_grandchildren(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(InfraError, match="timed out after 1 s"):
        run(["sh", "-c", "sh -c 'echo $$ > pid; sleep 60'; true"], timeout_s=1, cwd=tmp_path)
    assert time.monotonic() - started < 10
    wait_until(lambda: not alive(written_pid(tmp_path / "pid")), "end")


def test_background_children_do_not_outlive_the_command(tmp_path: Path) -> None:
    script = "(echo $BASHPID > pid; exec sleep 60) >/dev/null 2>&1 & sleep 0.3"
    run(["bash", "-c", script], timeout_s=300, cwd=tmp_path)
    wait_until(lambda: not alive(written_pid(tmp_path / "pid")), "end")


def test_log_holds_command_and_output_of_every_run(tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = run(["echo", "one"], timeout_s=300, log=log)
    assert first.stdout == ""
    run(["sh", "-c", "echo two >&2"], timeout_s=300, log=log, env={"A": "b c"})
    assert log.read_text() == "$ echo one\none\n$ A='b c' sh -c 'echo two >&2'\ntwo\n"


def test_standard_input_is_what_was_given_or_empty_and_output_any_bytes() -> None:
    assert run(["cat"], timeout_s=300, stdin_text="given").stdout == "given"
    assert run(["cat"], timeout_s=300).stdout == ""
    assert run(["printf", r"a\377b"], timeout_s=300).stdout == "a\ufffdb"


def test_paste_gives_back_the_same_argv() -> None:
    argv = ["prog", "a b", "$HOME", "it's", ""]
    assert shlex.split(paste(argv)) == argv
    assert paste(["x"], {"B": "2", "A": "1 1"}) == "A='1 1' B=2 x"


def test_spawned_group_is_gone_after_the_block(tmp_path: Path) -> None:
    script = "sh -c 'echo $$ > pid; sleep 60' & wait"
    with spawn(["sh", "-c", script], log=tmp_path / "log", cwd=tmp_path) as process:
        pid = written_pid(tmp_path / "pid")
        assert alive(pid)
        assert alive(process.pid)
    assert process.returncode == -signal.SIGKILL
    wait_until(lambda: not alive(pid), "end")


def test_spawned_group_is_gone_after_an_exception(tmp_path: Path) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), spawn(["sleep", "60"], log=tmp_path / "log") as process:
        fail()
    assert not alive(process.pid)


def test_spawn_appends_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    with spawn(["sh", "-c", "echo out; echo err >&2"], log=log) as process:
        process.wait(timeout=300)
    assert log.read_text() == "before\nout\nerr\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_lab_leaves_no_child(tmp_path: Path, number: signal.Signals) -> None:
    code = (
        "import sys, time; from pathlib import Path; from host.process import spawn\n"
        "at = Path(sys.argv[1])\n"
        "with spawn(['sleep', '60'], log=at / 'log') as child:\n"
        "    (at / 'pid').write_text(f'{child.pid}\\n'); time.sleep(60)\n"
    )
    lab = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=REPOSITORY)
    pid = written_pid(tmp_path / "pid")
    os.kill(lab.pid, number)
    lab.wait()
    wait_until(lambda: not alive(pid), "end")


def test_cost_of_a_child_can_be_read_until_it_is_reaped(tmp_path: Path) -> None:
    burn = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
    with spawn(["sh", "-c", burn], log=tmp_path / "log") as process:
        assert not ended(process)
        wait_until(lambda: ended(process), "end")
        assert cpu_s(process) > 0
    assert ended(process)
    assert cpu_s(process) == 0


@pytest.mark.parametrize(("argv", "wait_s"), [(["true"], 30.0), (["sleep", "30"], 0.1)])
def test_the_end_of_a_child_is_waited_for_as_long_as_it_takes_and_no_longer(
    argv: list[str], wait_s: float, tmp_path: Path
) -> None:
    began = time.monotonic()
    with spawn(argv, log=tmp_path / "log") as process:
        wait_for_end(process, wait_s)
        assert ended(process) == (argv == ["true"])
        assert process.returncode is None
    assert time.monotonic() - began < 20
