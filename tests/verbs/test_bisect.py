"""What the command line asks for, and what it is told."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from errors import SpecError, UsageError
from reports.sentences import changed_per_unit
from results.record import FunctionRecord, TriageRecord
from results.store import SessionStore
from runs.bisect import BisectStep, Result, Search
from runs.request import Request
from tests.analysis import counts_factory, factory
from tests.analysis.measured import measured
from tests.conftest import Terminal
from tests.kernels.conftest import lab as a_lab
from tests.kernels.fake import Lab, git
from tests.kernels.test_git_range import merged
from tests.values import but, data
from verbs.bisect import _resolved, _search, _shown, _untested, as_text
from verbs.invocation import resolved_of

# The small kernel tree of the tests beside these.
lab = a_lab


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINBOOT_CACHE", str(tmp_path / "cache-of-verbs"))


def searched(request: Request, metric: str = "4k.bw", case: str = "", **more: Any) -> Search:
    return _search(
        resolved_of(request), (), metric, case, more.pop("threshold", 0.005), None, request
    )


def test_a_shipped_series_is_searched_by_the_one_metric() -> None:
    search = searched(Request(name="filemap-v4", overrides=("guest=smoke",)))
    assert search.experiment.cases[0].name == "filemap-4k"
    assert search.experiment.cases[0].primary == ("4k.bw",)
    assert search.experiment.twins == ()
    # A name that is read in a report is as good as that on record.
    assert searched(Request(name="filemap-v4"), "4k.instructions").metric == "4k.path"
    # The threshold decides how many seeds.
    assert search.experiment.blocks == 4
    assert search.experiment.thresholds.change == 0.005
    assert [point.name for point in search.points] == ["base", "patch-1", "patch-2", "patch-3"]
    assert searched(Request(name="filemap-v4"), threshold=0.01).experiment.blocks == 1


@pytest.mark.parametrize(
    ("overrides", "metric", "case", "message"), data(__file__, "what_cannot_be_searched_is_refused")
)
def test_what_cannot_be_searched_is_refused(
    overrides: tuple[str, ...], metric: str, case: str, message: str
) -> None:
    with pytest.raises(SpecError) as caught:
        searched(Request(name="filemap-v4", overrides=overrides), metric, case)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["", "filemap-v4"])
def test_a_range_with_a_merge_has_a_point_for_each_commit(lab: Lab, name: str) -> None:
    folder = merged(lab)
    request = Request(
        name=name, twins=False, source=f"git:{folder}", workloads="" if name else "filemap-4k"
    )
    with ExitStack() as stack:
        made, commits = _resolved(request, "base..topic", stack)
        search = _search(made, commits, "4k.bw", "", 0.005, None, request)
    experiment = made.experiment
    assert experiment.kernel.source == f"git:{folder}@{git(folder, 'rev-parse', 'base')}"
    assert experiment.series
    assert not experiment.series.reverse
    short = [git(folder, "rev-parse", commit)[:12] for commit in ("topic~3", "topic~2", "topic")]
    assert [point.label for point in search.points] == [
        "without the series",
        f"1: {short[0]} mm: commit 0",
        f"2: {short[1]} merge the side",
        f"3: {short[2]} init: é last",
    ]


@pytest.mark.parametrize(
    ("source", "series"), [("", ()), ("deb:x", ()), ("git:x@HEAD", ()), ("git:x", ("y",))]
)
def test_a_range_is_one_of_a_repository(source: str, series: tuple[str, ...]) -> None:
    request = Request(series=series, source=source)
    with ExitStack() as stack, pytest.raises(UsageError, match="needs --source git:PATH"):
        _resolved(request, "a..b", stack)


def shown(
    kind: Any,
    *steps: BisectStep,
    old: int = 0,
    new: int = 3,
    finding: str = "",
    metric: str = "4k.bw",
) -> str:
    search = searched(Request(name="filemap-v4"), metric)
    return as_text(Result(kind, search, -0.017, old, new, steps, finding), None)


def test_the_outcome_is_shown_with_what_led_to_it() -> None:
    step = BisectStep(point=1, label="1: mm: one", state="old", change=0.001, how="measured")
    skipped = BisectStep(
        point=2, label="2: mm: two", state="skip", change=None, how="does not build"
    )
    summary = shown("found", step, old=2, new=3, finding="a note")
    assert "old    +0.10 %  1: mm: one (measured)" in summary
    assert "with patch 3: undoes" in summary
    assert "note: a note" in summary
    summary = shown("range", step, skipped, old=1, new=3)
    assert "one of these 2 patches" in summary
    assert summary.endswith("\n  2: mm: two: does not build")
    assert "all 3 patches together change 4k.bw by -1.70 %" in shown("nothing")
    # By the name that people read, of what is recorded as 4k.path.
    for kind in ("found", "range", "nothing"):
        counted = shown(kind, metric="4k.instructions")
        assert counted.count("4k.instructions") == 2
        assert "4k.path" not in counted


def test_a_step_of_which_nothing_ran_is_no_good_one() -> None:
    """Three patches, of which the first changes what no guest executes."""
    search = searched(Request(name="filemap-v4"))
    step = BisectStep(point=1, label=search.points[1].label, state="old", change=0, how="measured")
    last = BisectStep(point=3, label=search.points[3].label, state="old", change=0, how="measured")
    result = Result("nothing", search, 0.0, 0, 3, (step, last))
    session = factory.ExactSession()
    case = search.experiment.cases[0].name
    base, patched = session.manifest().arms
    differing = TriageRecord(
        verdict="functions", functions=(FunctionRecord(name="vmalloc", before=8, after=16),)
    )
    names = {point: search.points[point].name for point in (0, 1, 3)}
    arms = [but(patched, name=name, triage=differing) for name in names.values()]
    arms[0] = but(base, name=names[0])
    runs = [r for r in session.records() if r.case == case and not r.repeat]
    counts = {p.run_id: p for p in counts_factory.profiles(session)}
    records, counted = [], []
    for run in runs:
        for point, name in names.items():
            if (run.arm == "base") == (point == 0):
                own = but(run, arm=name, run_id=f"{run.run_id}-{point}")
                records.append(own)
                counted.append(but(counts[run.run_id], run_id=own.run_id))
    head = but(session.manifest(), arms=tuple(arms))
    untested = _untested(result, measured(head, records, counted))
    assert set(untested) == {1, 3}
    summary = as_text(result, None, untested)
    assert "(measured; not tested: none of the changed functions ran (vmalloc))" in summary
    assert summary.endswith(
        "not tested: none of the changed functions ran (vmalloc); workloads that run them: "
        "./lab.py suggest configs/series/filemap-walks"
    )


@pytest.mark.parametrize("words", data(__file__, "wrong_words_are_a_usage_error"))
def test_wrong_words_are_a_usage_error(main: Terminal, words: list[str]) -> None:
    assert main(*words) == 2
    assert "error: " in main.err


def test_a_plan_patch_by_patch(main: Terminal) -> None:
    assert main("plan", "filemap-v4", "--per-patch", "--set", "blocks=1") == 0
    assert "filemap-4k.b00.patch-2 " in main.out
    # Twins are left out.
    assert "contended" not in main.out
    assert main("plan", "filemap-v4", "--set", "blocks=1") == 0
    assert "filemap-4k.b00.patched.contended" in main.out


def test_where_it_came_from_is_shown_of_two_arms_among_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("base", "patch-1", "patch-2")
    plain = factory.ExactSession()
    arms = tuple(but(plain.manifest().arms[0], name=name, label=name) for name in names)
    manifest = but(counts_factory.counted(plain.manifest()), arms=arms)
    like = {"base": "base", "patch-1": "patched", "patch-2": "patched"}
    records = [
        but(record, arm=name, run_id=f"{name}-{record.run_id}")
        for name, arm in like.items()
        for record in plain.records()
        if record.arm == arm
    ]
    profiles = [
        but(each, run_id=f"{name}-{each.run_id}")
        for name in names[:2]
        for each in counts_factory.profiles(plain)
        if each.run_id.endswith(f"-{like[name]}")
    ]
    store = SessionStore(tmp_path / "search")
    store.create(manifest)
    for record in records:
        store.append(record)
    monkeypatch.setattr(SessionStore, "profiles", lambda self, of=None: profiles)
    search = searched(Request(name="filemap-v4"))
    result = Result("found", search, -0.017, 0, 1, ())
    attribution = _shown(result, store.folder)
    assert attribution is not None
    assert attribution.rows
    # Eight seeds: the functions are tested, and said in the words of the report.
    assert as_text(result, attribution).endswith(f"\n{changed_per_unit(attribution)}")
    assert attribution.changed
    few = but(attribution, tested=0, changed=())
    assert as_text(result, few).endswith("a change with 8 seeds or more")
