"""One command from a kernel source to a report, on real kernels and real fio."""

import json
import shutil
from pathlib import Path

import pytest

from kernels.cache import Kernel
from reports.forms import read_comparison
from reports.headline import outcome
from results.store import SessionStore
from tests.integration.conftest import EndedSession, measured
from tests.integration.lab_process import FORMS, guests_of, records_of, run_lab
from tests.values import but

pytestmark = pytest.mark.guest
ARMS = ("base", "patched")


def test_every_planned_run_is_measured_and_valid(small: EndedSession) -> None:
    # So few blocks decide nothing; that is no failure unless --strict asks for one.
    assert small.status == 0, small.err
    records = records_of(small.folder)
    runs = {f"filemap-4k.b{block:02}.{arm}" for block in range(2) for arm in ARMS}
    assert set(records) == runs | {"filemap-4k.b00.patched.repeat"}
    assert {record.failure for record in records.values()} == {None}
    assert outcome(read_comparison(small.folder), strict=True) == 5


def test_a_restored_run_is_a_cold_one(small: EndedSession) -> None:
    """Of two cases it is in tests/integration/test_nightly.py."""
    records = records_of(small.folder)
    restored, cold = (records[f"filemap-4k.b00.patched{of}"] for of in ("", ".repeat"))
    assert cold.repeat
    assert restored.fingerprint == cold.fingerprint != ""
    assert restored.samples is not None
    assert cold.samples is not None
    # These are of runs that are counted, and nobody counts in a repeat.
    counted = {name for name in restored.samples if name.endswith((".path", ".work", ".before"))}
    assert counted
    assert restored.samples.items() - cold.samples.items() == {
        (name, restored.samples[name]) for name in counted
    }
    assert cold.samples.items() <= restored.samples.items()
    # Equal because they are the same run, not because every run is.
    assert len({record.fingerprint for record in records.values()}) == 4


def test_reports_tables_and_costs_are_left(small: EndedSession) -> None:
    import pandas as pd  # takes half a second, and every worker collects this file

    assert all((small.folder / name).stat().st_size for name in FORMS)
    assert f"report: {small.folder / 'report.html'}" in small.err
    assert small.out.startswith("the lab's own tests")
    table = pd.read_parquet(small.folder / "samples.parquet")
    text = pd.read_csv(small.folder / "samples.csv")
    # A reader of CSV guesses types; the values have to be the same to the last digit.
    pd.testing.assert_frame_equal(text.astype(table.dtypes.to_dict()), table, check_exact=True)
    points = [r for r in records_of(small.folder).values() if not r.repeat]
    assert len(table) == sum(len(record.samples or {}) for record in points)
    costs = {cost.run_id: cost for cost in SessionStore(small.folder).costs()}
    assert costs.keys() == records_of(small.folder).keys()
    assert all(0.1 < cost.guest_cpu_s < 2 * cost.elapsed_s for cost in costs.values())
    assert guests_of(small.folder) == []


def test_an_archive_repeats_to_the_last_digit(small: EndedSession, tmp_path: Path) -> None:
    folder, archive = tmp_path / "session", tmp_path / "session.tar.gz"
    # Others read it, too.
    shutil.copytree(small.folder, folder)
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
    assert "not reproduced: 1 of 5 runs differ" in compared.stdout
    assert f"{record.run_id}: 4k.bw " in compared.stdout


@pytest.mark.usefixtures("kept_runs")
def test_the_same_code_measured_anyway_changes_by_exactly_nothing(
    kernels: dict[str, Kernel], tmp_path: Path
) -> None:
    folder = tmp_path / "session"
    sized = ("--set", "guest=smoke", "--set", "blocks=1", "--measure-anyway")
    done = measured(folder, "noop", *sized, verb="measure")
    assert done.status == 0, done.err
    records = records_of(folder)
    base, patched = (records[f"filemap-4k.b00.{arm}"] for arm in ARMS)
    # Two builds, two build ids, the same numbers.
    assert base.kernel_key != patched.kernel_key
    assert base.samples is not None
    assert base.samples == patched.samples
    comparison = read_comparison(folder).comparisons[0]
    changes = [
        metric.judgement.change.estimate
        for case in comparison.cases
        for metric in case.metrics
        if metric.judgement.change
    ]
    assert len(changes) >= 6
    assert set(changes) == {0.0}
    attributions = comparison.attributions
    assert [each.unit for each in attributions] == ["work", "io", "folio", "fault"]
    for attribution in attributions:
        assert attribution.identical
        assert len(attribution.functions) > 500
        assert {row.instructions.difference for row in attribution.functions} == {0.0}
    # Ratios stand with the first unit.
    assert [row.calls.difference for each in attributions for row in each.ratios] == [0.0]
