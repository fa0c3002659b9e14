"""What guests run: libraries, those that refuse, and the one that has vCPUs take turns."""

import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from errors import InfraError
from experiment.architecture import X86_64
from guests import programs
from guests.argv import METRONOME
from guests.programs import BUSYBOX, PROGRAMS, host_files, refusing
from host.process import spawn
from tests.values import script, spaced
from tests.waiting import completed


def test_applets_are_those_that_busybox_lists() -> None:
    output = completed([BUSYBOX, "--list"]).stdout
    assert sorted(programs.applets(Path(BUSYBOX))) == sorted(output.split())


@pytest.mark.parametrize("before", [b"\0", b"bytes without a zero at their end"])
def test_applets_begin_wherever_the_linker_put_them(before: bytes, tmp_path: Path) -> None:
    busybox = tmp_path / "busybox"
    busybox.write_bytes(b"\x7fELF" + before + b"[\0[[\0acpid\0ar\0\0more\0")
    assert programs.applets(busybox) == ("[", "[[", "acpid", "ar")


def test_what_is_no_busybox_has_no_applets() -> None:
    with pytest.raises(InfraError, match="no list of applets"):
        programs.applets(Path("/usr/bin/env"))


def test_libraries_are_those_that_the_loader_takes() -> None:
    """The host's own programs, whose loader can be asked."""
    loaded = set()
    for program in PROGRAMS:
        output = completed(["ldd", program]).stdout
        loaded |= {Path(word).name for word in output.split() if word.startswith("/")}
    files = programs.with_libraries(Path("/"), PROGRAMS)
    assert {Path(path).name for path in files} == loaded | {Path(path).name for path in PROGRAMS}
    assert all(file.is_file() for file in files.values())
    assert list(files) == sorted(files)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="/usr/bin/fio is not there"):
        programs.with_libraries(tmp_path, ("/usr/bin/fio",))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "chrt").write_bytes(Path("/usr/bin/chrt").read_bytes())
    with pytest.raises(InfraError, match=r"is not there"):
        programs.with_libraries(tmp_path, ("/bin/chrt",))
    (tmp_path / "bin" / "script").write_text("#!/bin/sh\n")
    with pytest.raises(InfraError, match="cannot be read as ELF"):
        programs.with_libraries(tmp_path, ("/bin/script",))


def test_a_link_leads_nowhere_outside(tmp_path: Path) -> None:
    (tmp_path / "root" / "bin").mkdir(parents=True)
    (tmp_path / "outside").write_bytes(b"")
    (tmp_path / "root" / "bin" / "fio").symlink_to("../../outside")
    with pytest.raises(InfraError, match="/bin/fio is not there"):
        programs.with_libraries(tmp_path / "root", ("/bin/fio",))


def test_apt_works_in_folders_of_its_own(tmp_path: Path) -> None:
    argv = [*programs.apt_argv("arm64", tmp_path), "-o", "Debug::NoLocking=1"]
    shell = ["apt-config", *argv[argv.index("-o") :], "shell"]
    queries = {"STATE": "Dir::State/d", "STATUS": "Dir::State::status/f", "CACHE": "Dir::Cache/d"}
    queries |= {"ARCHITECTURE": "APT::Architecture", "LISTS": "Dir::State::lists/d"}
    words = [word for pair in queries.items() for word in pair]
    done = completed([*shell, *words])
    values = dict(line.split("=", 1) for line in done.stdout.split())
    assert values.pop("ARCHITECTURE") == "'arm64'"
    assert {path.strip("'").startswith(f"{tmp_path}/") for path in values.values()} == {True}


def test_packages_that_apt_cannot_fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "fake"
    fake.mkdir()
    script(fake / "apt-get", "echo 'E: no network' >&2\nexit 100")
    monkeypatch.setenv("PATH", f"{fake}:/usr/bin:/bin")
    with pytest.raises(InfraError, match="cannot fetch programs for arm64: E: no network"):
        programs.provide("arm64", tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache" / "foreign").iterdir()] == ["lock"]


def test_what_is_there_is_not_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "foreign" / "arm64").mkdir(parents=True)
    monkeypatch.setenv("PATH", "/nowhere")
    assert programs.provide("arm64", tmp_path) == tmp_path / "foreign" / "arm64"


def test_versions_are_those_of_the_packages(tmp_path: Path) -> None:
    folder = tmp_path / "foreign" / "arm64"
    folder.mkdir(parents=True)
    (folder / programs.LIST).write_text(
        "busybox-static_1%3a1.35.0-4+deb12u1+b1_arm64.deb aa\nfio_3.33-3_arm64.deb bb\n"
        "libaio1_0.3.113-4_arm64.deb cc\n"
    )
    assert programs.versions("arm64", tmp_path) == {
        "fio": "3.33-3",
        "busybox": "1:1.35.0-4+deb12u1+b1",
    }
    assert programs.versions("", tmp_path) == {}


TURN_NS = 20_000
# As busy_host() of the integration tests: they leave the cores to other tests.
BUSY = ["nice", "-n", "10", "sh", "-c", "while :; do :; done"]


@pytest.fixture(scope="module")
def preload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache = tmp_path_factory.mktemp("cache")
    return programs.build(programs.PRELOAD, programs.SHARED_LIBRARY, cache)


