"""Who the compilers are, how make is called, and that nothing of it lives on."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from errors import InfraError
from experiment.architecture import ARM64
from host.process import Process, spawn
from kernels import make
from kernels.build import provide
from kernels.make import (
    FIXED,
    LLVM_TOOLS,
    Family,
    LogError,
    MakeProgress,
    Toolchain,
    environment,
    identify,
    make_argv,
    run_make,
    safe_headers,
)
from tests.kernels.fake import Lab
from tests.values import but, data, script
from tests.waiting import alive, completed, wait_until

REPOSITORY = Path(__file__).parents[2]
MAKE_ELSEWHERE = data(__file__, "make_elsewhere")


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    """A make with a sub-make, as kbuild is: each writes its shell's process id and sleeps."""
    (tmp_path / "Makefile").write_text("all: one two\none two:\n\t@$(MAKE) -f sub.mk pid-$@\n")
    (tmp_path / "sub.mk").write_text("pid-%:\n\techo $$$$ > $@; sleep 60; touch survived-$@\n")
    return tmp_path


def run(folder: Path, *targets: str, **more: object) -> tuple[int, int]:
    arguments = {"timeout_s": 300.0, "most_log_bytes": 1 << 20, **more}
    return run_make(
        ["make", *targets],
        cwd=folder,
        log=folder / "log",
        busy=folder / "busy",
        **arguments,  # type: ignore[arg-type]
    )


