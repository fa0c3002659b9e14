"""Experiments of writes and of mounts: what their documents say, in every guest."""

import pytest

from tests.runs.made_up import shipped as load

# The rows of the document: workload, direction, both means, and the change it prints.
TABLE = """
sync-read read 21439.00 20297.33 -5.33
sync-write write 6833.20 3630.13 -46.88
sync-readwrite read 4377.17 2366.33 -45.94
sync-readwrite write 4378.50 2365.80 -45.97
sync-randread read 5491.20 14664.00 167.05
sync-randwrite write 6396.13 2035.80 -68.17
sync-randrw read 2927.30 1036.08 -64.61
sync-randrw write 2926.47 1036.11 -64.60
libaio-read read 254.36 258.63 1.68
libaio-write write 4979.20 2904.77 -41.66
libaio-readwrite read 2738.57 2045.80 -25.30
libaio-readwrite write 2729.93 2039.77 -25.28
libaio-randread read 113.63 210.63 85.37
libaio-randwrite write 4456.10 1649.63 -62.98
libaio-randrw read 97.85 877.49 796.80
libaio-randrw write 97.55 874.83 796.77
mmap-read read 20654.67 24696.33 19.57
mmap-write write 8652.33 13187.33 52.41
mmap-readwrite read 6620.57 9221.60 39.29
mmap-readwrite write 6623.63 9222.13 39.23
mmap-randread read 6717.23 21939.33 226.61
mmap-randwrite write 3204.63 12371.00 286.03
mmap-randrw read 2150.50 7682.67 257.25
mmap-randrw write 2149.50 7685.40 257.54
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()]


def test_matrix_has_every_row_of_the_document() -> None:
    cases = {case.variant: case for case in load("thp-matrix").cases}
    assert list(cases) == list(dict.fromkeys(row[0] for row in ROWS))
    published = [
        (name, figure.metric, figure.base, figure.patched, round(100 * figure.change, 2))
        for name, case in cases.items()
        for figure in case.published
    ]
    metrics = [metric for case in cases.values() for metric in case.primary]
    expected = [
        (row[0], metric, *map(float, row[2:])) for row, metric in zip(ROWS, metrics, strict=True)
    ]
    assert [row[:4] for row in published] == [row[:4] for row in expected]
    # The document's own arithmetic was on more digits than it prints.
    for ours, theirs in zip(published, expected, strict=True):
        assert ours[4] == pytest.approx(theirs[4], abs=0.04)
    # Of both directions each has a row; of one direction its bandwidth is the phase's.
    for row, metric in zip(ROWS, metrics, strict=True):
        mixed = row[0].endswith(("readwrite", "randrw"))
        read = "io.read_bw" if mixed else "io.bw"
        assert metric == ("io.write_bw" if row[1] == "write" else read)


def test_arms_of_the_matrix_differ_by_a_mount_option() -> None:
    base, huge = load("thp-matrix").all_arms
    assert [arm.mount_options for arm in (base, huge)] == ["huge=never", "huge=always"]
    assert [dict(arm.settings) for arm in (base, huge)] == [
        {"mount options": "huge=never"},
        {"mount options": "huge=always"},
    ]


def test_iomap_takes_the_tracking_out_and_has_its_figures() -> None:
    experiment = load("iomap-dirty")
    assert [arm.patches for arm in experiment.all_arms] == [True, False]
    (figure,) = (figure for case in experiment.cases for figure in case.published)
    assert (figure.metric, figure.base, figure.patched) == ("overwrite.write_bw", 28, 452)
    assert 1 + figure.change == pytest.approx(16.1, abs=0.05)
