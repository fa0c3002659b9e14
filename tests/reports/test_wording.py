"""How numbers and verdicts are said."""

import ast
from pathlib import Path

import pytest

from analysis.comparison import summarize
from analysis.counts import pair
from analysis.model import Comparison, Finding
from experiment.spec import ArmSpec, KernelSpec, Thresholds
from reports import sentences, wording
from tests.analysis.factory import ExactSession
from tests.analysis.many_factory import Many
from tests.analysis.measured import render
from tests.values import but, there
from text import typeset


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (259.0188679, "259.019"),
        (66339.528377, "66339.5"),
        (1234567.0, "1234567"),
        (0.0120038, "0.0120038"),
        (13.3558, "13.3558"),
        (0.0, "0"),
        (None, "–"),
        (float("nan"), "–"),
        (-2.5, "-2.50000"),
    ],
)
def test_figures_have_six_digits_and_no_exponent(value: float | None, expected: str) -> None:
    assert wording.figure(value) == expected


@pytest.mark.parametrize(
    ("fraction", "expected"),
    [
        (0.0131, "+1.31 %"),
        (-0.0131, "-1.31 %"),
        (0.0, "0 %"),
        (0.00001, "±0.00 %"),
        (-0.00001, "±0.00 %"),
        (16.0, "+1600 %"),
        (None, "–"),
    ],
)
def test_percent_keeps_the_exact_zero_apart_from_what_rounds_to_it(
    fraction: float | None, expected: str
) -> None:
    assert wording.percent(fraction) == expected


@pytest.mark.parametrize(
    ("fraction", "expected"),
    [
        (0.9999, "+99.99 %"),
        (1.0, "+100.00 % (2x)"),
        (9.1852, "+918.52 % (10.2x)"),
        (15.143, "+1514 % (16.1x)"),
        (-0.7999, "-79.99 %"),
        (-0.9373, "-93.73 % (1/15.9)"),
        (-0.99528, "-99.53 % (1/212)"),
        (-0.99905, "-99.91 % (1/1053)"),
        (1233.56, "+123356 % (1235x)"),
        (-1.0, "-100.00 %"),
        (0.0, "0 %"),
        (None, "–"),
    ],
)
def test_large_changes_are_factors_too(fraction: float | None, expected: str) -> None:
    assert wording.sized(fraction) == expected


@pytest.mark.parametrize(
    ("base", "patched", "shown"),
    [
        (13696.1, 13584.52, ("13,696", "13,585")),
        (275414.2, 275212.0, ("275,414", "275,212")),
        (183.5521, 183.5519, ("183.55", "183.55")),
        (9.996, 10.004, ("9.996", "10.004")),
        (0.02, 0.0301, ("0.0200", "0.0301")),
        (0.0, 0.0, ("0.0000", "0.0000")),
    ],
)
def test_two_values_have_equal_decimals(
    base: float, patched: float, shown: tuple[str, str]
) -> None:
    assert wording.sides(base, patched) == shown


def test_a_result_in_one_line(normal: Comparison) -> None:
    assert sentences.head(normal.primary[0]) == (
        "filemap-4k  4k.bw  +1.16 %  [+0.94, +1.30] at 99 %  improvement"
    )
    metric = ExactSession(same_code=True).compared([]).primary[0]
    assert sentences.head(metric) == "filemap-4k  4k.bw  not measured  no change"


def test_secondary_words_apply_the_direction(normal: Comparison) -> None:
    faults, ios = (normal.cases[0].metric(f"4k.{n}") for n in ("major_faults_per_io", "ios"))
    assert faults is not None
    assert ios is not None
    assert wording.change(faults).startswith("-")
    assert (sentences.verdict(faults), sentences.verdict(ios)) == ("better", "better")


def test_a_share_changes_by_points_in_every_table_of_every_form() -> None:
    """Two arms and many: 27 % becoming 1.35 % is -25.75 points, and never -95 %."""
    many = Many()
    two = Many(arms=dict(list(many.arms.items())[:2])).compared()
    share = there(two.comparisons[0].cases[0].metric("4k.slowpath_share"))
    assert wording.change(share) == "-25.75 points"
    assert wording.bounds(share) == "[-25.75, -25.75]"
    for session in (two, many.compared()):
        for form in ("text", "markdown", "html"):
            rendered = typeset(render(session, form))
            assert "−25.75 points" in rendered, form
            assert "−95.02" not in rendered, form