def test_status_steps_and_log(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(
        'all:\n\t@echo "  CC      a.o"\n\t@echo "  not a step"\n\t@echo "make[1]: x"\n'
        '\t@echo "  LD [M]  b.ko"; exit 3\n'
    )
    status, steps = run(tmp_path)
    assert (status, steps) == (2, 2)
    log = (tmp_path / "log").read_text()
    assert log.startswith(f"$ cd {tmp_path} && make\n")
    assert "Error 3" in log


def test_a_step_that_is_printed_before_anybody_looks_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def late(argv: list[str], *, log: Path, cwd: Path) -> Iterator[Process]:
        with spawn(argv, log=log, cwd=cwd) as process:
            wait_until(lambda: b"1.o" in log.read_bytes(), "the first step")
            yield process

    monkeypatch.setattr(make, "spawn", late)
    (tmp_path / "Makefile").write_text('all:\n\t@echo "  CC      1.o"\n')
    assert run(tmp_path) == (0, 1)


def test_progress_tells_steps_while_make_runs(tmp_path: Path) -> None:
    # Each step ends when it was told of.
    waits = "while ! [ -e told-{0} ]; do sleep 0.05; done"
    (tmp_path / "Makefile").write_text(
        "all:\n"
        + "".join(f'\t@echo "  CC      {n}.o"; {waits.format(n)}\n' for n in (1, 2, 3))
        + "\t@sleep 1\n"
    )
    steps: list[MakeProgress] = []

    def keep(step: MakeProgress) -> None:
        steps.append(step)
        (tmp_path / f"told-{step.done}").touch()

    assert run(tmp_path, expected=2, progress=keep) == (0, 3)
    assert {step.done for step in steps} >= {1, 2, 3}
    assert next(step.total for step in steps if step.done == 1) == 2
    assert steps[-1].total == 2, "an estimate that was too small is not made to fit"
    assert steps[-1].seconds > 0


def test_deadline_kills_sub_makes_too(nested: Path) -> None:
    # As long as this host takes to begin two of them.
    for timeout_s in (3.0, 15.0, 120.0):
        with pytest.raises(InfraError, match=f"timed out after {timeout_s:.0f} s"):
            run(nested, "-j2", timeout_s=timeout_s)
        pids = [int(path.read_text()) for path in nested.glob("pid-*")]
        if len(pids) == 2:
            break
    assert len(pids) == 2
    wait_until(lambda: not any(alive(pid) for pid in pids), "end")


def test_a_callback_that_raises_leaves_nothing_running(nested: Path) -> None:
    def stop(progress: MakeProgress) -> None:
        if len([path for path in nested.glob("pid-*") if path.read_text()]) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(nested, "-j2", progress=stop)
    pids = [int(path.read_text()) for path in nested.glob("pid-*")]
    wait_until(lambda: not any(alive(pid) for pid in pids), "end")


def test_a_killed_lab_leaves_no_sub_make_behind(nested: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", MAKE_ELSEWHERE, str(nested)], cwd=REPOSITORY)
    wait_until(lambda: len([p for p in nested.glob("pid-*") if p.read_text()]) == 2, "beginning")
    pids = [int(path.read_text()) for path in nested.glob("pid-*")]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: not any(alive(pid) for pid in pids), "end")


@pytest.fixture
def predecessor(tmp_path: Path) -> Iterator[Path]:
    """A file that a process which holds the lock writes when it ends."""
    begun, over = tmp_path / "begun", tmp_path / "over"
    script = f"touch {begun}; sleep 0.7; touch {over}"
    process = subprocess.Popen(["flock", str(tmp_path / "busy"), "sh", "-c", script])
    wait_until(begun.exists, "beginning")
    yield over
    assert process.wait() == 0


def test_make_waits_for_the_last_process_of_a_predecessor(
    tmp_path: Path, predecessor: Path
) -> None:
    (tmp_path / "Makefile").write_text(f"all:\n\t@test -e {predecessor}\n")
    assert run(tmp_path) == (0, 0)


def test_a_make_that_prints_without_an_end_is_ended(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("all:\n\t@yes; touch ended\n")
    with pytest.raises(LogError, match="prints more than 1 MiB"):
        run(tmp_path)
    assert (tmp_path / "log").stat().st_size == 1 << 20
    assert not (tmp_path / "ended").exists()


def output_of(toolchain: Toolchain, folder: Path, *targets: str) -> str:
    argv = make_argv(toolchain, "obj", targets, ccache_folder=folder / "ccache")
    return completed(argv, cwd=folder).stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "Makefile").write_text("show:\n\t@echo O=$(O) CC=$(CC) K=$(KCFLAGS); env\n")
    return tmp_path


def test_identity_is_compiler_and_linker() -> None:
    toolchain = identify()
    assert toolchain.compiler.startswith("gcc ")
    assert "ld" in toolchain.linker
    assert "\n" not in toolchain.identity


@pytest.mark.parametrize(
    ("of", "what", "packages"),
    [
        (("gcc",), "program not found", ""),
        (("clang",), "not installed: clang, ld.lld, llvm-ar", "clang lld llvm"),
        (("gcc", ARM64), "not installed: aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    ],
)
def test_a_missing_compiler_names_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: Any, what: str, packages: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfraError) as caught:
        identify(*of)
    assert caught.value.what.startswith(what)
    assert caught.value.next_step.endswith(packages)


@pytest.mark.parametrize("family", ["gcc", "clang"])
def test_make_gets_the_architecture(folder: Path, family: Family) -> None:
    (folder / "Makefile").write_text("show:\n\t@echo $(ARCH) $(CROSS_COMPILE) $(LLVM) $(CC)\n")
    compiler = {"gcc": "aarch64-linux-gnu-gcc", "clang": "1 ccache clang"}[family]
    output = output_of(Toolchain("", "", True, family, ARM64), folder, "show")
    words = ["arm64", "aarch64-linux-gnu-", *compiler.split()]
    assert output.split() == (words if family == "clang" else [*words[:2], "ccache", words[2]])
    assert "ARCH=" not in make_argv(Toolchain("", "", True, family), "obj", [], ccache_folder="c")


def tools(folder: Path) -> Path:
    """Programs with the names of LLVM's that pass on to those of gcc and binutils."""
    folder.mkdir()
    behind = {"clang": "gcc", "ld.lld": "ld"} | {name: name[5:] for name in LLVM_TOOLS}
    for name, other in behind.items():
        answer = f'[ "$1" = --version ] && echo {name} version 99 && exit'
        # ccache asks a compiler called clang for colours in clang's way.
        words = 'for word; do shift; [ "$word" = -fcolor-diagnostics ] || set -- "$@" "$word"; done'
        script(folder / name, f'{answer}\n{words}\nexec {other} "$@"')
    return folder


def test_clang_is_another_kernel(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gcc = provide(lab.request())
    monkeypatch.setenv("PATH", f"{tools(tmp_path / 'bin')}:{os.environ['PATH']}")
    spec = but(lab.spec, compiler="clang")
    clang = provide(lab.request(spec=spec))
    assert clang.identity.compiler == "clang version 99; ld.lld version 99"
    assert clang.identity.key != gcc.identity.key
    assert clang.identity.code_key == gcc.identity.code_key  # gcc is behind both
    log = clang.build_log.read_text()
    assert " LLVM=1 " in log
    assert "CC=ccache gcc" not in log
    assert "LLVM=1" not in gcc.build_log.read_text()
    assert provide(lab.request()) == gcc


def test_make_sees_nothing_of_the_callers_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KCFLAGS", "MAKEFLAGS", "ARCH", "CROSS_COMPILE", "HOME", "LANG"):
        monkeypatch.setenv(name, "foreign")
    output = output_of(Toolchain("gcc", "ld", ccache=True), folder, "show")
    assert "foreign" not in output
    assert "O=obj CC=ccache gcc K=\n" in output
    assert f"CCACHE_DIR={folder}/ccache\n" in output
    for name, value in FIXED.items():
        assert f"{name}={value}\n" in output


def test_without_ccache_the_compiler_is_the_trees_own(folder: Path) -> None:
    assert (
        "ccache" not in output_of(Toolchain("gcc", "ld", ccache=False), folder, "show").split()[1]
    )


WITH_BLOB = '__asm__(".globl data\\ndata:\\n.incbin \\"kernel.lz4\\"\\n");\n'


@pytest.mark.parametrize("listed_headers", [False, True])
@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("piggy.S", '.globl data\ndata:\n.incbin "kernel.lz4"\n'),
        ("configs.c", WITH_BLOB),
        ("both.c", '#include "configs.c"\n'),
    ],
)
def test_a_file_that_an_object_includes_whole_is_read_each_time(
    tmp_path: Path, source: str, text: str, listed_headers: bool
) -> None:
    """As piggy.S includes the compressed kernel: of one size, with another content."""
    (tmp_path / "configs.c").write_text(WITH_BLOB)
    (tmp_path / source).write_text(text)
    argv = ["ccache", "gcc", "-Wp,-MMD,.some.o.d", "-c", "-o", "some.o", source]
    env = environment(tmp_path / "ccache", listed_headers=listed_headers)
    for content in (b"first kernel", b"other kernel", b"other kernel"):
        (tmp_path / "kernel.lz4").write_bytes(content)
        subprocess.run(argv, cwd=tmp_path, env=env, check=True, timeout=300)
        assert content in (tmp_path / "some.o").read_bytes()


def test_a_header_that_changed_is_compiled_anew_and_an_equal_file_is_not(tmp_path: Path) -> None:
    """ccache is told by the compiler which headers there are, and preprocesses nothing."""
    (tmp_path / "some.c").write_text('#include "word.h"\nconst char word[] = WORD;\n')
    argv = ["ccache", "gcc", "-Wp,-MMD,.some.o.d", "-c", "-o", "some.o", "some.c"]
    log = tmp_path / "log"
    env = environment(tmp_path / "ccache", listed_headers=True) | {"CCACHE_LOGFILE": str(log)}
    for word, hits in (("first", 0), ("other", 0), ("first", 1)):
        log.unlink(missing_ok=True)
        (tmp_path / "word.h").write_text(f'#define WORD "{word}"\n')
        os.utime(tmp_path / "word.h", (1e9, 1e9))  # ccache passes over what is younger than itself
        subprocess.run(argv, cwd=tmp_path, env=env, check=True, timeout=300)
        assert word.encode() in (tmp_path / "some.o").read_bytes()
        assert log.read_text().count("Succeeded getting cached result") == hits
        assert "Running preprocessor" not in log.read_text()


def test_one_header_with_a_file_included_whole_makes_all_be_preprocessed(tmp_path: Path) -> None:
    (tmp_path / "include").mkdir()
    header = tmp_path / "include/blob.h"
    header.write_text("int x;\n")
    assert safe_headers(tmp_path)
    (tmp_path / "obj-1").mkdir()
    (tmp_path / "obj-1/made.h").write_text(WITH_BLOB)
    assert safe_headers(tmp_path)
    header.write_text(WITH_BLOB)
    assert not safe_headers(tmp_path)


def test_a_search_of_headers_that_uses_up_its_time_makes_all_be_preprocessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "grep", "while :; do :; done")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(make, "SEARCH_CPU_S", 1)
    assert not safe_headers(tmp_path)


