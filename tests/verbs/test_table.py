"""The command line before a verb is imported: help, start-up cost, interrupts."""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.core import TyperCommand
from typer.main import get_command

import lab
from runs.request import Request
from tests.conftest import Terminal
from tests.values import script, spaced
from tests.waiting import completed
from verbs import bisect, queue
from verbs.cli import LazyVerb, Without, flattened, options_of
from verbs.options import Booting, ExecutorOptions, Measuring

CHECKOUT = Path(lab.__file__).resolve().parent
HEAVY = ("scipy", "pandas", "matplotlib", "pygit2", "distributed", "jinja2")
SLOW = (*HEAVY, "numpy", "experiment.spec", "runs.local")
# A shell that starts something in the background lets it and its children ignore SIGINT.
AT_A_TERMINAL = ("env", "--default-signal=INT")


def verbs() -> list[LazyVerb]:
    every: list[LazyVerb] = []
    waiting: list[Any] = [lab.command_line()]
    while waiting:
        command = waiting.pop(0)
        if isinstance(command, LazyVerb):
            every.append(command)
        waiting += getattr(command, "commands", {}).values()
    return every


def test_the_line_of_each_verb_begins_its_help() -> None:
    for verb in verbs():
        text = str(verb.load().help)
        assert verb.help == " ".join(text.partition("\n\n")[0].split())
        assert len(str(verb.help)) > 20


def test_no_verb_of_a_module_is_left_out() -> None:
    known = {(verb.module.removeprefix("verbs."), verb.name) for verb in verbs()}
    written = {
        (path.stem, name)
        for path in (CHECKOUT / "verbs").glob("*.py")
        for name in re.findall(r'^@app\.command\("([^"]+)"\)', path.read_text(), re.M)
    }
    assert known == written


def test_what_neither_measures_nor_reports_does_not_wait_for_statistics(tmp_path: Path) -> None:
    words = spaced("--help -h --version list doctor measur")
    lines = [*words, "queue list", "queue --help", "plan filemap-v4", "plan -h"]
    code = (
        "import lab, sys\n"
        f"for line in {lines!r}:\n"
        "    assert lab.main(line.split()) in (0, 2, 3), line\n"
        f"    assert not set({HEAVY!r}) & set(sys.modules), line\n"
        "assert {'typer', 'verbs'} <= set(sys.modules)\n"
        # Nor does who reads what a history keeps.
        "import history.entry\n"
        f"assert not set({HEAVY!r}) & set(sys.modules)\n"
    )
    env = {**os.environ, "TWINBOOT_CACHE": str(tmp_path)}
    completed([sys.executable, "-c", code], env=env, cwd=CHECKOUT)


def test_no_verbs_help_waits_for_what_the_verb_needs() -> None:
    paths = [verb.path.split() for verb in verbs()]
    code = (
        "import sys, lab\n"
        f"for words in {paths!r}: lab.main([*words, '--help'])\n"
        f"print([name for name in {SLOW!r} if name in sys.modules])"
    )
    done = completed([sys.executable, "-c", code], cwd=CHECKOUT)
    assert done.stdout.splitlines()[-1] == "[]"
    assert done.stdout.count("Usage:") == len(paths)


def test_help_lists_every_verb_and_h_is_help(main: Terminal) -> None:
    def shown(*words: str) -> str:
        assert main(*words) == 0
        return main.out

    assert shown("--help") == shown("-h") == shown("help")
    assert shown("queue", "--help") == shown("queue", "-h")
    assert shown("run", "--help") == shown("run", "-h") == shown("help", "run")
    words = shown("--help").replace(",", " ").split()
    assert [name for name in lab.command_line().commands if name not in words] == []
    assert re.fullmatch(r"twinboot \d+\.\d+\.\d+\S* \(\S+\)\n", shown("--version"))


