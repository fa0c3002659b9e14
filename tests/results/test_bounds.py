"""Every number of a record has a bound: a stranger's may have any digits."""

import importlib
import itertools
import math
import pkgutil
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

import experiment
import history
import results
import workloads
from analysis.many import compare_session
from experiment.frozen import MOST, Frozen
from experiment.spec import MOST_ARMS, Experiment
from guests import channel
from history.ingest import entry_of
from host import limited
from kernels import diff, git_range, mail, products, series, source, threads
from reports import forms
from results import door
from results.door import StoreError
from results.record import MOST_ITEMS, Record, RunRecord
from results.session import MeasuredSession, open_session
from results.store import MOST_BYTES, RUNS, SessionStore
from runs import archive, repro
from runs.fleet import parcel
from tests.analysis import factory
from tests.analysis.measured import measured


def _kinds(base: type) -> Iterator[type[Any]]:
    kinds: list[type[Any]] = base.__subclasses__()
    for kind in kinds:
        yield kind
        yield from _kinds(kind)


for package in (results, experiment, history, workloads):
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


def _unbounded(schema: Any, place: str) -> Iterator[str]:
    if isinstance(schema, dict):
        bounds = ({"maximum", "exclusiveMaximum"}, {"minimum", "exclusiveMinimum"})
        number = schema.get("type") in ("integer", "number")
        if number and "const" not in schema and not all(bound & schema.keys() for bound in bounds):
            yield place
        for key, value in schema.items():
            yield from _unbounded(value, f"{place}.{key}")
    elif isinstance(schema, list):
        for value in schema:
            yield from _unbounded(value, place)


STORED = [kind for kind in _kinds(Record) if kind.__module__.startswith("results.")]
SPECIFIED = sorted({*_kinds(Frozen)}, key=lambda kind: kind.__qualname__)


def test_every_number_has_a_bound() -> None:
    assert min(len(STORED), len(SPECIFIED)) > 40
    for kind in (*STORED, *SPECIFIED):
        assert list(_unbounded(TypeAdapter(kind).json_schema(), kind.__name__)) == []


def test_what_is_calculated_with_such_numbers_is_a_number() -> None:
    most = MOST["float"]
    assert math.isfinite(most**4 * 1e6)
    assert math.isfinite(float(MOST["int"]) ** 4)
    assert issubclass(Experiment, Frozen)


def _session_of(values: list[float], order: list[int]) -> MeasuredSession:
    """Two seeds on which every metric has one of these values."""
    session = factory.ExactSession(seeds=factory.SEEDS[:2])
    chosen = itertools.cycle(values[at % len(values)] for at in order)
    records = [
        RunRecord.model_validate(
            {**record.model_dump(), "samples": {name: next(chosen) for name in record.samples}}
        )
        if record.samples
        else record
        for record in session.records()
    ]
    return measured(session.manifest(), records)


SAMPLES = st.sampled_from([0.0, 1.0, -1.0, 0.5, 3.7, 1e16, 1e30, -1e30, 1e-30, -1e-30])


@settings(max_examples=12, deadline=None)
@given(st.lists(SAMPLES, min_size=1, max_size=4), st.lists(st.integers(0, 3), min_size=1))
def test_any_samples_are_reported_and_kept_as_a_night(
    values: list[float], order: list[int]
) -> None:
    session = _session_of(values, order)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert forms.render(compare_session(session), "text")
        entry_of(session)


@pytest.mark.parametrize("value", ["1e308", "-1e308", "5e-324", "9" * 400, "1e999"])
def test_a_sample_that_is_no_measurement_is_named_with_its_file_and_line(
    value: str, tmp_path: Path
) -> None:
    session = factory.ExactSession()
    store = SessionStore(tmp_path)
    store.create(session.manifest())
    record = session.records()[0].model_dump_json()
    number = record.partition('"4k.bw":')[2].partition(",")[0]
    (tmp_path / RUNS).write_text(f"{record.replace(number, value, 1)}\n")
    with pytest.raises(StoreError, match=r"runs\.jsonl:1: not a RunRecord: "):
        open_session(tmp_path)


def test_the_bounds_that_security_names_are_those_there_are() -> None:
    page = (Path(__file__).parents[2] / "SECURITY.md").read_text().partition("## Bounds")[2]
    rows = page.partition("\n## ")[0].splitlines()
    bounds = (
        ("a mailbox", products.LARGEST_MBOX >> 20, mail.MOST_MAILS),
        ("a series", series.LARGEST >> 20, diff.MOST_LINES, diff.MOST_FILES, threads.MOST_PATCHES),
        ("a range", git_range.MOST_COMMITS),
        ("a source in git", source.MOST_NAMES),
        ("a source in git", source.MOST_BYTES >> 20),
        ("an archive", archive.MOST_BYTES >> 20, archive.MOST_FILES, repro.MOST_RUNS),
        ("a session's", door.TEXT >> 20, MOST_BYTES[RUNS] >> 20),
        ("an experiment", MOST_ARMS, MOST_ITEMS, 8 * MOST_ITEMS),
        ("a folder", door.MOST_NAMES),
        ("a guest's", channel.LARGEST >> 20, channel.MOST_LINES),
        ("a worker's", parcel.LARGEST >> 20, parcel.MOST_FILES),
        ("reading", limited.CPU_S, limited.MEMORY_BYTES >> 20),
    )
    for what, *numbers in bounds:
        (row,) = (row for row in rows if row.startswith(f"| {what}"))
        assert {str(number) for number in numbers} <= {*re.findall(r"\d+", row)}, row
