"""A guest of another architecture is a guest like any: exact, counted and named.

Asked for by TWINBOOT_TEST_ARM64=1, as its two kernels take minutes to build and its
packages (`special` in host/packages.txt) are not installed by set-up.
"""

import os
import shutil
from pathlib import Path

import pytest

from experiment.architecture import ARM64
from results.store import SessionStore
from tests.integration.conftest import EndedSession, measured
from tests.integration.lab_process import SMALL, records_of, run_lab

NEEDED = (ARM64.board.qemu, f"{ARM64.build.tools}gcc")
ENABLED = os.environ.get("TWINBOOT_TEST_ARM64") == "1" and all(map(shutil.which, NEEDED))
pytestmark = [
    pytest.mark.guest,
    pytest.mark.skipif(not ENABLED, reason=f"wants TWINBOOT_TEST_ARM64=1 and {', '.join(NEEDED)}"),
]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> EndedSession:
    arguments = ("--set", "kernel.arch=arm64")
    return measured(tmp_path_factory.mktemp("arm64") / "session", SMALL, *arguments)


def test_every_run_is_valid_and_the_repeat_the_same(session: EndedSession) -> None:
    assert session.status == 0, session.err
    records = records_of(session.folder)
    assert set(records) == {
        f"filemap-4k.b00.{name}" for name in ("base", "patched", "patched.repeat")
    }
    assert [record.failure for record in records.values()] == [None] * 3
    restored, cold = (records[f"filemap-4k.b00.patched{end}"] for end in ("", ".repeat"))
    assert restored.fingerprint == cold.fingerprint
    assert restored.fingerprint != records["filemap-4k.b00.base"].fingerprint


def test_kernels_and_tools_are_named(session: EndedSession) -> None:
    manifest = SessionStore(session.folder).manifest()
    assert [arm.kernel.arch for arm in manifest.arms] == ["arm64"] * 2
    assert manifest.provenance.qemu_argv[0] == ARM64.board.qemu
    assert manifest.provenance.tools["gcc"].startswith("aarch64-linux-gnu-gcc")
    assert manifest.triage is not None
    changed = {function.name for function in manifest.triage.functions}
    assert "__filemap_add_folio" in changed
    assert len(changed) < 20


def test_the_probe_counts_every_instruction(session: EndedSession) -> None:
    profiles = SessionStore(session.folder).profiles()
    assert len(profiles) == 2
    for profile in profiles:
        (phase,) = profile.phases
        calls = {function.name: function.calls for function in phase.kernel}
        assert calls["__filemap_add_folio"] > 1000
        assert calls["xas_load"] > calls["__filemap_add_folio"]
        spent = {function.name: function.instructions for function in phase.kernel}
        assert spent.get("[unknown]", 0) < 0.001 * sum(spent.values())
        assert set(phase.user) <= {"[unknown]", "fio", "busybox", "vdso"} | {
            name for name in phase.user if ".so" in name
        }
        assert phase.user["fio"] > phase.user.get("[unknown]", 0)


def test_the_report_says_what_it_is_of(session: EndedSession) -> None:
    assert "arm64 with pages of 4 KiB" in Path(session.folder / "report.html").read_text()


def test_changed_lines_are_counted(session: EndedSession) -> None:
    """Of filemap-walks: what base does for each folio, and a split that no entry needs."""
    done = run_lab("annotate", str(session.folder))
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if " - " in line or " + " in line]
    ran = {" ".join(words[3:]): words[1] for words in rows if words[2:3] in (["-"], ["+"])}
    calls = {
        name: times for name, times in ran.items() if "xa_get_order(xas.xa, xas.xa_index" in name
    }
    assert calls
    assert all(float(times) > 0.1 for times in calls.values())
    assert ran["xas_destroy(&xas);"] == "#####"
