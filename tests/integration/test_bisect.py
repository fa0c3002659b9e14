"""Which patch it was, and whether another lab finds the same: real kernels, few boots."""

import json
from pathlib import Path

import pytest

from kernels.cache import Kernel
from results.store import SessionStore
from tests.integration.lab_process import CHECKOUT, SMALL, records_of, run_lab
from tests.values import but, spaced

pytestmark = pytest.mark.guest
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


def test_an_archive_repeats_to_the_last_digit(kernels: dict[str, Kernel], tmp_path: Path) -> None:
    folder, archive = tmp_path / "session", tmp_path / "session.tar.gz"
    assert run_lab("measure", SMALL, "--session", str(folder)).returncode == 0
    packed = run_lab("repro", str(folder), "-o", str(archive))
    assert packed.returncode == 0, packed.stderr
    assert packed.stdout.strip() == str(archive)
    again = tmp_path / "again"
    done = run_lab("repro", "--check", str(archive), "--session", str(again), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["unequal_runs"] == {}
    assert report["obstacles"] == []
    assert records_of(again) == records_of(folder)
    # One number of one run is another one: of all that are compared, only it differs.
    record = SessionStore(folder).records()[0]
    assert record.samples
    wrong = but(record, samples={**record.samples, "4k.bw": record.samples["4k.bw"] * (1 + 1e-12)})
    SessionStore(folder).append(wrong)
    assert run_lab("repro", str(folder), "-o", str(archive)).returncode == 0
    # The session that repeats it is finished already, and is only compared.
    compared = run_lab("repro", "--check", str(archive), "--session", str(again))
    assert compared.returncode == 1, compared.stdout + compared.stderr
    assert "not reproduced: 1 of 3 runs differ" in compared.stdout
    assert f"{record.run_id}: 4k.bw " in compared.stdout
