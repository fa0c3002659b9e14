from dataclasses import replace

import pytest

from analysis.many import compare_session
from reports import forms
from reports.document import plain
from reports.sections import View
from reports.sections.answer import beside, earlier
from reports.sections.subject import PATH_AND_WORK, path_and_work
from results.record import Metric, RunCost
from tests.analysis.factory import ExactSession
from tests.analysis.many_factory import steps
from tests.analysis.measured import measured, whole
from tests.values import but


@pytest.mark.parametrize(
    ("primary", "shown"),
    [
        (("4k.refaults_per_io", "thp.bw"), ["4k.bw"]),
        (
            ("4k.refaults_per_io", "switch.refaults_per_io"),
            ["filemap-4k 4k.bw", "filemap-thp switch.bw"],
        ),
        (("4k.bw", "thp.bw"), []),
    ],
)
def test_bandwidth_stands_beside_phases_that_are_judged_by_something_else(
    primary: tuple[str, ...], shown: list[str]
) -> None:
    session = ExactSession()
    manifest = session.manifest()
    cases = tuple(
        but(
            case,
            primary=tuple(
                name for name in primary if name in {metric.name for metric in case.metrics}
            ),
        )
        for case in manifest.cases
    )
    comparison = session.compared(cases=cases)
    lines = list(beside(View(whole(comparison)), comparison))
    assert len(lines) == bool(shown)
    for name, words in lines:
        assert name == "Not judged"
        text = plain(words).replace("virtual_", "")
        assert all(name in text for name in shown)
        assert text.count(".bw ") == len(shown)
        assert "published" in text


@pytest.mark.parametrize(("more_ms", "shown"), [(20.0, True), (-8.0, True), (3.9, False)])
def test_work_that_moved_before_a_phase_is_shown(more_ms: float, shown: bool) -> None:
    """More than a period of the guest's timer: by that much a set-up that waits for it differs."""
    session = ExactSession()
    manifest = session.manifest()
    before = Metric(name="4k.before", title="4k: before", unit="ms", direction="lower")
    case = but(manifest.cases[0], metrics=(*manifest.cases[0].metrics, before))
    records = [
        but(record, samples={**(record.samples or {}), "4k.before": at})
        for record in session.records()
        for at in [1060.0 + record.block + more_ms * (record.arm == "patched")]
    ]
    comparison = session.compared(records, cases=(case, *manifest.cases[1:]))
    (waited,) = (each for each in comparison.cases[0].metrics if each.name == before.name)
    assert waited.judgement.differs == shown
    lines = list(earlier(View(whole(comparison)), comparison))
    assert len(lines) == shown
    for name, words in lines:
        assert name == "Before"
        assert f"1,063.5 -> {1063.5 + more_ms:,.1f} ms" in plain(words)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("4k.instructions", "4k.work"), PATH_AND_WORK),
        (("4k.bw", "4k.work"), PATH_AND_WORK),
        (("4k.bw", "path.bw"), ""),
        (("getppid.instructions",), ""),
        ((), ""),
    ],
)
def test_path_and_work_are_explained_where_they_are_judged(
    names: tuple[str, ...], expected: str
) -> None:
    pair = ExactSession().compared()
    case, made = pair.cases[0], pair.primary[0]
    metrics = tuple(but(made, name=each, phase=each.partition(".")[0]) for each in names)
    assert path_and_work(but(pair, cases=(but(case, metrics=metrics),))) == expected


def test_many_arms_say_in_the_answer_of_which_runs_were_kept() -> None:
    many = steps()
    records = many.records()
    costs = tuple(
        RunCost(
            run_id=each.run_id,
            elapsed_s=1.0,
            guest_cpu_s=1.0,
            host="here",
            kept_at="2026-11-24" * (each.arm != many.manifest().arms[-1].name),
        )
        for each in records
    )
    session = replace(measured(many.manifest(), records), costs=costs)
    shown = " ".join(" ".join(forms.answer_lines(compare_session(session))).split())
    assert "Kept 0: 17 of 17 runs reused from 2026-11-24, host here; 1: 16 of 16 runs" in shown
    assert f"{many.manifest().arms[-1].name}: measured" in shown
