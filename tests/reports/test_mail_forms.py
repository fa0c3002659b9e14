"""Forms that go into mail: lkp, mmtests, letter: within their columns, and honest."""

import re
from dataclasses import replace

import pytest

from analysis.many import SessionComparison, compare_session
from analysis.model import Comparison
from experiment.plan import AGAIN
from reports import lkp, mmtests
from reports.sections import answer
from reports.sections.metrics import values
from results.record import CaseSize
from tests.analysis import factory
from tests.analysis.factory import ExactSession, fails
from tests.analysis.many_factory import Many
from tests.analysis.measured import compare, render, whole
from tests.analysis.test_execution import on_record
from tests.analysis.test_gate import checked, compared
from tests.analysis.wall_factory import WallSession
from tests.values import but, data, there

MAIL = ("letter", "lkp", "mmtests")
Either = Comparison | SessionComparison


@pytest.fixture(scope="session")
def sessions(request: pytest.FixtureRequest) -> dict[str, Either]:
    names = "normal counted hostile five hostile_five failed_five stepwise matrix"
    return {name: request.getfixturevalue(name) for name in names.split()}


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e5, 1e9])
def test_lines_fit_at_every_size(scale: float) -> None:
    session = ExactSession()
    records = [
        but(r, samples={k: v * scale for k, v in (r.samples or {}).items()})
        for r in session.records()
    ]
    rendered = render(session.compared(records), "mmtests")
    assert max(map(len, rendered.splitlines())) <= 75


@pytest.mark.parametrize("form", MAIL)
def test_above_the_first_table_and_in_each_unit_it_says_that_numbers_are_virtual(
    form: str, sessions: dict[str, Either]
) -> None:
    for name, session in sessions.items():
        rendered = " ".join(render(session, form).split())
        tables = ("%stddev", "Min ", "Workload", " arm ", "min=")
        first = min(rendered.index(mark) for mark in tables if mark in rendered)
        assert rendered.count(answer.COUNTED) == 1, name
        assert rendered.index(answer.COUNTED) < first, name
        # And no rate or duration is without the word.
        ours = rendered.partition("Published:")[0] if "hostile" not in name else ""
        assert not re.search(r"(?<!virtual )\b(?:MiB/s|1/s|ns)\b", ours), name
        assert not re.search(r"\b(?:4k|thp|switch)\.(?:bw|iops)\b", ours), name


@pytest.mark.parametrize("form", MAIL)
def test_wall_sessions_have_blocks_and_a_against_a(quiet: Comparison, form: str) -> None:
    rendered = " ".join(render(quiet, form).split())
    assert "seed" not in rendered
    assert "blocks" in rendered
    assert "virtual" not in rendered
    assert answer.REAL_TIME in rendered
    assert rendered.count("A/A") == len(quiet.primary)


@pytest.mark.parametrize("form", MAIL)
def test_under_a_translator_no_size_is_claimed(form: str) -> None:
    translated = WallSession(blocks=12, effect=0.03, spread=0.2, accelerator="tcg").compared()
    rendered = " ".join(render(translated, form).split())
    assert answer.TRANSLATED in rendered
    lines = [part for part in re.split(r"A/A|\(? +0\.00%\)|90%|99%|99 %", rendered) if "%" in part]
    changes = re.findall(r"[+-]\d+\.\d+ ?%", " ".join(lines))
    noise = [f"{100 * m.again.estimate:+.2f}" for m in translated.primary if m.again]  # type: ignore[operator]
    assert {change.rstrip(" %") for change in changes} <= set(noise)


def test_failures_of_the_a_arm_are_counted() -> None:
    wall = WallSession(effect=0.03)
    run = next(r.run_id for r in wall.records() if r.arm == AGAIN and r.case == "filemap-4k")
    rendered = render(wall.compared(fails(wall.records(), run)), "mmtests")
    shown = " ".join(rendered.split()).replace(AGAIN, "").replace("base", "").replace("patched", "")
    assert re.search(r"filemap-4k:? +0:24,? +0:24,? +1:24", shown)


def test_positive_is_better_in_mmtests() -> None:
    assert mmtests.gain(100.0, 110.0, more_is_better=True) == pytest.approx(10.0)
    assert mmtests.gain(100.0, 110.0, more_is_better=False) == pytest.approx(-10.0)
    assert mmtests.gain(0.0, 1.0, more_is_better=True) == 0.0


def test_statistics_of_a_rate_by_hand(five: SessionComparison) -> None:
    statistics = mmtests.statistics_of(five.rows[0])
    assert statistics["Hmean"]((1.0, 2.0, 4.0, 4.0)) == pytest.approx(2.0)
    assert statistics["Hmean"]((0.0, 2.0)) == 0.0
    assert statistics["CoeffVar"]((1.0, 3.0)) == pytest.approx(70.7107, abs=1e-4)
    assert list(statistics) == ["Min", "Hmean", "Stddev", "CoeffVar", "Max"]


