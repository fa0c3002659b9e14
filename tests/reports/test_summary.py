"""The one-screen summary: its picture, its size, and nothing in it that GitHub acts on."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.model import Comparison
from reports import forms, summary
from tests.analysis.factory import ExactSession
from tests.analysis.measured import compare


def made(session: ExactSession) -> Comparison:
    return compare(session.manifest(), session.records())


def picture_of(text: str) -> list[str]:
    return text.split("```text\n")[1].split("\n```")[0].splitlines()


def test_the_mark_is_on_the_side_of_its_sign() -> None:
    for effect in (0.02, -0.02):
        drawn = picture_of(
            forms.render(
                made(ExactSession(effect={"4k": effect, "thp": 0.0, "switch": 0.0})), "summary"
            )
        )
        line = next(line for line in drawn if line.startswith("4k.bw"))
        assert (line.index("●") > line.index("│")) == (effect > 0)
        assert ("▲" in line) == (effect > 0)
        assert ("▼" in line) == (effect < 0)


def test_zero_of_the_scale_is_below_the_axis() -> None:
    drawn = picture_of(forms.render(made(ExactSession()), "summary"))
    assert {line.index("│") for line in drawn if "│" in line} == {drawn[-1].index(" 0 ") + 1}


HOSTILE = "@torvalds fixes #1 octo/cat#2 GH-3 https://evil.example www.evil.example </details>"


def test_hostile_texts_name_nobody() -> None:
    text = forms.render(made(ExactSession(title=HOSTILE, question=HOSTILE)), "summary")
    assert not re.search(r"@\w", text)
    assert not re.search(r"#\d", text)
    assert "://" not in text
    assert not re.search(r"www\.", text)
    assert text.count("</details>") == 1
    assert text.count("</details") == 1 + text.count("\\</details")


@given(st.text(alphabet=st.sampled_from("@#ab1/:w.GH- "), max_size=40))
def test_inert_takes_every_reference_and_nothing_else(text: str) -> None:
    done = summary.inert(text)
    assert done.replace(summary.BREAK, "") == text
    assert not re.search(r"[@#]\w|://|www\.|GH-\d", done)
    assert summary.inert(done) == done


def test_what_is_too_long_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = forms.render(made(ExactSession()), "summary")
    monkeypatch.setattr(summary, "MOST", len(whole) - 1)
    cut = forms.render(made(ExactSession()), "summary")
    assert len(cut) < len(whole)
    assert cut.endswith(summary.CUT)
    assert "<details>" not in cut
