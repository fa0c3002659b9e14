"""Which functions a patch changes, as its text shows."""

from __future__ import annotations

import pytest

from kernels.diff import changed_functions
from kernels.patch_folder import known_series, read_folder
from tests.test_errors import CHECKOUT

WITHIN = "@@ -10,3 +10,3 @@ static int in_heading(struct page *page)\n a\n-\tb;\n+\tc;\n d\n"
BEGUN = "@@ -1,6 +1,6 @@\n }\n \n-int first(int a)\n+int first(long a)\n {\n \tint b;\n }\n"
AFTER = "@@ -5,4 +5,5 @@ int before(void)\n \treturn 0;\n }\n \n+int variable;\n #include <x.h>\n"
NEW = "@@ -0,0 +1,4 @@\n+static void fresh(\n+\tint a)\n+{\n+}\n"
SIGNED = f"{WITHIN}-- \n2.39.5\n"


@pytest.mark.parametrize(
    ("hunks", "names"),
    [
        (WITHIN, ("in_heading",)),
        (BEGUN, ("first",)),
        (AFTER, ()),
        (NEW, ("fresh",)),
        (SIGNED, ("in_heading",)),
        (WITHIN + NEW + WITHIN, ("in_heading", "fresh")),
        ("@@ -1,2 +1,2 @@\n-EXPORT_SYMBOL(x);\n+EXPORT_SYMBOL_GPL(x);\n #\n", ()),
    ],
)
def test_changed_functions(hunks: str, names: tuple[str, ...]) -> None:
    text = f"--- a/mm/x.c\n+++ b/mm/x.c\n{hunks}"
    assert changed_functions(text, "x.patch") == names


def test_those_of_a_posted_series() -> None:
    (path,) = [name for name in known_series(CHECKOUT) if name.endswith("filemap-walks")]
    texts = [patch.read_text() for patch in read_folder(CHECKOUT, path).files]
    functions = [changed_functions(text, "x") for text in texts]
    assert all(functions)
    assert "__filemap_add_folio" in {name for names in functions for name in names}
