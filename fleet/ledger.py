"""What a fleet leaves in a session folder beside the records: who made what, who agreed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fleet.cases import BootCase, write_raw
from fleet.parcel import Answer
from results import door

LEDGER = "fleet.jsonl"


@dataclass
class Ledger:
    """Lines of JSON in ``fleet.jsonl``, which no report reads: they depend on the hosts."""

    raw: Path
    machines: dict[str, int] = field(default_factory=dict)
    _kept: set[str] = field(default_factory=set)

    def expect(self, case: BootCase) -> None:
        """Number the machines as a local session does, in the order of the plan."""
        if not case.boot.cold:
            self.machines.setdefault(case.parcel.machine.key, len(self.machines) + 1)

    def note(self, **fields: object) -> None:
        """Append a line."""
        door.append(self.raw.parent, LEDGER, f"{json.dumps(fields)}\n".encode())

    def accept(self, case: BootCase, answer: Answer) -> None:
        """Whose answer the judge has."""
        self.note(run=case.boot.name, worker=answer.worker, host=answer.host,
                  elapsed_s=round(answer.elapsed_s, 2), received=answer.received,
                  moved=answer.moved)  # fmt: skip

    def snapshot(self, case: BootCase, answer: Answer) -> None:
        """Keep the logs of a machine's first snapshot, where a local session has them."""
        key = case.parcel.machine.key
        if answer.snapshot_raw and key not in self._kept:
            self._kept.add(key)
            name = f"snapshot-{self.machines[key]}-{case.boot.group}"
            write_raw(self.raw / name, answer.snapshot_raw)


def unchecked(cases: Iterable[BootCase]) -> str:
    """A line on runs that no second worker could check; empty where there are none."""
    every = list(cases)
    count = sum(case.unchecked and not case.verified for case in every)
    if not count:
        return ""
    return f"{count} of {len(every)} runs came from a worker that no other could check"
