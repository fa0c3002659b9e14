"""Results that somebody measured on hardware of their own, in files of other tools.

Read are fio's JSON, ``perf stat -x,`` and the tables of mmtests' compare.  Such a file is a
stranger's: its size, its numbers and its names are bounded, and what is no result of its kind is
refused with the place in it.
"""

from __future__ import annotations

import functools
import json
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from errors import UsageError
from results import door
from text import clean, counted

MOST_METRICS, MOST_RESULTS, LONGEST = 200, 1000, 80
LARGEST = 1e18
ARM = re.compile(r"([a-z0-9][a-z0-9_-]{0,63})=(.+)", re.S)
STEP = "give fio's JSON (--output-format=json), perf stat -x, or mmtests' compare"
# What perf counts of which less is better; of other events nobody knows.
FEWER = re.compile(r"(instructions|.*cycles|.*(-|_)misses|.*-faults|.*-clock|duration_time)(:\w+)?")
NUMBER = r"\d{1,18}(?:\.\d{1,18})?"
PERF = re.compile(rf"({NUMBER}|<not counted>|<not supported>),([^,]*),([^,]+)(?:,.*)?")
# "Amean  fault-4    100.00 (   0.00%)    99.00 *   1.00%*"; stars mark what mmtests holds for real.
MMTESTS = re.compile(
    rf"\s*([A-Z]\w{{2,20}}(?:-\d+)?)\s+(\S+)((?:\s+-?{NUMBER}\s*[(*]\s*-?{NUMBER}%[)*])+)\s*"
)
CELL = re.compile(rf"(-?{NUMBER})\s*[(*]")
MEANS, DEVIATION = ("Amean", "Hmean", "Gmean", "Mean"), "Stddev"
# Of a fio job's reads and writes: title, unit, factor, the way to it, and whether more is better.
FIO: tuple[tuple[str, str, float, tuple[str, ...], bool], ...] = (
    ("bandwidth", "MiB/s", 2**-20, ("bw_bytes",), True),
    ("operations", "1/s", 1, ("iops",), True),
    ("mean latency", "µs", 1e-3, ("lat_ns", "mean"), False),
    ("99th percentile", "µs", 1e-3, ("clat_ns", "percentile", "99.000000"), False),
)


@dataclass
class OutsideMetric:
    """What was measured: each arm's results, one a run.

    ``more_is_better`` is None where nobody knows.  Values that are not ``single`` are means of a
    file that does not say of how many results, and ``deviations`` the standard deviations of it.
    """

    name: str
    unit: str
    more_is_better: bool | None
    single: bool = True
    values: dict[str, list[float]] = field(default_factory=dict)
    deviations: dict[str, float] = field(default_factory=dict)


Metrics = dict[str, OutsideMetric]


