"""Libraries that refuse: a real program linked with libraries named as those of networks."""

import signal
import subprocess
from pathlib import Path

import pytest

from guests.programs import host_files, refusing

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
        "libnbd.so.0", "librbd.so.1",
    }  # fmt: skip
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
    checked = subprocess.run(
        ["ldd", "-r", "/usr/bin/fio"], env=env, capture_output=True, text=True, check=True
    )
    assert "undefined" not in checked.stdout + checked.stderr
    assert "no version" not in checked.stdout + checked.stderr
