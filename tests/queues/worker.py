"""A worker as a process of its own, to be killed: ``worker.py QUEUE LEDGER PAUSE_S``."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from queues.store import QueueStore
from queues.work import work
from tests.queues.made_up import MadeUpMeasuring, plain_report

if __name__ == "__main__":
    folder, ledger, pause_s = sys.argv[1:]
    measuring = MadeUpMeasuring(ledger=Path(ledger), pause_s=float(pause_s))
    with mock.patch("queues.work.write_all", plain_report):
        work(QueueStore(Path(folder)), measuring, lambda line: print(line, flush=True))
