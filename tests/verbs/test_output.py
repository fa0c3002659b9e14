"""One door to the terminal, and what does not go through it."""

import ast
import io
import sys
import unicodedata
from pathlib import Path

import pytest
from rich.console import Console

import lab
from errors import InfraError
from kernels.make import MakeProgress
from runs.boots import Reporter
from verbs import invocation

CHECKOUT = Path(__file__).parents[2]
# Titles, clipboard, clear screen, hyperlink, C1, bidi, a carriage return, a bell.
HOSTILE = (
    "\x1b]0;title\x07",
    "\x1b]52;c;aGk=\x07",
    "\x1b[2J",
    "\x1b]8;;http://x\x1b\\a",
    "\x9b2J",
    "\u202egnp.exe",
    "\u2066x",
    "over\rwritten",
    "\x07",
    "\x08\x08",
    "\udc80",
    "\u2028",
)


def unfit(text: str) -> set[str]:
    return {
        character
        for character in text
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
    } - {"\n", "\t"}


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_nothing_printed_is_more_than_text(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    invocation.write_out(f"a\tb\n  {text}")
    invocation.log(text)
    printed = capsys.readouterr()
    assert printed.out.startswith("a\tb\n  ")
    assert not unfit(printed.out + printed.err)


@pytest.mark.parametrize(
    ("terminal", "without", "coloured"), [(True, "", 2), (True, "1", 0), (False, "", 0)]
)
def test_verdicts_have_colours_on_a_terminal_that_wants_them(
    terminal: bool,
    without: str,
    coloured: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.setenv("NO_COLOR", without)
    invocation.write_out("1 regression, 2 improvements; progression", verdicts=True)
    assert capsys.readouterr().out.count("\x1b[3") == coloured


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_what_a_guest_says_is_text_in_the_display(
    text: str, terminal: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = io.StringIO()
    reporter = Reporter(Console(file=stream, force_terminal=terminal, color_system=None, width=200))
    with reporter.runs(2, 0, 1):
        reporter.started("a")
        reporter.reached("a", text)
        reporter.building(text, MakeProgress(1, 2, 3.0))
        reporter.finished("a", problem=f"panic: {text}")
    printed = stream.getvalue() + capsys.readouterr().err
    assert "panic: " in printed
    # What rich itself writes for a live display moves the cursor, and carries no text.
    assert text not in printed
    if not terminal:
        assert not unfit(printed)


def test_an_error_that_quotes_is_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise InfraError("".join(HOSTILE), where="a\x1b[2Jb", next_step="c\u202ed")

    monkeypatch.setattr(lab, "command_line", fails)
    assert lab.main(["list"]) == 3
    message = capsys.readouterr().err
    assert "error: a?[2Jb: " in message
    assert not unfit(message)


def test_verbs_print_through_the_door() -> None:
    allowed = {"invocation.py", "cli.py"}
    printing = [
        f"{path.relative_to(CHECKOUT)}:{node.lineno}"
        for path in sorted((CHECKOUT / "verbs").rglob("*.py"))
        if path.name not in allowed
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert printing == []
