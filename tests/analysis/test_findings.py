"""Facts that weaken trust."""

import pytest

from analysis import findings
from analysis.model import Comparison
from reports import headline as outcome
from reports.sentences import of_finding
from results.record import (
    FunctionRecord,
    PatchRecord,
    RunCost,
    RunRecord,
    SeriesRecord,
    TriageRecord,
)
from tests.analysis.counts_factory import counted, profiles
from tests.analysis.factory import ExactSession, fails, repeat_of
from tests.analysis.measured import compare, render, whole
from tests.values import but, data


def texts(session: ExactSession, records: list[RunRecord]) -> list[tuple[str, str]]:
    return [(f.scope, of_finding(f)) for f in session.compared(records).findings]


def test_seeds_that_change_nothing_are_named() -> None:
    session = ExactSession()
    records = session.records()
    first = next(r for r in records if r.run_id == "filemap-4k-000-base")
    spoilt = [
        but(r, samples=first.samples) if r.run_id == "filemap-4k-001-base" else r for r in records
    ]
    notes = findings.seeds_without_effect(session.manifest(), spoilt)
    assert [f.scope for f in notes] == ["filemap-4k"]
    assert "(1001, 1002)" in of_finding(notes[0])
    assert findings.seeds_without_effect(session.manifest(), records) == []


def test_failed_runs_are_counted_by_arm() -> None:
    session = ExactSession()
    records = [
        but(r, findings=("memory.high events",)) if r.case == "filemap-thp" else r
        for r in fails(session.records(), "filemap-4k-002-patched", "filemap-4k-003-patched")
    ]
    assert ("filemap-thp", "memory.high events (16 runs)") in texts(session, records)
    expected = "failed runs: base 0 of 8, patched 2 of 8; their seeds are excluded on all arms"
    assert ("filemap-4k", expected) in texts(session, records)


def test_a_session_whose_repeats_are_pending_says_so_and_passes_nowhere() -> None:
    session = ExactSession()
    records = [r for r in session.records() if not r.repeat]
    exactness = findings.check_exactness(records)
    assert (exactness.status, exactness.text) == ("pending", "no run was repeated yet")
    comparison = session.compared(records)
    assert outcome.pending(whole(comparison))
    assert not outcome.pending(whole(session.compared()))
    notes = comparison.findings
    assert notes[0].level == "warning"
    assert "no run was repeated" in of_finding(notes[0])


FIRST = ExactSession().records()[0]
SAMPLES = FIRST.samples or {}
UNNAMED = but(FIRST, fingerprint="")
# Path and work are the probe's, and repeats have none.
PROBED = but(FIRST, samples=SAMPLES | {"4k.path": 1000.0})
OTHER_BYTES = repeat_of(FIRST, fingerprint="other")
MOVED = but(OTHER_BYTES, samples=SAMPLES | {"4k.bw": SAMPLES["4k.bw"] + 1})


def lost(kind: str, blame: str) -> RunRecord:
    return fails([repeat_of(FIRST)], f"{FIRST.run_id}-repeat", kind=kind, blame=blame)[0]


@pytest.mark.parametrize(
    ("first", "repeat", "status", "fields", "text"),
    [
        (FIRST, OTHER_BYTES, "inexact", [], "the metrics agree, the raw bytes differ"),
        # Two empty fingerprints prove nothing.
        (UNNAMED, repeat_of(UNNAMED), "inexact", [], "the raw bytes differ"),
        (PROBED, OTHER_BYTES, "inexact", [], "the raw bytes differ"),
        (PROBED, MOVED, "inexact", ["4k.bw"], "1 metrics differ"),
        # What was found when it was made is kept, and what failed by itself says nothing.
        (FIRST, lost("inexact", "lab"), "inexact", ["file_thp 54.5 MiB"], "THP was on"),
        (FIRST, lost("lost", "host"), "not checked", [], "cannot be compared"),
    ],
)
def test_a_repeat_is_the_same_to_the_last_bit_or_says_why_not(
    first: RunRecord, repeat: RunRecord, status: str, fields: list[str], text: str
) -> None:
    exactness = findings.check_exactness([first, repeat])
    assert exactness.status == status
    assert [field.partition(":")[0] for field in exactness.fields] == fields
    assert text in exactness.text


def test_warnings_come_first() -> None:
    session = ExactSession()
    records = fails(session.records(), "filemap-4k-002-patched")
    levels = [f.level for f in session.compared(records).findings]
    assert levels == sorted(levels, key=lambda level: level != "warning")
    assert set(levels) == {"warning", "note"}


