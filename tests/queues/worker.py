"""A worker as a process of its own, to be killed: ``worker.py QUEUE LEDGER PAUSE_S [MEETING]``.

With a folder MEETING it measures nothing until two workers have each begun an entry.
"""

import os
import sys
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from queues.store import QueueStore
from queues.work import Job, work
from tests.queues.made_up import MadeUpMeasuring, plain_report
from tests.waiting import wait_until

if __name__ == "__main__":
    folder, ledger, pause_s, *meeting = sys.argv[1:]

    def meet(job: Job) -> None:
        if meeting:
            place = Path(meeting[0])
            place.mkdir(exist_ok=True)
            (place / str(os.getpid())).touch()
            wait_until(lambda: len(list(place.iterdir())) >= 2, "second worker")

    measuring = MadeUpMeasuring(ledger=Path(ledger), pause_s=float(pause_s), before=meet)
    with mock.patch("queues.work.write_all", plain_report):
        work(QueueStore(Path(folder)), measuring, lambda line: print(line, flush=True))
