"""The one-screen summary: its size, nothing in it that GitHub acts on; and a session in a line."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.many import compare_session
from analysis.two_sessions import compare_two
from reports import forms, sessions
from reports.headline import is_decided
from tests.analysis.factory import ExactSession
from tests.analysis.measured import render
from tests.analysis.test_two_sessions import FIRST, SLOWER, other_series, session
from tests.reports.test_headline import unfinished

HOSTILE = "@torvalds fixes #1 octo/cat#2 GH-3 https://evil.example www.evil.example </details>"


def test_hostile_texts_name_nobody() -> None:
    text = render(ExactSession(title=HOSTILE, question=HOSTILE).compared(), "summary")
    assert not re.search(r"@\w", text)
    assert not re.search(r"#\d", text)
    assert "://" not in text
    assert not re.search(r"www\.", text)
    assert text.count("</details>") == 1
    assert text.count("</details") == 1 + text.count("\\</details")


@given(st.text(alphabet=st.sampled_from("@#ab1/:w.GH- "), max_size=40))
def test_inert_takes_every_reference_and_nothing_else(text: str) -> None:
    done = forms.inert(text)
    assert done.replace(forms.BREAK, "") == text
    assert not re.search(r"[@#]\w|://|www\.|GH-\d", done)
    assert forms.inert(done) == done


def test_what_is_too_long_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = render(ExactSession().compared(), "summary")
    monkeypatch.setattr(forms, "MOST", len(whole) - 1)
    cut = render(ExactSession().compared(), "summary")
    assert len(cut) < len(whole)
    assert cut.endswith(forms.CUT)
    assert "<details>" not in cut


def test_the_result_that_changed_most_and_its_change_since_the_last_save() -> None:
    now = other_series(SLOWER)
    assert sessions.line(compare_session(now), compare_two(session(FIRST), now)) == (
        "1 regression, 1 unchanged (within 0.25 %), 1 inconclusive: filemap-4k 4k.bw -1.43 % "
        "[-1.65, -1.30]; since the last save -2.57 % [-2.57, -2.57]; 8 seeds"
    )
    same = compare_two(session(FIRST), session(FIRST))
    first = compare_session(session(FIRST))
    assert "; since the last save the same machine code; 8 seeds" in sessions.line(first, same)


def test_what_has_no_verdict_says_why() -> None:
    assert sessions.line(unfinished()).startswith("Not finished: 7 of ")


def test_a_verdict_that_more_seeds_may_decide_is_open() -> None:
    assert is_decided(compare_session(session(FIRST)))
    few = ExactSession(seeds=(1, 2, 3))
    early = few.as_session()
    assert not is_decided(early)
    assert "4k.bw +1.17 % ([+0.84, +1.46] seed by seed)" in sessions.line(early)