def test_a_difference_is_as_exact_as_its_values() -> None:
    """Of 0.0996 page walks it was ±0.00 [±0.00, ±0.00], which says nothing."""
    walks = pair([0.0996, 0.0997], [0.0994, 0.0996])
    assert wording.apart(walks) == "-0.0001 [-0.0008, +0.0005]"
    assert wording.apart(pair([2041.0], [2023.0])) == "-18.00"
    assert [wording.decimals_of(value) for value in (0.0, 2041.0, 1.0, 0.36, 0.0747)] == [
        2,
        2,
        2,
        3,
        4,
    ]


def test_an_interval_of_a_share_ends_at_the_whole() -> None:
    """Of two pairs of runs it was +54905110114276.23 points."""
    assert wording.within("%", summarize([10.82]), -1.0, 5e12) == "[-10.82, +89.18]"
    assert wording.within("%", summarize([27.1]), -0.95, 0.02) == "[-25.75, +0.54]"


def test_a_bound_beyond_any_reader_is_cut() -> None:
    assert wording.between(-0.5, 28170917.38) == "[-50.00, > +900]"
    # A change that is as large as that has bounds to say.
    assert wording.between(9.0215, 9.3714) == "[+902.15, +937.14]"
    assert wording.between(-1.0, 9.0) == "[-100.00, +900.00]"


def test_what_is_compared_is_a_series_or_kernels() -> None:
    experiment = ExactSession().manifest().experiment
    plain = f"{sentences.series_title(experiment)} on {experiment.kernel.source}"
    assert sentences.subject(experiment) == plain
    assert (
        sentences.sources(experiment)
        == f"{experiment.kernel.source}, flavour {experiment.kernel.flavour}"
    )
    kernels = [KernelSpec(source=f"deb:linux-image-{name}=1") for name in "ab"]
    arms = tuple(
        ArmSpec(name=name, kernel=kernel) for name, kernel in zip("ab", kernels, strict=True)
    )
    changed = but(experiment, series=None, arms=arms, kernel=kernels[0])
    assert sentences.subject(changed) == "deb:linux-image-a=1 against deb:linux-image-b=1"
    assert sentences.sources(changed) == "deb:linux-image-a=1; deb:linux-image-b=1"


def test_a_ratio_has_no_unit() -> None:
    assert wording.after("virtual MiB/s") == " virtual MiB/s"
    assert wording.after("1") == ""


ANALYSIS = Path(__file__).resolve().parents[2] / "analysis"


def test_every_kind_of_finding_has_a_sentence() -> None:
    calls = [
        node
        for path in ANALYSIS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    ]
    makers = {"_warning", "_note", "make"}
    kinds = [
        keyword.value
        for call in calls
        for keyword in call.keywords
        if keyword.arg == "kind" and getattr(call.func, "id", "") == "Finding"
    ]
    kinds += [call.args[1] for call in calls if getattr(call.func, "id", "") in makers]
    used = {kind.value for kind in kinds if isinstance(kind, ast.Constant)}
    assert used == set(sentences.KINDS)


def test_a_finding_is_its_values(normal: Comparison) -> None:
    [exact] = [f for f in normal.findings if f.kind == "exactness"]
    assert exact.values["status"] == "bit-exact"
    assert sentences.of_finding(exact) == f"bit-exact: {exact.values['detail']}"


@pytest.mark.parametrize(("many", "more"), [(5, ""), (7, " and 2 more")])
def test_long_lists_end_in_a_number(many: int, more: str) -> None:
    names = [f"f{number}" for number in range(many)]
    values = {"executed": [], "not_executed": names}
    finding = Finding(level="note", scope="series", kind="executed", values=values)
    assert f"f4{more})" in sentences.of_finding(finding)


def test_functions_that_ran_in_the_same_phases_are_named_together() -> None:
    phases = {"pipe open": "ab", "open": "c"}
    ran = [{"functions": [*of], "phases": at.split()} for at, of in phases.items()]
    values = {"executed": ran, "not_executed": []}
    finding = Finding(level="note", scope="series", kind="executed", values=values)
    shown = sentences.of_finding(finding)
    assert shown == "executed: 3 of 3 changed functions: a, b in pipe, open; c in open"


def test_a_threshold_of_what_is_not_judged_is_not_in_the_caption() -> None:
    thresholds = Thresholds(metrics={"4k.work": 0.005, "swap/random.path": 0.015})
    assert wording.threshold(thresholds, {"4k.work"}) == "±0.25 % (4k.work: ±0.5 %)"
