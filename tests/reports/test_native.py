"""The report of a native session, in each of its forms."""

import json
from pathlib import Path

import pytest

from errors import UsageError
from reports.native import FILES, FORMS, beside, write_all
from results import native
from results.door import StoreError
from results.record import PatchRecord, SeriesRecord
from tests.analysis.factory import ExactSession
from tests.analysis.native_factory import World, boots_of, head_of
from tests.values import but
from verbs.session import report


def session(folder: Path, world: World, boots: int = 72) -> Path:
    head = head_of(24)
    native.begin(folder, head)
    for boot in boots_of(head, world, 1)[:boots]:
        native.append(folder, boot)
    return folder


def test_every_form_is_written_and_has_the_verdict(tmp_path: Path) -> None:
    session(tmp_path, World(change=0.03))
    text, judged = write_all(tmp_path, "text")
    assert [str(each.verdict) for each in judged] == ["regression"]
    assert "filemap-4k: readahead" in text
    for form in FORMS:
        written = (tmp_path / FILES[form]).read_text()
        assert "regression" in written
        assert "a CPU" in written
    whole = json.loads((tmp_path / "report.json").read_text())
    (metric,) = whole["metrics"]
    assert whole["mode"] == "native"
    assert metric["change"]["low"] < 0.03 < metric["change"]["high"]
    assert metric["base_ns"] == pytest.approx(781, rel=0.02)


def test_a_line_that_is_not_whole_is_passed_over(tmp_path: Path) -> None:
    session(tmp_path, World(), boots=6)
    with (tmp_path / native.BOOTS).open("a") as file:
        file.write('{"round": 3, "arm"')
    assert len(native.read(tmp_path)[1]) == 6
    assert report(tmp_path, "json", strict=False) == 3


def test_strict_tells_what_is_open(tmp_path: Path) -> None:
    session(tmp_path, World(layout=0.02))
    assert report(tmp_path, "", strict=False) == 0
    assert report(tmp_path, "", strict=True) == 5


def test_a_series_of_slow_boots_is_counted_shown_and_withholds_the_verdict(tmp_path: Path) -> None:
    session(tmp_path, World(change=0.05, slow=0.3))
    assert report(tmp_path, "", strict=True) == 5
    _, (of,) = write_all(tmp_path, "text")
    for form in ("text", "markdown", "html"):
        shown = (tmp_path / FILES[form]).read_text()
        assert f"withheld: {of.slow} of 24 rounds have a boot that is 5.00 % slower" in " ".join(
            shown.split()
        )
    assert of.slow > 6


def test_what_is_none_is_refused(tmp_path: Path) -> None:
    assert not native.is_native(tmp_path)
    with pytest.raises(StoreError, match="no session of native mode"):
        native.read(tmp_path)
    with pytest.raises(UsageError, match="letter"):
        write_all(session(tmp_path, World()), "letter")


def test_an_exact_report_has_the_time_of_the_same_arms_beside_it(tmp_path: Path) -> None:
    exact = ExactSession().manifest()
    patch = PatchRecord(name="a.patch", subject="a", sha256="aa", files=())
    series = SeriesRecord(kind="file", origin="a", title="a", patches=(patch,))
    kernels = [but(arm.kernel, patches=()) for arm in exact.arms[:2]]
    kernels[1] = but(kernels[1], patches=("a.patch",))
    arms = [but(arm, kernel=kernel) for arm, kernel in zip(exact.arms, kernels, strict=False)]
    exact = but(exact, arms=tuple(arms), series=(series,))
    head = head_of(24)
    native_arms = (head.arms[0], but(head.arms[1], contents=("aa",)))
    head = but(head, arms=native_arms, source=kernels[0].source)
    for name, contents, day in (("same", "aa", 1), ("newer", "bb", 2)):
        other = but(native_arms[1], contents=(contents,))
        created = f"2026-01-0{day}T00:00:00Z"
        update = {"arms": (native_arms[0], other), "created": created}
        (tmp_path / name).mkdir()
        native.begin(tmp_path / name, but(head, **update))
        for boot in boots_of(head, World(change=0.03), 1):
            native.append(tmp_path / name, boot)
    first, line, last = beside(tmp_path / "exact", exact)
    assert first == "time of the same arms on a CPU (native, same):"
    assert line.startswith("  filemap-4k readahead  +3.0")
    assert line.endswith("regression")
    assert "no verdict" in last
    other_source = but(
        exact, arms=tuple(but(arm, kernel=but(arm.kernel, source="x")) for arm in arms)
    )
    assert beside(tmp_path / "exact", other_source) == []
