"""Whether the lines on record are those of all judged runs."""

from pathlib import Path

from results.profile import Annotation, FileCounts
from results.store import SessionStore
from runs.annotate import is_stale, runs_of
from tests.analysis import counts_factory as counts
from tests.analysis.factory import ExactSession
from tests.values import but


def test_lines_of_a_session_that_went_on_are_stale(tmp_path: Path) -> None:
    made, store = ExactSession(), SessionStore(tmp_path / "session")
    store.create(counts.counted(made.manifest()))
    profiles = {profile.run_id: profile for profile in counts.profiles(made)}
    for record in made.records():
        of_run = profiles.get(record.run_id)
        phases = tuple(but(each, blocks=((1, 2, 3),)) for each in (of_run.phases if of_run else ()))
        store.append(record, *([but(of_run, phases=phases)] if of_run else []))
    *before, last = (record.run_id for record, _ in runs_of(store))

    def of(runs: list[str]) -> Annotation:
        values = {"arm": "base", "case": "filemap-4k", "phase": "4k", "file": "mm/filemap.c"}
        lines = {1: (1, 1, True)}
        counted = FileCounts.model_validate({**values, "runs": runs, "lines": lines})
        return Annotation(diffs=(), counts=(counted,))

    assert before
    assert is_stale(of(before), store)
    assert not is_stale(of([*before, last]), store)
