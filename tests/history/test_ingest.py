"""From a session to its entry."""

from pathlib import Path

import pytest

from analysis.many import compare_session
from analysis.operations import per_operation
from analysis.verdict import Verdict
from errors import RecordError
from experiment.arms import ArmSpec
from experiment.spec import CheckSpec
from history import wording
from history.changes import gaps_of
from history.entry import PINNED, Entry
from history.exact import moved_settings
from history.gate import of_session
from history.ingest import commit_of, entry_of, read_session
from history.pages.tracks import Track
from history.policy import Policy
from host.facts import CHECKOUT
from reports.sentences import changed_per_unit, title
from results.record import Manifest, RunRecord
from results.session import open_session
from tests.analysis import counts_factory
from tests.analysis.factory import ExactSession, fails, stored
from tests.analysis.measured import measured
from tests.analysis.test_gate import SLEEPS, checked
from tests.analysis.wall_factory import WallSession
from tests.history.factory import Nights
from tests.values import but, data
from tests.waiting import completed


def entry_of_session(session: ExactSession, **of_entry: str) -> Entry:
    return entry_of(measured(session.manifest(), session.records()), **of_entry)


def test_an_entry_has_what_the_session_measured_and_concluded() -> None:
    session = ExactSession()
    entry = entry_of_session(session)
    assert entry.night == "2026-01-01"
    assert entry.track == ("filemap-v4", "laptop", "exact")
    compared = session.compared()
    for case in compared.cases:
        kept = entry.case(case.name)
        assert kept is not None
        for metric in case.metrics:
            base, patched = kept.arms
            assert base.metrics[metric.name].summary == metric.base
            assert patched.metrics[metric.name].summary == metric.patched
            assert patched.metrics[metric.name].values == tuple(p.patched for p in metric.pairs)
        conclusions = {conclusion.metric: conclusion for conclusion in kept.conclusions}
        assert {m.name: m.judgement.verdict for m in case.primary} == {
            name: conclusion.verdict for name, conclusion in conclusions.items()
        }
    assert entry.cases[0].conclusions[0].verdict is Verdict.IMPROVEMENT


@pytest.mark.parametrize(("record", "of"), [("regression", "I/O"), ("brk", "operation")])
def test_instructions_are_shown_as_the_report_of_the_session_has_them(
    record: str, of: str, tmp_path: Path
) -> None:
    packed = CHECKOUT / f"configs/gallery/{record}.tar.xz"
    completed(["tar", "-xJf", packed, "-C", tmp_path])
    session = open_session(tmp_path / record, counted=False)
    # Its thousands of functions take seconds, and none of them is asked for.
    profiles = (
        but(run, phases=tuple(but(phase, kernel=phase.kernel[:9]) for phase in run.phases))
        for run in session.profiles
    )
    session = but(session, profiles=tuple(profiles))
    entry, reported = entry_of(session), per_operation(compare_session(session))
    assert entry.title == title(session.manifest)
    track = Track((entry,), ())
    shown = {
        (trend.course.case, chart.metric): trend
        for chart in track.charts
        for trend in chart.trends
        if trend.course.arm == entry.arms[0].name
    }
    paths = [m for m in reported.comparisons[0].primary if m.name.endswith(".instructions")]
    assert paths
    for metric in paths:
        trend = shown[metric.case, metric.name]
        assert metric.base
        assert trend.points[-1].value == pytest.approx(metric.base.mean)
        assert trend.unit == f"instructions per {of}"


def test_an_entry_says_by_how_many_seeds_and_which_rule_it_was_judged() -> None:
    session = ExactSession(seeds=tuple(range(1, 13)))
    manifest = session.manifest()
    adding = but(manifest.experiment, blocks=8, max_seeds=32)
    added = entry_of(measured(but(manifest, experiment=adding), session.records()))
    assert added.looks == (8, 10, 12)
    assert len(added.cases[0].seeds) == 12
    fixed = entry_of_session(session)
    assert fixed.looks == ()
    assert added.method != fixed.method


def test_a_night_that_needed_fewer_seeds_lost_none() -> None:
    """Nights are compared on the seeds of the first look, whatever a night added to them."""
    (many,), (few,) = (Nights((0.0,), seeds=seeds).entries() for seeds in (12, 8))
    few = but(few, night="2026-03-01", created="2026-03-01T02:00:00Z")
    assert [gap.kind for gap in gaps_of([many, few])] == ["seeds"]
    added = [but(many, looks=(8, 10, 12)), but(few, looks=(8,))]
    assert gaps_of(added) == ()


def test_repeats_and_twins_are_no_values() -> None:
    session = ExactSession()
    manifest = counts_factory.with_twins(counts_factory.counted(session.manifest()))
    twins, profiles, _ = counts_factory.twin_runs(manifest)
    entry = entry_of(measured(manifest, session.records() + twins, profiles))
    plain = entry_of(measured(manifest, session.records()))
    assert entry.cases == plain.cases


def test_a_failed_run_leaves_a_hole_at_its_seed() -> None:
    session = ExactSession()
    records = fails(session.records(), "filemap-4k-002-base", message="one\nline")
    entry = entry_of(measured(session.manifest(), records))
    arm = entry.cases[0].arm("base")
    assert arm is not None
    assert arm.metrics["4k.bw"].values[2] is None
    assert arm.metrics["4k.bw"].values[1] is not None
    assert (arm.runs, arm.failed) == (8, 1)
    assert arm.failures[0].startswith("invalid (blame: workload): one")


