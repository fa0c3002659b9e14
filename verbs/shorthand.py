"""Short forms of the command line: ``twinboot HEAD~3..`` in a kernel tree, and two more.

Imported before any verb is known, so it imports next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiment.series_name import split_range

TREE = "tree"
DIRTY = "--dirty"
BASE = "--base"


def expanded(arguments: Sequence[str]) -> list[str]:
    """The arguments with the verb that a short form leaves out; any others as they are.

    ``A..B`` and ``--dirty`` are ``tree A..B`` and ``tree --dirty``; ``run BRANCH --base REF``
    is ``tree BRANCH --base REF``.
    """
    first, *rest = [*arguments[:1], *arguments[1:]] or [""]
    parts = split_range(first)
    if first == DIRTY or (parts is not None and not parts[0]):
        return [TREE, *arguments]
    if first == "run" and any(word == BASE or word.startswith(f"{BASE}=") for word in rest):
        return [TREE, *rest]
    return list(arguments)
