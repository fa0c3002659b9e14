"""What an archive of a session holds, and which ones are not repeated."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from errors import SeriesError, UsageError
from experiment.load import load_experiment
from experiment.spec import CaseSpec, KernelSpec
from guests import initramfs
from results.door import StoreError
from results.record import Manifest
from results.store import SessionStore
from runs.archive import pack, unpack
from runs.local import Options
from runs.repro import (
    HEAD,
    Repro,
    differs_here,
    experiment_again,
    read_archive,
    write_archive,
)
from runs.resolved import catalogue
from runs.session import require_known
from tests.analysis import factory
from tests.runs.test_session import PATCH
from tests.values import but

SERIES = "configs/series/filemap-walks"


@pytest.fixture
def options(tmp_path: Path) -> Options:
    checkout = tmp_path / "checkout"
    for name, text in {
        f"{SERIES}/0001-x.patch": PATCH,
        "configs/kconfig/base.config": "CONFIG_SMP=y\n",
        "configs/kconfig/perf.config": "CONFIG_PERF_EVENTS=y\n",
        "configs/kconfig/other.config": "CONFIG_OTHER=y\n",
        "configs/guests/laptop.toml": "vcpus = 1\n",
        "workloads/catalogue/filemap-4k.toml": "title = 1\n",
        "workloads/agent.sh": "# agent\n",
    }.items():
        path = checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Options(checkout=checkout, cache=tmp_path / "cache")


@pytest.fixture
def manifest() -> Manifest:
    return factory.ExactSession().manifest()


@pytest.fixture
def folder(tmp_path: Path, manifest: Manifest) -> Path:
    """A session as it lies on disk."""
    session = factory.ExactSession()
    store = factory.stored(tmp_path / "session", session, session.records()[:4])
    (store.folder / "series/common").mkdir(parents=True)
    (store.folder / "series/common/0001-x.patch").write_text(PATCH)
    return store.folder


def changed(
    archive: Path, scratch: Path, name: str, content: bytes | None, *, honest: bool
) -> Path:
    """The archive with one file changed, or without it; an honest one says so in its head."""
    scratch.mkdir()
    files = {each: (scratch / each).read_bytes() for each in unpack(archive, scratch)}
    files[name] = content or b""
    if honest:
        head = json.loads(files[HEAD])
        head["files"][name] = hashlib.sha256(files[name]).hexdigest()
        if content is None:
            del head["files"][name], files[name]
        files[HEAD] = json.dumps(head).encode()
    pack(files, archive)
    return archive


def packed(folder: Path, options: Options) -> Path:
    """The archive of a session, beside its folder."""
    archive = folder.parent / "x.tar.gz"
    write_archive(folder, archive, options)
    return archive


def unpacked(archive: Path) -> Repro:
    into = archive.parent / "into"
    into.mkdir()
    return read_archive(archive, into)


def test_all_that_is_needed_is_in_it(folder: Path, options: Options, tmp_path: Path) -> None:
    names = write_archive(folder, tmp_path / "x.tar.gz", options)
    assert set(names) == {
        HEAD,
        "session/manifest.json",
        "session/runs.jsonl",
        "session/series/common/0001-x.patch",
        "inputs/configs/kconfig/base.config",
        "inputs/configs/kconfig/perf.config",
        "inputs/configs/guests/laptop.toml",
        "inputs/workloads/catalogue/filemap-4k.toml",
        "inputs/workloads/agent.sh",
        f"kernels/{'9f8b2c41d7e65a30' * 4}/identity.json",
        f"kernels/{'41d7e65a309f8b2c' * 4}/identity.json",
    }


def test_the_root_that_was_booted_is_in_it_and_is_what_guests_get(
    manifest: Manifest, options: Options, tmp_path: Path
) -> None:
    """Another host has another fio: with the root nothing of its own programs is in a guest."""
    roots = options.cache / "initramfs"
    roots.mkdir(parents=True)
    for name in ("other", "booted"):
        (roots / f"{name}.cpio").write_text(name)
        (roots / f"{name}.sha256").write_text(hashlib.sha256(name.encode()).hexdigest())
    provenance = but(manifest.provenance, initramfs_sha256=hashlib.sha256(b"booted").hexdigest())
    store = SessionStore(tmp_path / "measured")
    store.create(but(manifest, provenance=provenance))
    assert "root.cpio" in write_archive(store.folder, tmp_path / "x.tar.gz", options)
    repro = unpacked(tmp_path / "x.tar.gz")
    assert repro.root is not None
    assert repro.root.read_text() == "booted"
    others = {**provenance.tools, "fio": "fio-3.99", "gcc": "gcc 99"}
    names = [line.partition(":")[0] for line in differs_here(repro, options, others)]
    assert "gcc" in names
    assert "fio" not in names
    assert initramfs.given(repro.root).sha256 == provenance.initramfs_sha256
    # One that is not what its name says is not handed on.
    (roots / "booted.cpio").write_text("damaged")
    assert "root.cpio" not in write_archive(store.folder, tmp_path / "y.tar.gz", options)


def test_the_session_s_own_patches_come_before_those_of_the_checkout(
    folder: Path, options: Options, tmp_path: Path
) -> None:
    (folder / "series/common/0001-x.patch").write_text(PATCH + "\n")
    shutil.rmtree(options.checkout / SERIES)
    repro = unpacked(packed(folder, options))
    series = experiment_again(repro, options).series
    assert series
    assert (Path(series.path) / "0001-x.patch").read_text() == PATCH + "\n"
    assert series.reverse


def test_what_was_recorded_is_read_back(
    folder: Path, options: Options, tmp_path: Path, manifest: Manifest
) -> None:
    repro = unpacked(packed(folder, options))
    assert repro.manifest == manifest
    assert len(SessionStore(repro.session).records()) == 4
    elsewhere = experiment_again(repro, options, source="deb:linux-source-6.1")
    assert elsewhere.kernel.source == "deb:linux-source-6.1"


def test_no_session_no_archive(tmp_path: Path, options: Options) -> None:
    with pytest.raises(StoreError, match=r"manifest\.json"):
        write_archive(tmp_path, tmp_path / "x.tar.gz", options)
    assert not (tmp_path / "x.tar.gz").exists()


def test_tools_and_inputs_that_differ_are_named(
    folder: Path, options: Options, tmp_path: Path, manifest: Manifest
) -> None:
    repro = unpacked(packed(folder, options))
    tools = manifest.provenance.tools
    assert differs_here(repro, options, tools) == ()
    # Python has no say in a number.
    assert differs_here(repro, options, {**tools, "python": "4"}) == ()
    (options.checkout / "workloads/agent.sh").write_text("# another\n")
    (options.checkout / "configs/kconfig/other.config").write_text("CONFIG_OTHER=n\n")
    differences = differs_here(repro, options, {**tools, "fio": "3.40"})
    assert differences[0] == "fio: then fio-3.33, now 3.40"
    assert differences[1].startswith("workloads/agent.sh: then ")
    assert len(differences) == 2


def test_real_time_is_not_repeated(tmp_path: Path, options: Options, manifest: Manifest) -> None:
    wall = but(manifest.experiment, mode="wall")
    SessionStore(tmp_path / "wall").create(but(manifest, experiment=wall))
    with pytest.raises(UsageError, match="real time, which no machine repeats to the digit"):
        unpacked(packed(tmp_path / "wall", options))


@pytest.mark.parametrize(
    ("name", "content", "honest", "message"),
    [
        ("session/runs.jsonl", b"{}\n", False, "was damaged or changed: session/runs.jsonl"),
        ("more", b"", False, "was damaged or changed: more"),
        (HEAD, b"not JSON", False, f"has no {HEAD}"),
        (HEAD, b'{"format": 2, "session": "s", "files": {}}', False, "is of format 2"),
        ("session/manifest.json", b"{}", True, "holds no session"),
    ],
)
def test_archives_that_were_tampered_with(
    folder: Path,
    options: Options,
    tmp_path: Path,
    name: str,
    content: bytes,
    honest: bool,
    message: str,
) -> None:
    archive = packed(folder, options)
    changed(archive, tmp_path / "scratch", name, content, honest=honest)
    with pytest.raises(UsageError, match=message):
        unpacked(archive)


def test_a_hostile_patch_is_refused_though_the_archive_is_honest_about_it(
    folder: Path, options: Options, tmp_path: Path
) -> None:
    archive = packed(folder, options)
    evil = PATCH.replace("b/mm/x.c", "b/../../x.c").encode()
    name = "session/series/common/0001-x.patch"
    changed(archive, tmp_path / "scratch", name, evil, honest=True)
    with pytest.raises(SeriesError):
        experiment_again(unpacked(archive), options)


def test_what_this_lab_does_not_have_is_named(tmp_path: Path) -> None:
    on = Options(checkout=Path(__file__).resolve().parents[2], cache=tmp_path)
    known = load_experiment(Path("filemap-v4"), catalogue=catalogue(on.checkout))
    require_known(known, tmp_path, on)
    case = known.cases[0]
    for update, message in (
        ({"guest": "moon"}, '"moon"'),
        ({"kernel": KernelSpec(source="deb:x", flavour="sweet")}, '"sweet"'),
        ({"cases": (CaseSpec(workload="w", times={}),)}, '"w"'),
        ({"cases": (but(case, variant="v9"),)}, '"v9"'),
        ({"cases": (but(case, times={}),)}, "no times for guest 'laptop'"),
    ):
        with pytest.raises(UsageError, match=message):
            require_known(but(known, **update), tmp_path, on)


@pytest.mark.parametrize("field", ["key", "flavour"])
@pytest.mark.parametrize("name", ["../../../.kube", "/etc", "a/b", ".hidden", "", "x\n", "\x1b[2J"])
def test_a_foreign_sessions_names_lead_nowhere(
    folder: Path, options: Options, tmp_path: Path, field: str, name: str
) -> None:
    canary = options.cache.parent / ".kube"
    canary.mkdir()
    (canary / "config").write_text("of the host")
    head = json.loads((folder / "manifest.json").read_text())
    head["arms"][0]["kernel"][field] = name
    (folder / "manifest.json").write_text(json.dumps(head))
    with pytest.raises(StoreError):
        write_archive(folder, tmp_path / "x.tar.gz", options)
    assert not (tmp_path / "x.tar.gz").exists()


def test_a_foreign_sessions_links_are_not_followed(
    folder: Path, options: Options, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the host\n")
    (folder / "profiles.jsonl").unlink(missing_ok=True)
    (folder / "profiles.jsonl").symlink_to(secret)
    with pytest.raises(StoreError, match="is a link"):
        write_archive(folder, tmp_path / "x.tar.gz", options)
    (folder / "profiles.jsonl").unlink()
    patch = folder / "series/common/0001-x.patch"
    patch.parent.mkdir(parents=True, exist_ok=True)
    patch.unlink()
    patch.symlink_to(secret)
    with pytest.raises(StoreError, match="is a link"):
        write_archive(folder, tmp_path / "x.tar.gz", options)


def _private_folder(tmp_path: Path) -> str:
    (tmp_path / "private").mkdir()
    (tmp_path / "private/id_ed25519").write_text("a key")
    return f"dir:{tmp_path}/private"


ASKS: dict[str, tuple[Callable[[Any, Path], None], str]] = {
    "memory": (lambda head, tmp: head["dataset"].update(memory_mib=10**9), "dataset.memory_mib"),
    "jobs": (
        lambda head, tmp: head["dataset"].update(jobs=10**9),
        "dataset.jobs: found 1000000000: must be at most 1024",
    ),
    "seeds": (lambda head, tmp: head.update(blocks=1000), "plans 4000 runs .* more than the 1024"),
    "more seeds": (lambda head, tmp: head.update(blocks=10**9), "experiment.blocks"),
    "patches of this machine": (
        lambda head, tmp: head["series"].update(path="/etc"),
        "names patches that are not in it: /etc",
    ),
    "a private folder": (
        lambda head, tmp: head["kernel"].update(source=_private_folder(tmp)),
        "no Linux source: there is no Makefile",
    ),
    "an image of this machine": (
        lambda head, tmp: head["kernel"].update(source="image:/etc/passwd"),
        "",
    ),
    "a file of this machine": (
        lambda head, tmp: head["kernel"].update(source="tarball:/etc/passwd"),
        "is not the source",
    ),
}


@pytest.mark.parametrize("kind", ASKS)
def test_what_a_strangers_session_may_not_ask_is_refused_before_any_work(
    folder: Path, options: Options, tmp_path: Path, kind: str
) -> None:
    change, message = ASKS[kind]
    archive = packed(folder, options)
    head = json.loads((folder / "manifest.json").read_text())
    change(head["experiment"], tmp_path)
    content = json.dumps(head).encode()
    changed(archive, tmp_path / "scratch", "session/manifest.json", content, honest=True)
    if kind.startswith("patches"):
        patch = "session/series/common/0001-x.patch"
        changed(archive, tmp_path / "scratch2", patch, None, honest=True)
    with pytest.raises(UsageError, match=f"(?s){message}"):
        experiment_again(unpacked(archive), options)
    # No copy of anything was begun, and no patch of this machine's was read.
    kept = [path.name for path in options.cache.rglob("*") if path.is_file()]
    assert all(name.endswith(".json") for name in kept), kept
