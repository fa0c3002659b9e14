"""How counts are said."""

from __future__ import annotations

import pytest

from reports import count_wording as counts
from reports import forms, html, lock_wording, wording
from reports.model import Comparison
from reports.paired import pair
from reports.verdict import Verdict


@pytest.mark.parametrize(
    ("value", "said"),
    [(-85.31, "-85.3"), (17.46, "+17.5"), (0.0, "0"), (0.04, "±0.0"), (-0.04, "±0.0")],
)
def test_differences(value: float, said: str) -> None:
    assert counts.signed(value) == said


@pytest.mark.parametrize(
    ("title", "said"),
    [("I/O", "I/Os"), ("folio added", "folios added"), ("page fault", "page faults"),
     ("virtual ms", "virtual ms"), ("ms", "ms"), ("shared", "shareds")],
)  # fmt: skip
def test_plurals(title: str, said: str) -> None:
    assert counts.plural(title) == said


def test_changes() -> None:
    assert counts.change(pair([100.0], [90.0])) == "-10.00 %"
    assert counts.change(pair([0.0], [90.0])) == "from 0"
    assert counts.change(pair([0.0], [0.0])) == "–"
    assert counts.change(None) == "–"


def test_a_change_within_the_scatter_is_in_parentheses() -> None:
    assert counts.moved(pair([100.0, 101.0, 99.0], [90.0, 91.0, 89.5])) == "-9.83 %"
    assert counts.moved(pair([100.0, 101.0, 99.0], [90.0, 121.0, 90.0])) == "(+0.33 %)"
    assert counts.moved(pair([0.0, 0.0, 0.0], [0.0, 1.0, 0.0])) == "(from 0)"
    # Nothing is known of the scatter of one seed, and nothing scatters here.
    assert counts.moved(pair([100.0], [90.0])) == "-10.00 %"
    assert counts.moved(pair([100.0, 100.0], [100.0, 100.0])) == "0 %"
    assert counts.moved(None) == "–"


def test_sentences(counted: Comparison) -> None:
    found = counted.headlines[0]
    assert counts.total(found).startswith("12870.4 -> 12716.6 instructions per I/O: -153.8 (")
    assert counts.ratio(found.ratios[0]).startswith(
        "Tree walks per folio added: 9.09 -> 7.34, -1.75 (-19.2"
    )
    assert "105 % of the change" in counts.share(found)
    assert "no few functions" not in counts.share(found)
    said = [counts.hint(hint, "base", "patched") for hint in found.hints]
    assert any("filemap_range_has_entry ran only in base" in hint for hint in said)


def test_what_few_functions_do_not_explain_is_said(counted: Comparison) -> None:
    found = counted.headlines[0].model_copy(update={"listed": 1})
    assert counts.share(found).endswith("; no few functions explain it")


def test_what_stands_out_of_the_scatter(counted: Comparison) -> None:
    found = counted.headlines[0]
    assert counts.beyond_scatter(found) == ""
    noise = tuple(row for row in found.functions if row.instructions.within_scatter)
    mixed = found.model_copy(update={"functions": found.rows[:1] + noise, "listed": 3})
    assert counts.beyond_scatter(mixed) == (
        "Beyond the scatter of the seeds: 1 of 3 listed functions, together -85.3 (xas_load -85.3)"
    )
    lost = found.model_copy(update={"functions": noise, "listed": 3})
    assert counts.beyond_scatter(lost).startswith("None of the listed")


def test_absent_functions_are_named(counted: Comparison) -> None:
    ratio = counted.headlines[0].ratios[0]
    assert counts.absent(ratio) == ""
    assert "xas_load never entered" in counts.absent(
        ratio.model_copy(update={"absent": ("xas_load",)})
    )


def test_twins_say_what_they_cannot(counted: Comparison) -> None:
    hold, contention, callers = counted.locks
    assert lock_wording.banner(hold) == "Diagnosis: another kernel, no bandwidth"
    assert lock_wording.banner(callers) == "Diagnosis: another guest, no bandwidth"
    assert "nobody spins" in lock_wording.limits(hold)
    assert "no prediction" in lock_wording.limits(contention)
    assert lock_wording.guest(contention) == (
        "flavour lockstat, 4 vCPUs, 4 jobs, a timer every 20 µs, 2 seeds"
    )
    assert "in parentheses" in lock_wording.limits(hold)
    alone = hold.model_copy(update={"seeds": hold.seeds[:1]})
    assert "in parentheses" not in lock_wording.limits(alone)
    assert lock_wording.slow_path(hold) == ""
    assert "times per 1,000 folios added" in lock_wording.slow_path(contention)


def test_a_long_chain_of_callers_keeps_its_ends(counted: Comparison) -> None:
    row = counted.locks[2].waits[0]
    long = row.model_copy(update={"chain": ("waits", *"abcdefgh")})
    assert lock_wording.chain(long) == "a < b < c < d < ... < h"
    # Nothing is gained by three dots in place of one name.
    short = row.model_copy(update={"chain": ("waits", *"abcdef")})
    assert lock_wording.chain(short) == "a < b < c < d < e < f"


def test_a_verdict_names_the_functions_behind_it(counted: Comparison) -> None:
    bw, thp = counted.primary[:2]
    said = counts.explained(counted, bw)
    assert said.startswith("153.8 fewer instructions per I/O: xas_load -85.3, ")
    for form in (forms.render(counted, "text"), wording.typeset(forms.render(counted, "text"))):
        assert "153.8 fewer instructions per I/O" in " ".join(form.split())
    assert wording.typeset(said) in " ".join(html.render(counted).split())
    # Nothing is explained where nothing is called.
    assert thp.judgement.verdict is not Verdict.IMPROVEMENT
    assert counts.explained(counted, thp) == ""


def test_instructions_that_do_not_account_for_a_rate_are_not_named(counted: Comparison) -> None:
    """As where work takes longer because it sleeps, and costs a few instructions besides."""
    bw = counted.primary[0]
    assert bw.judgement.change is not None
    for estimate in (-0.26, 0.1, -1.0):
        change = bw.judgement.change.model_copy(update={"estimate": estimate})
        other = bw.model_copy(
            update={"judgement": bw.judgement.model_copy(update={"change": change})}
        )
        case = counted.cases[0]
        metrics = tuple(other if metric == bw else metric for metric in case.metrics)
        cases = (case.model_copy(update={"metrics": metrics}), *counted.cases[1:])
        assert counts.explained(counted.model_copy(update={"cases": cases}), other) == ""
