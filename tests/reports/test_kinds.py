"""Kinds of instructions: per unit, in pairs, by function, and in every form that has them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from reports import forms, functions_table
from reports.kinds import compare_kinds
from reports.kinds_model import KindsComparison, KindsIn
from reports.model import Comparison
from reports.sections import kinds as section
from results.profile import KINDS, PhaseProfile, Profile
from results.record import Manifest
from tests.reports import counts_factory as counts
from tests.reports.factory import ExactSession
from tests.reports.measured import compare

Change = Callable[[PhaseProfile, str, int], PhaseProfile]


def with_kinds(phase: PhaseProfile, arm: str, block: int) -> PhaseProfile:
    """A load each third instruction; xas_load has an atomic each call on base alone."""
    functions = tuple(
        replace(function, kinds=(
            function.instructions // 3, function.instructions // 6,
            function.calls if function.name == "xas_load" and arm == "base" else 0, 7, 0, block,
        ))
        for function in phase.kernel
    )  # fmt: skip
    user: dict[str, tuple[int, ...]]
    user = {name: (count // 4, 0, 5, 0, 0, 0) for name, count in phase.user.items()}
    user["busybox"] = (10**12,) * len(KINDS)
    return phase.model_copy(update={"kernel": functions, "user_kinds": user})


def counted(session: ExactSession, change: Change) -> list[Profile]:
    changed = []
    for profile in counts.profiles(session):
        _, block, arm = profile.run_id.rsplit("-", 2)
        phases = tuple(change(phase, arm, int(block)) for phase in profile.phases)
        changed.append(profile.model_copy(update={"phases": phases}))
    return changed


@pytest.fixture(scope="module")
def session() -> ExactSession:
    return ExactSession(seeds=(1, 2, 3))


@pytest.fixture(scope="module")
def manifest(session: ExactSession) -> Manifest:
    return counts.counted(session.manifest())


@pytest.fixture(scope="module")
def comparison(session: ExactSession, manifest: Manifest) -> Comparison:
    return compare(manifest, session.records(), counted(session, with_kinds))


@pytest.fixture(scope="module")
def kinds(comparison: Comparison) -> KindsComparison:
    return comparison.kinds[0]


def row(kinds: KindsComparison, name: str) -> KindsIn:
    return next(row for row in kinds.rows if row.name == name)


def test_kinds_are_per_the_first_unit_and_paired_by_seed(
    kinds: KindsComparison, comparison: Comparison
) -> None:
    here = next(
        row for row in comparison.headlines[0].functions if row.name == "filemap_fault"
    ).instructions
    assert (kinds.unit, kinds.seeds) == ("io", (1, 2, 3))
    assert row(kinds, "filemap_fault").loads.base == pytest.approx(here.base / 3, rel=1e-4)
    assert row(kinds, "filemap_fault").stores.patched == pytest.approx(here.patched / 6, rel=1e-4)
    assert row(kinds, "filemap_fault").divisions.equal


def test_rows_add_up_to_the_whole_without_what_idles(kinds: KindsComparison) -> None:
    for kind in KINDS:
        total = getattr(kinds.total, kind)
        assert sum(getattr(each, kind).base for each in kinds.rows) == pytest.approx(total.base)
    assert "busybox" not in [each.name for each in kinds.rows]
    assert row(kinds, "fio").user


def test_what_moved_the_largest_share_of_a_kind_is_first(kinds: KindsComparison) -> None:
    first = kinds.rows[0]
    assert (first.name, first.atomics.patched) == ("xas_load", 0)
    # All but those of user code.
    assert first.atomics.difference / kinds.total.atomics.base == pytest.approx(-1, abs=1e-4)
    assert 1 <= kinds.listed < len(kinds.rows)


def test_a_function_of_one_arm_says_so(kinds: KindsComparison) -> None:
    assert row(kinds, "filemap_range_has_entry").only_in == "base"
    assert row(kinds, "xas_get_order").only_in == "patched"
    assert row(kinds, "filemap_range_has_entry").loads.patched == 0


def test_runs_whose_kinds_nobody_counted_have_none(
    session: ExactSession, manifest: Manifest
) -> None:
    def half(phase: PhaseProfile, arm: str, block: int) -> PhaseProfile:
        return phase if (arm, block) == ("base", 1) else with_kinds(phase, arm, block)

    records = session.records()
    assert compare_kinds(manifest, records, counts.profiles(session)) == ()
    assert compare_kinds(manifest, records, counted(session, half)) == ()


def test_the_same_on_both_arms_is_unchanged(session: ExactSession, manifest: Manifest) -> None:
    profiles = [
        each.model_copy(update={"phases": tuple(
            with_kinds(phase, "base", 0) for phase in each.phases
        )})
        for each in counts.profiles(session, same=True)
    ]  # fmt: skip
    for each in compare_kinds(manifest, session.records(), profiles):
        assert all(getattr(each.total, kind).equal for kind in KINDS)
        assert each.listed == 0
        assert section.sentence(each).count("unchanged") == len(section.ALWAYS)


def test_the_line_names_what_moved(kinds: KindsComparison) -> None:
    sentence = section.sentence(kinds)
    assert "atomics (-100" in sentence
    assert "divisions" not in sentence


def test_every_form_has_them(comparison: Comparison) -> None:
    shown = forms.render(comparison, "text").partition("Kinds of instructions")[2]
    assert "xas_load" in shown
    assert 'id="kinds"' in forms.render(comparison, "html")
    document = json.loads(forms.render(comparison, "json"))
    (pair,) = document["comparisons"]
    assert [len(each["rows"]) for each in pair["kinds"]] == [
        each.listed for each in comparison.kinds
    ]
    rows = list(csv.DictReader(io.StringIO(functions_table.render(comparison))))
    mine = [
        each for each in rows if each["function"] == "xas_load" and each["case"] == "filemap-4k"
    ]
    of_io = next(each for each in mine if each["unit"] == "io")
    assert float(of_io["atomics_base"]) == row(comparison.kinds[0], "xas_load").atomics.base
    assert float(of_io["atomics_patched"]) == 0
    assert {each["atomics_base"] for each in mine if each["unit"] != "io"} == {""}
