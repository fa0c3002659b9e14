"""Measure this host's caches, page walks and lines between CPUs, and write it as a machine.

.venv/bin/python -m benchmarks.calibrate --name my-host
./lab.py run filemap-v4 --memory my-host
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.calibrate import machine as calibration
from errors import InfraError, LabError, UsageError
from experiment.load import load_machine
from experiment.machine import MACHINES
from host import facts
from host.fitness import SAMPLE_S, check_load, check_steal, host_cpus, meanwhile, read_counters
from results import door

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
SCHEMA = "#:schema ../../docs/schema/machine.schema.json\n"


def log(text: str) -> None:
    """A line for whoever waits, beside the file's name that is printed."""
    sys.stderr.write(f"{text}\n")


def file_of(name: str, out: Path | None, *, force: bool) -> Path:
    """Where the machine of a name is written.

    Raises:
        UsageError: it is no name, the file is called otherwise, or is there already.
    """
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name: small letters, digits, - and _, at most 64",
            where="--name",
            next_step="--name my-host",
        )
    file = out or MACHINES / f"{name}.toml"
    if file.name != f"{name}.toml":
        raise UsageError(
            f"{file.name}: a machine's file has its name, {name}.toml",
            where="--out",
            next_step=f"--out {file.with_name(f'{name}.toml')}",
        )
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
            "reads /sys and pins threads as Linux has them",
            where=sys.platform,
            next_step="use a machine that ships: --memory ice-lake-sp",
        )
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


def main(argv: list[str] | None = None) -> int:
    """Measure, and print the file's name; the exit status is whose fault a failure is."""
    parser = argparse.ArgumentParser("python -m benchmarks.calibrate", description=__doc__)
    parser.add_argument("--name", required=True, help="what the machine is called: --memory NAME")
    parser.add_argument("--out", type=Path, help="write NAME.toml here, not to configs/machines")
    like = "the machine whose numbers stand where this host gives none; else by the CPU's maker"
    parser.add_argument("--like", default="", help=like)
    parser.add_argument("--force", action="store_true", help="replace the file of that name")
    words = parser.parse_args(argv)
    try:
        file = file_of(words.name, words.out, force=words.force)
        calibrate(words.name, file, like=words.like, cache=facts.cache_folder())
    except LabError as error:
        log(str(error))
        return int(error.exit_code)
    sys.stdout.write(f"{file}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