@dataclass(frozen=True)
class _OutsideFile:
    """A file that is read: whose it is, and where in it something is wrong."""

    path: Path
    arms: tuple[str, ...]
    metrics: Metrics

    def refuse(self, what: str, key: str = "", step: str = STEP) -> NoReturn:
        where = f"--beside {self.path}{f': {key}' if key else ''}"
        raise UsageError(clean(what), where=clean(where), next_step=step)

    def metric(self, name: str, unit: str, more_is_better: bool | None) -> OutsideMetric:
        name = clean(name, LONGEST)
        plain = OutsideMetric(name, clean(unit, LONGEST), more_is_better)
        metric = self.metrics.setdefault(name, plain)
        if len(self.metrics) > MOST_METRICS:
            self.refuse(f"more than {counted(MOST_METRICS, 'result')}", step="leave some out")
        if metric.unit != plain.unit:
            units = " and ".join(repr(each.unit) for each in (metric, plain))
            self.refuse(f"results in different units: {units}", name)
        return metric

    def add(self, metric: OutsideMetric, value: object, key: str, arm: str = "") -> None:
        values = metric.values.setdefault(arm or self.arms[0], [])
        values.append(self.number(value, key))
        if len(values) > MOST_RESULTS:
            self.refuse(f"more than {counted(MOST_RESULTS, 'result')} of an arm", metric.name)

    def number(self, value: object, key: str) -> float:
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        # Numbers that are not finite are no larger than any.
        if not plain or not 0 <= float(str(value)) <= LARGEST:
            self.refuse(f"is no number from 0 to {LARGEST:g}: {str(value)[:LONGEST]!r}", key)
        return float(str(value))

    def reader(self, text: str) -> Callable[[str], None]:
        """What reads a text of this form; raises UsageError: none does, or not for these arms."""
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
        if any(line.startswith("{") for line in lines):
            one_arm = self.fio
        elif any(PERF.fullmatch(line) for line in lines):
            one_arm = self.perf
        elif any(MMTESTS.fullmatch(line) for line in lines):
            if len(self.arms) == 1:
                self.refuse("a table of mmtests has all arms", step="leave out ARM= before it")
            return self.mmtests
        elif lines and re.search(r"\b(swprofile|resultclass|benchmark_id)\b", lines[0]):
            self.refuse("tables of Arm Fastpath are not read")
        else:
            self.refuse("is of no form that is known")
        if len(self.arms) > 1:
            step = f"say whose it is, for example --beside {self.arms[0]}={self.path}"
            self.refuse("is of one arm, which is not named", step=clean(step))
        return one_arm

    def fio(self, text: str) -> None:
        """Jobs of one name are processes of one result: rates are added, latencies averaged."""
        try:
            # Before it there may be lines that fio prints for people.
            document = json.loads(text[text.index("{") :])
            measured: dict[tuple[str, int], list[float]] = {}
            for number, job in enumerate(document["jobs"]):
                key = f"jobs[{number}]"
                if job["error"]:
                    self.refuse(f"the job ended with error {job['error']}", key, "repeat the run")
                for side, at, value in fields_of(job):
                    way = ".".join((key, side, *FIO[at][3]))
                    name = f"{job['jobname']} {side}: {FIO[at][0]}"
                    measured.setdefault((name, at), []).append(self.number(value, way))
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            self.refuse(f"is no result of fio: {error!r}", step="write it by --output-format=json")
        for (name, at), values in measured.items():
            _, unit, factor, keys, more = FIO[at]
            value = factor * (sum(values) if more else math.fsum(values) / len(values))
            self.add(self.metric(name, unit, more), value, ".".join(keys))
        if not measured:
            self.refuse("no job of it read or wrote anything", "jobs", "repeat the run")

    def perf(self, text: str) -> None:
        """Each time that an event is in it is a result, as ``perf stat --append`` makes them."""
        step = "write it by perf stat -x, without -I, -A and --per-..., a run each time (no -r)"
        counts = 0
        for number, line in enumerate(text.splitlines(), 1):
            # Lines that begin with a comma have further ratios of the event above.
            if not line.strip() or line.startswith(("#", ",")):
                continue
            match = PERF.fullmatch(line)
            if match is None or match[2][:1].isdigit() or match[2].startswith("<"):
                what = f"is no line of perf stat -x,: {line[:LONGEST]!r}"
                self.refuse(what, f"line {number}", step)
            if re.match(rf"[^,]*,[^,]*,[^,]*,{NUMBER}%", line):
                what = "is a mean of perf stat -r, which does not say of how many runs"
                self.refuse(what, f"line {number}", step)
            if not match[1].startswith("<"):
                more_is_better = False if FEWER.fullmatch(match[3]) else None
                metric = self.metric(match[3], match[2], more_is_better)
                self.add(metric, float(match[1]), f"line {number}")
                counts += 1
        if not counts:
            self.refuse("nothing was counted in it", step="choose events that this machine has")

    def mmtests(self, text: str) -> None:
        """Means with their standard deviations; of how many results is not in the table."""
        rows = [match.groups() for line in text.splitlines() if (match := MMTESTS.fullmatch(line))]
        for statistic, operation, cells in rows:
            values = [float(cell) for cell in CELL.findall(cells)]
            if len(values) != len(self.arms):
                columns = counted(len(values), "column")
                what = f"{columns}, and the session has {len(self.arms)} arms"
                self.refuse(what, f"{statistic} {operation}", "compare these arms alone")
            name = f"mmtests: {operation}"
            for arm, value in zip(self.arms, values, strict=True):
                if statistic in MEANS:
                    metric = self.metric(name, "", None)
                    metric.single = False
                    self.add(metric, value, f"{statistic} {operation}", arm)
                elif statistic == DEVIATION and clean(name, LONGEST) in self.metrics:
                    deviation = self.number(value, f"{statistic} {operation}")
                    self.metrics[clean(name, LONGEST)].deviations[arm] = deviation
        if not any(statistic in MEANS for statistic, _, _ in rows):
            self.refuse(f"no row of {', '.join(MEANS)} in it")


def fields_of(job: Mapping[str, Any]) -> Iterator[tuple[str, int, object]]:
    """What a job of fio has: of reads or writes, which row of :data:`FIO`, and the value."""
    for side in ("read", "write"):
        for at, (_, _, _, way, _) in enumerate(FIO if job[side]["total_ios"] else ()):
            # Percentiles may be switched off.
            if "percentile" not in way or "percentile" in job[side]["clat_ns"]:
                yield side, at, functools.reduce(operator.getitem, way, job[side])


def read(named: Sequence[str], arms: Sequence[str]) -> tuple[OutsideMetric, ...]:
    """The results of files that are named ``ARM=FILE``, or ``FILE`` where one has all arms.

    Raises UsageError: a file, an arm or something in a file is not what it has to be.
    """
    metrics: Metrics = {}
    for each in named:
        match = ARM.fullmatch(each)
        arm, path = (match[1], Path(match[2])) if match else ("", Path(each))
        if arm and arm not in arms:
            what, step = f"the session has no arm {arm}", f"one of: {', '.join(arms)}"
            raise UsageError(what, where=clean(f"--beside {each}"), next_step=step)
        file = _OutsideFile(path, (arm,) if arm else tuple(arms), metrics)
        try:
            with door.opened_named(path, door.TEXT) as stream:
                text = stream.read(door.TEXT).decode(errors="replace")
        except (door.StoreError, OSError, ValueError) as error:
            what = getattr(error, "what", "") or getattr(error, "strerror", "") or str(error)
            file.refuse(what, step="name a plain file that can be read")
        file.reader(text)(text)
    for name, metric in metrics.items():
        if lacking := [arm for arm in arms if arm not in metric.values]:
            what = f"no result of {', '.join(lacking)} for {name}"
            step = f"name a file of each arm: {' '.join(f'--beside {arm}=FILE' for arm in arms)}"
            raise UsageError(what, where="--beside", next_step=step)
    return tuple(metrics.values())