def test_derived_reclaim_rows() -> None:
    session = ExactSession()
    manifest = session.manifest()
    bw = manifest.cases[0].metrics[0]
    more = tuple(
        but(bw, name=f"4k.{name}", title=f"4k: {name}", unit="1")
        for name in ("scanned_per_io", "reclaim_efficiency", "direct_scan_share")
    )
    case = but(manifest.cases[0], metrics=(*manifest.cases[0].metrics, *more))
    manifest = but(manifest, cases=(case, *manifest.cases[1:]))
    extra = {"4k.scanned_per_io": 0.5, "4k.reclaim_efficiency": 0.9, "4k.direct_scan_share": 1.0}
    records = [
        but(
            r, samples={**(r.samples or {}), **extra, "4k.iops": 1000.0, "4k.refaults_per_io": 0.25}
        )
        if r.case == "filemap-4k"
        else r
        for r in session.records()
    ]
    rendered = mmtests.render(whole(compare(manifest, records)))
    for title, value in (
        ("Pages scanned, virtual 1/s", "500.00"),
        ("Pages reclaimed, virtual 1/s", "450.00"),
        ("Reclaim efficiency, %", "90.00"),
        ("Scanned by direct reclaim, %", "100.00"),
        ("Refaults, virtual 1/s", "250.00"),
    ):
        assert re.search(rf"^{re.escape(title)} +{value} +{value}$", rendered, re.MULTILINE), title
    # Without the samples there are no rows.
    assert "Pages scanned" not in mmtests.render(Many().compared())


@pytest.mark.parametrize(
    ("version", "name"),
    data(__file__, "compiler_is_named_by_its_program"),
    ids=["gcc", "cross", "clang", "numbered"],
)
def test_compiler_is_named_by_its_program(version: str, name: str) -> None:
    match = there(lkp.COMPILER.search(version))
    assert match[0] == name


def test_more_metrics_than_fit_continue_below(five: SessionComparison) -> None:
    """Nothing is cut off: each arm's values of each metric stand in some table."""
    rendered = render(five, "text", width=100)
    for row in five.rows:
        if row.primary and row.measured:
            assert all(values(cell)[0] in rendered for cell in row.cells), row.name


@pytest.mark.parametrize("form", ["letter", "lkp"])
def test_what_a_case_has_not_got_is_not_shown(form: str) -> None:
    """A program of ours has no fio, no file and no brd, whatever the experiment's dataset is."""
    session = ExactSession()
    cases = tuple(but(case, size=CaseSize(limit_mib=32)) for case in session.manifest().cases)
    shown = render(session.compared(cases=cases), form)
    assert "32M" in shown
    assert not re.search(r"\bjobs\b|\bbrd\b|120M|128M|nr_task|\tfile:", shown)


def test_a_subject_names_the_series_and_what_is_pending() -> None:
    named = lkp.subject(ExactSession().as_session())
    assert "  filemap: three walks again: filemap-4k.4k.virtual_bw 1.2% improvement" in named
    assert not named.endswith("(checks pending)")
    quiet = lkp.subject(ExactSession(effect=dict.fromkeys(factory.LOOKS, 0.0)).as_session())
    assert "unchanged" in quiet
    waiting = lkp.subject(compared(checked("base")))
    assert waiting.endswith("(checks pending)")


def test_what_is_not_judged_and_not_significant_is_marked_below_what_is_judged() -> None:
    session = ExactSession(effect={"4k": 0.013, "thp": 0.0, "switch": 0.0})
    manifest = session.manifest()
    secondary = tuple(
        but(case, primary=()) if case.name != "filemap-4k" else case for case in manifest.cases
    )
    text = render(session.compared(cases=secondary), "letter")
    assert "After, switch phase (not judged, not significant):" in text
    assert text.index("+1.1") < text.index("improvement") < text.index("Before:")


@pytest.mark.parametrize("form", [*MAIL, "summary"])
def test_no_form_for_others_names_a_place_of_the_senders(form: str) -> None:
    """A series without a title, by its path, of which nothing was tested."""
    session = on_record("vmalloc")
    experiment = session.manifest.experiment
    assert experiment.series
    series = but(experiment.series, path="/home/me/linux/series", title="")
    manifest = but(
        session.manifest,
        experiment=but(experiment, series=series, title=f"series {series.path}"),
        arguments=("--series", series.path, "--guest", "smoke"),
    )
    rendered = render(compare_session(replace(session, manifest=manifest)), form)
    assert "/home/me" not in rendered
    assert "repro sessions" not in rendered
    assert "not tested" in rendered.lower()


def test_a_letter_says_how_others_repeat_it() -> None:
    session = ExactSession().compared(arguments=("filemap-v4", "--seeds", "8"))
    lines = render(session, "letter").splitlines()
    assert "\t./lab.py run filemap-v4 --seeds 8" in lines
    assert any("On any host" in line for line in lines)


def test_columns_of_a_letter_hold_where_a_sign_takes_two_characters() -> None:
    session = ExactSession(effect={"4k": 0.0, "thp": 0.0, "switch": -0.01}, spread=0, noise=1e-5)
    lines = render(session.compared(), "letter").splitlines()
    rows = [line for line in lines if re.match(r" .* % +\[", line)]
    assert {line.index("%") for line in rows} == {rows[0].index("%")}
    assert "+-0" in "".join(rows)
    assert max(map(len, lines)) <= 75
