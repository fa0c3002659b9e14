"""Sessions as they lie on disk, and every form of them byte for byte.

``TWINBOOT_GOLDEN=write`` has the forms written anew; the diff is what a reader sees change.  Long
forms that say the same in another way, are a digest.
"""

import hashlib
import lzma
import re
from pathlib import Path

import pytest

from analysis.many import compare_session
from host.facts import CHECKOUT
from reports import forms
from results.session import open_session
from tests.analysis.measured import is_golden, render
from tests.waiting import completed

KEPT = Path(__file__).parent / "kept"
RECORDS = [
    pytest.param(record, marks=() if record.name == "regression.tar.xz" else pytest.mark.slow)
    for record in sorted((CHECKOUT / "configs" / "gallery").glob("*.tar.xz"))
]
WHOLE = ("text", "letter", "lkp", "mmtests", "summary")


@pytest.mark.parametrize("name", sorted(folder.name for folder in KEPT.iterdir()))
def test_golden(name: str, tmp_path: Path) -> None:
    for packed in (KEPT / name).iterdir():
        (tmp_path / packed.stem).write_bytes(lzma.decompress(packed.read_bytes()))
    session = compare_session(open_session(tmp_path))
    parts = []
    for form in forms.FORMS:
        rendered = render(session, form, drawn=False)
        digest = hashlib.sha256(rendered.encode()).hexdigest()
        shown = rendered.partition("<details>")[0] if form in WHOLE else ""
        parts.append(f"=== {form} {digest}\n{shown}")
    assert is_golden(f"{name}.txt", "".join(parts))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_a_record_of_the_gallery_is_a_finished_session_without_paths_of_its_host(
    record: Path, tmp_path: Path
) -> None:
    completed(["tar", "-xJf", record, "-C", tmp_path])
    (folder,) = tmp_path.iterdir()
    assert record.name == f"{folder.name}.tar.xz"
    session = open_session(folder, counted=False)
    assert len(session.recorded) == session.manifest.runs_planned > 0
    for file in folder.glob("*.json*"):
        assert not re.search(rb'"/(home|root|tmp|work)/', file.read_bytes()), file