def printed(image: Path, preload: Path, folder: Path, vcpus: int = 2) -> bytes:
    """What a machine writes to the port 0xe9."""
    folder.mkdir()
    out = folder / "out"
    argv = spaced(
        f"{X86_64.board.qemu} -accel tcg -icount shift=0,sleep=off -smp {vcpus} -seed 1 "
        "-nodefaults -display none -no-reboot -device isa-debug-exit,iobase=0xf4 "
        f"-chardev file,id=out,path={out} -device isa-debugcon,iobase=0xe9,chardev=out "
        f"-kernel {image}"
    )
    env = os.environ | {"LD_PRELOAD": str(preload), METRONOME: str(TURN_NS)}
    done = completed(argv, check=False, env=env)
    assert done.returncode == X86_64.board.done_status, done.stderr
    return out.read_bytes()


@pytest.mark.slow
def test_turns_end_at_the_same_instructions_while_qemu_frees_memory(
    images: Path, preload: Path, tmp_path: Path
) -> None:
    """From QEMU 10.2 on the thread that frees it ended turns, by the host's clock."""
    runs = [printed(images / "turns", preload, tmp_path / "quiet")]
    with ExitStack() as busy:
        for number in range(2):
            log = tmp_path / f"busy-{number}"
            busy.enter_context(spawn(BUSY, log=log, env=dict(os.environ)))
        runs += [printed(images / "turns", preload, tmp_path / f"busy-run-{n}") for n in range(2)]
    assert len(runs[0]) == 4
    assert runs == runs[:1] * 3


def test_a_turn_is_as_long_as_the_metronome_says(
    images: Path, preload: Path, tmp_path: Path
) -> None:
    """From QEMU 8.1 on it was a half or a quarter of that with two vCPUs."""
    longest_ns = int.from_bytes(
        printed(images / "turn_length", preload, tmp_path / "run"), "little"
    )
    assert TURN_NS <= longest_ns <= 1.01 * TURN_NS


PROGRAM = """
int near(void), far(void), far_2(void);
int main(int n) { return n > 1 ? far() + far_2() : near(); }
"""
USES_NEAR = "int near(void);\nint main(void) { return near(); }\n"
USES_DATA = "extern int far;\nint main(void) { return far; }\n"
LIBRARIES = {
    "libnear.so.1": ("int near(void) { return 7; }\n", ""),
    "libnbd.so.0": ("int far(void) { return 1; }\n", "FAR_1.0 { far; };\n"),
    "librbd.so.1": ("int far_2(void) { return 2; }\nint not_asked;\n", ""),
}


def compiled(folder: Path, libraries: dict[str, tuple[str, str]], program: str) -> Path:
    for name, (source, versions) in libraries.items():
        (folder / f"{name}.c").write_text(source)
        (folder / f"{name}.map").write_text(versions)
        script = [f"-Wl,--version-script={folder / name}.map"] if versions else []
        gcc = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", str(folder / name)]
        subprocess.run([*gcc, *script, f"{folder / name}.c"], check=True)
    (folder / "program.c").write_text(program)
    links = [str(folder / name) for name in libraries]
    flags = ["-Wl,-z,now", f"-Wl,-rpath-link,{folder}"]
    built = folder / "program"
    subprocess.run(["gcc", *flags, "-o", str(built), f"{folder / 'program.c'}", *links], check=True)
    return built


def status(program: Path, *folders: Path, arguments: tuple[str, ...] = ()) -> int:
    path = ":".join(map(str, folders))
    return subprocess.run([str(program), *arguments], env={"LD_LIBRARY_PATH": path}).returncode


def test_a_program_runs_with_them_until_it_asks_for_a_network(tmp_path: Path) -> None:
    program = compiled(tmp_path, LIBRARIES, PROGRAM)
    real = {name: str(tmp_path / name) for name in LIBRARIES}
    folder = refusing(program, real, tmp_path / "cache")
    assert folder is not None
    assert {path.name for path in folder.glob("*.so*") if path.suffix not in (".c", ".map")} == {
        "libnbd.so.0",
        "librbd.so.1",
    }
    assert status(program, tmp_path) == status(program, folder, tmp_path) == 7
    assert status(program, tmp_path, arguments=("far",)) == 3
    assert status(program, folder, tmp_path, arguments=("far",)) == -signal.SIGILL
    assert refusing(program, real, tmp_path / "cache") == folder


@pytest.mark.parametrize(
    ("libraries", "program"),
    [
        ({"libnear.so.1": LIBRARIES["libnear.so.1"]}, USES_NEAR),
        ({"librbd.so.1": ("int far = 3;\n", "")}, USES_DATA),
    ],
    ids=["needs none", "reads data of one"],
)
def test_what_cannot_be_replaced_is_left(
    tmp_path: Path, libraries: dict[str, tuple[str, str]], program: str
) -> None:
    built = compiled(tmp_path, libraries, program)
    real = {name: str(tmp_path / name) for name in libraries}
    assert refusing(built, real, tmp_path / "cache") is None


def test_fio_of_guests_starts_and_has_all_its_symbols(tmp_path: Path) -> None:
    files = host_files(tmp_path)
    refuse = {path.parent for place, path in files.items() if "refusing" in str(path)}
    if not refuse:
        pytest.skip("this fio needs no library of networks")
    assert sum(path.resolve().stat().st_size for path in files.values()) < 32 << 20
    env = {"LD_LIBRARY_PATH": str(refuse.pop())}
    checked = completed(["ldd", "-r", "/usr/bin/fio"], env=env)
    assert "undefined" not in checked.stdout + checked.stderr
    assert "no version" not in checked.stdout + checked.stderr
