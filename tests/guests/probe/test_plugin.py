import re
import subprocess
from pathlib import Path

import pytest

from errors import InfraError
from experiment.architecture import ARM64, X86_64
from guests import programs
from guests.probe import plugin
from tests.values import data, script
from tests.waiting import completed

WARNINGS = ("-Wall", "-Wextra", "-Werror")


def fake_qemu(folder: Path, version: str, help_text: str) -> None:
    cases = f'--version) echo "{version}" ;; *) echo "{help_text}" ;;'
    script(folder / X86_64.board.qemu, f"case $1 in {cases} esac")


@pytest.mark.parametrize(("version", "api"), data(__file__, "form_of_the_interface_by_version"))
def test_form_of_the_interface_by_version(version: str, api: int) -> None:
    assert plugin.api_of(version) == api


@pytest.mark.parametrize("version", ["7.1.0", "6.2", "2.12.50"])
def test_older_than_the_oldest_is_refused(version: str) -> None:
    with pytest.raises(InfraError, match=rf"QEMU {version}: the probe needs 7\.2 or later"):
        plugin.api_of(version)


def test_version_as_distributions_print_it() -> None:
    assert plugin.version_of("QEMU emulator version 8.2.2 (Debian 1:8.2.2+ds-0ubuntu1)") == "8.2.2"
    assert plugin.version_of("QEMU emulator version 9.1.50 (v9.1.0-123-gabc)") == "9.1.50"
    with pytest.raises(InfraError, match="no version in what it says of itself: 'hello'"):
        plugin.version_of("hello\n")


@pytest.mark.parametrize("api", sorted({api for _, api in plugin.FORMS}))
def test_every_form_compiles_without_a_warning(api: int, tmp_path: Path) -> None:
    flags = (*programs.SHARED_LIBRARY, "-fvisibility=hidden", *WARNINGS, f"-DPROBE_API={api}")
    built = programs.build(plugin.SOURCE, flags, tmp_path)
    symbols = completed(["nm", "-D", "--defined-only", str(built)]).stdout
    exported = {line.split()[-1] for line in symbols.splitlines()}
    assert {"qemu_plugin_version", "qemu_plugin_install"} == exported


def test_form_that_nobody_knows_does_not_compile(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="PROBE_API is 1, 2, 3 or 7"):
        programs.build(plugin.SOURCE, (*programs.SHARED_LIBRARY, "-DPROBE_API=4"), tmp_path)


def test_another_form_is_another_file_and_the_same_one_is_kept(
    tmp_path: Path, probe_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    built = []
    for version in ("7.2.0", "10.0.2", "7.2.22"):
        fake_qemu(tmp_path, f"QEMU emulator version {version}", "-plugin [file=]<file>")
        built.append(plugin.provide(probe_cache))
    assert [probe.api for probe in built] == [1, 3, 1]
    assert built[0].path == built[2].path != built[1].path
    assert built[0].sha256 == built[2].sha256 != built[1].sha256


def test_qemu_without_plugins_differs_from_one_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    fake_qemu(tmp_path, "QEMU emulator version 10.0.2", "-nographic  no -plugin here")
    with pytest.raises(InfraError, match=r"QEMU 10\.0\.2 was built without plugins") as caught:
        plugin.provide(tmp_path / "cache")
    assert "--enable-plugins" in str(caught.value)


SMALL = "cache=l1d:64:2,cache=l1i:64:2,cache=l2:64:4,cache=llc:128:8"
REFUSED = data(__file__, "refused")


@pytest.mark.parametrize(
    ("why", "words"), [(why, words) for why, every in REFUSED.items() for words in every]
)
def test_arguments_that_mean_nothing_are_refused(
    probe: plugin.Probe, tmp_path: Path, why: str, words: str
) -> None:
    text = last_words(probe, f"out={tmp_path}/counts,{words}")
    assert f"probe: {why}" in text
    assert words in text or why == "a machine is"


def test_file_that_cannot_be_written_is_named(probe: plugin.Probe, tmp_path: Path) -> None:
    place = f"{tmp_path}/no/counts"
    assert f"{place}: No such file or directory" in last_words(probe, f"out={place}")


def last_words(probe: plugin.Probe, words: str) -> str:
    """What a QEMU says that ends at once."""
    argv = [X86_64.board.qemu, "-display", "none", "-plugin", f"file={probe.path},{words}"]
    done = completed(argv, check=False)
    assert done.returncode != 0
    return done.stderr


MARKS = 16


@pytest.fixture(scope="module")
def mark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = (*programs.STATIC_PROGRAM, *WARNINGS)
    return programs.build(programs.MARK, flags, tmp_path_factory.mktemp("cache"))


def run(*argv: object) -> subprocess.CompletedProcess[str]:
    return completed([*map(str, argv)], check=False)


def bytes_of(name: str) -> bytes:
    match = re.search(rf"{name}\[\] = {{ (.*) }};", plugin.SOURCE.read_text())
    assert match
    return bytes(int(word, 16) for word in match[1].split(","))


def test_each_phase_has_the_one_nop_that_the_plugin_looks_for(mark: Path) -> None:
    program = mark.read_bytes()
    head, tail = bytes_of("MARK_HEAD"), bytes_of("MARK_TAIL")
    for phase in range(MARKS):
        assert program.count(head + phase.to_bytes(2, "little") + tail) == 1, phase
    assert program.count(head + MARKS.to_bytes(2, "little") + tail) == 0


def test_marks_of_arm64_are_what_the_plugin_is_built_to_look_for() -> None:
    """Without its compiler: the constants of both sources, put together as the manual has it."""
    executed = re.search(r"movz xzr, %0, lsl #32.*?(0x[0-9a-f]+) \| n", programs.MARK.read_text())
    expected = re.search(r"define MARK (0x[0-9a-f]+)u", plugin.SOURCE.read_text())
    number = re.search(r"define MARK_NUMBER (0x[0-9a-f]+)u", plugin.SOURCE.read_text())
    assert executed is not None
    assert expected is not None
    assert number is not None
    # movz of 64 bits: its shift by 32 from bit 21 on, the constant from bit 5, register 31.
    words = [0xD2800000 | 2 << 21 | (int(executed[1], 16) | n) << 5 | 31 for n in range(MARKS)]
    mask = int(number[1], 16)
    assert {word & ~mask for word in words} == {int(expected[1], 16)}
    assert [(word & mask) >> 5 for word in words] == list(range(MARKS))
    assert "-DPROBE_ARM64" in ARM64.board.probe


def test_becomes_the_program_and_notes_the_clock(mark: Path, tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    done = run(mark, 3, clock, "sh", "-c", 'echo "$1"; exit 7', "sh", "two words")
    assert (done.stdout, done.returncode) == ("two words\n", 7)
    assert run(mark, 0, clock).returncode == 0
    before, after = (line.split() for line in clock.read_text().splitlines())
    assert (before[0], after[0]) == ("3", "0")
    assert int(before[1]) < int(after[1])


@pytest.mark.parametrize("phase", ["16", "-1"])
def test_phase_without_a_nop_runs_nothing(mark: Path, tmp_path: Path, phase: str) -> None:
    done = run(mark, phase, tmp_path / "clock", "echo", "ran")
    assert (done.stdout, done.returncode) == ("", 99)


def test_clock_that_cannot_be_written_and_program_that_is_not_there(
    mark: Path, tmp_path: Path
) -> None:
    assert run(mark, 1, tmp_path / "no/clock", "echo", "ran").returncode == 99
    assert run(mark, 1, tmp_path / "clock", tmp_path / "nonesuch").returncode == 99
    assert run(mark).returncode == 99
