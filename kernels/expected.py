"""What a build took last time: remembered in the cache, for progress and for plans.

There is no way to ask make beforehand: ``make -n`` of a kernel takes minutes and stops where
headers are generated.  A build that starts from another's objects takes much less than a first one,
and very little where its configuration is the other's and more options (kind ``extended``).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from files import write_atomically

Kind = Literal["first", "copied", "extended", "next"]


@dataclass(frozen=True)
class Expected:
    """Commands that make runs, 0 where that is not known, and seconds."""

    steps: int
    seconds: float


# Where the cache remembers nothing: the lean 6.12 configuration on two cores.
UNKNOWN: dict[Kind, Expected] = {
    "first": Expected(0, 480.0), "copied": Expected(0, 480.0),
    "extended": Expected(0, 90.0), "next": Expected(0, 90.0),
}  # fmt: skip


def expected(cache: Path, flavour: str, kind: Kind) -> Expected:
    """What the last build of this kind took: of the flavour, else of the largest other one."""
    own = _read(_file(cache, flavour)).get(kind)
    if own is not None:
        return own
    others = [_read(path).get(kind) for path in sorted(cache.glob(_file(cache, "*").name))]
    counts = [other for other in others if other is not None]
    return max(counts, key=lambda other: other.steps, default=UNKNOWN[kind])


def remember(cache: Path, flavour: str, kind: Kind, build_steps: Expected) -> None:
    """Keep what a build took."""
    path = _file(cache, flavour)
    builds = {**_read(path), kind: build_steps}
    write_atomically(path, json.dumps({kind: asdict(build) for kind, build in builds.items()}))


def _file(cache: Path, flavour: str) -> Path:
    return cache / f"builds-{flavour}.json"


def _read(path: Path) -> dict[Kind, Expected]:
    try:
        return {kind: Expected(**build) for kind, build in json.loads(path.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
