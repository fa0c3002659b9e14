"""Interrupts and faults: per unit, in pairs, by handler and function, and in every form."""

from __future__ import annotations

import json

import pytest

from reports import forms
from reports.interruptions import compare_interruptions
from reports.interruptions_model import InterruptionComparison, InterruptionCount
from reports.model import Comparison
from reports.sections import interruptions as section
from results.profile import Interruption, PhaseProfile, Profile
from results.record import Manifest
from tests.reports import counts_factory as counts
from tests.reports.factory import ExactSession
from tests.reports.measured import compare
from tests.reports.test_kinds import counted

FAULT, TIMER = "asm_exc_page_fault", "asm_sysvec_apic_timer_interrupt"


def interruption(
    kind: str, handler: str, function: str, count: int, *, user: bool = False
) -> Interruption:
    return Interruption.model_validate(
        {"kind": kind, "handler": handler, "function": function, "user": user, "count": count}
    )


def interrupted(phase: PhaseProfile, arm: str, block: int) -> PhaseProfile:
    """A fault of fio each four I/Os, a fifth less on patched, and each hundredth elsewhere."""
    ios = int(phase.units["io"])
    faults = ios // 4 if arm == "base" else ios // 5
    moved = "copy_page_to_iter" if arm == "base" else "copy_folio_to_iter"
    return phase.model_copy(update={"interruptions": (
        interruption("interrupt", TIMER, "filemap_fault", 200),
        interruption("interrupt", TIMER, moved, 10 + block),
        interruption("exception", FAULT, "fio", faults - ios // 100, user=True),
        interruption("exception", FAULT, moved, ios // 100),
    )})  # fmt: skip


@pytest.fixture(scope="module")
def session() -> ExactSession:
    return ExactSession(seeds=(1, 2, 3))


@pytest.fixture(scope="module")
def manifest(session: ExactSession) -> Manifest:
    return counts.counted(session.manifest())


@pytest.fixture(scope="module")
def comparison(session: ExactSession, manifest: Manifest) -> Comparison:
    return compare(manifest, session.records(), counted(session, interrupted))


@pytest.fixture(scope="module")
def first(comparison: Comparison) -> InterruptionComparison:
    return comparison.interruptions[0]


def row(counts: InterruptionComparison, function: str) -> InterruptionCount:
    return next(row for row in counts.rows if row.function == function)


def test_each_kind_is_per_the_first_unit_and_paired_by_seed(first: InterruptionComparison) -> None:
    assert (first.unit, first.seeds) == ("io", (1, 2, 3))
    assert list(first.kinds) == ["interrupt", "exception"]
    faults = first.kinds["exception"]
    assert faults.base == pytest.approx(1 / 4, rel=1e-2)
    assert faults.patched == pytest.approx(1 / 5, rel=1e-2)
    assert [each.handler for each in first.handlers] == [TIMER, FAULT]


def test_rows_add_up_to_their_handler_and_interrupts_have_none(
    first: InterruptionComparison,
) -> None:
    (fault,) = (each for each in first.handlers if each.kind == "exception")
    assert {each.handler for each in first.rows} == {FAULT}
    assert sum(row.count.base for row in first.rows) == pytest.approx(fault.count.base)
    assert sum(row.count.patched for row in first.rows) == pytest.approx(fault.count.patched)


def test_what_moved_is_first_and_says_on_which_arm_it_is(first: InterruptionComparison) -> None:
    assert first.rows[0].function == "fio"
    assert first.rows[0].user
    assert row(first, "copy_page_to_iter").only_in == "base"
    assert row(first, "copy_folio_to_iter").only_in == "patched"
    assert first.listed == 3


def test_runs_of_an_older_qemu_have_none(session: ExactSession, manifest: Manifest) -> None:
    def half(phase: PhaseProfile, arm: str, block: int) -> PhaseProfile:
        return phase if (arm, block) == ("base", 1) else interrupted(phase, arm, block)

    records = session.records()
    without: list[Profile] = counts.profiles(session)
    assert compare_interruptions(manifest, records, without) == ()
    assert compare_interruptions(manifest, records, counted(session, half)) == ()
    assert 'id="interruptions"' not in forms.render(compare(manifest, records, without), "html")


def test_a_phase_without_any_says_so(session: ExactSession, manifest: Manifest) -> None:
    def none(phase: PhaseProfile, arm: str, block: int) -> PhaseProfile:
        return phase.model_copy(update={"interruptions": ()})

    (each, *_) = compare_interruptions(manifest, session.records(), counted(session, none))
    assert (each.kinds, each.rows, each.listed) == ({}, (), 0)
    assert "no interrupts and faults, virtual" in section.sentence(each)


def test_the_line_names_each_kind(first: InterruptionComparison) -> None:
    sentence = section.sentence(first)
    assert "exceptions (-20." in sentence
    assert sentence.endswith(", virtual")


def test_every_form_has_them(comparison: Comparison) -> None:
    shown = forms.render(comparison, "text").partition("Interrupts and faults")[2]
    assert FAULT in shown
    assert 'id="interruptions"' in forms.render(comparison, "html")
    (pair,) = json.loads(forms.render(comparison, "json"))["comparisons"]
    assert [len(each["rows"]) for each in pair["interruptions"]] == [
        each.listed for each in comparison.interruptions
    ]
    faults = pair["interruptions"][0]["kinds"]["exception"]
    assert faults["difference"] / faults["base"] == pytest.approx(-0.2, abs=0.01)
