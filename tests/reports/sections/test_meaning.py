from __future__ import annotations

import pytest

from reports.sections.subject import PATH_AND_WORK, path_and_work


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("4k.path", "4k.work"), PATH_AND_WORK),
        (("thp.bw", "thp.work"), PATH_AND_WORK),
        (("4k.bw", "path.bw"), ""),
        ((), ""),
    ],
)
def test_path_and_work_are_explained_where_they_are_judged(
    names: tuple[str, ...], expected: str
) -> None:
    assert path_and_work(names) == expected
