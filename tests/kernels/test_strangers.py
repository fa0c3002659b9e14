"""A stranger's series of each kind in a real box, and an honest one after it, bit for bit."""

import os
from pathlib import Path

import pytest

from errors import SeriesError
from host import folders
from kernels import cache as store
from kernels.build import provide
from kernels.cache import Kernel
from tests.kernels.fake import FAKE_LINUX, FASTER, Lab
from tests.values import spaced


def new_files(*names: str) -> str:
    return "".join(
        f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n"
        "@@ -0,0 +1 @@\n+x\n"
        for name in names
    )


READY, CONFIGURED = "Kernel: $< is ready", "UPD     .config"


def shell(command: str, after: str = "") -> str:
    """A change of the fake tree's Makefile that has make run a command, at first or after this."""
    lines = (FAKE_LINUX / "Makefile").read_text().splitlines()
    if after:
        (at,) = (n for n, line in enumerate(lines, 1) if after in line)
        added = f"\t@{command}"
    else:
        at, added = lines.index("else") + 1, f"_ := $(shell {command})"
    before, following = lines[at - 1], lines[at]
    return (
        "diff --git a/Makefile b/Makefile\n--- a/Makefile\n+++ b/Makefile\n"
        f"@@ -{at},2 +{at},3 @@\n {before}\n+{added}\n {following}\n"
    )


def nest(count: int, name: str) -> str:
    """Folders in folders, whose path is longer than any that the system takes."""
    return f"i=0; while [ $i -lt {count} ]; do mkdir {name}; cd {name}; i=$((i+1)); done"


