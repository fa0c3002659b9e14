"""A series leaves one cache and is taken into another, or is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from errors import SeriesError
from experiment.spec import SeriesSpec
from kernels.intake import RECORDS, adopt, copy_out, keep, patches_of, records_of, take_in
from tests.kernels.fake import Lab
from tests.kernels.test_first_parents import edit_slow


@pytest.fixture
def spec(lab: Lab) -> SeriesSpec:
    """A series of one patch, taken out of a source that holds it: kept in the cache."""
    lab.series("mine", edit_slow)
    series = SeriesSpec(path="configs/series/mine", reverse=True, revert=True)
    return keep(series, **lab.where)


def test_a_kept_series_is_the_same_in_another_cache(
    lab: Lab, spec: SeriesSpec, tmp_path: Path
) -> None:
    copy_out(
        take_in(spec, checkout=lab.checkout, cache=lab.cache), tmp_path / "out", cache=lab.cache
    )
    shutil.rmtree(lab.checkout / "configs/series/mine")
    other = tmp_path / "other"
    assert adopt(spec, tmp_path / "out", cache=other) == spec
    before = patches_of(spec, **lab.where)
    after = patches_of(spec, checkout=lab.checkout, cache=other)
    assert [path.name for path in before] == [path.name for path in after]
    assert [path.read_bytes() for path in before] == [path.read_bytes() for path in after]
    assert records_of(spec, **lab.where) == records_of(spec, checkout=lab.checkout, cache=other)
    assert [path.name for path in (other / "series").iterdir()] == [spec.kept]


def test_a_plain_folder_is_this_folder_from_now_on(lab: Lab, tmp_path: Path) -> None:
    lab.series("mine", edit_slow)
    plain = SeriesSpec(path="configs/series/mine", title="t")
    copy_out(
        take_in(plain, checkout=lab.checkout, cache=lab.cache), tmp_path / "out", cache=lab.cache
    )
    adopted = adopt(plain, tmp_path / "out", cache=tmp_path / "other")
    assert adopted == SeriesSpec(path=str(tmp_path / "out"), title="t")
    assert not (tmp_path / "other").exists()


def test_what_was_left_by_another_series_is_not_mixed_in(
    lab: Lab, spec: SeriesSpec, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/9999-old.patch").write_text("old")
    copy_out(
        take_in(spec, checkout=lab.checkout, cache=lab.cache), tmp_path / "out", cache=lab.cache
    )
    assert sorted(path.name for path in (tmp_path / "out").glob("9*")) == []


@pytest.mark.parametrize("damage", ["changed", "another", "none", "no record"])
def test_other_patches_do_not_get_into_the_cache_under_this_key(
    lab: Lab, spec: SeriesSpec, tmp_path: Path, damage: str
) -> None:
    out = tmp_path / "out"
    copy_out(take_in(spec, checkout=lab.checkout, cache=lab.cache), out, cache=lab.cache)
    patch = next(out.glob("*.patch"))
    if damage == "changed":
        patch.write_text(patch.read_text() + "\n")
    elif damage == "another":
        shutil.copyfile(patch, out / "0002-more.patch")
    else:
        (patch if damage == "none" else out / RECORDS).unlink()
    with pytest.raises(SeriesError, match="another series than that of key"):
        adopt(spec, out, cache=tmp_path / "other")
    assert not (tmp_path / "other/series" / spec.kept).exists()


def test_a_patch_that_leaves_the_tree_is_refused(
    lab: Lab, spec: SeriesSpec, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    copy_out(take_in(spec, checkout=lab.checkout, cache=lab.cache), out, cache=lab.cache)
    patch = next(out.glob("*.patch"))
    patch.write_text(patch.read_text().replace("mm/slow.c", "../slow.c"))
    with pytest.raises(SeriesError):
        adopt(spec, out, cache=tmp_path / "other")
