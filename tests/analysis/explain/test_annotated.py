"""The diff by lines: per unit of the same runs, what never ran, and what is not exact."""

import json
from pathlib import Path

import pytest

from analysis.explain.annotated import EXPLANATION
from analysis.many import SessionComparison, compare_session
from reports import forms
from reports.sections import View, functions
from reports.sections.answer import answer
from results.door import StoreError
from results.profile import Annotation, FileCounts, FileDiff
from results.store import ANNOTATION, SessionStore
from tests.analysis import counts_factory as counts
from tests.analysis.factory import ExactSession
from tests.analysis.measured import measured, render
from tests.values import but, data

FILE = "mm/filemap.c"
HUNKS = data(__file__, "hunks")


@pytest.fixture(scope="module")
def session() -> SessionComparison:
    made = ExactSession()
    manifest = counts.counted(made.manifest())
    records, profiles = made.records(), counts.profiles(made)
    case = manifest.cases[0]
    phase = case.phases[0].name
    lines = {
        "base": {10: (9, 30, True), 11: (8, 20, True)},
        "patched": {10: (9, 30, True), 11: (4, 0, False), 12: (0, 0, True), 92: (0, 0, True)},
    }
    diffs = (FileDiff(base="base", patched="patched", file=FILE, hunks=HUNKS),)
    by_arm = []
    for arm, of_arm in lines.items():
        runs = tuple(r.run_id for r in records if (r.arm, r.case) == (arm, case.name))
        of_runs = {"case": case.name, "phase": phase, "file": FILE, "runs": runs}
        by_arm.append(FileCounts.model_validate({"arm": arm, **of_runs, "lines": of_arm}))
    annotation = Annotation(diffs=diffs, counts=tuple(by_arm))
    return compare_session(measured(manifest, records, profiles, annotation=annotation))


def test_lines_are_per_unit_of_their_own_runs(session: SessionComparison) -> None:
    (only,) = EXPLANATION.of(session.comparisons[0])
    made = ExactSession()
    units = {
        arm: sum(
            profile.phases[0].units["io"]
            for profile in counts.profiles(made)
            if profile.run_id.endswith(f"-{arm}") and profile.phases[0].phase == only.phase
        )
        for arm in ("base", "patched")
    }
    first, second = only.hunks
    assert [(line.sign, line.number) for line in first.lines] == [
        *((" ", 10), ("-", 11), ("+", 11), ("+", 12), (" ", 13), (" ", 14))
    ]
    assert first.lines[0].base == 9 / units["base"]
    assert first.lines[0].patched == 9 / units["patched"]
    assert (first.lines[1].base, first.lines[1].patched) == (8 / units["base"], None)
    assert [line.exact for line in first.lines] == [True, True, False, True, True, True]
    assert only.changed() == {(FILE, "-", 11), (FILE, "+", 12), (FILE, "+", 92)}
    assert only.changed(ran=True) == {(FILE, "-", 11)}
    assert first.base > first.patched > 0 == second.base


def test_the_answer_says_which_changed_lines_ran(session: SessionComparison) -> None:
    assert functions.lines_that_ran(session.comparisons[0]) == "1 of 3 changed lines ran"
    shown = " ".join(forms.answer_lines(session))
    assert "1 of 3 changed lines; " in shown
    assert answer(View(session))


def test_every_form_has_the_same_margin(session: SessionComparison) -> None:
    text = forms.as_annotated(session, "text")
    assert max(map(len, text.splitlines())) <= 80
    rows = [line for line in text.splitlines() if line.endswith("return NULL;")]
    assert [row.split() for row in rows] == [["|", "#####", "+", "return", "NULL;"]]
    assert "~" in next(line for line in text.splitlines() if "unlikely" in line)
    assert "[not executed; 0 -> 0 % of the phase]" in text
    mail = forms.as_annotated(session, "mail")
    assert any(line.startswith("> ") and "unlikely" in line for line in mail.splitlines())
    page, markdown = render(session, "html"), forms.as_annotated(session, "markdown")
    for form in (page, markdown):
        assert "##### +        return NULL;" in form
    (pair,) = json.loads(render(session, "json"))["comparisons"]
    assert len(pair["annotated"][0]["hunks"]) == 2


def test_a_file_without_counts_is_shown_with_the_reason(session: SessionComparison) -> None:
    (pair,) = session.comparisons
    (ran,) = EXPLANATION.of(pair)
    lines = tuple(but(each, base=None, patched=None) for each in ran.hunks[0].lines)
    other = but(ran.hunks[0], file="lib/a.c", lines=lines, without="is part of a module")
    both = but(ran, hunks=(other, *ran.hunks))
    shown = but(session, comparisons=(but(pair, explained={EXPLANATION.name: (both,)}),))
    text = forms.as_annotated(shown, "text")
    assert "[not counted: is part of a module]" in text
    assert "no code changed" not in text


def test_a_phase_that_ran_no_changed_line_is_named_and_not_shown(
    session: SessionComparison,
) -> None:
    (pair,) = session.comparisons
    (ran,) = EXPLANATION.of(pair)
    (hunk, _), still = ran.hunks, {"base": 0.0, "patched": 0.0, "runs": 0.0}
    lines = tuple(but(each, **still) if each.runs is not None else each for each in hunk.lines)
    idle = but(ran, phase="switch", hunks=(but(hunk, lines=lines),))
    assert not idle.changed(ran=True)
    both = but(pair, explained={**pair.explained, EXPLANATION.name: (idle, ran)})
    text = " ".join(forms.as_annotated(but(session, comparisons=(both,)), "text").split())
    assert text.count("How often each line ran") == 1
    assert f"No changed line ran in {idle.case} switch." in text
    alone = but(pair, explained={**pair.explained, EXPLANATION.name: (idle,)})
    assert "[not executed;" in forms.as_annotated(but(session, comparisons=(alone,)), "text")


def test_an_annotation_is_kept_and_a_damaged_one_refused(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    assert store.annotation() is None
    kept = Annotation(diffs=(), counts=(), without={FILE: "its code is not the same"})
    store.keep(kept)
    assert store.annotation() == kept
    (tmp_path / ANNOTATION).write_bytes(b"\x1f\x8b")
    with pytest.raises(StoreError, match=ANNOTATION):
        store.annotation()
