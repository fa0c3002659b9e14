"""Answers on their way: the same when they arrive, and nothing else than answers."""

import os
import pickle
import zlib
from pathlib import Path

import pytest

from errors import InfraError
from guests.channel import Ending
from guests.exact import Outcome
from runs.fleet import parcel
from runs.fleet.parcel import Answer, answer_of, packed, unpacked

OUTCOME = Outcome({}, Ending("done", "it ended", ("a", "b")), 1.5, 2.0, bytes(range(256)))
ANSWER = Answer("tcp://a:1", "a", OUTCOME, raw={"result": bytes(range(256)), "empty": b""})


def test_what_is_sent_arrives() -> None:
    assert unpacked(packed(ANSWER)) == ANSWER


class Planted:
    """What runs a command where it is unpickled."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.made),)


def test_nothing_that_a_worker_sends_is_run(tmp_path: Path) -> None:
    sent = pickle.dumps(Planted(tmp_path / "made"))
    for data in (sent, zlib.compress(sent)):
        with pytest.raises(InfraError, match="a worker's answer cannot be read"):
            answer_of(data)
    assert not (tmp_path / "made").exists()


def test_neither_bombs_nor_other_values_are_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcel, "LARGEST", 1 << 20)
    for text in (b"[" * (2 << 20), b"[" * 9999, b"[{}]"):
        with pytest.raises(InfraError, match="cannot be read"):
            unpacked(zlib.compress(text))


@pytest.mark.parametrize(
    "raw",
    [{f"f{n}": b"" for n in range(200_000)}, {"../x": b""}, {"..": b""}, {"a\0": b""}, {"": b""}],
)
def test_files_that_no_run_has_are_no_answer(raw: dict[str, bytes]) -> None:
    for answer in (Answer("a", "a", OUTCOME, raw=raw), Answer("a", "a", None, snapshot_raw=raw)):
        with pytest.raises(InfraError, match=r"has 200000 files|no name of a run's file"):
            unpacked(packed(answer))
