"""Answers on their way: the same when they arrive, and nothing else than answers."""

from __future__ import annotations

import os
import pickle
import zlib
from pathlib import Path

import pytest

from errors import InfraError
from guests.channel import Ending
from guests.exact import Outcome
from runs.fleet import parcel
from runs.fleet.artefacts import Artefact, KernelFiles
from runs.fleet.parcel import Answer, answer_of, packed, unpacked
from runs.fleet.worker import Built

OUTCOME = Outcome({}, Ending("done", "it ended", ("a", "b")), 1.5, 2.0, bytes(range(256)))
ANSWER = Answer("tcp://a:1", "a", OUTCOME, raw={"result": bytes(range(256)), "empty": b""})
FILES = KernelFiles("k" * 32, (Artefact("bzImage", "0" * 64, 5),))


@pytest.mark.parametrize(
    "value",
    [ANSWER, Built("w", FILES), Built("w", error=("does not build", "mm/a.c", "mend it"))],
    ids=["answer", "built", "error"],
)
def test_what_is_sent_arrives(value: object) -> None:
    assert unpacked(type(value), packed(value)) == value


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
    other = packed(Built("w", FILES))
    for data in (zlib.compress(b"[" * (2 << 20)), zlib.compress(b"[" * 9999), b"", other):
        with pytest.raises(InfraError, match="cannot be read"):
            unpacked(Answer, data)


def test_a_kernel_whose_files_lead_elsewhere_is_no_answer() -> None:
    text = zlib.decompress(packed(Built("w", FILES)))
    assert unpacked(Built, zlib.compress(text)).files == FILES
    for wrong in (text.replace(b"0" * 64, b"../" * 20 + b"0000"), text.replace(b"bzI", b"../")):
        with pytest.raises(InfraError, match="no artefact"):
            unpacked(Built, zlib.compress(wrong))
