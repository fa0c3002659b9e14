"""Opening session folders: new ones, unfinished ones, and those of somebody else."""

import dataclasses
import datetime
import functools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import runs.session
from errors import InfraError, UsageError
from experiment.spec import Experiment
from host import accelerator
from host.accelerator import Accelerator, AcceleratorTest
from results.door import StoreError
from results.profile import calls_of
from results.record import Manifest
from results.store import SessionStore
from runs.boots import WallHost
from runs.local import Options
from runs.resolved import resolve
from runs.session import (
    keep_calls,
    locked,
    new_folder,
    now,
    reopen,
    require_new,
    start,
)
from tests.analysis import factory
from tests.values import but, data, silent

PATCH = data(__file__, "patch")


@pytest.fixture
def manifest() -> Manifest:
    return factory.ExactSession().manifest()


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options(checkout=tmp_path, cache=tmp_path / "cache")


class StandIn:
    """Stands in for ``runs.prepare``: kernels, initramfs and guest as they are today."""

    def __init__(self, manifest: Manifest) -> None:
        self.today: dict[str, Any] = {
            "roots_sha256": manifest.provenance.initramfs_sha256,
            "measured": {arm.name: SimpleNamespace(identity=arm.kernel) for arm in manifest.arms},
            "benches": (),
            "resolved": SimpleNamespace(measured=SimpleNamespace(guest=manifest.guest)),
            "probe": None,
            "qemu": None,
            "wall": None,
            "experiment": manifest.experiment,
            "plan": SimpleNamespace(seeds=manifest.seeds),
        }
        self.inputs: tuple[Experiment, Options] | None = None

    def prepare(self, experiment: Experiment, options: Options, progress: object) -> Any:
        self.inputs = (experiment, options)
        return SimpleNamespace(**self.today)


@pytest.fixture
def prepared(manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn(manifest)
    monkeypatch.setattr(runs.session, "prepare", stand_in.prepare)
    monkeypatch.setattr(runs.session, "require_known", lambda *_: None)
    monkeypatch.setattr(runs.session, "resolve", lambda experiment, **_: experiment)
    return stand_in


Resumed = tuple[Any, SessionStore, Options]


@pytest.fixture
def resume(
    tmp_path: Path, manifest: Manifest, prepared: StandIn, options: Options
) -> Callable[..., Resumed]:
    """Go on with a session that was begun with other values of its manifest."""

    def again(max_seeds: int | None = None, **update: Any) -> Resumed:
        SessionStore(tmp_path).create(but(manifest, **update))
        return reopen(tmp_path, options, silent, max_seeds)

    return again


def test_the_date_is_that_of_the_clock_or_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    assert now() == "2026-01-01T00:00:00Z"
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    away = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(now())
    assert abs(away) < datetime.timedelta(seconds=5)


def test_a_new_folder_is_one_that_is_not_there(tmp_path: Path, manifest: Manifest) -> None:
    names = set()
    for _ in range(3):
        folder = new_folder(tmp_path, manifest.experiment)
        assert folder.parent == tmp_path
        assert folder.name.startswith("filemap-v4-2")
        folder.mkdir()
        names.add(folder.name)
    assert len(names) == 3


def test_a_session_is_not_begun_over_another(
    tmp_path: Path, manifest: Manifest, options: Options, prepared: StandIn
) -> None:
    SessionStore(tmp_path).create(manifest)
    resolved: Any = SimpleNamespace(experiment=manifest.experiment)
    with pytest.raises(UsageError, match="holds a session already") as caught:
        start(resolved, options, tmp_path, (), silent)
    assert str(caught.value.next_step).startswith(f"--resume {tmp_path}")
    # Refused before a kernel is built for it.
    assert prepared.inputs is None


def test_a_session_is_begun_in_a_folder_of_its_own(tmp_path: Path) -> None:
    require_new(tmp_path / "new")
    # What was ended before its manifest was written.
    for name in (".lock", "series"):
        (tmp_path / name).touch()
    require_new(tmp_path)
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UsageError, match=r"holds other files: thesis\.tex"):
        require_new(tmp_path)
    with pytest.raises(UsageError, match="is a link"):
        require_new(Path("https://example.org/mine"))


