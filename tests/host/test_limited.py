"""Helpers that read what others wrote: answers, errors, and what runs out."""

import os
import pickle
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from guests import channel
from host import limited, sandbox
from workloads import parse


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No helper of an earlier test, and none of these left for the next."""
    limited.close()
    yield
    limited.close()


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose readers do what no reader of the lab does."""
    for folder in ("host", "errors.py", "text.py"):
        (tmp_path / folder).symlink_to(Path(limited.CHECKOUT) / folder)
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads/__init__.py").write_text("")
    (tmp_path / "workloads/bad.py").write_text(
        "import os, socket, subprocess\n"
        "class Evil:\n"
        "    def __reduce__(self): return os.mkdir, (os.environ['CANARY'],)\n"
        "def spin():\n    while True: pass\n"
        "def eat(): return len(bytearray(64 << 30))\n"
        "def leave(): os._exit(3)\n"
        "def evil(): return Evil()\n"
        "def number(): return os.getpid()\n"
        "def processes(): return [name for name in os.listdir('/proc') if name.isdigit()]\n"
        "def write(): open(os.environ['CANARY'], 'w').close()\n"
        "def rights(): return open('/proc/self/status').read()\n"
        "def connect(): socket.create_connection(('127.0.0.1', int(os.environ['PORT'])))\n"
    )
    monkeypatch.setattr(limited, "CHECKOUT", tmp_path)
    monkeypatch.setenv("CANARY", str(tmp_path / "canary"))
    return tmp_path


class Reader:
    """Stands for a function of the hostile checkout, which this process does not import."""

    def __init__(self, name: str) -> None:
        self.__module__, self.__qualname__ = "workloads.bad", name

    def __call__(self) -> object:
        raise AssertionError("called here")


def test_an_answer_is_what_the_function_returns_here() -> None:
    text = "pgscan 12\nfile 3\n"
    assert limited.call(parse.counters, text) == parse.counters(text)


def test_an_error_comes_with_its_class_and_words() -> None:
    with pytest.raises(parse.ParseError, match="no whole number: 'x'"):
        limited.call(parse.counters, "pgscan x\n")
    with pytest.raises(channel.ChannelError, match="no result header") as caught:
        limited.call(channel.decode, b"nothing")
    assert caught.value.exit_code == channel.ChannelError("x").exit_code


def test_a_helper_is_used_again_and_goes_on_after_an_error(hostile: Path) -> None:
    first = limited.call(Reader("number"))
    with pytest.raises(AttributeError):
        limited.call(Reader("absent"))
    assert limited.call(Reader("number")) == first != os.getpid()


def test_what_never_ends_is_ended_by_the_cpu_time_it_takes(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (hostile / "sitecustomize.py").write_text("")
    source = (Path(limited.CHECKOUT) / "host").resolve() / "limited.py"
    (hostile / "host").unlink()
    (hostile / "host").mkdir()
    for path in source.parent.glob("*.py"):
        (hostile / "host" / path.name).symlink_to(path)
    (hostile / "host/limited.py").unlink()
    (hostile / "host/limited.py").write_text(source.read_text().replace("CPU_S = 30", "CPU_S = 0"))
    with pytest.raises(limited.LimitError, match="s of CPU time"):
        limited.call(Reader("spin"))
    assert isinstance(limited.call(Reader("number")), int)


@pytest.mark.parametrize("name", ["eat", "leave"])
def test_what_takes_all_memory_or_ends_its_helper_is_an_error(hostile: Path, name: str) -> None:
    with pytest.raises(limited.LimitError, match="too much memory") as caught:
        limited.call(Reader(name))
    assert caught.value.where == name
    assert isinstance(limited.call(Reader("number")), int)


def test_a_reader_writes_nothing_and_reaches_nobody(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sandbox.available(("bwrap",)) is None:
        pytest.skip("bwrap does not work here")
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("PORT", str(server.getsockname()[1]))
        for name in ("write", "connect"):
            with pytest.raises(OSError, match=r"\[Errno"):
                limited.call(Reader(name))
    assert not (hostile / "canary").exists()
    # Its own and the one that waits for it.
    assert limited.call(Reader("processes")) == ["1", "2"]
    rights = limited.call(Reader("rights"))
    assert isinstance(rights, str)
    assert [
        line.split()[1]
        for line in rights.splitlines()
        if line[:6] in ("CapEff", "CapBnd", "NoNewP")
    ] == ["0" * 16, "0" * 16, "1"]


def test_an_answer_that_would_run_code_is_refused(hostile: Path) -> None:
    with pytest.raises(limited.LimitError):
        limited.call(Reader("evil"))
    assert not (hostile / "canary").exists()


@pytest.mark.parametrize(
    "value",
    [os.system, pickle.loads, parse.counters, Path("/"), b"cworkloads.validity\npartial\n."],
)
def test_no_function_is_looked_up_in_an_answer(value: object) -> None:
    import io

    # The last is a class of Python's by the name of a module of the lab's that imports it.
    stream = value if isinstance(value, bytes) else pickle.dumps(value)
    with pytest.raises(pickle.UnpicklingError):
        limited._Answer(io.BytesIO(stream)).load()


def test_several_threads_have_a_helper_each(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    log.write_text("twinboot: phase 4k\nKernel panic - not syncing: x\n")
    kinds: list[str] = []

    def read() -> None:
        kinds.append(limited.call(channel.ending, log, agent_done=False).kind)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kinds == ["panic"] * 4


def test_helpers_end_when_nobody_asks_any_more() -> None:
    limited.call(parse.counters, "a 1\n")
    (process,) = limited._idle
    limited.close()
    assert process.returncode == 0
    assert signal.SIGXCPU  # what ends those that do not
