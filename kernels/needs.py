"""What a series says it stands on: trailers of b4 and of git format-patch --base.  Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from kernels.mail import CHANGE_ID
from text import clean

BASE_COMMIT = re.compile(r"^base-commit: ([0-9a-f]{12,64})\b", re.M)
NEED = re.compile(r"^prerequisite-(patch-id|message-id|change-id):[ \t]*<?([^\s<>]{1,250})>?", re.M)
MOST_NAMED = 3


def offers(text: str, message_ids: Iterable[str]) -> set[str]:
    """The ids under which a later series may ask for the one with this text and these mails."""
    return {*message_ids, *CHANGE_ID.findall(text)}


def unmet(
    text: str, name: str, offered: set[str], patch_ids: Callable[[], set[str]]
) -> tuple[str, ...]:
    """What a series called ``name`` needs and those before it do not have, a finding each.

    ``patch_ids`` makes the ids of the patches before it, by git, where any are needed.
    """
    needs: dict[str, dict[str, None]] = {}
    for kind, identifier in NEED.findall(text):
        needs.setdefault(kind, {})[identifier] = None
    findings = []
    for identifier in needs.get("message-id", {}):
        if identifier not in offered:
            findings.append(
                f"needs the series of <{clean(identifier)}> (prerequisite-message-id), which is "
                f"not part of it; measure it on top: --series mid:{clean(identifier)} "
                f"--series {name}"
            )
    for identifier in needs.get("change-id", {}):
        if identifier.partition(":")[0] not in offered:
            findings.append(
                f"needs the series with change-id {clean(identifier)} (prerequisite-change-id), "
                f"which is not part of it; measure it on top: --series THAT --series {name}"
            )
    patches_needed = needs.get("patch-id", {})
    lacking = list(patches_needed.keys() - patch_ids()) if patches_needed else []
    if lacking:
        lacking = [identifier for identifier in patches_needed if identifier in lacking]
        named = ", ".join(clean(identifier)[:12] for identifier in lacking[:MOST_NAMED])
        more = ", ..." if len(lacking) > MOST_NAMED else ""
        count = "1 patch" if len(lacking) == 1 else f"{len(lacking)} patches"
        findings.append(
            f"needs {count} not part of it (prerequisite-patch-id {named}{more}); measure it on "
            f"top of their series: --series THAT --series {name}"
        )
    return tuple(findings)
