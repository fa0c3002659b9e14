"""Splats against recorded consoles, each file named after its condition."""

from pathlib import Path

import pytest

from tests.values import data
from workloads import check

RECORDED = Path(__file__).parent / "recorded/splats"
GUESTS = Path(__file__).parents[1] / "guests/recorded"


def complaints(name: str, folder: Path = RECORDED) -> list[tuple[str, str]]:
    text = (folder / f"{name}.log").read_text(errors="replace")
    return [(splat.kind, splat.where) for splat in check.find(text)]


@pytest.mark.parametrize(("name", "kind"), data(__file__, "consoles_of_guests_that_broke"))
def test_consoles_of_guests_that_broke(name: str, kind: str) -> None:
    assert [kinds for kinds, _ in complaints(name, GUESTS)] == [kind]


@pytest.mark.parametrize("name", ["done", "agent-failed", "silent", "user-segfault"])
def test_consoles_without_a_splat(name: str) -> None:
    assert complaints(name, GUESTS) == []


@pytest.mark.parametrize(("name", "expected"), data(__file__, "consoles_of_guests_of_the_gate"))
def test_consoles_of_guests_of_the_gate(name: str, expected: tuple[tuple[str, str], ...]) -> None:
    assert complaints(name) == [*expected]


def test_every_kind_has_a_recorded_log_or_a_line_below() -> None:
    recorded = {kind for path in RECORDED.glob("*.log") for kind, _ in complaints(path.stem)}
    recorded |= {kind for path in GUESTS.glob("*.log") for kind, _ in complaints(path.stem, GUESTS)}
    recorded |= set(LINES)
    assert recorded >= {kind for kind, _, _ in check.SPLATS}


LINES = data(__file__, "lines")


@pytest.mark.parametrize(
    ("kind", "line"), [(kind, line) for kind, lines in LINES.items() for line in lines]
)
def test_a_line_has_its_kind(kind: str, line: str) -> None:
    for stamp in ("", "[    1.234567] ", "[   12.345678][   T91] "):
        (splat,) = check.find(f"twinboot: ready\n{stamp}{line}\ntwinboot: done\n")
        assert (splat.kind, splat.title, splat.evidence[0]) == (kind, line, line)


@pytest.mark.parametrize("line", data(__file__, "what_a_sound_kernel_says_is_no_splat"))
def test_what_a_sound_kernel_says_is_no_splat(line: str) -> None:
    assert check.find(f"[    0.1] {line}\n") == ()


def test_the_same_complaint_at_the_same_place_is_reported_once() -> None:
    line = "WARNING: CPU: {0} PID: 9{0} at mm/filemap.c:993 filemap_add_folio+0x1a/0x60\n</TASK>\n"
    (splat,) = check.find(line.format(0) + line.format(1))
    assert splat.where == "filemap_add_folio"


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        # A panic that something led to is not reported, and complaints are in their order.
        (
            "kernel BUG at mm/filemap.c:871!\n</TASK>\n"
            "Kernel panic - not syncing: Fatal exception\n",
            ["crash"],
        ),
        (
            "WARNING: suspicious RCU usage\n x\nBUG: Bad page state in process fio  pfn:0a\n",
            ["rcu", "memory"],
        ),
    ],
)
def test_several_complaints(text: str, kinds: list[str]) -> None:
    assert [splat.kind for splat in check.find(text)] == kinds
