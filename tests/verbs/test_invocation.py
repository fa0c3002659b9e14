"""What verbs share: an executor for what builds or boots, and the width of the terminal."""

import contextlib
import os
import subprocess
import sys
import termios
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from results.store import SessionStore
from runs.boots import Reporter
from runs.local import Options
from runs.prepare import Prepared
from tests.analysis.factory import ExactSession, stored
from tests.conftest import Terminal
from verbs import session
from verbs.options import CHECKOUT

SERIES = "configs/series/slow-add-16"


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "noop", "--set", "guest=smoke"),
        ("bisect", "--series", SERIES, "--workloads", "filemap-4k", "--metric", "4k.bw"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_scheduler_that_is_not_there_ends_every_verb_alike(
    main: Terminal, arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runs.fleet.executor.CONNECT_S", 0.5)
    where = ("--session", str(tmp_path / "session"), "--executor", "dask://127.0.0.1:1")
    assert main(*arguments, *where) == 3
    assert "no scheduler answers" in main.err


@pytest.mark.parametrize("verb", ["run", "measure", "bisect", "repro"])
def test_an_unknown_executor_is_refused_with_the_known_ones(
    main: Terminal, verb: str, tmp_path: Path
) -> None:
    rest = {
        "repro": ("--check", str(tmp_path / "none.tar.gz")),
        "bisect": ("--resume", str(tmp_path / "none")),
    }.get(verb, ("noop", "--session", str(tmp_path / "session")))
    if verb == "bisect":
        (tmp_path / "none").mkdir()
        (tmp_path / "none" / "bisect.json").write_text("{}")
    assert main(verb, *rest, "--executor", "ray://x") == 2
    message = main.err
    assert "unknown executor 'ray://x'" in message
    assert "tls://HOST:PORT" in message


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "longest"), [(132, 132), (60, 60), (None, 80)])
def test_the_text_follows_the_terminal(tmp_path: Path, columns: int | None, longest: int) -> None:
    session = ExactSession()
    stored(tmp_path, session, session.records()[:-20])
    reading, writing = os.openpty() if columns else os.pipe()
    if columns:
        termios.tcsetwinsize(writing, (24, columns))
    done = subprocess.Popen(
        [sys.executable, CHECKOUT / "lab.py", "report", tmp_path],
        stdout=writing,
        stderr=subprocess.DEVNULL,
        cwd=CHECKOUT,
    )
    os.close(writing)
    text = b""
    with contextlib.suppress(OSError):  # how a terminal says that nobody writes any more
        while part := os.read(reading, 65536):
            text += part
    os.close(reading)
    done.wait()
    lines = [line for line in text.decode().splitlines() if str(tmp_path) not in line]
    widest = max(map(len, lines))
    assert longest - 12 < widest <= longest
    # The folder that was reported, and not where such a session would lie.
    happened = f"Not finished: 13 of 32 runs; to finish: ./lab.py run --resume {tmp_path}"
    assert happened in " ".join(text.decode().replace("\\", "").split())


def test_a_verdict_on_the_way_names_the_folder_to_go_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ExactSession()
    stored(tmp_path, made, made.records()[:-20])
    monkeypatch.setattr("runs.stages.make", lambda *_, verdict, **__: verdict(()))
    logged: list[str] = []
    reporter = cast(Reporter, SimpleNamespace(log=logged.append, building=None))
    unused = cast(Prepared, None)
    session.make(unused, cast(Options, None), SessionStore(tmp_path), reporter)
    words = " ".join(" ".join(logged).replace("\\", "").split())
    assert f"./lab.py run --resume {tmp_path}" in words
