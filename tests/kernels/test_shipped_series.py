"""The series that come with the lab, against the source they are written for."""

import subprocess
import tomllib
from contextlib import ExitStack
from pathlib import Path

import pytest

from errors import LabError, SeriesError
from host import facts
from kernels import packages, source, worktree
from kernels.series import apply, known_series, read_patch
from tests.kernels.fake import files_of

CHECKOUT = Path(__file__).parents[2]
EVERY = known_series(CHECKOUT)
SERIES = [name for name in EVERY if not name.endswith("-7.3")]
AS_THEY_ARE = ("noop", "slow-", "null-", "shared-line-", "broken-lookup", "broken-uaf")
ON_7_3 = [
    name for name in EVERY if name.endswith("-7.3") or Path(name).name.startswith(AS_THEY_ARE)
]


def unpacked(release: str, folder: Path) -> Path:
    """The files that series change, of a package that is installed or that was fetched.

    Of the tree that kernels are built in, where there is one: a tarball takes ten seconds.
    """
    package, cache = f"linux-source-{release}", facts.cache_folder()
    try:
        there = source.identify(f"deb:{package}", checkout=CHECKOUT, cache=cache)
    except LabError as error:
        pytest.skip(f"{package}: {error.what}; {error.next_step}")
    touched = {
        name
        for series in (ON_7_3 if release == "7.3" else SERIES)
        for path in files_of(CHECKOUT, series)
        for name in read_patch(path).files
    }
    names = sorted(touched)
    if worktree.lay_out(f"deb:{package}", names, folder, checkout=CHECKOUT, cache=cache):
        return folder
    with ExitStack() as stack:
        tarball = there.origin
        if there.package:
            fetched = packages.unpacked(packages.find(there.package, cache), cache)
            tarball = stack.enter_context(fetched) / f"usr/src/{package}.tar.xz"
        members = [f"{package}/{name}" for name in names]
        argv = ["tar", "-C", str(folder), "--strip-components=1", "-xf", str(tarball), *members]
        subprocess.run(argv, check=True)
    return folder


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("6.12", tmp_path_factory.mktemp("linux"))


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("7.3", tmp_path_factory.mktemp("linux-7.3"))


def patched(pristine: Path, folder: Path, series: str) -> dict[str, str]:
    """Apply a series to a copy; return the new text of each file it touches."""
    patches = [read_patch(path) for path in files_of(CHECKOUT, series)]
    names = sorted({name for patch in patches for name in patch.files})
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text((pristine / name).read_text())
    apply(patches, folder)
    return {name: (folder / name).read_text() for name in names}


@pytest.mark.slow
@pytest.mark.parametrize("series", SERIES)
def test_applies_to_the_debian_source(pristine: Path, tmp_path: Path, series: str) -> None:
    after = patched(pristine, tmp_path, series)
    assert after
    assert all(text != (pristine / name).read_text() for name, text in after.items())


@pytest.mark.slow
@pytest.mark.parametrize("series", ON_7_3)
def test_applies_to_the_source_of_7_3(newer: Path, tmp_path: Path, series: str) -> None:
    assert patched(newer, tmp_path, series)


def test_a_series_of_another_release_names_those_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "mm").mkdir()
    (tmp_path / "mm/filemap.c").write_text("int nothing;\n")
    for name, other in (
        ("filemap-walks", "6.12; for another: filemap-walks-7.3 ("),
        ("filemap-walks-7.3", "7.3; for another: filemap-walks ("),
        ("slow-add-16", "6.12; for another: none ("),
    ):
        files = files_of(CHECKOUT, f"configs/series/{name}")
        with pytest.raises(SeriesError) as refused:
            apply([read_patch(path) for path in files], tmp_path)
        assert f"{name} is for linux-source-{other}" in refused.value.next_step


@pytest.mark.parametrize("series", EVERY)
def test_is_signed_off_and_described(series: str) -> None:
    for path in files_of(CHECKOUT, series):
        text = path.read_text()
        assert "From: Twinboot <twinboot@example.org>\n" in text
        assert "\nSigned-off-by: Twinboot <twinboot@example.org>\n---\n" in text
        assert len(read_patch(path).subject) <= 75
        head = text.partition("\n---\n")[0].splitlines()
        assert max(map(len, head)) <= 80


@pytest.mark.slow
def test_noop_keeps_every_line_that_is_no_comment(pristine: Path, tmp_path: Path) -> None:
    for name, text in patched(pristine, tmp_path, "configs/series/noop").items():
        old, new = (pristine / name).read_text().splitlines(), text.splitlines()
        assert len(old) == len(new)
        for before, after in zip(old, new, strict=True):
            assert before == after or after.strip().startswith(("*", "/*"))


@pytest.mark.slow
@pytest.mark.parametrize("series", [name for name in SERIES if "slow-add" in name])
def test_slow_add_does_what_its_name_says(pristine: Path, tmp_path: Path, series: str) -> None:
    text = patched(pristine, tmp_path, series)["mm/filemap.c"]
    size = series.rpartition("-")[2]
    assert text.count(f'asm volatile(".rept {size}\\n\\tnop\\n\\t.endr");') == 1
    body = text[text.index("noinline int __filemap_add_folio(") :]
    locked = body.index("xas_lock_irq(&xas);") < body.index(".rept")
    assert locked == ("locked" in series)


def test_no_shipped_series_touches_a_header_that_other_folders_include() -> None:
    """It would rebuild most of the kernel for the second arm; `mm/swap.h` is 38 objects.

    What was published is where it was published, whatever it costs to build.
    """
    for series in EVERY:
        if series.startswith(("configs/series/published/", "configs/series/neutral/")):
            continue
        for path in files_of(CHECKOUT, series):
            headers = [name for name in read_patch(path).files if name.endswith(".h")]
            assert not [name for name in headers if "include" in Path(name).parts]


@pytest.mark.parametrize("series", [name for name in EVERY if "broken-" in name])
def test_what_is_broken_on_purpose_says_so_and_changes_no_header(series: str) -> None:
    for path in files_of(CHECKOUT, series):
        assert "BROKEN ON PURPOSE: " in path.read_text()
        # A header would have nearly every object built again.
        assert all(name.endswith(".c") for name in read_patch(path).files)


PUBLISHED = [CHECKOUT / name for name in EVERY if "/published/" in name]


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
def test_a_published_result_is_described_beside_its_patch(folder: Path) -> None:
    published = tomllib.loads((folder / "published.toml").read_text())
    assert folder.name.startswith(published["id"].lower() + "-")
    assert published["kernel"].endswith("7.3" if folder.name.endswith("-7.3") else "6.12")
    assert published["kind"] in ("regression", "improvement", "elsewhere")
    assert published["sign"] in ("slower", "faster", "none")
    assert set(published["shows"]) <= {"instructions", "locks", "lines", "misses"}
    changed = [
        line
        for path in folder.glob("*.patch")
        for line in path.read_text().splitlines()
        if line.startswith(("+", "-")) and not line.startswith(("+++", "---", "-- "))
    ]
    assert len(changed) <= 80


def test_each_published_result_and_thirty_neutral_changes_are_there() -> None:
    ids = {tomllib.loads((folder / "published.toml").read_text())["id"] for folder in PUBLISHED}
    assert ids == {f"P{number:02}" for number in range(1, 25)}
    assert len([name for name in EVERY if "/neutral/" in name]) == 30
