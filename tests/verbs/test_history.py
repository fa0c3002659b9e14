"""The history and the gate from the command line, over nights made of session folders."""

import json
import shutil
from pathlib import Path

import pytest

from experiment.arms import ArmSpec
from history.entry import PINNED
from history.store import HistoryStore
from results.profile import Profile
from results.record import Manifest, RunRecord
from results.store import SessionStore
from tests.analysis import counts_factory
from tests.analysis.factory import ExactSession, fails, stored
from tests.conftest import Terminal
from tests.history.factory import Nights
from tests.values import but, data

NAMES = {"base": PINNED, "patched": "tonight"}
EVIL = "evil\n::error::pwned\x1b[2J"


def night(folder: Path, number: int, *, slow: bool = False, label: str = "") -> Path:
    """A session folder: a pinned kernel and tonight's, which may be slower in xas_load.

    The factory's patched arm is the one with fewer walks: a calm night has its counts.
    """
    session = ExactSession(effect={"4k": -0.02 if slow else 0.0, "thp": 0.0, "switch": 0.0})
    manifest = _nightly(counts_factory.counted(session.manifest()), number, label)
    store = SessionStore(folder / f"night-{number}")
    store.create(manifest)
    profiles = {p.run_id: p for p in counts_factory.profiles(session)}
    for record in session.records():
        profile = profiles.get(record.run_id)
        if slow and profile and record.arm == "patched":
            before = record.run_id.replace("patched", "base")
            profile = Profile(run_id=record.run_id, phases=profiles[before].phases)
        store.append(_tonight(record, number), *([profile] if profile else []))
    return store.folder


def _nightly(manifest: Manifest, number: int, label: str) -> Manifest:
    experiment = but(
        manifest.experiment,
        name="nightly",
        series=None,
        arms=tuple(ArmSpec(name=name) for name in NAMES.values()),
    )
    arms = []
    for arm in manifest.arms:
        kernel = arm.kernel
        if arm.name == "patched":
            source = f"deb:linux-source-6.12=6.12.{40 + number}-1"
            update = {"key": f"{number:032x}", "code_key": f"{number:064x}", "source": source}
            kernel = but(kernel, **update)
        arms.append(but(arm, name=NAMES[arm.name], kernel=kernel, label=label))
    return but(
        manifest,
        experiment=experiment,
        arms=tuple(arms),
        session=f"nightly-2026-01-{number:02}",
        created=f"2026-01-{number:02}T02:00:00Z",
    )