DOLLAR = str.maketrans({"$": "$$"})
SERIES: dict[str, str] = {
    "a file a thousand folders deep": new_files("mm/" + "a/" * 1000 + "x"),
    "a file 70 folders deep": new_files("mm/" + "a/" * 70 + "x"),
    "twelve hundred files in a folder": new_files(*(f"mm/f{n}.h" for n in range(1200))),
    "a file where the next has a folder": new_files("mm/new"),
    "a folder where the next has a file": new_files("mm/new/deep.c"),
    "folders in folders": shell(nest(1500, "a").translate(DOLLAR)),
    "folders in folders of long names": shell(nest(300, "b" * 250).translate(DOLLAR)),
    "folders in folders at the end": shell(nest(100, "a").translate(DOLLAR), READY),
    "a folder that may not be read": shell("mkdir -p x/y; chmod 0 x/y x", READY),
    "a folder that may not be written": shell("mkdir -p x/y/z; chmod 500 x/y x", READY),
    "names with line breaks": shell("touch \"$$(printf 'a\\nb')\" \"$$(printf '\\377')\""),
    "ten thousand files of a build": shell("seq 10000 | xargs touch", READY),
    "its objects are from the future": shell("touch -d 2099-01-01 mm/slow.o mm/filemap.o"),
    "a folder in the place of an object": shell("rm -f vmlinux.o; mkdir -p vmlinux.o/x"),
    "a folder in the place of kbuild's link": shell("mkdir -p source/x"),
}
# What of a build's files each has, and the words that it is refused with.
SIZES: dict[str, tuple[str, str]] = {
    "a release of a GiB": (
        "truncate -s 1G include/config/kernel.release",
        "kernel.release (release): has more than 128 bytes",
    ),
    "a release of two lines": (
        "printf 'a\\nb' > include/config/kernel.release",
        "is no release of a kernel",
    ),
    "a configuration of a GiB": ("truncate -s 1G .config", ".config (configuration): has more"),
    "an image of 3 GiB of nothing": (
        "truncate -s 3G arch/x86/boot/bzImage",
        "bzImage (image): has more than 256 MiB",
    ),
    "no image": ("rm arch/x86/boot/bzImage", "bzImage (image): No such file"),
    "a folder for an image": (
        "rm arch/x86/boot/bzImage; mkdir arch/x86/boot/bzImage",
        "bzImage (image): is no plain",
    ),
    "a map of 3 GiB": ("truncate -s 3G System.map", "System.map (map): has more than 64 MiB"),
    "a map that is a link": ("mv System.map x; ln -s x System.map", "(map): is a link"),
    "a vmlinux of 3 GiB": ("truncate -s 3G vmlinux", "vmlinux (program): has more than"),
    "a vmlinux of one byte": ("echo > vmlinux", "cannot be read as ELF"),
    "a log of 20 MiB": ("head -c 20M /dev/zero; sleep 2", "prints more than 16 MiB"),
    "a log of one line": ("head -c 10M /dev/zero | tr '\\0' ld; false", "does not build"),
    "five thousand digits in a log": (
        f"echo 'mm/slow.c:{'1' * 5000}:1: error: x'; false",
        "does not build",
    ),
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """One cache for all of them: what one leaves is there for the next."""
    return Lab.in_folder(tmp_path_factory.mktemp("strangers"))


@pytest.fixture(scope="module")
def honest(lab: Lab) -> tuple[list[Path], dict[str, str]]:
    """An honest series, and its kernel as it is built in a cache without anything."""
    patches = lab.series("honest", FASTER)
    fresh = built(lab, patches)
    store.clean(lab.cache, 0)
    provide(lab.request())
    return patches, fresh


def built(lab: Lab, patches: list[Path]) -> dict[str, str]:
    """Digests of a kernel's files that is built now, without its log."""
    kernel = provide(lab.request(patches, boxed=True))
    digests = store._digests(kernel.folder)
    folders.remove(kernel.folder)
    return {name: digest for name, digest in digests.items() if name != "build.log"}


def attack(lab: Lab, diff: str, *, boxed: bool = True) -> Kernel | SeriesError:
    patch = lab.checkout / "0001-attack.patch"
    patch.write_text(f"Subject: [PATCH] mm: attack\n\n{diff}")
    try:
        return provide(lab.request([patch], boxed=boxed))
    except SeriesError as error:
        return error


@pytest.mark.parametrize("name", SERIES)
def test_an_honest_series_after_a_strangers_is_built_as_if_it_were_the_first(
    lab: Lab, honest: tuple[list[Path], dict[str, str]], name: str
) -> None:
    patches, fresh = honest
    attack(lab, SERIES[name])
    assert built(lab, patches) == fresh


def test_what_is_no_kernel_is_refused_and_nothing_of_it_is_left(
    lab: Lab, honest: tuple[list[Path], dict[str, str]]
) -> None:
    patches, fresh = honest
    for name, (command, refusal) in SIZES.items():
        after = CONFIGURED if ".config" in command else READY
        end = attack(lab, shell(command.translate(DOLLAR), after))
        assert isinstance(end, SeriesError), name
        assert refusal in str(end), name
        assert len(str(end)) < 1000, name
    assert built(lab, patches) == fresh
    assert sum(map(folders.size_bytes, lab.cache.glob("trees/*/*.log"))) < 64 << 20


def test_a_file_that_a_build_outside_of_a_box_changed_is_not_in_the_next(
    lab: Lab, honest: tuple[list[Path], dict[str, str]]
) -> None:
    patches, fresh = honest
    for command in (
        "echo '#define EVIL 1' >> ../include/folio.h",
        "touch ../mm/extra.h",
        "rm -f ../init.c",
        "rm -r ../scripts; mkdir -p ../scripts/configure.awk",
        f"mkdir ../deep; cd ../deep; {nest(100, 'a')}",
    ):
        attack(lab, shell(command.translate(DOLLAR), READY), boxed=False)
        assert built(lab, patches) == fresh


NAME = "a\n" * 100


def test_what_is_in_the_cache_can_be_removed(lab: Lab) -> None:
    for folder in spaced(
        "kernels/half kernels/.new-half packages/.half boots/old trees/old trees/old/boxed"
    ):
        place = lab.cache / folder
        place.mkdir(parents=True, exist_ok=True)
        top = os.open(place, os.O_DIRECTORY)
        for _ in range(1500 if folder == "trees/old/boxed" else 50):
            os.mkdir(NAME, dir_fd=top)
            below = os.open(NAME, os.O_DIRECTORY, dir_fd=top)
            os.close(top)
            top = below
        os.close(top)
        (place / "closed").mkdir()
        (place / "closed/file").touch()
        (place / "closed").chmod(0)
        os.utime(place, (0, 0))
    done = store.clean(lab.cache, 0)
    assert "trees/old" in done.removed
    assert done.left == 0
    for folder in ("kernels", "trees", "boots"):
        assert list((lab.cache / folder).iterdir()) == []
