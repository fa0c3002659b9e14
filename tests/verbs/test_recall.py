"""`recall` reads what is finished, names what cannot be measured, and keeps the rest."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from errors import SeriesError
from experiment.ad_hoc import NoWorkloadError
from files import sha256_of
from history import recall
from results.coverage import suggest
from results.native import BOOTS, NativeHead, append, begin
from results.record import Manifest, PatchRecord, SeriesRecord
from results.store import SessionStore
from runs.coverage import shipped
from runs.request import Request
from tests.analysis.factory import ExactSession
from tests.analysis.native_factory import World, boots_of, head_of
from tests.conftest import Terminal
from tests.history.test_recall import folders
from tests.values import but
from verbs.options import Measuring
from verbs.recall import request_of

Measured = list[tuple[str, str]]
RECALL = ("recall", "--sessions", "sessions")


def stored(folder: Path, patches: Path, runs: int | None = None) -> None:
    """A session of these patches, with all of its runs or some."""
    session = ExactSession(effect=dict.fromkeys(("4k", "thp", "switch"), 0.02))
    store = SessionStore(folder)
    store.create(of_patches(session.manifest(), patches))
    for record in session.records()[len(list(store.records())) : runs]:
        store.append(record)


def of_patches(manifest: Manifest, patches: Path) -> Manifest:
    (patch,) = patches.glob("*.patch")
    record = PatchRecord(name=patch.name, subject="x", sha256=sha256_of(patch), files=())
    series = SeriesRecord(kind="folder", origin="x", title="x", patches=(record,))
    return but(manifest, series=(series,))


def of_entry(name: str, folder: Path) -> NativeHead:
    """What a session of native mode of this entry measures."""
    (patch,) = folder.glob(f"*/{name}/0001-change.patch")
    base, patched = (head := head_of(24)).arms
    return but(head, arms=(base, but(patched, contents=(sha256_of(patch),))))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Measured:
    """The command line with three entries, and what it has measured: verb and entry."""
    monkeypatch.setattr("history.recall.FOLDERS", folders(tmp_path))
    calls: Measured = []

    def measure(
        request: Request,
        *_: object,
        folder: Path | None = None,
        resume: Path | None = None,
        **__: object,
    ) -> Path:
        if resume is not None:
            calls.append(("resume", resume.name))
            (patches,) = tmp_path.glob(f"*/{resume.name}/0001-change.patch")
            stored(resume, patches.parent)
            return resume
        assert folder is not None
        given = [*request.overrides, *["diagnostics"] * bool(request.twins)]
        if request.mode == "native":
            assert request.workloads == "filemap-4k"
            calls.append(("native", folder.name))
            head = of_entry(folder.name.removesuffix(recall.TIMED), tmp_path)
            begin(folder, head)
            for boot in boots_of(head, World(), 1):
                append(folder, boot)
            return folder
        calls.append((" ".join(given) or "forward", folder.name))
        (patches,) = map(Path, request.series)
        if folder.name == "p02-code":
            raise SeriesError("does not apply", where="0001-change.patch")
        if folder.name == "comment":
            raise NoWorkloadError(["--series: no workload executes comment"])
        stored(folder, patches)
        return folder

    monkeypatch.setattr("verbs.session.measure", measure)
    monkeypatch.setattr(
        "verbs.recall.request_of",
        lambda entry, _: Request(
            series=(str(entry.folder),), overrides=("series.reverse=true",) if entry.result else ()
        ),
    )

    monkeypatch.chdir(tmp_path)
    return calls


def rows(shown: str) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in json.loads(shown)["rows"]}


def test_one_that_cannot_be_measured_is_named_and_the_others_are_kept(
    main: Terminal, calls: Measured
) -> None:
    assert main(*RECALL, "--json") == 3
    shown = main.out
    assert calls == [
        ("series.reverse=true", "p02-code"),
        ("forward", "comment"),
        ("series.reverse=true", "p01-header"),
    ]
    assert {name: each["recalled"] for name, each in rows(shown).items()} == {
        "p01-header": "caught",
        "p02-code": "not measured",
        "comment": "not executed",
    }
    assert "does not apply" in rows(shown)["p02-code"]["why"]
    assert "error: p02-code: not measured" in main.err
    # The same is on disk: the table is made of that alone.
    assert main(*RECALL, "--json", "--no-measure") == 3
    assert rows(main.out) == rows(shown)


def test_what_is_finished_is_read_and_what_is_not_goes_on(
    main: Terminal, calls: Measured, tmp_path: Path
) -> None:
    folder = tmp_path / "sessions" / "p01-header"
    stored(folder, tmp_path / "published" / "p01-header", runs=5)
    assert main(*RECALL, "p01") == 0
    assert main(*RECALL, "p01") == 0
    assert calls == [("resume", "p01-header")]
    shutil.rmtree(folder)
    assert main(*RECALL, "p01") == 0
    assert calls[1:] == [("series.reverse=true", "p01-header")]


def test_a_session_of_other_patches_is_none_of_the_entry(
    main: Terminal, calls: Measured, tmp_path: Path
) -> None:
    stored(tmp_path / "sessions" / "p01-header", tmp_path / "published" / "p02-code")
    assert main(*RECALL, "p01", "--json") == 3
    assert calls == []
    assert "of other patches" in rows(main.out)["p01-header"]["why"]


def test_an_entry_that_is_measured_later_loses_its_problem(
    main: Terminal, calls: Measured, tmp_path: Path
) -> None:
    assert main(*RECALL, "p02") == 3
    stored(tmp_path / "sessions" / "p02-code", tmp_path / "published" / "p02-code")
    assert main(*RECALL, "p02") == 0
    (entry,) = recall.chosen(recall.entries(recall.FOLDERS), ["p02"])
    assert recall.row(entry, tmp_path / "sessions").recalled is recall.Recalled.CAUGHT


def test_a_published_result_that_instructions_do_not_show_has_a_session_with_diagnostic_runs(
    main: Terminal, calls: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = recall.Recalled.WRONGLY_SILENT
    judged = recall.judge
    monkeypatch.setattr(
        "history.recall.judge", lambda entry, *of: but(judged(entry, *of), recalled=silent)
    )
    assert main(*RECALL, "p01") == 0
    assert calls == [
        ("series.reverse=true", "p01-header"),
        ("series.reverse=true diagnostics", "p01-header-diagnostics"),
    ]
    assert main(*RECALL, "p01") == 0
    assert len(calls) == 2


def test_with_native_a_published_result_is_timed_and_a_session_that_is_not_whole_is_made_anew(
    main: Terminal, calls: Measured, tmp_path: Path
) -> None:
    assert main(*RECALL, "p01", "--json") == 0
    assert "time" not in rows(main.out)["p01-header"]["instruments"]
    about = tmp_path / "published" / "p01-header" / recall.ABOUT
    assert main(*RECALL, "p01", "--native") == 0
    about.write_text(about.read_text() + 'native = ["filemap-4k"]\n')
    begin(tmp_path / "sessions" / "p01-header-native", of_entry("p01-header", tmp_path))
    assert main(*RECALL, "p01", "comment", "--native", "--json") == 0
    shown = rows(main.out)["p01-header"]["instruments"]["time"]
    assert shown.endswith("(filemap-4k readahead, native)")
    assert main(*RECALL, "p01", "--native") == 0
    assert [name for name in calls if name[0] == "native"] == [("native", "p01-header-native")]
    of_other = tmp_path / "sessions" / "p01-header-native"
    # One that was interrupted and resumed has a boot more, and is whole.
    lines = (of_other / BOOTS).read_text().splitlines(keepends=True)
    (of_other / BOOTS).write_text("".join([lines[0], *lines]))
    assert main(*RECALL, "p01", "--native") == 0
    assert len([name for name in calls if name[0] == "native"]) == 1
    # One of other patches is made anew, too.
    shutil.rmtree(of_other)
    begin(of_other, but(of_entry("p02-code", tmp_path), same_code=True))
    assert main(*RECALL, "p01", "--no-measure", "--json") == 0
    assert "time" not in rows(main.out)["p01-header"]["instruments"]
    assert main(*RECALL, "p01", "--native") == 0
    assert len([name for name in calls if name[0] == "native"]) == 2


@pytest.mark.parametrize(
    ("changed", "workloads"),
    # Nothing executes the last; the first is in no file of the series.
    [(("folio_add_lru",), 2), ((), 1), (("build_all_zonelists",), None)],
)
def test_an_entry_is_measured_by_what_differs_in_its_kernels(
    monkeypatch: pytest.MonkeyPatch, changed: tuple[str, ...], workloads: int | None
) -> None:
    (entry,) = recall.chosen(recall.entries(recall.FOLDERS), ["p17"])
    suggestion = suggest(shipped(), changed, ["block/blk.h"])
    resolved = SimpleNamespace(flavours=("perf",))
    advice = SimpleNamespace(suggestion=suggestion, files=("block/blk.h",))
    monkeypatch.setattr("verbs.recall.resolved_of", lambda _: resolved)
    monkeypatch.setattr("runs.building.build_arms", lambda *_: {})
    monkeypatch.setattr("runs.building.same_code", lambda *_: not changed)
    monkeypatch.setattr("runs.coverage.answer", lambda *_: advice)
    if workloads is None:
        with pytest.raises(NoWorkloadError, match="build_all_zonelists"):
            request_of(entry, Measuring())
        return
    request = request_of(entry, Measuring())
    assert (request.guest, request.seeds, request.max_seeds) == ("smoke", 8, None)
    assert request.overrides == ("series.reverse=true",)
    assert len(request.named_workloads) == workloads
