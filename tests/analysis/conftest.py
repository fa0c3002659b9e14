"""Comparisons shared by the tests of the forms: made once, because charts take time."""

from collections.abc import Iterator
from types import FunctionType

import pytest

from analysis.many import SessionComparison, compare_session
from analysis.model import Comparison
from reports import forms
from results.profile import FunctionCount, LockSite, LockUse, Profile
from tests.analysis import counts_factory
from tests.analysis.factory import ExactSession, fails
from tests.analysis.many_factory import Many, steps, workloads
from tests.analysis.measured import compare, measured


@pytest.fixture(scope="session", autouse=True)
def words_alone() -> Iterator[None]:
    """Charts take seconds: pages are without them where a test does not ask for them."""
    assert isinstance(forms.render, FunctionType)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forms.render, "__kwdefaults__", {"drawn": False})
        yield


HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e`|$x$"


@pytest.fixture(scope="session")
def normal() -> Comparison:
    session = ExactSession(overrides=("blocks=8",))
    return compare(session.manifest(), session.records())


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
    session = ExactSession(title=HOSTILE, question=HOSTILE, overrides=(HOSTILE,))
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
            "arms": tuple(arm.model_copy(update={"label": HOSTILE}) for arm in manifest.arms),
            "provenance": manifest.provenance.model_copy(
                update={
                    "host": {HOSTILE: HOSTILE},
                    "tools": {HOSTILE: HOSTILE},
                    "qemu_argv": (HOSTILE,),
                    "kernel_command_line": HOSTILE,
                }
            ),
        }
    )
    records = fails(session.records(), "filemap-thp-002-base", kind=HOSTILE, message=HOSTILE)
    records = [r.model_copy(update={"findings": (HOSTILE,)}) for r in records]
    return compare(manifest, records)


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
    many = Many(title=HOSTILE)
    manifest = many.manifest()
    arms = tuple(
        arm.model_copy(update={"label": HOSTILE, "settings": {HOSTILE: f"{HOSTILE}{number}"}})
        for number, arm in enumerate(manifest.arms)
    )
    cases = tuple(
        case.model_copy(
            update={
                "title": HOSTILE,
                "metrics": tuple(
                    m.model_copy(update={"title": HOSTILE, "unit": HOSTILE}) for m in case.metrics
                ),
            }
        )
        for case in manifest.cases
    )
    manifest = manifest.model_copy(update={"arms": arms, "cases": cases})
    records = fails(many.records(), "filemap-thp-002-sleepy", kind=HOSTILE, message=HOSTILE)
    return compare_session(measured(manifest, records))


@pytest.fixture(scope="session")
def hostile_counts() -> Comparison:
    """Function, file, unit and lock names come from a guest: each is an attack."""
    session = ExactSession(seeds=(1, 2))
    manifest = counts_factory.with_twins(counts_factory.counted(session.manifest()))
    records, profiles, locks = counts_factory.twin_runs(manifest)
    profiles += counts_factory.profiles(session)

    def attack(profile: Profile) -> Profile:
        phases = tuple(
            phase.model_copy(
                update={
                    "kernel": (
                        *phase.kernel,
                        FunctionCount(
                            name=HOSTILE,
                            file=HOSTILE,
                            calls=1,
                            instructions=10**7 if "base" in profile.run_id else 5,
                        ),
                    ),
                    "locks": (
                        LockUse(
                            instances=1,
                            sleeps=False,
                            symbol=HOSTILE,
                            sites=(
                                LockSite(
                                    function=HOSTILE,
                                    file=HOSTILE,
                                    shared=False,
                                    taken=9,
                                    held=10**7,
                                ),
                            ),
                        ),
                    ),
                    "user": {
                        **phase.user,
                        f"{HOSTILE}.so": 10**8 if "base" in profile.run_id else 1,
                    },
                    "instructions": phase.instructions + 10**9,
                }
            )
            for phase in profile.phases
        )
        return profile.model_copy(update={"phases": phases})

    locks = [
        of_run.model_copy(
            update={
                "phases": tuple(
                    phase.model_copy(
                        update={
                            "waits": tuple(
                                w.model_copy(
                                    update={"callers": (HOSTILE, HOSTILE), "flags": HOSTILE}
                                )
                                for w in phase.waits
                            ),
                        }
                    )
                    for phase in of_run.phases
                )
            }
        )
        for of_run in locks
    ]
    units = tuple(u.model_copy(update={"title": HOSTILE}) for u in counts_factory.UNITS)
    ratios = tuple(
        r.model_copy(update={"title": HOSTILE, "functions": (HOSTILE, "gone" + HOSTILE)})
        for r in counts_factory.RATIOS
    )
    manifest = manifest.model_copy(
        update={
            "cases": tuple(
                case.model_copy(
                    update={
                        "phases": tuple(
                            phase.model_copy(update={"units": units, "ratios": ratios})
                            for phase in case.phases
                        )
                    }
                )
                for case in manifest.cases
            )
        }
    )
    return compare(manifest, session.records() + records, list(map(attack, profiles)), locks)