def test_an_entry_has_which_functions_changed_in_the_words_of_the_report() -> None:
    made = counts_factory.measured_with_counts()
    entry = entry_of(made)
    (compared,) = per_operation(compare_session(made)).comparisons
    kept = {(case.name, each.phase): each for case in entry.cases for each in case.functions}
    assert {key: wording.of_session(each) for key, each in kept.items()} == {
        (each.case, each.phase): changed_per_unit(each) for each in compared.headlines
    }
    four, head = kept["filemap-4k", "4k"], compared.headlines[0]
    assert (four.arm, four.against, four.tested, four.count) == ("patched", "base", 64, 7)
    assert [function.name for function in four.largest] == [
        function.name for function in head.changed
    ]
    assert four.largest[0].difference == pytest.approx(head.changed[0].instructions.difference)
    assert four.largest[0].calls_patched == pytest.approx(head.changed[0].calls.patched)
    assert four.size == pytest.approx(head.changed[0].size / head.total.base)
    assert [function.name for function in four.differences] == [
        function.name for function in head.changed
    ]
    first, pair = four.differences[0], head.changed[0].instructions
    assert (first.size, first.difference) == (four.size, four.largest[0].difference)
    assert pair.low is not None
    assert pair.high is not None
    assert first.half == pytest.approx((pair.high - pair.low) / 2 / head.total.base)
    assert len(kept) == 3


def test_of_a_broken_arm_no_functions_are_news() -> None:
    session = ExactSession()
    manifest = counts_factory.counted(session.manifest())
    manifest = but(manifest, experiment=but(manifest.experiment, check=CheckSpec()))
    entries, gates = [], []
    for problems in ((), (SLEEPS,)):
        checks = [checked("base"), checked("patched", *problems)]
        profiles = counts_factory.profiles(session)
        made = measured(manifest, session.records(), profiles, checks=checks)
        entries.append(entry_of(made))
        gates.append(of_session(compare_session(made), Policy()))
    sound, broken = entries
    assert all(case.functions for case in sound.cases)
    assert not any(case.functions for case in broken.cases)
    titles = [{m.title.partition(":")[0] for m in gate.messages} for gate in gates]
    assert "functions" in titles[0]
    assert titles[1] == {"broken"}


def test_the_pinned_arm_gives_the_lab_its_compiler_and_configuration() -> None:
    manifest = _named(ExactSession(), PINNED, "tonight")
    records = _renamed(ExactSession().records(), {"base": PINNED, "patched": "tonight"})
    entry = entry_of(measured(manifest, records))
    assert [arm.role for arm in entry.arms] == ["pinned", "followed"]
    assert entry.subject.name == "tonight"
    assert "config" in entry.setting
    assert PINNED in entry.setting
    assert "config" not in entry_of_session(ExactSession()).setting


def test_a_wall_session_is_none_of_a_history() -> None:
    session = WallSession(effect=-0.03)
    with pytest.raises(RecordError, match=r"lab\.py gate"):
        entry_of(measured(session.manifest(), session.records()))


def test_the_id_is_of_what_was_measured_not_of_the_numbers() -> None:
    entry, other = entry_of_session(ExactSession()), entry_of_session(ExactSession(spread=0.01))
    assert entry.id == other.id
    assert entry_of_session(ExactSession(), night="2026-01-02").id != entry.id


def test_a_session_without_runs_is_no_night() -> None:
    with pytest.raises(RecordError, match="--resume"):
        entry_of(measured(ExactSession().manifest(), []))


def test_from_a_folder(tmp_path: Path) -> None:
    session = ExactSession()
    store = stored(tmp_path / "session", session)
    entry = read_session(store.folder, link="https://example.org/report")
    assert entry.link == "https://example.org/report"
    assert entry == entry_of_session(session, link=entry.link)
    store = stored(tmp_path / "other", session, created="99999-01-01")
    with pytest.raises(RecordError, match=r"night: .*is no date"):
        read_session(store.folder)


@pytest.mark.parametrize(
    ("source", "commit"), data(__file__, "a_commit_is_known_where_it_was_given")
)
def test_a_commit_is_known_where_it_was_given(source: str, commit: str) -> None:
    assert commit_of(source) == commit


def _named(session: ExactSession, *names: str) -> Manifest:
    manifest = session.manifest()
    arms = tuple(but(a, name=n) for a, n in zip(manifest.arms, names, strict=True))
    experiment = but(
        manifest.experiment, series=None, arms=tuple(ArmSpec(name=name) for name in names)
    )
    return but(manifest, arms=arms, experiment=experiment)


def _renamed(records: list[RunRecord], names: dict[str, str]) -> list[RunRecord]:
    return [but(record, arm=names[record.arm]) for record in records]


def of_libc(libc: str) -> Entry:
    manifest = ExactSession().manifest()
    tools = manifest.provenance.tools | ({"libc": libc} if libc else {})
    provenance = but(manifest.provenance, tools=tools)
    manifest = but(manifest, provenance=provenance)
    return entry_of(measured(manifest, ExactSession().records()))


def test_another_libc_is_another_environment() -> None:
    assert moved_settings(of_libc("2.36"), of_libc("2.41")) == ("libc: 2.36 -> 2.41",)
    assert moved_settings(of_libc("2.36"), of_libc("2.36")) == ()
