"""What was known of a series and its builds before anything was booted reaches the report."""

from __future__ import annotations

import pytest

from analysis.model import Comparison
from reports import forms
from reports.sentences import of_finding
from results.record import FunctionRecord, PatchRecord, SeriesRecord, TriageRecord
from tests.analysis.counts_factory import counted, profiles
from tests.analysis.factory import ExactSession
from tests.analysis.measured import compare

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
    session = ExactSession()
    manifest = session.manifest().model_copy(update={"series": (SERIES,), "triage": TRIAGE})
    return compare(manifest, session.records())


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


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_every_form_says_them(with_findings: Comparison, form: str) -> None:
    rendered = " ".join(forms.render(with_findings, form).split())
    assert "only 2 functions changed" in rendered
    assert "mm/Makefile (a makefile)" in rendered
    assert "<b>one</b>" not in rendered or form == "text"


@pytest.mark.parametrize(
    ("names", "level", "text"),
    [
        (
            ("xas_load", "xa_get_order.constprop.0", "vmscan_only"),
            "note",
            "executed: 2 of 3 changed functions: xas_load in 4k, thp, switch; "
            "xa_get_order.constprop.0 in 4k, thp, switch; not executed: vmscan_only",
        ),
        (("xas_load",), "note", "executed: 1 of 1 changed functions: xas_load in 4k, thp, switch"),
        (
            ("f1", "f2", "f3", "f4", "f5", "f6"),
            "warning",
            "none of the changed functions was executed (f1, f2, f3, f4, f5 and 1 more): these "
            "workloads cannot show an effect of the series; choose others",
        ),
    ],
)
def test_which_changed_functions_were_executed(
    names: tuple[str, ...], level: str, text: str
) -> None:
    session = ExactSession()
    triage = TriageRecord(
        verdict="functions",
        functions=tuple(FunctionRecord(name=name, before=1, after=2) for name in names),
    )
    manifest = counted(session.manifest()).model_copy(update={"triage": triage})
    findings = compare(manifest, session.records(), profiles(session)).findings
    assert [(f.level, of_finding(f)) for f in findings if "xecuted" in of_finding(f)] == [
        (level, text)
    ]
    # Where nothing was counted nothing is known of it.
    without = compare(manifest, session.records()).findings
    assert not [of_finding(f) for f in without if "xecuted" in of_finding(f)]


def test_the_letter_names_what_a_build_executes(with_findings: Comparison) -> None:
    letter = " ".join(forms.render(with_findings, "letter").split())
    assert f"The series {EXECUTED}." in letter
