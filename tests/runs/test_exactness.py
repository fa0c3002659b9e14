from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runs.exactness import MAX_FIELDS, diverging

FILES = st.dictionaries(st.text(max_size=5), st.binary(max_size=30), max_size=5)


def test_equal_runs() -> None:
    files = {"uname": b"Linux\n", "4k/after/proc/vmstat": b"pgfault 1\n"}
    assert diverging(files, dict(files)) == ()


def test_file_line_and_both_values() -> None:
    first = {"4k/after/proc/vmstat": b"pgfault 10\npgmajfault 3\npgscan 1\n", "uname": b"x\n"}
    second = {"4k/after/proc/vmstat": b"pgfault 10\npgmajfault 4\npgscan 2\n", "uname": b"x\n"}
    assert diverging(first, second) == (
        "4k/after/proc/vmstat: line 2: 'pgmajfault 3' against 'pgmajfault 4'",
    )


def test_file_of_one_run_only() -> None:
    assert diverging({"a": b"", "b": b""}, {"b": b"", "c": b""}) == (
        "a: only in the first run",
        "c: only in the second run",
    )


def test_more_lines() -> None:
    assert diverging({"dmesg": b"one\n"}, {"dmesg": b"one\ntwo\n"}) == ("dmesg: 1 against 2 lines",)


def test_difference_far_right_in_a_long_line_is_shown() -> None:
    """/proc/stat has lines of several hundred characters."""
    start = b"intr " + b"0 " * 200
    (difference,) = diverging({"stat": start + b"7 0\n"}, {"stat": start + b"8 0\n"})
    left, _, right = difference.removeprefix("stat: line 1: ").partition(" against ")
    assert left != right
    assert "7 0" in left
    assert "8 0" in right
    assert "column 406" in difference
    assert len(difference) < 240


def test_difference_in_white_space_is_shown() -> None:
    (difference,) = diverging({"a": b"x 1\n"}, {"a": b"x 1 \n"})
    assert difference == "a: line 1: 'x 1' against 'x 1 '"


def test_difference_in_the_ends_of_lines_is_shown() -> None:
    (difference,) = diverging({"a": b"x 1"}, {"a": b"x 1\n"})
    assert difference == "a: line 1: 'x 1' against 'x 1\\n'"


def test_bytes_that_are_no_text_are_distinguished() -> None:
    (difference,) = diverging({"notes": b"GNU\0\xfe"}, {"notes": b"GNU\0\xff"})
    assert difference == r"notes: line 1: 'GNU\x00\xfe' against 'GNU\x00\xff'"


def test_many_files_are_cut_short_with_their_number() -> None:
    first = {f"file-{number:02}": b"1" for number in range(20)}
    second = {f"file-{number:02}": b"2" for number in range(20)}
    differences = diverging(first, second)
    assert len(differences) == MAX_FIELDS + 1
    assert differences[0].startswith("file-00: ")
    assert differences[-1] == "and 8 more files"


@given(FILES, FILES)
def test_empty_exactly_when_equal(first: dict[str, bytes], second: dict[str, bytes]) -> None:
    differences = diverging(first, second)
    assert (differences == ()) == (first == second)
    for entry in differences:
        left, against, right = entry.rpartition(": ")[2].partition(" against ")
        assert left != right or not against
