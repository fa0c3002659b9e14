"""What is judged is an index; what is read is instructions per read, by the same changes."""

import pytest

from analysis.many import SessionComparison, compare_session
from analysis.model import Comparison
from analysis.operations import operations, per_operation
from reports import sessions
from reports.headline import standing_verdicts
from results.record import CaseRecord, Manifest, Metric, RunRecord, UnitRecord
from results.units import read_name, recorded_name
from tests.analysis import counts_factory
from tests.analysis.factory import ExactSession
from tests.analysis.measured import measured, render
from tests.values import but

WORK = UnitRecord(name="work", title="1,000 ns of work")


def _case(case: CaseRecord) -> CaseRecord:
    """With the index of the phase 4k as what is judged, and counts per the same work."""
    if case.name != "filemap-4k":
        return case
    metrics = [
        Metric(name=f"4k.{name}", title=name, unit="ns", direction="lower")
        for name in ("path", "work")
    ]
    phases = tuple(but(each, units=(WORK, *each.units)) for each in case.phases)
    primary = ("4k.path", "4k.work")
    update = {"metrics": (*case.metrics, *metrics), "phases": phases, "primary": primary}
    return but(case, **update)


def _run(record: RunRecord) -> RunRecord:
    samples = record.samples or {}
    if "4k.bw" not in samples:
        return record
    work = 14000.0 + 10 * record.block
    own = {"4k.path": 250000.0 / samples["4k.bw"], "4k.work": work}
    return but(record, samples={**samples, **own})


@pytest.fixture(scope="module")
def session() -> SessionComparison:
    made = ExactSession()
    manifest = counts_factory.counted(made.manifest())
    manifest = but(manifest, cases=tuple(map(_case, manifest.cases)))
    profiles = []
    for each in counts_factory.profiles(made):
        worked = (
            but(phase, units={**phase.units, "work": 16 * phase.units["io"]})
            for phase in each.phases
        )
        profiles.append(but(each, phases=tuple(worked)))
    return compare_session(measured(manifest, map(_run, made.records()), profiles))


def _pair(session: SessionComparison) -> Comparison:
    (pair,) = session.comparisons
    return pair


def test_an_index_is_read_as_instructions_of_one_read_of_base(session: SessionComparison) -> None:
    index, work = _pair(session).cases[0].primary
    read, same = _pair(per_operation(session)).cases[0].primary
    assert (index.name, read.name) == ("4k.path", "4k.instructions")
    assert read.unit == "instructions per read"
    assert index.base
    assert read.base
    assert read.patched
    assert work.base
    assert read.base.mean == pytest.approx(index.base.mean * work.base.mean / 1000)
    # At equal work: patched is base and the change, to the last digit that is shown.
    assert read.judgement == index.judgement
    assert read.judgement.change
    assert read.patched.mean == pytest.approx(read.base.mean * (1 + read.judgement.change.estimate))
    assert [pair.change for pair in read.pairs] == [pair.change for pair in index.pairs]
    assert (same.name, same.base) == ("4k.work", work.base)
    (row,) = [row for row in per_operation(session).rows if row.name == "4k.instructions"]
    assert row.base.summary
    assert row.base.summary.mean == pytest.approx(read.base.mean)


def test_what_was_counted_has_the_same_denominator(session: SessionComparison) -> None:
    before, after = _pair(session).headlines[0], _pair(per_operation(session)).headlines[0]
    factor = operations(session)["filemap-4k", "4k"].factor
    assert (before.unit_title, after.unit_title) == ("1,000 ns of work", "read")
    assert after.total.base == pytest.approx(factor * before.total.base)
    assert after.total.change == pytest.approx(before.total.change)
    pairs = list(zip(before.functions, after.functions, strict=True))
    assert all(
        new.instructions.difference == pytest.approx(factor * old.instructions.difference)
        for old, new in pairs
    )
    # Folios are folios, and one read is not counted twice.
    assert after.ratios == before.ratios
    units = [each.unit for each in _pair(per_operation(session)).attributions if each.phase == "4k"]
    assert "io" not in units
    assert "folio" in units


def test_forms_have_one_denominator_and_tables_what_is_on_record(
    session: SessionComparison,
) -> None:
    for form in ("text", "markdown", "html", "letter", "summary", "lkp", "mmtests"):
        rendered = render(session, form)
        assert "4k.path" not in rendered, form
        assert "ns of work:" not in rendered, form
        assert "emulation" in rendered, form
    assert '"4k.path"' in render(session, "json")
    assert "4k.path" not in sessions.line(session)
    assert set(standing_verdicts(session)["filemap-4k"]) == {"4k.instructions", "4k.work"}
    text = " ".join(render(session, "text").split())
    # What is on record can be compared to the last digit.
    index = _pair(session).cases[0].primary[0]
    assert index.base
    assert f"(index {index.base.mean:.3f} -> " in text


def test_thresholds_follow_the_name(session: SessionComparison) -> None:
    manifest: Manifest = session.manifest
    own = but(manifest.experiment.thresholds, metrics={"filemap-4k/4k.path": 0.02})
    experiment = but(manifest.experiment, thresholds=own)
    update = {"manifest": but(manifest, experiment=experiment)}
    shown = per_operation(but(session, **update)).manifest.experiment.thresholds
    assert shown.own("filemap-4k", "4k.instructions") == 0.02


@pytest.mark.parametrize(
    ("recorded", "read"), [("4k.path", "4k.instructions"), ("4k.work", "4k.work"), ("path", "path")]
)
def test_a_name_is_read_and_recorded(recorded: str, read: str) -> None:
    assert read_name(recorded) == read
    assert recorded_name(read) == recorded
    assert recorded_name(recorded) == recorded
