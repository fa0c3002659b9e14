"""Which patch of a series it was: real kernels, few boots."""

from pathlib import Path

import pytest

from kernels.cache import Kernel
from tests.integration.lab_process import CHECKOUT, records_of, run_lab
from tests.values import spaced

pytestmark = [pytest.mark.guest, pytest.mark.usefixtures("kept_runs")]
SERIES = CHECKOUT / "configs/series"


def alone(patch: Path, into: Path) -> Path:
    """One patch of a longer series as a series of its own."""
    text = patch.read_text()
    assert "[PATCH 1/2]" in text or "[PATCH 2/2]" in text
    into.write_text(text.replace("[PATCH 1/2]", "[PATCH]").replace("[PATCH 2/2]", "[PATCH]"))
    return into


def test_the_one_slow_patch_of_three_is_named(kernels: dict[str, Kernel], tmp_path: Path) -> None:
    # At smoke size one seed tells several percent and no less: a change of 13 %.
    first, last = sorted((SERIES / "noop").glob("*.patch"))
    stack = (
        alone(first, tmp_path / "first.patch"),
        SERIES / "slow-add-4096",
        alone(last, tmp_path / "last.patch"),
    )
    folder = tmp_path / "session"
    done = run_lab(
        "bisect",
        *(word for part in stack for word in ("--series", str(part))),
        *spaced("--workloads filemap-4k --metric 4k.bw --threshold 4% --set guest=smoke --session"),
        str(folder),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "with patch 2: mm/filemap: add 4096 instructions to each folio add" in done.stdout
    # The function that was made slow leads those that moved.
    moved = done.stdout.partition("instructions per")[2].splitlines()[1]
    assert moved.split()[-1] == "__filemap_add_folio"
    # Comments are the same code: their points were not booted.
    assert done.stdout.count("same code as") == 2
    assert {record.arm for record in records_of(folder).values()} == {"base", "patch-3"}
    before = (folder / "runs.jsonl").read_bytes()
    again = run_lab("bisect", "--resume", str(folder))
    assert again.returncode == 0, again.stderr
    assert again.stdout == done.stdout
    assert (folder / "runs.jsonl").read_bytes() == before
