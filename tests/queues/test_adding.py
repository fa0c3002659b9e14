from __future__ import annotations

from pathlib import Path

import pytest

from errors import UsageError
from queues.adding import COLUMNS, of_row, read_table
from runs.request import Request


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "waiting.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_column_and_none_but_the_series(tmp_path: Path) -> None:
    rows = read_table(
        table(
            tmp_path,
            "series, priority ,source,workloads,auto,reverse,set,mode\n"
            'a.mbox,-3,deb:linux-source-6.12,"filemap-4k,filemap-thp",no,yes,blocks=2 seed=3,wall\n'
            "git:/srv/linux@a..b,,,,yes,,,\n",
        )
    )
    question, priority = of_row(rows[0], Request(overrides=("guest=smoke",)))
    assert question == Request(
        overrides=("guest=smoke", "blocks=2", "seed=3"),
        mode="wall",
        series=("a.mbox",),
        source="deb:linux-source-6.12",
        workloads="filemap-4k,filemap-thp",
        reverse=True,
    )
    assert priority == -3
    # What a row does not say is as the command line says.
    question, priority = of_row(rows[1], Request(source="dir:x", workloads="filemap-4k"))
    assert (question.source, question.workloads, question.automatic) == (
        "dir:x",
        "filemap-4k",
        True,
    )
    assert priority is None
    (row,) = read_table(table(tmp_path, "\ufeffseries\n  x.mbox \n"))
    assert row == {name: "x.mbox" if name == "series" else "" for name in COLUMNS}
    assert not of_row(row, Request())[0].automatic


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "waiting.csv:1: names these columns: nothing"),
        ("priority\n1\n", "waiting.csv:1: names these columns: priority"),
        ("series,colour\nx,red\n", "names these columns: series, colour"),
        ("series,series\nx,y\n", "names these columns"),
        ("series,priority\nx,1\ny,high\n", "waiting.csv:3: priority: found 'high'"),
        (f"series,priority\nx,{'9' * 5000}\n", "waiting.csv:2: priority: found '999"),
        ("series,auto\nx,perhaps\n", "waiting.csv:2: auto: found 'perhaps'"),
        ("series,priority\n,1\n", "waiting.csv:2: series: found ''"),
        ("series\nx,y\n", "waiting.csv:2: has more fields than columns"),
        ('series\n"x\n', "is no CSV"),
    ],
)
def test_what_cannot_be_meant_is_named_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read_table(table(tmp_path, text))
    assert message in str(caught.value)
    assert caught.value.next_step


def test_no_such_table(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "latin.csv").write_bytes(b"series\n\xe9\n")
    with pytest.raises(UsageError, match="is not UTF-8"):
        read_table(tmp_path / "latin.csv")
