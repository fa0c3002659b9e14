"""Comparisons shared by the tests of the forms: made once, because charts take time."""

from __future__ import annotations

import pytest

from reports.comparison import compare
from reports.model import Comparison
from tests.reports import counts_factory
from tests.reports.factory import Session, fails

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e`|$x$"


@pytest.fixture(scope="session")
def normal() -> Comparison:
    session = Session(overrides=("blocks=8",))
    return compare(session.manifest(), session.records())


@pytest.fixture(scope="session")
def counted() -> Comparison:
    """The normal session with the functions of every run counted, and three twins."""
    session = Session()
    manifest = counts_factory.with_twins(counts_factory.counted(session.manifest()))
    records, profiles, locks = counts_factory.twin_runs(manifest)
    profiles += counts_factory.profiles(session)
    return compare(manifest, session.records() + records, profiles, locks)


@pytest.fixture(scope="session")
def hostile() -> Comparison:
    """Every string a guest, a host or an experiment file may choose is an attack."""
    session = Session(title=HOSTILE, question=HOSTILE, overrides=(HOSTILE,))
    manifest = session.manifest()
    manifest = manifest.model_copy(
        update={
            "cases": tuple(
                case.model_copy(
                    update={
                        "title": HOSTILE,
                        "phases": tuple(
                            phase.model_copy(update={"command": HOSTILE, "caches": HOSTILE})
                            for phase in case.phases
                        ),
                        "metrics": tuple(
                            metric.model_copy(update={"title": HOSTILE, "unit": HOSTILE})
                            for metric in case.metrics
                        ),
                    }
                )
                for case in manifest.cases
            ),
            "arms": tuple(
                arm.model_copy(update={"label": HOSTILE}) for arm in manifest.arms
            ),
            "provenance": manifest.provenance.model_copy(
                update={"host": {HOSTILE: HOSTILE}, "tools": {HOSTILE: HOSTILE},
                        "qemu_argv": (HOSTILE,), "kernel_command_line": HOSTILE}
            ),
        }
    )  # fmt: skip
    found = fails(session.records(), "filemap-thp-002-base", kind=HOSTILE, message=HOSTILE)
    found = [r.model_copy(update={"findings": (HOSTILE,)}) for r in found]
    return compare(manifest, found)
