from __future__ import annotations

import pytest

from reports import forms
from reports.document import plain
from reports.sections.answer import beside
from reports.sections.subject import PATH_AND_WORK, path_and_work
from reports.sections.view import View
from tests.analysis.factory import ExactSession
from tests.analysis.measured import compare


@pytest.mark.parametrize(
    ("primary", "shown"),
    [
        (("4k.refaults_per_io", "thp.bw"), ["4k.bw"]),
        (("4k.refaults_per_io", "switch.refaults_per_io"), ["4k.bw", "switch.bw"]),
        (("4k.bw", "thp.bw"), []),
    ],
)
def test_bandwidth_stands_beside_phases_that_are_judged_by_something_else(
    primary: tuple[str, ...], shown: list[str]
) -> None:
    session = ExactSession()
    manifest = session.manifest()
    cases = tuple(
        case.model_copy(
            update={
                "primary": tuple(
                    name for name in primary if name in {metric.name for metric in case.metrics}
                )
            }
        )
        for case in manifest.cases
    )
    comparison = compare(manifest.model_copy(update={"cases": cases}), session.records())
    lines = list(beside(View(forms.as_session(comparison)), comparison))
    assert len(lines) == bool(shown)
    for name, words in lines:
        assert name == "Not judged"
        text = plain(words).replace("virtual_", "")
        assert all(name in text for name in shown)
        assert not any(
            f"{phase}.bw" in text for phase in ("4k", "thp", "switch") if f"{phase}.bw" not in shown
        )
        assert "published" in text


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("4k.instructions", "4k.work"), PATH_AND_WORK),
        (("thp.bw", "thp.work"), PATH_AND_WORK),
        (("4k.bw", "path.bw"), ""),
        ((), ""),
    ],
)
def test_path_and_work_are_explained_where_they_are_judged(
    names: tuple[str, ...], expected: str
) -> None:
    assert path_and_work(names) == expected