@pytest.mark.usefixtures("prepared")
def test_a_new_session_has_its_manifest_before_its_first_run(
    tmp_path: Path, manifest: Manifest, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")

    def manifest_of(
        session: object, options: Options, *, name: str, created: str, overrides: tuple[str, ...]
    ) -> Manifest:
        update = {"session": name, "created": created, "overrides": overrides}
        return but(manifest, **update)

    monkeypatch.setattr(runs.session, "manifest_of", manifest_of)
    folder = tmp_path / "mine"
    assert manifest.experiment.series
    series = tmp_path / manifest.experiment.series.path
    series.mkdir(parents=True)
    (series / "0001-x.patch").write_text(PATCH)
    given = ("filemap-v4", "--set", "blocks=2")
    made = resolve(manifest.experiment, checkout=options.checkout, cache=options.cache)
    _, store = start(made, options, folder, ("blocks=2",), silent, given)
    written = store.manifest()
    assert written.arguments == given
    assert written.session == "mine"
    assert written.created == "2026-01-01T00:00:00Z"
    assert written.overrides == ("blocks=2",)
    assert store.records() == []
    # What it is built from is in its own folder, should the other be gone.
    assert (folder / "series/common/0001-x.patch").read_text() == PATCH


def test_who_calls_whom_is_kept_where_counted_kernels_differ(
    tmp_path: Path, manifest: Manifest, prepared: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = calls_of({"caller": {"callee"}})
    monkeypatch.setattr(runs.session, "of_kernels", lambda kernels: calls if len(kernels) else None)
    store = SessionStore(tmp_path)
    store.create(manifest)
    keep_calls(prepared.prepare(manifest.experiment, Options(tmp_path, tmp_path), silent), store)
    assert store.calls() is None
    prepared.today["probe"] = SimpleNamespace(sha256="0")
    for kernels, kept in (("same", None), ("apart", calls)):
        for arm, kernel in prepared.today["measured"].items():
            code = "one" if kernels == "same" else arm
            kernel.identity = but(kernel.identity, code_key=code)
        keep_calls(SimpleNamespace(**prepared.today), store)  # type: ignore[arg-type]
        assert store.calls() == kept


def test_a_session_goes_on_with_its_own_patches(
    tmp_path: Path, prepared: StandIn, resume: Callable[..., Resumed]
) -> None:
    own = tmp_path / "series/common"
    own.mkdir(parents=True)
    (own / "0001-x.patch").write_text(PATCH)
    resume()
    assert prepared.inputs
    series = prepared.inputs[0].series
    assert series
    assert (series.path, series.reverse) == (str(own), True)


def test_a_session_goes_on_as_it_was_begun(
    tmp_path: Path, manifest: Manifest, prepared: StandIn, options: Options
) -> None:
    """Its own way to boot and to count, today's host; of the same code nothing is booted."""
    cold = but(manifest.provenance, snapshot=False)
    SessionStore(tmp_path).create(but(manifest, provenance=cold))
    changed = dataclasses.replace(options, guests_at_once=1)
    _, store, chosen = reopen(tmp_path, changed, silent)
    assert store.folder == tmp_path
    assert chosen == dataclasses.replace(changed, snapshot=False, measure_anyway=True, probe=False)
    assert prepared.inputs == (manifest.experiment, chosen)
    SessionStore(tmp_path).create(factory.ExactSession(same_code=True).manifest())
    assert not reopen(tmp_path, options, silent)[2].measure_anyway


def by(ran_by: Accelerator, *, emulated: bool = False) -> dict[str, object]:
    return {"wall": WallHost(AcceleratorTest(ran_by, (), emulated=emulated), {}, ())}


def qemu(sha256: str) -> dict[str, object]:
    return {"qemu": SimpleNamespace(binary_sha256=sha256)}


KERNEL = SimpleNamespace(identity=SimpleNamespace(key="other"))
GUEST = but(factory.ExactSession().manifest().guest, memory_mib=4096)
# What differs, what a session was begun with, what today was then, and what is refused of it.
OTHERS: list[tuple[str, dict[str, str], dict[str, object], dict[str, object]]] = [
    ("initramfs", {}, {}, {"roots_sha256": "other"}),
    ("kernel of arm base", {}, {}, {"measured": dict.fromkeys(("base", "patched"), KERNEL)}),
    ("guest", {}, {}, {"resolved": SimpleNamespace(measured=SimpleNamespace(guest=GUEST))}),
    ("QEMU", {"qemu_sha256": "ab"}, qemu("ab"), qemu("cd")),
    ("what runs guests", {"accelerator": "kvm"}, by("kvm"), by("tcg")),
    ("what runs guests", {"accelerator": "kvm"}, by("kvm"), by("kvm", emulated=True)),
]


@pytest.mark.parametrize(("what", "begun", "then", "now"), OTHERS)
def test_other_bits_are_refused(
    manifest: Manifest,
    prepared: StandIn,
    resume: Callable[..., Resumed],
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    begun: dict[str, str],
    then: dict[str, object],
    now: dict[str, object],
) -> None:
    monkeypatch.setattr(accelerator, "require_device", lambda ran_by: None)
    provenance = but(manifest.provenance, **begun)
    prepared.today |= then
    resume(provenance=provenance)
    prepared.today |= now
    with pytest.raises(InfraError, match=f"{what} differs from .*: now .*, then") as caught:
        resume(provenance=provenance)
    assert "new session" in caught.value.next_step


def test_a_session_waits_for_its_kvm(
    tmp_path: Path,
    manifest: Manifest,
    prepared: StandIn,
    resume: Callable[..., Resumed],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before anything is built or booted to find out what else runs guests here."""
    gone = functools.partial(accelerator.require_device, device=tmp_path / "kvm")
    monkeypatch.setattr(accelerator, "require_device", gone)
    of_first = but(manifest.provenance, accelerator="emulated kvm")
    with pytest.raises(InfraError, match="KVM is gone"):
        resume(provenance=of_first)
    assert prepared.inputs is None
    (tmp_path / "kvm").touch()
    resume(provenance=of_first)


def test_no_session_to_go_on_with(tmp_path: Path, options: Options) -> None:
    with pytest.raises(StoreError, match=r"manifest\.json: no such file"):
        reopen(tmp_path, options, silent)


def test_one_lab_a_session(tmp_path: Path) -> None:
    folder = tmp_path / "session"
    with locked(folder):
        with pytest.raises(UsageError, match="another lab process") as caught, locked(folder):
            pass
        assert caught.value.where == str(folder)
        with locked(tmp_path / "other"):
            pass
    # It is let go, also where measuring failed.
    with pytest.raises(OSError, match="full"), locked(folder):
        raise OSError("full")
    with locked(folder):
        pass


def test_nothing_is_made_where_there_is_no_session_to_resume(tmp_path: Path) -> None:
    folder = tmp_path / "session"
    with pytest.raises(UsageError, match="no session here"), locked(folder, must_exist=True):
        pass
    assert not folder.exists()


def test_a_larger_budget_may_be_given_when_a_session_is_resumed(
    manifest: Manifest, prepared: StandIn, resume: Callable[..., Resumed]
) -> None:
    adding = but(manifest.experiment, max_seeds=16)
    _, store, _ = resume(48, experiment=adding)
    assert store.manifest().experiment.max_seeds == 48
    assert prepared.inputs
    assert prepared.inputs[0].max_seeds == 48


@pytest.mark.parametrize(
    ("begun", "most", "message"),
    [
        ({"max_seeds": 16}, 20, "judged after 8, 10, 12"),
        ({"max_seeds": 16}, 4, "judged after 8, 10, 12"),
        ({"max_seeds": None}, 32, "fixed number of 8 seeds"),
        ({"mode": "wall", "max_seeds": None}, 48, "fixed number of 8 blocks"),
    ],
)
def test_a_budget_that_cannot_be_had_is_refused_before_anything_is_built(
    manifest: Manifest,
    prepared: StandIn,
    resume: Callable[..., Resumed],
    begun: dict[str, Any],
    most: int,
    message: str,
) -> None:
    experiment = but(manifest.experiment, **begun)
    with pytest.raises(UsageError, match=message) as caught:
        resume(most, experiment=experiment)
    assert caught.value.where == f"--max-seeds {most}"
    assert prepared.inputs is None


def test_a_session_with_a_link_in_it_is_not_measured(tmp_path: Path) -> None:
    folder, private = tmp_path / "theirs", tmp_path / "private"
    (folder / "raw/4k-000-base").mkdir(parents=True)
    private.write_text("mine")
    # QEMU would open it for writing, and follow it.
    (folder / "raw/4k-000-base/console.log").symlink_to(private)
    with pytest.raises(StoreError, match=r"console\.log: is a link"), locked(folder):
        pass
    assert private.read_text() == "mine"
