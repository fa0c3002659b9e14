"""Workloads that write, and arms that differ by a mount option, in real guests."""

from pathlib import Path

import pytest

from kernels.cache import Kernel
from tests.integration.conftest import measured
from tests.integration.lab_process import records_of
from tests.values import data

pytestmark = [pytest.mark.guest, pytest.mark.usefixtures("kept_runs")]
# Two cells of the eighteen: one that no mount changes much, and one that faults.
CELLS = data(__file__, "cells")


def test_a_block_is_written_instead_of_its_folio(
    kernels: dict[str, Kernel], tmp_path: Path
) -> None:
    folder = tmp_path / "session"
    sized = ("--set", "guest=smoke", "--set", "blocks=1", "--no-check")
    done = measured(folder, "iomap-dirty", *sized, verb="measure")
    assert done.status == 0, done.err
    records = records_of(folder)
    assert [record.failure for record in records.values()] == [None] * 6
    for case, blocks in (("iomap-dirty", 16), ("iomap-dirty+1m", 256)):
        base, patched = (records[f"{case}.b00.{arm}"].samples for arm in ("base", "patched"))
        assert base is not None
        assert patched is not None
        bytes_per_byte = "overwrite.device_bytes_per_written_byte"
        # The first folios of each file are smaller: readahead grows into its size.
        assert blocks / 2 < base[bytes_per_byte] <= blocks
        assert patched[bytes_per_byte] == pytest.approx(1, abs=0.001)
        assert patched["overwrite.write_bw"] > 1.2 * base["overwrite.write_bw"]
        assert patched["overwrite.sync_p50_ns"] < base["overwrite.sync_p50_ns"]


def test_arms_that_differ_by_a_mount_option(kernels: dict[str, Kernel], tmp_path: Path) -> None:
    file, folder = tmp_path / "cells.toml", tmp_path / "session"
    file.write_text(CELLS)
    done = measured(folder, str(file), verb="measure")
    assert done.status == 0, done.err
    records = records_of(folder)
    # A run is valid only where tmpfs has huge pages, or none, as its arm says.
    assert [record.failure for record in records.values()] == [None] * 6
    never, always = (records[f"thp-matrix+mmap-randread.b00.{arm}"] for arm in ("never", "always"))
    assert never.kernel_key == always.kernel_key
    assert never.samples is not None
    assert always.samples is not None
    # Every page is faulted in once, or every 2 MiB.
    assert always.samples["io.bw"] > 1.03 * never.samples["io.bw"]
    mixed = records["thp-matrix+libaio-randrw.b00.always"].samples
    assert mixed is not None
    assert mixed["io.read_bw"] + mixed["io.write_bw"] == pytest.approx(mixed["io.bw"])
