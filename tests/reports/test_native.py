"""The report of a native session, in each of its forms."""

import json
from pathlib import Path

import pytest

from analysis.native import judge
from errors import UsageError
from reports import forms
from reports.native import FILES, names_of, write_all
from results import native
from results.door import StoreError
from results.record import PatchRecord, SeriesRecord
from tests.analysis.factory import ExactSession, stored
from tests.analysis.native_factory import World, head_of, on_disk
from tests.values import but
from verbs.session import report


def test_every_form_is_written_and_has_the_verdict(tmp_path: Path) -> None:
    on_disk(tmp_path, World(change=0.03))
    text, judged = write_all(tmp_path, "text")
    assert [str(each.verdict) for each in judged] == ["regression"]
    assert "readahead" in text
    for form in FILES:
        written = (tmp_path / FILES[form]).read_text()
        assert "regression" in written
        assert "a CPU" in written
    whole = json.loads((tmp_path / "report.json").read_text())
    (metric,) = whole["metrics"]
    assert whole["mode"] == "native"
    assert metric["change"]["low"] < 0.03 < metric["change"]["high"]
    assert metric["base_ns"] == pytest.approx(781, rel=0.02)


def test_names_of_several_arms_differ_in_the_width_of_a_terminal(tmp_path: Path) -> None:
    head = head_of(24, phases=("readahead", "refault"))
    third = but(head.arms[1], name="divisions")
    head = but(
        head,
        arms=(*head.arms, third),
        phases={**head.phases, "reclaim-overwrite": ("write", "refault")},
    )
    judged = judge(head, ())
    labels = set(names_of(head, judged).values())
    assert labels == {
        f"{arm}: {phase}"
        for arm in ("patched", "divisions")
        for phase in ("readahead", "write", "refault, filemap-4k", "refault, reclaim-overwrite")
    }
    # Its widest columns leave that much of a name.
    assert len({label[:25] for label in labels}) == len(labels)


def test_a_line_that_is_not_whole_is_passed_over(tmp_path: Path) -> None:
    on_disk(tmp_path, World(), boots=6)
    with (tmp_path / native.BOOTS).open("a") as file:
        file.write('{"round": 3, "arm"')
    assert len(native.read(tmp_path)[1]) == 6
    assert report(tmp_path, "json", strict=False) == 3


def test_strict_tells_what_is_open(tmp_path: Path) -> None:
    on_disk(tmp_path, World(layout=0.02))
    assert report(tmp_path, "", strict=False) == 0
    assert report(tmp_path, "", strict=True) == 5


def test_a_series_of_slow_boots_is_counted_shown_and_withholds_the_verdict(tmp_path: Path) -> None:
    on_disk(tmp_path, World(change=0.05, slow=0.3))
    assert report(tmp_path, "", strict=True) == 5
    _, (of,) = write_all(tmp_path, "text")
    for form in ("text", "markdown", "html"):
        shown = (tmp_path / FILES[form]).read_text().replace("&nbsp;", " ")
        assert f"withheld: {of.slow} of 24 rounds have a boot that is 5.00 % slower" in " ".join(
            shown.split()
        )
    assert of.slow > 6


def test_what_is_none_is_refused(tmp_path: Path) -> None:
    assert not native.is_native(tmp_path)
    with pytest.raises(StoreError, match="no session of native mode"):
        native.read(tmp_path)
    with pytest.raises(UsageError, match="letter"):
        write_all(on_disk(tmp_path, World()), "letter")


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [
        (native.NATIVE, "alpha", 0),
        (native.NATIVE, "arms", []),
        (native.BOOTS, "hertz", 0.0),
        (native.BOOTS, "phases", {}),
        (native.BOOTS, "phases", {"crossing": {"folios": 1, "calls": 1, "ticks": [1]}}),
        (native.BOOTS, "phases", {"readahead": {"folios": 0, "calls": 1, "ticks": [1]}}),
        (native.BOOTS, "phases", {"readahead": {"folios": 1, "calls": 1, "ticks": []}}),
        (native.BOOTS, "phases", {"readahead": {"folios": 1, "calls": 1, "ticks": [0]}}),
    ],
)
def test_what_no_session_has_is_refused(file: str, key: str, value: object, tmp_path: Path) -> None:
    on_disk(tmp_path, World())
    first, *lines = (tmp_path / file).read_text().splitlines()
    whole = json.loads(first if file == native.BOOTS else "\n".join([first, *lines]))
    text = json.dumps(whole | {key: value})
    (tmp_path / file).write_text("\n".join([text, *lines, ""]) if file == native.BOOTS else text)
    with pytest.raises(StoreError, match=file) as caught:
        native.read(tmp_path)
    # The first mistake, in one line, with its key.
    assert "\n" not in caught.value.what
    assert key in caught.value.what or "has no" in caught.value.what


def test_an_exact_report_has_the_time_of_the_same_arms_in_every_form(tmp_path: Path) -> None:
    made_up = ExactSession()
    patch = PatchRecord(name="a.patch", subject="a", sha256="aa", files=())
    series = SeriesRecord(kind="file", origin="a", title="a", patches=(patch,))
    base, patched = made_up.manifest().arms
    patched = but(patched, kernel=but(patched.kernel, patches=("a.patch",)))
    base = but(base, kernel=but(base.kernel, patches=()))

    def of_source(name: str, source: str) -> Path:
        arms = tuple(but(arm, kernel=but(arm.kernel, source=source)) for arm in (base, patched))
        return stored(tmp_path / name, made_up, arms=arms, series=(series,)).folder

    head = but(head_of(24), source="a tree")
    for name, contents, day in (("same", "aa", 1), ("newer", "bb", 2)):
        arms = head.arms[0], but(head.arms[1], contents=(contents,))
        made = but(head, arms=arms, created=f"2026-01-0{day}T00:00:00Z")
        on_disk(tmp_path / name, World(change=0.03), made)
    timed = forms.read_comparison(of_source("exact", "a tree"))
    assert timed.timed is not None
    assert (timed.timed.session, [str(each.verdict) for each in timed.timed.judged]) == (
        "same",
        ["regression"],
    )
    for form in ("text", "markdown", "html", "letter", "summary"):
        shown = " ".join(forms.render(timed, form).split())
        assert "readahead +3.0" in shown.replace("\\", ""), form
        assert "on a CPU" in shown
    assert json.loads(forms.render(timed, "json"))["timed"]["cpu"] == "a CPU"
    (tmp_path / "same" / native.BOOTS).write_text("{}\n")
    assert forms.read_comparison(tmp_path / "exact").timed is None
    other = forms.read_comparison(of_source("other", "another tree"))
    assert other.timed is None
    assert "timed" not in json.loads(forms.render(other, "json"))
