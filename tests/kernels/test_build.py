import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from errors import InfraError, SeriesError
from experiment.spec import KernelSpec
from host import sandbox
from kernels import addresses, build, linetable, symbols
from kernels import cache as store
from kernels.build import (
    UNKNOWN,
    Expected,
    expected,
    key_of,
    leads_out,
    provide,
    remember,
    seconds_to_build,
)
from kernels.cache import Kernel, cached_kernels
from kernels.compiled import load as touched
from kernels.make import MakeProgress
from tests.kernels.fake import BROKEN, COMMENT, FASTER, GROWN, Lab, replace
from tests.values import but, data, script
from tests.waiting import wait_until

REPOSITORY = Path(__file__).parents[2]
PROVIDE = data(__file__, "provide")


def provide_elsewhere(lab: Lab, *patches: Path) -> subprocess.Popen[str]:
    """Another lab process, as a user would start one."""
    where = [str(lab.checkout), str(lab.cache)]
    return subprocess.Popen(
        [sys.executable, "-c", PROVIDE, lab.spec.source, *where, *map(str, patches)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def compiled(log: Path) -> list[str]:
    return sorted(re.findall(r"^  CC +(\S+)", log.read_text(), re.M))


def test_a_built_kernel_is_complete_and_says_what_it_is(lab: Lab) -> None:
    patches = lab.series("faster", FASTER)
    kernel = provide(lab.request(patches))
    assert kernel.folder == lab.cache / "kernels" / kernel.identity.key
    assert kernel.identity.release == "6.12.0-fake"
    assert kernel.identity.patches == (patches[0].name,)
    assert kernel.identity.source.startswith("dir:")
    assert "gcc" in kernel.identity.compiler
    assert kernel.image.read_bytes()[:4] == b"\x7fELF"
    assert " T filemap_add\n" in kernel.system_map.read_text()
    assert "CONFIG_NR_CPUS=64" in kernel.config.read_text()
    assert "filemap_add" in symbols.load(kernel.symbols)[0]
    assert "  CC      mm/filemap.o" in (kernel.folder / kernel.identity.build_log).read_text()


def test_a_built_kernel_knows_the_files_of_its_functions(base: Kernel) -> None:
    files = addresses.load(base.origins)
    lines = (line.split() for line in base.system_map.read_text().splitlines())
    placed = {name: files[int(at, 16)].file for at, kind, name in lines if kind in "tT"}
    assert placed == {
        "start": "init.c",
        "filemap_add": "mm/filemap.c",
        "filemap_last": "mm/filemap.c",
        "remember": "mm/filemap.c",
        "slow": "mm/slow.c",
    }


@pytest.mark.usefixtures("base")
@pytest.mark.parametrize("boxed", [False, True])
def test_the_lines_of_either_arm_are_those_of_its_own_source(lab: Lab, *, boxed: bool) -> None:
    if boxed and sandbox.available() is None:
        pytest.skip("no sandbox here")
    files, patches = ["include/folio.h", "mm/debug.c", "mm/filemap.c"], lab.series("faster", FASTER)
    requests = [lab.request(), lab.request(patches, boxed=boxed)]
    texts, ran = [], []
    for request in requests:
        kernel = provide(request)
        sources = build.sources_of(request, kernel, files)
        assert (set(sources.objects), sources.without) == ({"mm/filemap.c"}, {})
        bounds = "0 T _text\nffffffffffffffff T _etext\n"
        table = addresses.parse(bounds + kernel.system_map.read_text())
        lines = sources.objects["mm/filemap.c"]
        (entry,) = table.at["filemap_add"]
        counted = linetable.executions(lines, linetable.placed(lines, table), [(entry, 1, 7)])
        texts.append(sources.texts["mm/filemap.c"])
        ran.append({texts[-1].splitlines()[n - 1] for (_, n), (m, *_) in counted.items() if m == 7})
    assert texts[0] != texts[1]
    assert "\tint order = index >> 4;" in ran[0]
    assert "\tint order = index >> 5;" in ran[1]
    assert not list(lab.cache.glob("trees/*/boxed"))


def test_lines_are_had_where_no_objects_are_kept(lab: Lab, base: Kernel) -> None:
    for objects in lab.cache.glob("trees/*/src/obj-*"):
        shutil.rmtree(objects)
    sources = build.sources_of(lab.request(), base, ["mm/filemap.c"])
    assert sources.objects


def test_second_time_comes_from_the_cache_without_make(lab: Lab, base: Kernel) -> None:
    stamp = base.image.stat().st_mtime_ns
    tree = next((lab.cache / "trees").iterdir())
    (tree / "src/Makefile").write_text("all:\n\tfalse\n")
    calls: list[MakeProgress] = []
    again = provide(lab.request(), progress=calls.append)
    assert again == base
    assert again.image.stat().st_mtime_ns == stamp
    assert calls == []


def test_second_arm_starts_from_the_first_arms_objects(lab: Lab, base: Kernel) -> None:
    patched = provide(lab.request(lab.series("faster", FASTER)))
    again = provide(lab.request(lab.series("grown", GROWN)))
    log = "build.log"
    assert compiled(base.folder / log) == ["init.o", "mm/filemap.o", "mm/slow.o"]
    assert compiled(patched.folder / log) == ["mm/filemap.o"]
    assert compiled(again.folder / log) == ["mm/filemap.o"]


@pytest.mark.usefixtures("base")
def test_an_arm_built_after_another_is_the_same_as_one_built_alone(lab: Lab) -> None:
    patches = lab.series("grown", GROWN)
    after = provide(lab.request(patches))
    alone = provide(lab.request(patches, cache=lab.cache.with_name("other")))
    assert after.image.read_bytes() == alone.image.read_bytes()
    assert after.symbols.read_bytes() == alone.symbols.read_bytes()
    assert after.identity == alone.identity


OTHER = {
    "twice": "CONFIG_PERF_EVENTS=y\nCONFIG_SLOW_TWICE=y\n",
    "asserting": "CONFIG_PERF_EVENTS=y\nCONFIG_SLOW_TWICE=y\nCONFIG_DEBUG_MM=y\n",
}


def flavoured(lab: Lab, flavour: str) -> KernelSpec:
    (lab.checkout / f"configs/kconfig/{flavour}.config").write_text(OTHER[flavour])
    return but(lab.spec, flavour=flavour)


@pytest.mark.usefixtures("base")
def test_another_flavour_compiles_what_its_options_are_in(lab: Lab) -> None:
    twice = provide(lab.request(spec=flavoured(lab, "twice")))
    asserting = provide(lab.request(spec=flavoured(lab, "asserting")))
    assert compiled(twice.folder / "build.log") == ["mm/slow.o"]
    assert compiled(asserting.folder / "build.log") == ["mm/debug.o"]
    patched = provide(lab.request(lab.series("faster", FASTER), spec=flavoured(lab, "asserting")))
    assert compiled(patched.folder / "build.log") == ["mm/filemap.o"]


@pytest.mark.slow
@pytest.mark.parametrize("first", ["perf", "asserting"])
def test_a_flavour_built_after_another_is_the_same_as_one_built_alone(lab: Lab, first: str) -> None:
    """Whatever the first has more or less, and whatever arm its objects are of."""
    edits = [GROWN, replace("mm/debug.c", "+ 1", "+ 2")]
    patches = lab.series("grown", *edits)
    begin = lab.spec if first == "perf" else flavoured(lab, first)
    provide(lab.request(patches, spec=begin))
    provide(lab.request(spec=begin))
    spec = flavoured(lab, "twice")
    other = lab.cache.with_name("other")
    for arm in (patches, []):
        after, alone = (
            provide(lab.request(arm, spec=spec)),
            provide(lab.request(arm, spec=spec, cache=other)),
        )
        assert after.image.read_bytes() == alone.image.read_bytes()
        assert after.identity == alone.identity
        for name in ("symbols.json.gz", "touched.json", "origins.json.gz", "config"):
            assert (after.folder / name).read_bytes() == (alone.folder / name).read_bytes(), name
    # The first has an object more: it is not taken for one of this kernel.
    rows = touched(provide(lab.request(patches, spec=spec)).touched)
    assert {each.file: each.built for each in rows} == {"mm/filemap.c": True, "mm/debug.c": False}


def test_a_copy_that_did_not_build_at_first_is_cleaned_when_it_does(lab: Lab) -> None:
    patches = lab.series("debug", replace("mm/debug.c", "+ 1", "+ 2"))
    provide(lab.request(patches, spec=flavoured(lab, "asserting")))
    spec = flavoured(lab, "twice")
    with pytest.raises(SeriesError):
        provide(lab.request(lab.series("broken", BROKEN), spec=spec))
    assert seconds_to_build(lab.request(patches, spec=spec)) == UNKNOWN["copied"].seconds
    kernel = provide(lab.request(patches, spec=spec))
    assert seconds_to_build(lab.request(patches, spec=spec)) != UNKNOWN["copied"].seconds
    assert [(each.file, each.built) for each in touched(kernel.touched)] == [("mm/debug.c", False)]
    assert not list(lab.cache.glob("trees/*/src/obj-*/copied"))


@pytest.mark.usefixtures("base")
def test_objects_of_another_compiler_or_of_a_killed_build_are_no_beginning(lab: Lab) -> None:
    objects = next(lab.cache.glob("trees/*/src/obj-*"))
    key = objects.name.removeprefix("obj-")
    (objects.parents[1] / f"unfinished-{key}").touch()
    spec = flavoured(lab, "twice")
    everything = ["init.o", "mm/filemap.o", "mm/slow.o"]
    assert compiled(provide(lab.request(spec=spec)).folder / "build.log") == everything
    for folder in lab.cache.glob("trees/*/src/obj-*"):
        (folder / "toolchain").write_text("another\n")
    asserting = provide(lab.request(spec=flavoured(lab, "asserting")))
    assert len(compiled(asserting.folder / "build.log")) == 4


def test_key_depends_on_all_that_decides_the_kernel(lab: Lab) -> None:
    def key(spec: KernelSpec, patches: list[Path]) -> str:
        return key_of(lab.request(patches, spec=spec))

    faster = lab.series("faster", FASTER)
    keys = {key(lab.spec, []), key(lab.spec, faster)}
    assert len(keys) == 2
    faster[0].write_text(faster[0].read_text().replace("index >> 5", "index >> 6"))
    keys.add(key(lab.spec, faster))
    assert len(keys) == 3
    perf = lab.checkout / "configs/kconfig/perf.config"
    perf.write_text(perf.read_text() + "CONFIG_NR_CPUS=32\n")
    keys.add(key(lab.spec, []))
    assert len(keys) == 4
    (lab.source / "init.c").write_text("int start(int n) { return n; }\n")
    keys.add(key(lab.spec, []))
    assert len(keys) == 5


def test_a_kernel_that_is_a_process_is_built_beside_the_others(lab: Lab, base: Kernel) -> None:
    (lab.checkout / "configs/kconfig/um.config").write_text("CONFIG_SMP=n\n")
    spec = but(lab.spec, mode="native", flavour="um")
    native = provide(lab.request(spec=spec))
    assert native.image.name == "linux"
    assert native.image.read_bytes()[:4] == b"\x7fELF"
    assert native.identity.flavour == "um"
    assert len({order.read_bytes() for order in native.orders}) > 1
    assert base.identity.key != native.identity.key
    # Objects of one are never copied to begin the other: they are another compiler's command.
    lines = [(tree / "toolchain").read_text() for tree in lab.cache.glob("trees/*/src/obj-*")]
    assert len(lines) == len(set(lines)) == 2


def test_key_does_not_depend_on_where_things_are(lab: Lab, tmp_path: Path) -> None:
    here = key_of(lab.request())
    moved = lab.source.rename(tmp_path / "moved")
    there = KernelSpec(source=f"dir:{moved}")
    assert key_of(lab.request(spec=there, cache=tmp_path / "c2")) == here


def test_nothing_of_the_machine_is_in_the_image(lab: Lab) -> None:
    named = replace(
        "mm/slow.c", "int slow(", "const char *here(void) { return __FILE__; }\nint slow("
    )
    kernel = provide(lab.request(lab.series("named", named)))
    assert b"slow.c" in kernel.image.read_bytes()
    assert str(lab.cache).encode() not in kernel.image.read_bytes()


def test_progress_counts_up_to_the_count_of_the_build_before(lab: Lab) -> None:
    first: list[MakeProgress] = []
    provide(lab.request(), progress=first.append)
    assert [step.done for step in first] == sorted(step.done for step in first)
    done = first[-1].done
    assert done == 8
    assert {step.total for step in first} == {0}, "nothing is known before the first build"
    second: list[MakeProgress] = []
    replace("init.c", "4096", "8192")(lab.source)
    provide(lab.request(), progress=second.append)
    assert second[0].total == done
    (lab.checkout / "configs/kconfig/other.config").write_text("CONFIG_NR_CPUS=32\n")
    other: list[MakeProgress] = []
    spec = but(lab.spec, flavour="other")
    provide(lab.request(spec=spec), progress=other.append)
    assert other[0].total == 0, "a build from the objects of another flavour is not like a first"
    third: list[MakeProgress] = []
    (lab.checkout / "configs/kconfig/third.config").write_text("CONFIG_NR_CPUS=16\n")
    spec = but(lab.spec, flavour="third")
    provide(lab.request(spec=spec), progress=third.append)
    assert third[0].total == other[-1].done, "a flavour never built is like another one"
    added: list[MakeProgress] = []
    (lab.checkout / "configs/kconfig/added.config").write_text(
        f"# on top of perf.config\n{OTHER['twice']}"
    )
    spec = but(lab.spec, flavour="added")
    provide(lab.request(spec=spec), progress=added.append)
    assert added[0].total == 0, "options added to the objects' own are not other options"


def test_a_series_that_does_not_build_is_blamed_with_file_and_line(lab: Lab) -> None:
    patches = lab.series("broken", BROKEN)
    with pytest.raises(SeriesError) as caught:
        provide(lab.request(patches))
    assert re.search(r"mm/filemap\.c:\d+: .nothing. undeclared", caught.value.what)
    assert caught.value.where == f"{patches[0].name} (mm: broken, step 1)"
    assert cached_kernels(lab.cache) == []
    assert provide(lab.request()).identity.patches == ()


def test_the_time_of_a_build_is_that_of_the_last_one_like_it(lab: Lab) -> None:
    patches = lab.series("faster", FASTER)

    def seconds(before: Sequence[Path] | None = None) -> float:
        return seconds_to_build(lab.request(patches), before)

    assert seconds() > seconds(before=[]) > 0
    provide(lab.request())
    known = expected(lab.cache, "perf", "first")
    assert known.steps == 8
    assert known.seconds > 0
    assert seconds() == seconds(before=[]) == expected(lab.cache, "perf", "next").seconds
    remember(lab.cache, "perf", "next", Expected(3, 7.0))
    # What kbuild compiles again for the files that differ comes on top: mm/filemap.o, and five.
    objects = next(lab.cache.glob("trees/*/src/obj-*"))
    for name in "abcde":
        (objects / f".{name}.o.cmd").write_text(f"source_{name}.o := ../mm/filemap.c\n")
    assert (seconds(), seconds(before=[]), seconds(before=patches)) == (21.0, 21.0, 7.0)
    steps: list[MakeProgress] = []
    provide(lab.request(patches), progress=steps.append)
    assert {step.total for step in steps} == {9}
    # Whatever the last one compiled, the next is not expected to; in a box one is, where the tree
    # did not change either.
    left = expected(lab.cache, "perf", "next").steps
    assert left == max(steps[-1].done - 6, 1)
    (kernel,) = (lab.cache / "kernels").glob(f"{build.key_of(lab.request(patches))}*")
    shutil.rmtree(kernel)
    steps.clear()
    provide(lab.request(patches, boxed=True), progress=steps.append)
    assert {step.total for step in steps} == {left + 6}
    assert expected(lab.cache, "perf", "first") == known
    (lab.cache / "builds-perf.json").write_text('{"first": 1943}')
    assert expected(lab.cache, "perf", "first").steps == 0


def blamed(lab: Lab, name: str, *edits: Callable[[Path], None]) -> tuple[int, SeriesError]:
    """The number of the patch that is named for a series that does not build."""
    patches = lab.series(name, *edits)
    with pytest.raises(SeriesError) as caught:
        provide(lab.request(patches))
    (number,) = [n for n, patch in enumerate(patches, 1) if patch.name in caught.value.where]
    return number, caught.value


# Edits that break one object each, or nothing.
GONE = replace("include/folio.h", "#define TABLE_SIZE 16\n", "")
STEEPER = replace("mm/slow.c", "* 3", "* 5")
LATER = replace("mm/filemap.c", "/* Remember", "/* Later: remember")
FOLDED = replace("mm/slow.c", "* 5", "+ 5")
MENDED = replace("mm/filemap.c", "int order = nothing >> 4;", "int order = index >> 4;")


AGAIN = replace("mm/filemap.c", "int order = index >> 4;", "int order = nothing >> 5;")
CALL = replace("mm/slow.c", "* 3", "* nowhere()")
DECLARED = replace("include/folio.h", "int slow", "int nowhere(void);\nint slow")


def with_new_object(tree: Path) -> None:
    (tree / "mm/new.c").write_text("int new(void) { return nothing; }\n")
    replace("mm/Makefile", "slow.o", "slow.o new.o")(tree)


@pytest.mark.parametrize(
    ("edits", "number", "what"),
    [
        # A helper is taken away, and used in another patch's file.
        ((FASTER, GONE, LATER), 2, r"mm/filemap\.c:\d+: .TABLE_SIZE. undecl.*builds with the 1 "),
        # What a later patch mended is not blamed.
        ((STEEPER, BROKEN, MENDED, LATER, AGAIN), 5, "nothing"),
        ((STEEPER, LATER, with_new_object, FASTER), 3, "mm/new.c:1: "),
        # A link error, of the patch that brought the call.
        ((COMMENT, CALL, DECLARED), 2, "undefined reference to `nowhere'"),
    ],
)
def test_the_patch_that_brought_the_mistake_is_blamed(
    lab: Lab, edits: tuple[Callable[[Path], None], ...], number: int, what: str
) -> None:
    blamed_number, error = blamed(lab, "mistaken", *edits)
    assert blamed_number == number
    assert re.search(what, error.what)


@pytest.mark.slow
@pytest.mark.parametrize("broken_at", [1, 2, 5, 11, 12])
def test_the_object_alone_is_built_to_find_the_patch(lab: Lab, broken_at: int) -> None:
    edits = [
        replace("mm/slow.c", f"* {3 if n == 1 else n + 2}", f"* {n + 3}") for n in range(1, 13)
    ]
    edits[broken_at - 1] = BROKEN
    if broken_at < 12:
        edits[broken_at] = replace("mm/slow.c", f"* {max(3, broken_at + 2)}", f"* {broken_at + 4}")
    number, error = blamed(lab, "long", *edits)
    assert number == broken_at
    log = next((lab.cache / "trees").glob("*/*.log"))
    assert str(log) in error.next_step
    # The build that failed is on record as it was, and nothing but the object was made since.
    assert len(re.findall(r"^  UPD ", log.read_text(), re.M)) == 1
    objects = next((lab.cache / "trees").glob("*/src/obj-*"))
    assert not (objects / "vmlinux").exists()


@pytest.mark.parametrize("base_is_cached", [True, False])
def test_a_mistake_in_a_makefile_shows_in_configuring(
    request: pytest.FixtureRequest, lab: Lab, base_is_cached: bool
) -> None:
    if base_is_cached:
        request.getfixturevalue("base")
    number, _ = blamed(
        lab,
        "makefile",
        replace("Makefile", "-O2", "-O2 -g"),
        replace("Makefile", "else\n", "else\nno separator\n"),
        replace("Makefile", "-O2 -g", "-O2"),
    )
    assert number == 2


@pytest.mark.slow
def test_a_source_that_does_not_build_is_not_the_series_fault(lab: Lab) -> None:
    BROKEN(lab.source)
    with pytest.raises(InfraError, match=r"without patches does not build: mm/filemap\.c:"):
        provide(lab.request())
    for name, edits in {"one": (LATER,), "more": (STEEPER, LATER, FOLDED)}.items():
        with pytest.raises(InfraError, match=r"without patches does not build: mm/filemap\.c:"):
            provide(lab.request(lab.series(name, *edits)))


FULL = replace("mm/slow.c", "#include", '#error "No space left on device"\n#include')


@pytest.mark.slow
@pytest.mark.parametrize("base_is_cached", [True, False])
def test_a_series_that_has_the_compiler_say_that_the_disk_is_full(
    lab: Lab, base_is_cached: bool
) -> None:
    if base_is_cached:
        provide(lab.request())
    other = replace("mm/slow.c", '#error "No space left on device"', '#error "other"')
    number, error = blamed(lab, "full", COMMENT, FULL)
    assert number == 2
    assert "No space left" in error.what
    assert blamed(lab, "later", FULL, other)[0] == 1


def test_a_full_disk_is_never_the_series_fault(lab: Lab) -> None:
    # Whatever is built on it, and with patches or without.
    FULL(lab.source)
    with pytest.raises(InfraError, match="the host failed"):
        provide(lab.request())
    with pytest.raises(InfraError, match="the host failed"):
        provide(lab.request(lab.series("any", COMMENT)))


@pytest.mark.slow
def test_a_build_that_never_ends_is_the_series_where_the_base_ended(
    lab: Lab, base: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "BUILD_TIMEOUT_S", 5.0)
    endless = replace("Makefile", "else\n", "else\n_ := $(shell sleep 600)\n")
    with pytest.raises(SeriesError, match="and its base did"):
        provide(lab.request(lab.series("endless", endless)))
    monkeypatch.undo()
    other = provide(lab.request(lab.series("noop", COMMENT)))
    assert other.identity.code_key == base.identity.code_key


@pytest.mark.usefixtures("base")
@pytest.mark.parametrize("name", ["log", "originals", "builds"])
def test_a_place_of_the_cache_that_cannot_be_written_is_the_hosts(lab: Lab, name: str) -> None:
    patches = lab.series("noop", COMMENT)
    (tree,), (builds,) = lab.cache.glob("trees/*"), lab.cache.glob("builds-*")
    log = tree / f"{key_of(lab.request(patches))}.log"
    path = {"log": log, "originals": tree / "originals/x", "builds": builds}[name]
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    path.mkdir()
    with pytest.raises(OSError, match=r"\[Errno 21\] Is a directory"):
        provide(lab.request(patches))


@pytest.mark.parametrize(
    ("number", "place", "is_series"),
    [
        (errno.EISDIR, "src/obj-x/.config", True),
        (errno.EISDIR, "src/obj-x", False),
        (errno.EACCES, "boxed/obj-x/a/b", True),
        (errno.EACCES, "boxed/obj-x", False),
        (errno.ENAMETOOLONG, "spare/patched/mm/filemap.c", True),
        (errno.ENOTDIR, "src/mm", True),
        (errno.EACCES, "src/kernel", False),
        (errno.EACCES, "spare/saving", False),
        (errno.ENOSPC, "src/mm/filemap.c", False),
        (errno.EAGAIN, "", False),
    ],
)
def test_what_a_call_failed_at_says_whether_the_series_made_it(
    lab: Lab, number: int, place: str, is_series: bool
) -> None:
    plan = build._Plan.of(lab.request(lab.series("noop", COMMENT)))
    path = plan.tree.folder / place.replace("obj-x", plan.objects.name)
    assert (
        plan.made(OSError(number, "x", str(path)) if place else OSError(number, "x")) == is_series
    )


def test_a_mistake_of_the_labs_own_is_not_the_series(
    lab: Lab, base: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    patches = lab.series("noop", COMMENT)

    def broken(*_: object) -> bool:
        raise ValueError("of the lab")

    with monkeypatch.context() as patch:
        patch.setattr("kernels.config.changes_kconfig", broken)
        with pytest.raises(ValueError, match="of the lab"):
            provide(lab.request(patches, boxed=True))
    with monkeypatch.context() as patch:  # one of a reader is of what it reads
        patch.setattr(build, "_text", lambda path: 5)
        with pytest.raises(SeriesError, match="cannot be built: TypeError"):
            provide(lab.request(lab.series("bad", BROKEN), boxed=True))
    assert provide(lab.request(patches, boxed=True))


def test_what_a_build_of_another_user_left_is_not_the_series(lab: Lab) -> None:
    if os.geteuid():
        pytest.skip("files of another user need root")
    plan = build._Plan.of(lab.request(lab.series("noop", COMMENT)))
    file = plan.objects / "toolchain"
    file.parent.mkdir(parents=True)
    file.touch()
    assert plan.made(PermissionError(errno.EACCES, "x", str(file)))
    os.chown(file, 1000, 1000)
    assert not plan.made(PermissionError(errno.EACCES, "x", str(file)))


@pytest.mark.slow
@pytest.mark.usefixtures("base")
def test_killed_in_the_middle_of_make_and_built_again(lab: Lab) -> None:
    """Half an object with a new time must not be believed, nor make live on."""
    patches = lab.series("grown", GROWN)
    tree = next((lab.cache / "trees").iterdir())
    gate = tree / "gate"
    gate.touch()
    process = provide_elsewhere(lab, *patches)
    half = next(tree.glob("src/obj-*")) / "mm/filemap.o"
    wait_until(lambda: half.read_bytes() == b"half\n", "beginning")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_until(lambda: not _processes_in(tree), "end")
    gate.unlink()
    assert [path.name for path in (lab.cache / "kernels").glob(".*")] == []
    kernel = provide(lab.request(patches))
    alone = provide(lab.request(patches, cache=lab.cache.with_name("other")))
    assert kernel.image.read_bytes() == alone.image.read_bytes()
    # What was left of it is not what such a build takes.
    assert expected(lab.cache, lab.spec.configuration, "next") == UNKNOWN["next"]


@pytest.mark.slow
@pytest.mark.parametrize("made", ["src", "src/obj-*/.config", "src/obj-*/vmlinux"])
def test_killed_once_something_is_made_and_built_again(lab: Lab, made: str) -> None:
    patches = lab.series("grown", GROWN)
    process = provide_elsewhere(lab, *patches)
    wait_until(lambda: list(lab.cache.glob(f"trees/*/{made}")), made)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    for kernel in cached_kernels(lab.cache):
        assert kernel.symbols.exists()
    after = provide(lab.request(patches))
    base = provide(lab.request())
    changed = symbols.changed_functions(base.symbols, after.symbols)
    assert [change.name for change in changed] == ["remember"]


@pytest.mark.slow
def test_two_processes_build_one_kernel_once(lab: Lab) -> None:
    pair = [provide_elsewhere(lab) for _ in range(2)]
    answers = [process.communicate(timeout=300) for process in pair]
    assert [process.returncode for process in pair] == [0, 0], answers
    assert answers[0][0] == answers[1][0] != ""
    kernel = cached_kernels(lab.cache)[0]
    assert len(cached_kernels(lab.cache)) == 1
    assert compiled(kernel.folder / "build.log") == ["init.o", "mm/filemap.o", "mm/slow.o"]


def test_what_no_part_of_it_is_made_with_is_not_in_a_configuration(
    lab: Lab, base: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tool in ("rustc", "pahole"):
        script(tmp_path / tool, "echo 7")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    again = provide(lab.request(cache=tmp_path / "cache"))
    assert again.config.read_text() == base.config.read_text()
    assert "CONFIG_RUSTC_VERSION=0\nCONFIG_PAHOLE_VERSION=0\n" in again.config.read_text()


@pytest.mark.slow
def test_two_processes_build_two_arms_of_one_tree(lab: Lab) -> None:
    patches = lab.series("grown", GROWN)
    pair = [provide_elsewhere(lab), provide_elsewhere(lab, *patches)]
    answers = [process.communicate(timeout=300) for process in pair]
    assert [process.returncode for process in pair] == [0, 0], answers
    other = lab.cache.with_name("other")
    for arm, (out, _) in zip(([], patches), answers, strict=True):
        alone = provide(lab.request(arm, cache=other))
        assert out.strip() == alone.identity.code_key


def _processes_in(folder: Path) -> list[int]:
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cwd").readlink().is_relative_to(folder):
                    pids.append(int(entry.name))
            except OSError:
                continue
    return pids


def secret_at(tmp_path: Path) -> Path:
    """A file that no series may see, outside of tree and cache."""
    secret = tmp_path / "home/.netrc"
    secret.parent.mkdir(mode=0o700)
    secret.write_text('"canary of the home"\n')
    return secret


def boxed(lab: Lab, patches: list[Path]) -> Kernel:
    return provide(lab.request(patches, boxed=True))


@pytest.mark.slow
@pytest.mark.parametrize("base_is_cached", [True, False])
def test_a_kernel_from_a_box_is_the_kernel_from_none(lab: Lab, base_is_cached: bool) -> None:
    plain = provide(lab.request(lab.series("plain", GROWN)))
    image, symbols_of_it = plain.image.read_bytes(), plain.system_map.read_bytes()
    store.clean(lab.cache, 0)
    if base_is_cached:
        provide(lab.request())
    other = boxed(lab, lab.series("other", GROWN))
    assert other.image.read_bytes() == image
    assert other.system_map.read_bytes() == symbols_of_it
    assert other.identity.code_key == plain.identity.code_key
    if base_is_cached:
        assert compiled(other.build_log) == ["mm/filemap.o"]
    assert {path.owner() for path in lab.cache.rglob("*")} == {lab.cache.owner()}
    assert list(lab.cache.glob("trees/*/boxed")) == []


@pytest.mark.slow
def test_makefiles_in_a_box_reach_nothing_outside(lab: Lab, tmp_path: Path) -> None:
    """The review's: root, the cache, the network and the home were open to a makefile."""
    secret, base = secret_at(tmp_path), provide(lab.request())
    image, objects = base.image.read_bytes(), next(lab.cache.glob("trees/*/src/obj-*"))
    before = (objects / "mm/filemap.o").read_bytes()
    script = (
        f"id -u > id; cat {secret} > secret; cp /etc/shadow shadow; touch {tmp_path}/canary; "
        f"echo EVIL > {base.image}; rm -rf ../mm/filemap.c; "
        "cat /proc/*/environ | tr '\\\\0' '\\\\n' > environ; touch -d 2099-01-01 mm/slow.o"
    )
    evil = replace("Makefile", "-include .config", f"_ := $(shell {script})\n-include .config")
    printing = replace("Makefile", "else\n", "else\n_ := $(shell echo uid $$(id -u) >&2)\n")
    kernel = boxed(lab, lab.series("evil", evil, printing))
    assert not (tmp_path / "canary").exists()
    assert base.image.read_bytes() == image
    assert (objects / "mm/filemap.o").read_bytes() == before
    assert provide(lab.request()).image.read_bytes() == image
    log = kernel.build_log.read_text()
    assert "uid 0" not in log
    assert f"uid {sandbox.BOX_UID if os.getuid() == 0 else os.getuid()}" in log
    # What was left of it is gone, and the next series starts from the source's own objects.
    good = boxed(lab, lab.series("good", COMMENT))
    assert good.identity.code_key == base.identity.code_key


@pytest.mark.slow
def test_a_build_that_spoils_its_objects_is_blamed_and_nobody_else(lab: Lab, base: Kernel) -> None:
    spoil = replace("Makefile", "else\n", "else\n_ := $(shell echo EVIL > mm/filemap.o)\n")
    with pytest.raises(SeriesError, match="does not build"):
        boxed(lab, lab.series("spoil", COMMENT, spoil))
    assert boxed(lab, lab.series("good", COMMENT)).identity.code_key == base.identity.code_key


@pytest.mark.slow
def test_a_build_that_fills_the_disk_is_ended_and_blamed(
    lab: Lab, base: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "Limits", partial(sandbox.Limits, all_disk_bytes=100 << 20))
    line = "_ := $(shell head -c 99M /dev/zero > a; cp a b; sleep 20)"
    fill = replace("Makefile", "else\n", f"else\n{line}\n")
    with pytest.raises(SeriesError, match=r"more than 0\.1 GiB of disk"):
        boxed(lab, lab.series("fill", COMMENT, fill))
    assert boxed(lab, lab.series("good", COMMENT)).identity.code_key == base.identity.code_key


@pytest.mark.usefixtures("base")
@pytest.mark.parametrize("how", ['#include "{}"', '__asm__(".incbin \\"{}\\"");'])
def test_a_source_file_reads_no_file_of_the_host(lab: Lab, tmp_path: Path, how: str) -> None:
    secret = secret_at(tmp_path)
    line = how.format(secret)
    reads = replace("mm/slow.c", "int slow", f"{line}\nint slow")
    with pytest.raises(SeriesError) as caught:
        boxed(lab, lab.series("reads", reads))
    assert "canary" not in str(caught.value)
    assert all(
        b"canary" not in path.read_bytes() for path in lab.cache.rglob("*") if path.is_file()
    )


@pytest.mark.parametrize("made", data(__file__, "what_no_build_makes_is_not_read_by_the_lab"))
def test_what_no_build_makes_is_not_read_by_the_lab(lab: Lab, base: Kernel, made: str) -> None:
    links = replace("Makefile", 'Kernel: $< is ready"', f'ready"; {made}')
    with pytest.raises(SeriesError, match="what no build makes"):
        boxed(lab, lab.series("links", links))
    assert cached_kernels(lab.cache) == [base]


@pytest.mark.parametrize(
    ("inside", "target", "out"), data(__file__, "links_within_the_objects_stay")
)
def test_links_within_the_objects_stay(inside: str, target: str, out: bool) -> None:
    assert leads_out(inside, Path(target)) is out


def test_a_kernel_that_was_changed_by_hand_is_built_again(lab: Lab, base: Kernel) -> None:
    image = base.image.read_bytes()
    for change in (
        lambda: base.image.write_bytes(b"EVIL"),
        lambda: base.system_map.unlink(),
        lambda: (base.folder / "added.ko").write_bytes(b"EVIL"),
        lambda: (base.folder / store.DIGESTS).write_text("[]"),
        lambda: (base.folder / store.DIGESTS).unlink(),
    ):
        change()
        again = provide(lab.request())
        assert again.image.read_bytes() == image
        assert again.modules == ()


def with_a_module(lab: Lab) -> tuple[Path, KernelSpec]:
    """The source of a module of the lab's own, and a kernel that it is built with."""
    folder = lab.checkout / "configs/kconfig/additions/trees"
    folder.mkdir(parents=True)
    folder.with_suffix(".config").write_text("CONFIG_MODULES=y\n")
    (folder / "Kbuild").write_text("obj-m := loops.o\n")
    source = folder / "loops.c"
    source.write_text("int loops = 1;\n")
    spec = but(lab.spec, additions=("trees",))
    return source, spec


def test_modules_of_the_labs_own_are_built_with_the_kernel(lab: Lab, base: Kernel) -> None:
    source, spec = with_a_module(lab)
    kernel = provide(lab.request(spec=spec))
    assert [path.name for path in kernel.modules] == ["loops.ko", "test_walk.ko"]
    assert kernel.identity.flavour == "perf+trees"
    assert "CONFIG_MODULES=y" in kernel.config.read_text()
    # The kernel without them has the key that it always had, and no modules.
    assert (base.identity.flavour, base.modules) == ("perf", ())
    assert base.identity.key != kernel.identity.key
    # Another source is another kernel, of which nothing else is compiled anew.
    first = kernel.modules[0].read_bytes()
    source.write_text("int loops = 2;\n")
    other = provide(lab.request(spec=spec))
    assert other.identity.key != kernel.identity.key
    assert other.identity.code_key == kernel.identity.code_key
    assert other.modules[0].read_bytes() != first
    assert compiled(other.build_log) == ["[M]"]  # of the kernel itself nothing


def test_a_kernel_that_modules_of_the_lab_do_not_build_with_is_built_all_the_same(lab: Lab) -> None:
    source, spec = with_a_module(lab)
    base = provide(lab.request(spec=spec))
    stops = replace("Makefile", "include $(M)/Kbuild", "$(error no modules today)")
    kernel = provide(lab.request(lab.series("stops", stops), spec=spec))
    assert [path.name for path in base.modules] == ["loops.ko", "test_walk.ko"]
    assert [path.name for path in kernel.modules] == ["test_walk.ko"]
    assert base.lacks(["loops", "test_walk"]) == ""
    why = kernel.lacks(["loops", "test_walk"])
    assert re.fullmatch(r"loops: trees: \S*Makefile:\d+: no modules today\..*", why)
    # The next one has them again, also of the same objects.
    assert "loops.ko" in [
        p.name for p in provide(lab.request(lab.series("g", GROWN), spec=spec)).modules
    ]
    source.write_text("int loops = nothing;\n")
    assert "'nothing' undeclared" in provide(lab.request(spec=spec)).lacks(["loops"])


def test_a_cache_in_any_alphabet_and_with_signs_that_mean_nothing_to_make(
    lab: Lab, tmp_path: Path
) -> None:
    cache = tmp_path / "Zwischen,lager=~@+_ü-日本"
    assert provide(lab.request(lab.series("grown", GROWN), cache=cache)).image.exists()


@pytest.mark.parametrize("sign", " :\t\n$#%'\"\\;&|<>()*?[]{}!`^")
def test_a_cache_where_nothing_can_be_built_is_refused_before_anything_is_unpacked(
    lab: Lab, tmp_path: Path, sign: str
) -> None:
    cache = tmp_path / f"a{sign}b"
    with pytest.raises(InfraError, match="set TWINBOOT_CACHE") as caught:
        provide(lab.request(cache=cache))
    assert f"has {sign!r} in its path" in caught.value.what
    assert not cache.exists()


def test_a_tree_below_a_blank_and_a_colon_is_only_read(lab: Lab, tmp_path: Path) -> None:
    tree = tmp_path / "my trees: all" / "linux"
    shutil.copytree(lab.source, tree)
    spec = but(lab.spec, source=f"dir:{tree}")
    assert provide(lab.request(spec=spec)).image.exists()