def _tonight(record: RunRecord, number: int) -> RunRecord:
    # Another kernel throws other dice: each seed moves by a little.
    samples = record.samples
    if samples and record.arm == "patched":
        wobble = dict.fromkeys(samples, 1 + 0.0001 * ((7 * number + 3 * record.seed) % 5 - 2))
        samples = {name: value * wobble[name] for name, value in samples.items()}
    return but(record, arm=NAMES[record.arm], samples=samples)


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sessions of five nights, slow from the fourth on."""
    folder = tmp_path_factory.mktemp("nights")
    for number in range(1, 6):
        night(folder, number, slow=number >= 4)
    return folder


@pytest.fixture
def sessions(tmp_path: Path, nights: Path) -> list[Path]:
    """Copies of them, of this test alone."""
    shutil.copytree(nights, tmp_path, dirs_exist_ok=True)
    return [tmp_path / f"night-{number}" for number in range(1, 6)]


def test_the_night_and_the_function_are_named_until_they_are_acknowledged(
    main: Terminal, tmp_path: Path, sessions: list[Path]
) -> None:
    history, known = tmp_path / "history", tmp_path / "known.toml"
    codes = []
    for session in sessions[:4]:
        assert main("history", "add", session, "--history", history) == 0
        codes.append(main("gate", "--history", history))
    assert codes == [0, 0, 0, 1]
    assert main("gate", "--history", history, "--json") == 1
    assert json.loads(main.out)["exit_code"] == 1
    assert main("history", "show", "--history", history, "--json") == 0
    (change,) = json.loads(main.out)["changes"]
    assert (change["night"], change["functions"][0]) == ("2026-01-04", "xas_load")
    known.write_text(f'[[known]]\nchange = "{change["id"]}"\nreason = "wanted"\n')
    assert main("gate", "--history", history, "--known", known) == 0
    assert "acknowledged: wanted" in main.out
    assert main("history", "add", sessions[4], "--history", history) == 0
    assert main("gate", "--history", history) == 1
    assert main("history", "show", "--history", history) == 0
    shown = main.out
    assert "nightly laptop exact: 5 nights, 2026-01-01 to 2026-01-05" in shown
    lines = [line for line in shown.splitlines() if "regression" in line]
    assert len(lines) == 1
    assert lines[0].startswith("2026-01-04 filemap-4k 4k.bw (tonight)")
    assert "kernel 6.12.43-1 -> 6.12.44-1" in lines[0]
    assert "functions xas_load" in lines[0]


def test_annotations_are_lines_of_their_own_and_nothing_else(
    main: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    session = ExactSession()
    lost = [r.run_id for r in session.records() if r.case == "filemap-4k" and not r.repeat]
    store = stored(
        tmp_path / "session",
        session,
        fails(session.records(), *lost, kind="panic", blame="series", message=EVIL),
    )
    assert main("gate", store.folder) == 4
    out = main.out
    commands = [line for line in out.splitlines() if line.startswith("::")]
    assert commands
    heads = ("::error title=", "::warning title=", "::notice title=")
    assert all(line.startswith(heads) for line in commands)
    broken = [line for line in commands if "evil" in line]
    assert len(broken) == 1
    assert broken[0].startswith("::error title=broken%3A filemap-v4 laptop exact::16 runs")
    assert broken[0].endswith("evil%0A::error::pwned?[2J")
    assert "\x1b" not in out
    main("gate", store.folder, "--no-annotations")
    assert "::error title" not in main.out


@pytest.mark.parametrize(
    ("arguments", "message"), data(__file__, "mistakes_of_the_user_end_with_2")
)
def test_mistakes_of_the_user_end_with_2(
    main: Terminal, tmp_path: Path, arguments: list[str], message: str
) -> None:
    HistoryStore(tmp_path / "h").add(Nights((0.0,)).entries()[0])
    for path in (tmp_path / "h").glob("nights/*/*"):
        path.unlink()
    given = [argument.replace("TMP", str(tmp_path)) for argument in arguments]
    assert main(*given) == 2
    assert message in main.err


def test_sessions_of_one_night_share_its_id(
    main: Terminal, tmp_path: Path, sessions: list[Path]
) -> None:
    history = tmp_path / "history"
    assert main("history", "add", *sessions[:2], "--history", history, "--night", "run-17") == 0
    read = HistoryStore(history).read()
    assert [entry.night_key for entry in read.entries] == ["run-17"] * 2
    assert [entry.night for entry in read.entries] == ["2026-01-01", "2026-01-02"]
    assert main("history", "add", sessions[2], "--history", history, "--night", "2025-12-31") == 0
    assert HistoryStore(history).read().entries[0].night_key == "2025-12-31"


@pytest.mark.parametrize(("night", "words"), data(__file__, "a_night_that_cannot_be_is_refused"))
def test_a_night_that_cannot_be_is_refused(
    main: Terminal, tmp_path: Path, sessions: list[Path], night: str, words: str
) -> None:
    history = tmp_path / "history"
    assert main("history", "add", sessions[0], "--history", history, "--night", night) == 2
    assert words in main.err
    assert not list(history.rglob("*.json"))


def test_a_session_that_cannot_be_added_takes_no_other_with_it(
    main: Terminal, tmp_path: Path, sessions: list[Path]
) -> None:
    history, torn = tmp_path / "history", sessions[0]
    (torn / "manifest.json").write_text("{")
    given = (torn, sessions[1], "--history", history, "--night", "run-17")
    assert main("history", "add", *given) == 2
    assert f"left out: {torn}" in main.err
    assert len(HistoryStore(history).read().entries) == 1


def test_a_night_of_which_nothing_was_added_is_no_pass(
    main: Terminal, tmp_path: Path, sessions: list[Path]
) -> None:
    history = tmp_path / "history"
    main("history", "add", sessions[0], "--history", history, "--night", "run-16")
    assert main("gate", "--history", history, "--night", "run-16") == 0
    assert main("gate", "--history", history, "--night", "run-17") == 3
    assert "no entry of night 'run-17'" in main.err


def test_a_session_judged_by_laxer_thresholds_than_the_policys_is_no_pass(
    main: Terminal, tmp_path: Path
) -> None:
    session = ExactSession(effect={"4k": -0.02, "thp": 0.0, "switch": 0.0})
    experiment = session.manifest().experiment
    wide = but(experiment, thresholds=but(experiment.thresholds, change=0.1))
    store = stored(tmp_path / "session", session, experiment=wide)
    assert main("gate", store.folder) == 2
    assert "change 10 % and not 0.25 %" in main.out
    policy = tmp_path / "gate.toml"
    policy.write_text("[[rules]]\nchange = 0.1\n")
    assert main("gate", store.folder, "--policy", policy) == 0
