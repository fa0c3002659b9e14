"""Folders of patches, with and without a series file of quilt's."""

from pathlib import Path

import pytest

from errors import SeriesError, UsageError
from experiment.spec import SeriesSpec
from kernels.intake import take_in
from kernels.patch_folder import as_counted
from results.record import SeriesRecord
from tests.kernels.fake import Lab, files_of, keep, patches_of
from tests.values import data, spaced

LINES = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]


def patch(number: int, subject: str = "", prefix: str = "a/") -> str:
    """The patch that makes a file 0 1 2 ... longer by its number, after the one before."""
    head = f"From: T <t@example.org>\nSubject: {subject}\n\n" if subject else ""
    before = LINES[number - 2]
    other = "b/" if prefix == "a/" else prefix
    return (
        f"{head}--- {prefix}mm/x.c\n+++ {other}mm/x.c\n@@ -{number - 1} +{number - 1},2 @@\n"
        f" {before}\n+{LINES[number - 1]}\n"
    )


def folder(lab: Lab, files: dict[str, str]) -> Path:
    top = lab.checkout / "mine"
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    return top


def taken(lab: Lab, path: Path) -> tuple[str, SeriesRecord]:
    """What the patches that are taken in add, in their order, and their record."""
    spec = keep(SeriesSpec(path=str(path)), **lab.where)
    (record,) = take_in(spec, **lab.where).records
    texts = [each.read_text() for each in patches_of(spec, **lab.where)]
    assert all("--- a/mm/x.c" in text for text in texts)
    return "".join(text.rstrip()[-1] for text in texts), record


def test_numbers_sort_as_people_count() -> None:
    names = ["10.patch", "2.patch", "0003-x.patch", "a10b2", "a10b10", "a9"]
    assert sorted(names, key=as_counted) == [
        *spaced("2.patch 0003-x.patch 10.patch a9 a10b2 a10b10")
    ]


@pytest.mark.parametrize("named", ["", "patches", "patches/series"])
@pytest.mark.parametrize("place", ["patches/series", "series"])
def test_a_series_file_orders_and_leaves_out(lab: Lab, place: str, named: str) -> None:
    order = "# of this folder\n\nz.patch -p1\nsub/y.txt  -p0 # why\n#x.patch\nw.diff\n"
    top = folder(
        lab,
        {
            place: order,
            "patches/z.patch": patch(2),
            "patches/sub/y.txt": patch(3, prefix=""),
            "patches/x.patch": patch(9),
            "patches/w.diff": patch(4),
            "patches/v.patch": patch(8),
        },
    )
    if named == "patches/series" != place:
        named = place
    added, record = taken(lab, top / named)
    assert added == "bcd"
    assert [each.subject for each in record.patches] == ["z", "y", "w"]
    assert f"in the order of {top / place}" in record.findings
    assert "left out: v.patch, x.patch" in record.findings


def test_a_patch_that_is_turned_around(lab: Lab) -> None:
    top = folder(lab, {"series": "a.patch\na.patch -R\n", "a.patch": patch(2)})
    spec = keep(SeriesSpec(path=str(top)), **lab.where)
    first, second = (path.read_text() for path in patches_of(spec, **lab.where))
    assert first.endswith("\n a\n+b\n")
    assert second.endswith("\n a\n-b\n")


@pytest.mark.parametrize(
    ("order", "message"), data(__file__, "a_series_file_that_is_wrong_is_named_by_line")
)
def test_a_series_file_that_is_wrong_is_named_by_line(lab: Lab, order: str, message: str) -> None:
    top = folder(lab, {"series": order, "a.patch": patch(2), "b.patch": patch(3)})
    with pytest.raises(UsageError, match=message):
        taken(lab, top)


def test_a_commit_that_stgit_exported_for(lab: Lab) -> None:
    order = f"# This series applies on GIT commit {'ab' * 20}\na.patch\n"
    assert (
        taken(lab, folder(lab, {"series": order, "a.patch": patch(2)}))[1].base_commit == "ab" * 20
    )


def test_without_a_series_file_two_comes_before_ten(lab: Lab) -> None:
    files = {f"{number}.patch": patch(number) for number in range(2, 13)}
    top = folder(lab, {**files, "old/1.patch": patch(2), ".3.patch": patch(3), "README": "x"})
    added, record = taken(lab, top)
    assert added == "bcdefghijkl"
    assert record.findings == ("left out: .3.patch, old/1.patch",)


def test_mails_saved_by_their_subjects_have_their_numbers_in_these(lab: Lab) -> None:
    top = folder(
        lab,
        {"alpha.patch": patch(3, "[PATCH 2/3] alpha"), "beta.patch": patch(2, "[PATCH 1/3] beta")},
    )
    added, record = taken(lab, top)
    assert added == "bc"
    assert "in the order of the subjects' numbers, which is not that of names" in record.findings
    assert "1 of 3 patches are not in it: 3/3" in record.findings


def test_the_newest_of_versions_that_were_formatted_into_one_folder(lab: Lab) -> None:
    top = folder(
        lab,
        {
            "0001-x.patch": patch(9),
            "v2-0001-x.patch": patch(8),
            "v10-0001-x.patch": patch(2),
            "v10-0002-y.patch": patch(3),
            "v10-0000-cover-letter.patch": "Subject: [PATCH v10 0/2] all\n",
        },
    )
    added, record = taken(lab, top)
    assert (added, record.title) == ("bc", "all")
    assert record.findings == ("left out: 0001-x.patch, v2-0001-x.patch",)


def test_a_folder_of_plain_patches_stands_for_itself(lab: Lab) -> None:
    top = folder(lab, {"2.patch": patch(2), "10.patch": patch(3)})
    assert keep(SeriesSpec(path=str(top)), **lab.where).kept == ""
    assert [path.name for path in files_of(lab.checkout, str(top))] == ["2.patch", "10.patch"]


def test_a_series_is_bounded_as_a_whole(lab: Lab) -> None:
    many = {f"{number}.patch": patch(2) + "x" * (1 << 20) for number in range(40)}
    with pytest.raises(SeriesError, match=r"has 40\.0 MiB, more than 32"):
        taken(lab, folder(lab, many))
