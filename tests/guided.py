"""Fuzz one reader by what its inputs reach: ``python -m tests.guided NAME SECONDS FOLDER``.

What it finds is written to the folder, beside the inputs that reach new code.  Not for other
machines than x86-64: Atheris has no build there.
"""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["kernels", "workloads", "guests", "runs"]):
    from tests.fuzz import TARGETS, failure_of

MEMORY_MIB, SECONDS_EACH = 3000, 10


def main(name: str, seconds: str, folder: str) -> None:
    """Fuzz for so many seconds; ends with another status than 0 where something was found."""
    (target,) = (each for each in TARGETS if each.name == name)
    corpus = Path(folder)
    for number, data in enumerate(target.inputs()):
        (corpus / f"real-{number}").write_bytes(data)
    with tempfile.TemporaryDirectory() as scratch:

        def read(data: bytes) -> None:
            if failure := failure_of(target, data, Path(scratch)):
                raise AssertionError(failure)

        limits = [
            f"-max_total_time={seconds}",
            f"-rss_limit_mb={MEMORY_MIB}",
            f"-timeout={SECONDS_EACH}",
            f"-artifact_prefix={folder}/found-",
        ]
        atheris.Setup([sys.argv[0], *limits, folder], read)
        atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
