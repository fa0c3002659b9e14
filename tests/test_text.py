"""What strangers say is shown as what it is, and moves nothing."""

import shlex
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text import (
    ELLIPSIS,
    UNFIT,
    ascii_only,
    clean,
    clean_line,
    clean_lines,
    counted,
    enumerated,
    escaped,
    in_words,
    plural,
    printed,
    typeset,
    wrap_command,
)

COMMAND = "fio --name=4k --filename='/mnt/a file' --rw=read --bs=4k --size=64m --output-format=json"


def test_nothing_unfit_is_left_and_what_is_fit_stays() -> None:
    assert clean_lines("é\x1b[2J\u202e\ud800\n\tb") == "é?[2J??\n\tb"
    assert clean_line("  a\nb  c\x00\u2028") == "  a b  c? "
    assert clean(" a\nb  c\x00") == "a b c?"
    assert clean("x" * 300, 10) == "x" * 9 + ELLIPSIS


@given(st.text(st.characters()))
def test_whatever_a_stranger_says(text: str) -> None:
    for shown in (clean(text), clean_line(text), clean_lines(text).translate({9: "", 10: ""})):
        assert not {unicodedata.category(character) for character in shown} & set(UNFIT)
    for line in (clean(text), clean_line(text), escaped(text), ascii_only(text)):
        assert len(line.splitlines()) <= 1
    ascii_only(text).encode("ascii")


@pytest.mark.parametrize("command", ["::stop-commands::x", "::error::x", "##[error]x", "::debug::"])
@pytest.mark.parametrize("before", ["", "a title\n", "wrapped\n \t ", "\u00a0", "a\r\n"])
def test_no_line_that_is_printed_commands_the_log_it_is_in(before: str, command: str) -> None:
    for line in printed(f"{before}{command}").split("\n"):
        assert not line.strip().startswith("::")
        assert "##[" not in line
    assert printed("rust: use kernel::sync::Arc, #[test]") == "rust: use kernel::sync::Arc, #[test]"


def test_what_has_an_ascii_form_keeps_it() -> None:
    assert ascii_only("±0.25 %  1 – 2\né → ü") == "+-0.25 % 1 - 2 ? -> ?"


def test_a_mistake_of_ones_own_is_shown_with_escapes() -> None:
    assert escaped("a\nb\x1bé") == "a\\nb\\x1bé"


def test_names_in_a_sentence() -> None:
    assert [in_words("abcd"[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert enumerated("abcd", most=2) == "a, b and 2 more"
    assert enumerated("ab", "; ") == "a; b"


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("I/O", "I/Os"),
        ("folio added", "folios added"),
        ("page fault", "page faults"),
        ("virtual ms", "virtual ms"),
        ("ms", "ms"),
        ("shared", "shareds"),
        ("patch", "patches"),
        ("entry of a folder read", "entries of a folder read"),
        ("message of up to 8 KiB through a pipe", "messages of up to 8 KiB through a pipe"),
        ("page read as the zero page", "pages read as the zero page"),
        ("direct read of 4 KiB, 16 at once", "direct reads of 4 KiB, 16 at once"),
        ("process forked, ended and awaited", "processes forked, ended and awaited"),
        ("aligned and zeroed area of 5 pages", "aligned and zeroed areas of 5 pages"),
        ("the same by io_uring", "the same by io_uring"),
        ("16 pages mapped side by side", "16 pages mapped side by side"),
    ],
)
def test_plurals(title: str, expected: str) -> None:
    assert plural(title) == expected


def test_counts() -> None:
    assert [counted(n, "seed") for n in (0, 1, 8)] == ["0 seeds", "1 seed", "8 seeds"]


def test_a_wrapped_command_is_the_same_command() -> None:
    lines = wrap_command(COMMAND, 40)
    assert len(lines) == 3
    assert max(map(len, lines)) <= 40
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(COMMAND)


def test_typesetting_leaves_names_alone() -> None:
    assert typeset("-0.10 % 1 -> 2 filemap-4k [-1, +2]") == ("−0.10 % 1 → 2 filemap-4k [−1, +2]")
