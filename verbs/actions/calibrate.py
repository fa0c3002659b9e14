"""Measure this host, and write it as a machine whose many CPUs and caches can be modelled."""

from __future__ import annotations

import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from errors import InfraError, UsageError
from experiment.load import load_machine
from experiment.machine import MACHINES
from host.fitness import SAMPLE_S, check_load, check_steal, meanwhile, read_counters
from host.topology import host_cpus
from results import door
from runs import calibration
from verbs.output import log

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
SCHEMA = "#:schema ../../docs/schema/machine.schema.json\n"


def file_of(name: str, out: Path | None, *, force: bool) -> Path:
    """Where the machine of a name is written.

    Raises:
        UsageError: it is no name, the file is called otherwise, or is there already.
    """
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name: small letters, digits, - and _, at most 64",
            where="--name", next_step="./lab.py calibrate --name my-host",
        )  # fmt: skip
    file = out or MACHINES / f"{name}.toml"
    if file.name != f"{name}.toml":
        raise UsageError(
            f"{file.name}: a machine's file has its name, {name}.toml",
            where="--out", next_step=f"--out {file.with_name(f'{name}.toml')}",
        )  # fmt: skip
    if not file.parent.is_dir():
        raise UsageError("no such folder", where=str(file.parent), next_step="make it first")
    if file.exists() and not force:
        raise UsageError(
            "is there already", where=str(file), next_step="another --name, or --force"
        )
    return file


def calibrate(name: str, file: Path, *, like: str, cache: Path) -> None:
    """Measure this host, warn of what falsifies that, and write the file.

    Raises:
        SpecError: there is no machine that is called as ``like``.
        InfraError: this is no Linux, there is no compiler, or the numbers are in no order.
    """
    if sys.platform != "linux":
        raise InfraError(
            "reads /sys and pins threads as Linux has them", where=sys.platform,
            next_step="use a machine that ships: --memory ice-lake-sp",
        )  # fmt: skip
    other = load_machine(Path(like or calibration.like_here()))
    cpus = host_cpus()
    cpu = min(cpu.number for cpu in cpus) if cpus else 0
    before = read_counters()
    time.sleep(SAMPLE_S)
    quiet = meanwhile(before, read_counters())
    for check in (check_steal(quiet), check_load(quiet)):
        if check.status != "ok":
            log(f"warning: {check.name}: {check.found}: {check.why}")
    parts, timed = calibration.measure(cache, cpu, log)
    for warning in calibration.warnings_of(parts, timed):
        log(f"warning: {warning}")
    today = datetime.now(tz=UTC).date().isoformat()
    machine = calibration.machine_of(name, parts, timed, other, today)
    for kept in calibration.kept_of(machine):
        log(f"kept of {other.name}: {kept}")
    door.write(file.parent, file.name, SCHEMA + calibration.as_toml(machine))
    # What is written is what is read.
    load_machine(file)
    log(f"./lab.py run filemap-v4 --memory {name}")