def test_same_code_with_different_numbers_is_a_contradiction() -> None:
    session = ExactSession(same_code=True)
    lines = [text for _, text in texts(session, session.records())]
    assert any("16 of 16 seeds differ" in text for text in lines)


def test_a_qemu_of_which_nothing_is_known_is_a_finding() -> None:
    session = ExactSession()
    assert not [f for f in session.compared().findings if "QEMU" in of_finding(f)]
    sentence = "QEMU 8.2.2, binary abababababab: this release was never tried, here or elsewhere"
    untried = but(session.manifest().provenance, qemu_untried=sentence)
    notes = [f for f in session.compared(provenance=untried).findings if "QEMU" in of_finding(f)]
    assert [(f.level, f.scope) for f in notes] == [("warning", "session")]
    assert of_finding(notes[0]).startswith(sentence)


def test_kept_runs_of_each_arm_with_days_and_hosts() -> None:
    session = ExactSession()
    records = session.records()
    made = [RunCost(run_id=r.run_id, elapsed_s=1.0, guest_cpu_s=1.0, host="here") for r in records]
    base = {r.run_id for r in records if r.arm == "base" and r.block}
    costs = [but(cost, kept_at="2026-11-24" * (cost.run_id in base)) for cost in made]
    (finding,) = findings.kept_runs(session.manifest(), records, costs)
    words = of_finding(finding)
    assert words == "base: 14 of 17 runs reused from 2026-11-24, host here; patched: measured"
    assert findings.kept_runs(session.manifest(), records, made) == []


SERIES = SeriesRecord(
    kind="thread",
    origin="mid:1@x",
    title="mm: <b>one</b> walk",
    author="A <a@example.org>",
    message_id="1@x",
    version=2,
    patches=(PatchRecord(name="0001.patch", subject="s", sha256="0", files=("mm/filemap.c",)),),
    findings=("patch 2 is missing",),
    host_code=("mm/Makefile (a makefile)",),
)
EXECUTED = "changes what a build executes on its host: mm/Makefile (a makefile)"
TRIAGE = TriageRecord(
    verdict="functions",
    functions=(
        FunctionRecord(name="xas_load", before=100, after=120),
        FunctionRecord(name="fresh", before=None, after=16),
    ),
    findings=("fs/btrfs/file.c is not built",),
    warnings=("mm/filemap.c:7: unused variable",),
)


@pytest.fixture
def with_findings() -> Comparison:
    return ExactSession().compared(series=(SERIES,), triage=TRIAGE)


def test_findings_of_series_and_builds_are_the_reports(with_findings: Comparison) -> None:
    findings = {(f.level, f.scope, of_finding(f)) for f in with_findings.findings}
    assert {
        ("warning", "series", "patch 2 is missing"),
        ("warning", "series", EXECUTED),
        ("warning", "build", "fs/btrfs/file.c is not built"),
        ("warning", "build", "new in the patched arm: mm/filemap.c:7: unused variable"),
        (
            "note",
            "build",
            "only 2 functions changed: xas_load (100 to 120 bytes), fresh (new, 16 bytes)",
        ),
    } <= findings
    [origin] = [
        of_finding(f) for f in with_findings.findings if f.level == "note" and f.scope == "series"
    ]
    assert "v2, by A <a@example.org>, message-id 1@x" in origin


def test_a_letter_names_what_a_build_of_the_series_executes(with_findings: Comparison) -> None:
    letter = " ".join(render(with_findings, "letter").split())
    assert f"The series {EXECUTED}." in letter
    assert "only 2 functions changed" not in letter


@pytest.mark.parametrize(
    ("names", "level", "text"), data(__file__, "which_changed_functions_were_executed")
)
def test_which_changed_functions_were_executed(
    names: tuple[str, ...], level: str, text: str
) -> None:
    session = ExactSession()
    triage = TriageRecord(
        verdict="functions",
        functions=tuple(FunctionRecord(name=name, before=1, after=2) for name in names),
    )
    manifest = but(counted(session.manifest()), triage=triage)
    findings = compare(manifest, session.records(), profiles(session)).findings
    assert [(f.level, of_finding(f)) for f in findings if "xecuted" in of_finding(f)] == [
        (level, text)
    ]
    # Where nothing was counted nothing is known of it.
    without = compare(manifest, session.records()).findings
    assert not [of_finding(f) for f in without if "xecuted" in of_finding(f)]
