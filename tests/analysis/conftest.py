"""Comparisons shared by the tests of the forms: made once, because charts take time."""

from collections.abc import Iterator
from dataclasses import replace
from types import FunctionType
from typing import Any

import pytest
from pydantic import BaseModel

from analysis.many import SessionComparison, compare_session
from analysis.model import Comparison
from reports import forms
from tests.analysis import counts_factory
from tests.analysis.factory import ExactSession, fails
from tests.analysis.many_factory import Many, steps, workloads
from tests.analysis.measured import compare, measured
from tests.analysis.wall_factory import WallSession
from tests.values import but


@pytest.fixture(scope="session", autouse=True)
def words_alone() -> Iterator[None]:
    """Charts take seconds: pages are without them where a test does not ask for them."""
    assert isinstance(forms.render, FunctionType)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forms.render, "__kwdefaults__", {"drawn": False})
        yield


HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e`|$x$"
FREE = (
    "title question overrides command caches unit label settings host tools qemu_argv "
    "kernel_command_line"
)


def attacked(value: Any, fields: str) -> Any:
    """The value with an attack before every text of these fields, at any depth."""
    if isinstance(value, tuple):
        return tuple(attacked(each, fields) for each in value)
    names = getattr(type(value), "model_fields", getattr(value, "__dataclass_fields__", ()))
    old = {name: getattr(value, name) for name in names}
    new = {
        name: struck(each) if name in fields.split() else attacked(each, fields)
        for name, each in old.items()
    }
    if isinstance(value, BaseModel):
        return but(value, **new)
    return replace(value, **new) if new else value


def struck(value: Any) -> Any:
    match value:
        case str():
            return f"{HOSTILE}{value}"
        case tuple():
            return tuple(map(struck, value))
        case dict():
            return {struck(name): struck(each) for name, each in value.items()}
    return value


@pytest.fixture(scope="session")
def normal() -> Comparison:
    return ExactSession(overrides=("blocks=8",)).compared()


@pytest.fixture(scope="session")
def counted() -> Comparison:
    """The normal session with the functions of every run counted, and three twins."""
    session = ExactSession()
    manifest = counts_factory.with_twins(counts_factory.counted(session.manifest()))
    records, profiles, locks = counts_factory.twin_runs(manifest)
    profiles += counts_factory.profiles(session)
    return compare(manifest, session.records() + records, profiles, locks)


@pytest.fixture(scope="session")
def hostile() -> Comparison:
    """Every string a guest, a host or an experiment file may choose is an attack."""
    session = ExactSession(overrides=("blocks=8",))
    records = fails(session.records(), "filemap-thp-002-base", kind=HOSTILE, message=HOSTILE)
    records = [but(r, findings=(HOSTILE,)) for r in records]
    return compare(attacked(session.manifest(), FREE), records)


@pytest.fixture(scope="session")
def quiet() -> Comparison:
    """A wall session on a host that was busy once."""
    return WallSession(effect=0.03, drift=0.02, busy=(("filemap-4k", 3, "patched"),)).compared()


@pytest.fixture(scope="session")
def five() -> SessionComparison:
    """Five arms against the first, one of them by a sysctl."""
    return Many().compared()


@pytest.fixture(scope="session")
def failed_five() -> SessionComparison:
    """Two runs of one arm failed."""
    many = Many()
    return many.compared(fails(many.records(), "filemap-4k-002-zr-1", "filemap-4k-005-zr-1"))


@pytest.fixture(scope="session")
def stepwise() -> SessionComparison:
    """Three patches, the second gives it."""
    return steps().compared()


@pytest.fixture(scope="session")
def matrix() -> Comparison:
    """Two arms over six cases."""
    return compare(*workloads())


@pytest.fixture(scope="session")
def hostile_five() -> SessionComparison:
    """Five arms whose labels, settings, units, titles and failures are attacks."""
    many = Many()
    records = fails(many.records(), "filemap-thp-002-sleepy", kind=HOSTILE, message=HOSTILE)
    return compare_session(measured(attacked(many.manifest(), FREE), records))


@pytest.fixture(scope="session")
def hostile_counts() -> Comparison:
    """Function, file, unit and lock names come from a guest: each is an attack."""
    session = ExactSession(seeds=(1, 2))
    manifest = counts_factory.with_twins(counts_factory.counted(session.manifest()))
    records, profiles, locks = counts_factory.twin_runs(manifest)
    profiles += counts_factory.profiles(session)
    guests = "name file function symbol user callers flags"
    return compare(
        attacked(manifest, "title functions"),
        session.records() + records,
        [attacked(profile, guests) for profile in profiles],
        [attacked(of_run, guests) for of_run in locks],
    )
