"""How finely a metric's time is known: pure.

fio prints how long its jobs ran in whole milliseconds.  Where the work is given and the time comes
out of it, a rate is known only as finely as that: a run of 80 ms in steps of more than 1 %, and two
different times can read as the same bandwidth.  A phase of a given time divides by what was asked
for, which is exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from results.record import CaseRecord, Manifest, RunRecord

STEP_S = 0.001
# Of what is divided by, or is, the time that fio ran.
TIMED = ("bw", "iops", "read_bw", "read_iops", "write_bw", "write_iops", "runtime")


def time_resolution(
    manifest: Manifest, case: CaseRecord, metric: str, records: Iterable[RunRecord]
) -> float:
    """The largest error that the step of fio's time leaves in the logarithm of a value; 0 for none.

    ``records`` are the case's; the shortest run has the largest error.
    """
    phase, _, short = metric.partition(".")
    if manifest.experiment.mode == "wall" or short not in TIMED:
        return 0.0
    times = next(
        (spec.times.get(manifest.guest.name, {}) for spec in manifest.experiment.cases
         if spec.name == case.name), {},
    )  # fmt: skip
    by_number = phase in times and times[phase].ios is not None
    if not by_number and f"{phase}.runtime" not in {spec.name for spec in case.metrics}:
        return 0.0
    seconds = [
        samples[f"{phase}.ios"] / samples[f"{phase}.iops"]
        for record in records
        if (samples := record.samples)
        and samples.get(f"{phase}.iops")
        and f"{phase}.ios" in samples
    ]
    return math.log1p(STEP_S / min(seconds)) if seconds and min(seconds) > 0 else 0.0
