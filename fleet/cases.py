"""One boot on its way: the answers that came, and what they say together."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fleet import plain
from fleet.parcel import Answer, Parcel
from fleet.votes import Standing, standing
from guests import channel
from guests.console import Ending
from guests.exact import Outcome
from host import limited
from results import door
from runs.boots import Boot
from runs.exactness import diverging

RESULT = "result"


@dataclass
class BootCase:
    """A boot, its attempt under way, and who said what.

    ``votes`` are digests by worker; ``answers`` are kept until one was told.  ``told`` is
    the worker whose answer the judge has, ``verified`` that a second worker said the same.
    """

    boot: Boot
    parcel: Parcel
    attempt: int = 1
    votes: dict[str, str] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    fingerprint: str = ""
    delivered_by: str = ""
    verified: bool = False
    checking: bool = False
    doubled: bool = False
    unchecked: bool = False
    lost: int = 0

    @property
    def size(self) -> int:
        """Bytes of the parcel as it is sent."""
        return len(pickle.dumps(self.parcel))

    @property
    def standing(self) -> Standing:
        """What the votes say."""
        return standing(self.votes)

    @property
    def suspicious(self) -> bool:
        """Whether a guest ended in a way that may be blamed on a series: ask another host."""
        return any(
            answer.outcome is not None and answer.outcome.files is None
            for answer in self.answers.values()
        )

    def best(self) -> Answer | None:
        """An answer that is believed, or the only one."""
        believed = self.standing.digest
        return next(
            (a for worker, a in self.answers.items() if self.votes.get(worker) == believed), None
        )

    def again(self) -> None:
        """Forget everything that was said: the boot is made once more."""
        self.votes, self.answers = {}, {}
        self.delivered_by = self.fingerprint = ""
        self.verified = self.checking = self.doubled = self.unchecked = False

    def forget(self, worker: str) -> None:
        """What this worker said does not count."""
        self.votes.pop(worker, None)
        self.answers.pop(worker, None)
        if self.delivered_by == worker:
            self.delivered_by = ""


@dataclass
class Flight:
    """A parcel under way; ``worker`` and ``began`` are known when a worker said so.

    ``allowed`` are the workers that may take it, all where it is empty.
    """

    case: BootCase
    attempt: int
    future: Any
    sent: float
    allowed: frozenset[str] = frozenset()
    worker: str = ""
    began: float = 0.0


def unpack(data: bytes) -> Answer:
    """An answer as it came, with the guest's files read from its raw result.

    Raises:
        InfraError: it is no answer.
    """
    answer = plain.unpacked(Answer, data)
    outcome = answer.outcome
    if outcome is None or outcome.files is None:
        return answer
    try:
        outcome = replace(outcome, files=limited.call(channel.decode, answer.raw.get(RESULT, b"")))
    except (channel.ChannelError, limited.LimitError) as error:
        ending = Ending("lost", f"the result came damaged from {answer.worker}: {error}")
        outcome = Outcome(None, ending, outcome.cpu_s, outcome.elapsed_s)
    return replace(answer, outcome=outcome)


def write_raw(folder: Path, files: Mapping[str, bytes]) -> None:
    """The raw files of one boot, instead of those of an earlier attempt."""
    shutil.rmtree(folder, ignore_errors=True)
    door.make_folder(folder)
    for name, data in files.items():
        door.write(folder, Path(name).name, data)


def read_raw(folder: Path) -> dict[str, bytes]:
    """The raw files of one boot by name; none where it made no folder."""
    if not folder.is_dir():
        return {}
    names = [path.name for path in sorted(folder.iterdir()) if path.is_file()]
    return {name: door.read(folder, name, door.LINES) for name in names}


def lost_answer(worker_name: str, message: str) -> Answer:
    """What is told of a boot that no worker could be made to answer.

    A guest cannot kill a worker, so this is never a series' doing.
    """
    return Answer(worker_name, "", Outcome(None, Ending("lost", message, killed=True), 0.0, 0.0))


def differences(right: Answer | None, wrong: Answer | None) -> tuple[str, ...]:
    """Where the files of two answers differ; empty where they cannot be compared."""
    if right is None or wrong is None or right.outcome is None or wrong.outcome is None:
        return ()
    if right.outcome.files is None or wrong.outcome.files is None:
        return ()
    return diverging(right.outcome.files, wrong.outcome.files)
