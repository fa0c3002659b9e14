"""A kernel as Debian ships it is a guest like one built here: exact, counted and named."""

from pathlib import Path

import pytest

from results.store import SessionStore
from tests.integration.conftest import EndedSession, measured
from tests.integration.lab_process import records_of

pytestmark = [pytest.mark.guest, pytest.mark.usefixtures("kept_runs")]
# Stands for the newest release of this series; needs apt's lists and its archive.
PACKAGE = "deb:linux-image-6.12-cloud-amd64"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> EndedSession:
    """One kernel against itself: one boot to a snapshot, two runs of it, one from cold."""
    arms = ("--arm", PACKAGE, "--arm", PACKAGE, "--measure-anyway")
    arguments = ("--workloads", "filemap-4k", "--set", "guest=smoke", "--set", "blocks=1")
    done = measured(tmp_path_factory.mktemp("prebuilt") / "session", *arms, *arguments)
    assert (done.folder / "runs.jsonl").exists(), (
        f"{PACKAGE} was not measured; it is fetched by apt-get download, which needs the "
        f"archive and lists of it (apt-get update):\n{done.err}"
    )
    return done


def test_every_run_is_valid_and_the_same(session: EndedSession) -> None:
    records = records_of(session.folder)
    assert len(records) == 3, session.err
    assert [record.failure for record in records.values()] == [None] * 3
    assert len({record.fingerprint for record in records.values()}) == 1
    assert sum(record.repeat for record in records.values()) == 1


def test_kernel_is_named_by_its_package_and_shows_itself(session: EndedSession) -> None:
    manifest = SessionStore(session.folder).manifest()
    for arm in manifest.arms:
        assert arm.kernel.flavour == "prebuilt"
        assert arm.kernel.source.startswith("deb:linux-image-6.12.")
        assert "=6.12." in arm.kernel.source
        assert arm.kernel.release.endswith("-cloud-amd64")
        # The booted kernel was asked for it, or the runs would not be valid.
        assert len(arm.kernel.build_id) == 40
    assert manifest.same_code is False
    assert manifest.provenance.initramfs_sha256


def test_functions_have_their_names(session: EndedSession) -> None:
    profiles = SessionStore(session.folder).profiles()
    assert len(profiles) == 2
    (phase,) = profiles[0].phases
    calls = {function.name: function.calls for function in phase.kernel}
    assert calls["__filemap_add_folio"] > 1000
    assert calls["xas_load"] > calls["__filemap_add_folio"]
    spent = {function.name: function.instructions for function in phase.kernel}
    assert spent.get("[unknown]", 0) < 0.001 * sum(spent.values())
    # XFS and brd are modules here.
    assert 0 < spent["[module]"] < 0.2 * sum(spent.values())


def test_report_is_written(session: EndedSession) -> None:
    assert Path(session.folder / "report.html").exists()
    assert "6.12-cloud-amd64" in session.out