OBJECTS = ("main", "apple", "pear", "plum", "cherry", "fig")
LINK = (
    "gcc -no-pie -Wl,--script=./arch/um/kernel/vmlinux.lds -o vmlinux -Wl,--whole-archive "
    "vmlinux.a -Wl,--no-whole-archive -lm"
)


def built(folder: Path, objects: tuple[str, ...]) -> Path:
    """An object folder with a thin archive, and a make that says how it links."""
    place = folder / "obj"
    (place / "arch/um/kernel").mkdir(parents=True)
    of_linker = subprocess.check_output(["ld", "--verbose"], text=True).split("=" * 50)[1]
    (place / "arch/um/kernel/vmlinux.lds").write_text(of_linker)
    for name in objects:
        calls = "".join(f"void {each}(void); {each}();" for each in objects[1:])
        body = f"int main(void) {{ {calls} return 7; }}" if name == "main" else ""
        source = body or f"void {name}(void) {{}}"
        argv = ["gcc", "-c", "-x", "c", "-o", f"{name}.o", "-"]
        subprocess.run(argv, cwd=place, input=source, text=True, check=True)
    named = [f"{name}.o" for name in objects]
    subprocess.run(["ar", "rcsT", "vmlinux.a", *named], cwd=place, check=True)
    script(folder / "make", f'echo "  LD vmlinux"; echo "+ ccache {LINK}"\ncd obj && exec {LINK}')
    return place


