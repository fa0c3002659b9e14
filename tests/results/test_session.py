"""One door to a measured session: everything on record, and nobody passes by it."""

import ast
from pathlib import Path

import pytest

from results.door import StoreError
from results.profile import Locks, PhaseLocks, Profile
from results.record import RunCost
from results.session import heads_in, named_session, open_session
from results.store import SessionStore
from tests.analysis.factory import ExactSession
from tests.analysis.test_gate import checked
from tests.values import but

CHECKOUT = Path(__file__).resolve().parents[2]
# Those that judge or show; who measures appends to a store.
READERS = ("reports", "history", "pages", "queues", "verbs")
RECORDS = {"records", "checks", "profiles", "locks", "costs"}


def test_everything_on_record_is_read(tmp_path: Path) -> None:
    session = ExactSession()
    first = session.records()[0]
    store = SessionStore(tmp_path)
    store.create(session.manifest())
    profile = Profile(run_id=first.run_id, phases=())
    locks = Locks(run_id=first.run_id, twin="held", phases=(PhaseLocks(phase="4k", virtual_ns=9),))
    cost = RunCost(run_id=first.run_id, elapsed_s=2.0, guest_cpu_s=1.0)
    store.append(first, profile, locks, cost)
    check = checked("base")
    store.append(check, but(cost, run_id=check.run_id))
    read = open_session(tmp_path)
    assert read.manifest == session.manifest()
    assert read.records == (first,)
    assert read.checks == (check,)
    assert read.profiles == (profile,)
    assert read.locks == (locks,)
    assert [each.run_id for each in read.costs] == [first.run_id, check.run_id]
    assert len(read.recorded) == 1


def test_arms_that_differ_are_not_the_same_code(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    store.create(but(ExactSession().manifest(), same_code=True))
    with pytest.raises(StoreError, match="their code keys differ"):
        open_session(tmp_path)


def test_a_run_that_is_not_of_the_plan_is_named(tmp_path: Path) -> None:
    session = ExactSession()
    updates: list[dict[str, object]] = [{"block": 8}, {"block": -1}]
    updates += [{"case": "x\n"}, {"arm": "x"}, {"twin": "x"}]
    for number, update in enumerate(updates):
        store = SessionStore(tmp_path / str(number))
        store.create(session.manifest())
        for record in session.records():
            store.append(record)
        open_session(store.folder)
        store.append(but(record, **update))
        with pytest.raises(StoreError, match=f"run {record.run_id} .*none of its manifest's"):
            open_session(store.folder)
    twice = SessionStore(tmp_path / "twice")
    twice.create(session.manifest())
    for run_id in ("a", "b"):
        twice.append(but(session.records()[0], run_id=run_id))
    with pytest.raises(StoreError, match=r"run b .*recorded twice"):
        open_session(twice.folder)


def test_a_manifest_of_many_arms_cases_or_metrics_is_refused(tmp_path: Path) -> None:
    store, honest = SessionStore(tmp_path), ExactSession().manifest()
    case = honest.cases[0]
    for update in (
        {"arms": honest.arms[:1] * 257},
        {"cases": (case,) * 257},
        {"seeds": tuple(range(2049))},
        {"cases": (but(case, metrics=case.metrics[:1] * 2049),)},
    ):
        store.create(but(honest, **update))
        with pytest.raises(StoreError, match=r"at most (256|2048) items"):
            store.manifest()


def calls(source: str) -> list[str]:
    """Methods by which a store's records are read, as called in a file."""
    if not any(f".{name}(" in source for name in RECORDS):
        return []
    return [
        node.func.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in RECORDS
        and not node.args
    ]


def test_the_checker_can_fail() -> None:
    assert calls("compare(store.manifest(), store.records(), ())") == ["records"]
    assert calls("session.records; print(records())") == []


def test_nobody_that_judges_or_shows_reads_records_past_the_door() -> None:
    imported = {
        path.relative_to(CHECKOUT).as_posix(): names
        for folder in READERS
        for path in sorted((CHECKOUT / folder).rglob("*.py"))
        if (names := calls(path.read_text()))
    }
    # Costs say nothing of a verdict.
    assert imported == {"verbs/session.py": ["costs"]}


def begun(folder: Path, created: str) -> Path:
    manifest = but(ExactSession().manifest(), created=created)
    SessionStore(folder).create(manifest)
    return folder


def test_newest_first_and_what_cannot_be_read_last(tmp_path: Path) -> None:
    for name, created in (
        ("b", "2026-01-02T00:00:00Z"),
        ("c", "2026-01-01T00:00:00Z"),
        ("a", "2026-01-03T00:00:00Z"),
    ):
        begun(tmp_path / name, created)
    (tmp_path / "z").mkdir()
    (tmp_path / "z" / "manifest.json").write_bytes(b"\xff{")
    (tmp_path / "no session").mkdir()
    heads = heads_in(tmp_path)
    assert [head.folder.name for head in heads] == ["a", "b", "c", "z"]
    assert [bool(head.problem) for head in heads] == [False, False, False, True]
    assert heads_in(tmp_path / "nowhere") == ()


def test_a_session_by_path_by_name_or_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions, here = tmp_path / "sessions", tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert named_session(Path("latest"), sessions) is None
    begun(sessions / "old", "2026-01-02T00:00:00Z")
    begun(sessions / "new", "2026-01-03T00:00:00Z")
    assert named_session(Path("latest"), sessions) == sessions / "new"
    assert named_session(Path("old"), sessions) == sessions / "old"
    assert named_session(Path("other"), sessions) == Path("other")
    assert named_session(tmp_path / "x", sessions) == tmp_path / "x"
    # What is here comes first.
    begun(here / "latest", "2026-01-01T00:00:00Z")
    assert named_session(Path("latest"), sessions) == Path("latest")