def test_helps_fit_a_screen_and_help_all_has_every_option(
    main: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    def shown(*words: str) -> list[str]:
        assert main(*words) == 0
        lines = main.out.splitlines()
        assert all(len(line) <= 80 for line in lines)
        return lines

    assert len(shown("--help")) <= 32
    assert len(shown("run", "--help")) <= 40
    (run,) = [verb for verb in verbs() if verb.name == "run" and verb.path == "run"]
    options = {each.opts[0] for each in run.load().params if each.opts[0].startswith("-")}
    everything = "\n".join(shown("run", "--help-all")).replace("[no-]", "")
    written = set(re.findall(r"--[a-z-]+", everything))
    assert options <= written
    assert {"--executor", "--max-seeds"} <= written - set(
        re.findall(r"--[a-z-]+", "\n".join(shown("run", "--help")))
    )


def test_an_option_is_shown_with_what_stands_behind_it() -> None:
    (run,) = [verb for verb in verbs() if verb.path == "run"]
    command = run.load()
    panels = options_of(command, command.make_context("run", []))
    rows = {written: meaning for rows in panels.values() for written, meaning in rows}
    assert "1-1000" in rows["--seeds N"]
    assert "--[no-]check" in rows
    assert "TWINBOOT_EXECUTOR" in rows["--executor WHERE"]
    assert "default: local" in rows["--executor WHERE"]
    assert "--session PATH" in rows


@pytest.mark.parametrize("moment", ["typer", "pydantic", "numpy"])
def test_an_interrupt_while_imports_run_is_no_traceback(moment: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            *(*AT_A_TERMINAL, sys.executable, "-X", "importtime", str(CHECKOUT / "lab.py")),
            *("run", "noop", "--session", str(tmp_path / "session")),
            *("--executor", "dask://127.0.0.1:1"),
        ],
        env={**os.environ, "TWINBOOT_CACHE": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if re.search(rf"\| +{moment}\b", line):
            process.send_signal(signal.SIGINT)
            break
    else:
        pytest.fail(f"{moment} was not imported")
    rest = process.stderr.read()
    assert process.wait(timeout=300) in (-signal.SIGINT, lab.INTERRUPTED)
    assert "Traceback" not in rest
    assert "KeyboardInterrupt" not in rest


@pytest.mark.slow
def test_an_interrupt_while_a_kernel_is_built_says_what_is_kept(tmp_path: Path) -> None:
    """A make that never ends stands for a long build."""
    programs, begun = tmp_path / "bin", tmp_path / "begun"
    programs.mkdir()
    script(programs / "make", f"touch {begun}\nsleep 600")
    fake = CHECKOUT / "tests/kernels/fakelinux"
    series = tmp_path / "one.patch"
    series.write_text(
        "From: Ada L <ada@example.org>\nSubject: [PATCH] mm: a note\n\nA note.\n---\n"
        "--- /dev/null\n+++ b/mm/note.h\n@@ -0,0 +1 @@\n+/* a note */\n"
    )
    process = subprocess.Popen(
        [
            *(*AT_A_TERMINAL, sys.executable, str(CHECKOUT / "lab.py"), "run"),
            *("--series", str(series), "--workloads", "filemap-4k", "--no-check"),
            *("--set", f"kernel.source=dir:{fake}", "--session", str(tmp_path / "session")),
        ],
        env={
            **os.environ,
            "TWINBOOT_CACHE": str(tmp_path / "cache"),
            "PATH": f"{programs}:{os.environ['PATH']}",
        },
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 300
    while not begun.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, shown = process.communicate(timeout=300)
    assert process.returncode == lab.INTERRUPTED
    assert shown.splitlines()[-2:] == [
        "finished kernels are kept in the cache; to continue, run the same command again",
        "interrupted",
    ], shown
    assert not (tmp_path / "session" / "manifest.json").exists()


# Fields that a verb has in its own way, and why is said where they are.
LEFT_OUT = {"bisect": bisect.OF_SEARCH, "watch": queue.OF_MAILS, "add": queue.OF_ENTRY}
WITH_REQUEST = {"build", "cache-key", "measure", "plan", "run", "bisect", "watch", "add"}
WHERE: dict[str, type[ExecutorOptions]] = {
    "measure": Measuring,
    "run": Measuring,
    "bisect": Booting,
    "repro": Booting,
}


def parameters(name: str) -> dict[str, Any]:
    (verb,) = [each for each in verbs() if each.path in (name, f"queue {name}")][:1]
    return {each.name: each for each in verb.load().params}


@pytest.mark.parametrize("name", sorted(WITH_REQUEST))
def test_every_verb_that_takes_an_experiment_has_the_same_options(name: str) -> None:
    left_out = LEFT_OUT[name].names if name in LEFT_OUT else ()
    expected = {each.name for each in fields(Request)} - set(left_out)
    ours, runs = parameters(name), parameters("run")
    assert expected <= set(ours)
    for field in expected:
        mine, its = ours[field], runs[field]
        assert (mine.opts, mine.secondary_opts, mine.default) == (
            its.opts,
            its.secondary_opts,
            its.default,
        )
        assert getattr(mine, "help", "") == getattr(its, "help", "")


@pytest.mark.parametrize("name", sorted(WHERE))
def test_what_builds_or_boots_says_where(name: str) -> None:
    assert {each.name for each in fields(WHERE[name])} <= set(parameters(name))


@dataclass(frozen=True, kw_only=True)
class Wish:
    """A small request."""

    name: Annotated[str, typer.Argument()] = ""
    words: Annotated[tuple[str, ...], typer.Option("--word", rich_help_panel="P")] = ()
    quick: Annotated[bool | None, typer.Option("--quick/--slow")] = None


def command(verb: Any) -> TyperCommand:
    app = typer.Typer(add_completion=False)
    app.command("x")(flattened(verb))
    made = get_command(app)
    assert isinstance(made, TyperCommand)
    return made


def test_fields_come_back_as_one_value() -> None:
    calls: list[Any] = []

    def verb(wish: Wish, count: Annotated[int, typer.Option()] = 1) -> None:
        """Do."""
        calls.append((wish, count))

    made = command(verb)
    made.main(["n", "--word", "a", "--word", "b", "--slow"], standalone_mode=False)
    made.main(["--count", "2"], standalone_mode=False)
    assert calls == [(Wish(name="n", words=("a", "b"), quick=False), 1), (Wish(), 2)]
    panels = {each.name: getattr(each, "rich_help_panel", None) for each in made.params}
    assert panels["words"] == "P"


def test_a_verb_leaves_out_what_it_has_itself() -> None:
    def verb(
        wish: Annotated[Wish, Without("words", "name")], words: Annotated[str, typer.Option()] = ""
    ) -> None:
        """Do."""

    assert [each.name for each in command(verb).params] == ["quick", "words"]


def test_one_name_is_declared_once() -> None:
    def verb(wish: Wish, quick: Annotated[bool, typer.Option()] = False) -> None:
        """Do."""

    with pytest.raises(TypeError, match="declared twice: quick"):
        flattened(verb)