def places(image: Path) -> list[str]:
    """The functions of the objects, in the order of their addresses."""
    lines = subprocess.check_output(["nm", "-n", str(image)], text=True).splitlines()
    return [name for line in lines if (name := line.split()[-1]) in OBJECTS]


def linked(folder: Path, objects: tuple[str, ...], count: int = 4) -> list[list[str]]:
    place = built(folder, objects)
    # Symbols are what the test looks at.
    commands = make.order_script([str(folder / "make")], "obj", count).replace(",-s#", ",-z,relro#")
    # In a box ccache has no home, and ends without linking.
    (folder / "bin").mkdir()
    script(folder / "bin/ccache", "exit 1")
    env = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", commands], cwd=folder, check=True, env=env)
    for name in make.order_names(count):
        assert subprocess.run([place / name], check=False).returncode == 7
    return [places(place / name) for name in make.order_names(count)]


def test_each_order_is_another_one_and_the_next_kernel_has_the_same(tmp_path: Path) -> None:
    linked_in = linked(tmp_path, OBJECTS)
    assert len({tuple(order) for order in linked_in}) == 4
    assert all(sorted(order) == sorted(OBJECTS) for order in linked_in)
    (tmp_path / "patched").mkdir()
    patched = linked(tmp_path / "patched", OBJECTS[:-1])
    assert patched == [[name for name in order if name != OBJECTS[-1]] for order in linked_in]


def test_a_script_that_has_no_place_for_them_leaves_no_image(tmp_path: Path) -> None:
    place = built(tmp_path, OBJECTS)
    script = place / "arch/um/kernel/vmlinux.lds"
    script.write_text(script.read_text().replace("*(.text.hot", "*(.text.warm"))
    commands = make.order_script([str(tmp_path / "make")], "obj", 2)
    subprocess.run(["sh", "-c", commands], cwd=tmp_path, check=False)
    assert not [path for path in place.glob("order-*") if not path.suffix]
