"""Files of other tools: what is read of them, and that nothing in them ends the lab."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errors import UsageError
from results import outside
from results.door import TEXT
from results.outside import OutsideMetric, read

ARMS = ("base", "patched")
PERF = """# started on Sat Nov 28 11:11:22 2026

0.49,msec,task-clock,492193,100.00,0.510,CPUs utilized
49,,page-faults:u,492193,100.00,99.554,K/sec
<not supported>,,cycles,0,100.00,,
,,,,,0.5,insn per cycle
"""
MMTESTS = """
                                     base                patched
                                   6.12.0                 6.12.1
Min       fault-4       100.00 (   0.00%)       98.00 (   2.00%)
Amean     fault-4       110.00 (   0.00%)      108.00 *   1.82%*
Stddev    fault-4         2.00 (   0.00%)        3.00 ( -50.00%)
Amean     fault-8       210.00 (   0.00%)      208.00 (   0.95%)
BAmean-99 fault-8       209.00 (   0.00%)      208.00 (   0.48%)
"""


def side(rate: int, latency: float) -> dict[str, Any]:
    return {
        "total_ios": 10 if rate else 0,
        "bw_bytes": rate << 20,
        "iops": rate * 256.0,
        "lat_ns": {"mean": latency},
        "clat_ns": {"percentile": {"99.000000": latency * 2}},
    }


def fio(*rates: int, error: object = 0, **of_read: object) -> str:
    """A file of fio, with a process of the job ``w`` for each rate; nothing is written."""
    jobs = [
        {"jobname": "w", "error": error, "read": side(r, 5e3 * r) | of_read, "write": side(0, 0)}
        for r in rates
    ]
    return f"note: both iodepth >= 1\n{json.dumps({'fio version': 'fio-3.33', 'jobs': jobs})}"


def of(folder: Path, *texts: tuple[str, str]) -> dict[str, OutsideMetric]:
    """What is read of texts, each of an arm, or of all where none is named."""
    named = []
    for number, (arm, text) in enumerate(texts):
        path = folder / str(number)
        path.write_text(text)
        named.append(f"{arm}={path}" if arm else str(path))
    return {metric.name: metric for metric in read(named, ARMS)}


def test_a_file_of_fio_is_a_result_whatever_number_of_processes_it_had(tmp_path: Path) -> None:
    metrics = of(
        tmp_path, ("base", fio(1, 3)), ("base", fio(5)), ("patched", fio(2)), ("patched", fio(6))
    )
    shown = {name: (m.unit, m.more_is_better, m.values) for name, m in metrics.items()}
    assert shown == {
        "w read: bandwidth": ("MiB/s", True, {"base": [4.0, 5.0], "patched": [2.0, 6.0]}),
        "w read: operations": ("1/s", True, {"base": [1024, 1280], "patched": [512, 1536]}),
        "w read: mean latency": ("µs", False, {"base": [10, 25], "patched": [10, 30]}),
        "w read: 99th percentile": ("µs", False, {"base": [20, 50], "patched": [20, 60]}),
    }


def test_percentiles_may_be_switched_off(tmp_path: Path) -> None:
    plain = fio(1, clat_ns={})
    assert len(of(tmp_path, ("base", plain), ("patched", plain))) == 3


def test_a_run_appended_to_a_file_of_perf_is_another_result(tmp_path: Path) -> None:
    metrics = of(tmp_path, ("base", PERF + PERF.replace("0.49", "0.51")), ("patched", PERF))
    clock, faults = metrics["task-clock"], metrics["page-faults:u"]
    assert (clock.unit, clock.values) == ("msec", {"base": [0.49, 0.51], "patched": [0.49]})
    assert (faults.more_is_better, faults.single) == (False, True)
    assert len(metrics) == 2


def test_a_table_of_mmtests_has_all_arms_and_does_not_say_of_how_many_results(
    tmp_path: Path,
) -> None:
    metrics = of(tmp_path, ("", MMTESTS))
    four, eight = metrics["mmtests: fault-4"], metrics["mmtests: fault-8"]
    assert four.values == {"base": [110.0], "patched": [108.0]}
    assert four.deviations == {"base": 2.0, "patched": 3.0}
    assert (eight.values, eight.deviations) == ({"base": [210.0], "patched": [208.0]}, {})
    assert not four.single


@pytest.mark.parametrize(
    ("arm", "text", "words"),
    [
        ("base", "", "is of no form that is known"),
        ("base", "{}", "is no result of fio: KeyError"),
        ("base", "{" + "[" * 100_000, "is no result of fio"),
        ("base", '{"jobs": [1]}', "is no result of fio: TypeError"),
        ("base", '{"jobs": []}', "jobs: no job of it read or wrote anything"),
        ("base", fio(1, error=5), r"jobs\[0\]: the job ended with error 5"),
        ("base", fio(1, iops="many"), r"jobs\[0\]\.read\.iops: is no number from 0 .*: 'many'"),
        ("base", fio(1, iops=float("nan")), "read.iops: is no number"),
        ("base", fio(1, iops=-1), "read.iops: is no number"),
        ("base", fio(1, iops=True), "read.iops: is no number"),
        ("base", fio(1, iops=10**400), "read.iops: is no number"),
        ("", fio(1), "is of one arm, which is not named\nnext: say whose it is, .*base="),
        ("base", f"{PERF}CPU0,1,,cycles,1,1,,\n", "line 7: is no line of perf stat -x,: 'CPU0"),
        ("base", "0.100148493,0.71,msec,task-clock,708474,100.00\n", "line 1: .*next: .*-I"),
        ("base", "0.43,msec,task-clock,4.47%,434997,100.00,,\n", "line 1: .* how many runs"),
        ("base", "<not supported>,,cycles,0,100.00,,\n", "nothing was counted in it"),
        ("base", "1,,a\n" * 1001, "more than 1000 results of an arm"),
        ("base", "".join(f"1,,e{n}\n" for n in range(201)), "more than 200 results"),
        ("base", "1,,a\n1,s,a\n", "a: results in different units: '' and 's'"),
        ("base", MMTESTS, "a table of mmtests has all arms"),
        ("", "Amean x 1.00 ( 0.00%) 2.00 ( 0.00%) 3.00 ( 0.00%)", "3 columns, .* has 2 arms"),
        ("", "Min x 1.00 ( 0.00%) 2.00 ( 0.00%)", "no row of Amean"),
        ("base", "swprofile,benchmark,mean\na,b,1\n", "tables of Arm Fastpath are not read"),
        (
            "base",
            fio(1),
            "no result of patched for w read: bandwidth\nnext: name a file of each arm",
        ),
        ("other", fio(1), "the session has no arm other\nnext: one of: base, patched"),
    ],
)
def test_what_is_no_result_is_refused_with_its_place(
    arm: str, text: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=f"(?s)--beside.*{words}") as caught:
        of(tmp_path, (arm, text))
    assert caught.value.next_step
    assert len(str(caught.value)) < 1000


def test_a_file_that_is_not_there_no_file_or_too_large_is_refused(tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as stream:
        stream.truncate(TEXT + 1)
    for path, words in (
        (tmp_path / "none", "No such file"),
        (tmp_path, "is no plain file"),
        (large, "has more than 16 MiB"),
        ("a\0b", "null"),
    ):
        with pytest.raises(UsageError, match=words):
            read([f"base={path}"], ARMS)


PIECES = st.sampled_from(
    [
        *PERF.splitlines(),
        *MMTESTS.splitlines(),
        fio(1),
        fio(2),
        '{"jobs":[',
        "1,,\x1b[2J",
        "9" * 400,
    ]
)


@settings(max_examples=60)
@given(st.lists(PIECES | st.text(max_size=40), max_size=6), st.sampled_from(["", "base="]))
def test_no_text_ends_the_lab(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], arm: str
) -> None:
    path = tmp_path_factory.mktemp("of") / "text"
    path.write_text("\n".join(lines), errors="replace")
    try:
        metrics = outside.read([f"{arm}{path}", f"patched={path}"] if arm else [str(path)], ARMS)
        shown = [metric.name + metric.unit for metric in metrics]
    except UsageError as error:
        shown = [str(error)]
    assert all("\x1b" not in text for text in shown)
