"""fio's own job files under ``workloads/jobs/``: one source for the lab and for people."""

from __future__ import annotations

from configparser import ConfigParser, Error
from pathlib import Path

from errors import SpecError

JOBS = Path(__file__).parent / "jobs"
GLOBAL = "global"
# A job file that runs by hand holds these as well; in the lab they are the guest's, the
# experiment's or the block's.
LAB_GIVES = (
    "numjobs", "size", "runtime", "time_based", "ramp_time", "group_reporting", "directory",
)  # fmt: skip


def read_job_file(path: Path) -> dict[str, tuple[str, ...]]:
    """Section → fio arguments that say the same, ``[global]`` first, in the file's order.

    What the lab gives itself (:data:`LAB_GIVES`) is left out.

    Raises:
        SpecError: the file cannot be read, is no job file, or has no section to run.
    """
    # fio knows no defaults section and no interpolation; a key without a value means 1.
    parser = ConfigParser(
        allow_no_value=True, interpolation=None, default_section="", delimiters=("=",)
    )
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, Error) as error:
        known = ", ".join(file.name for file in sorted(JOBS.glob("*.fio")))
        raise SpecError(
            [
                f"{path}: no job file that can be read: {' '.join(str(error).split())}; "
                f"known: {known}"
            ]
        ) from None
    shared = dict(parser[GLOBAL]) if parser.has_section(GLOBAL) else {}
    sections = [name for name in parser.sections() if name != GLOBAL]
    if not sections:
        raise SpecError([f"{path}: no section besides [{GLOBAL}]: nothing to run"])
    return {name: _arguments(name, {**shared, **parser[name]}) for name in sections}


def _arguments(name: str, options: dict[str, str | None]) -> tuple[str, ...]:
    given = (
        f"--{key}" if value is None else f"--{key}={value}"
        for key, value in options.items()
        if key not in LAB_GIVES
    )
    return (f"--name={name}", *given)
