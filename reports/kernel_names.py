"""What the kernel of each arm is called in a mail: its commit, or its version and series; pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from analysis.many import SessionComparison
from results.record import ArmRecord, Manifest

# A repository is settled to a commit's full name before anything is built.
COMMIT = re.compile(r"^git:(?P<place>.*)@(?P<commit>[0-9a-f]{40}(?:[0-9a-f]{24})?)$")
VERSION = re.compile(r"^\d+\.\d+(?:\.\d+)?(?:-rc\d+)?")
FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*")
INDEX = "https://elixir.bootlin.com/linux"
# Of a commit, where it stands in a line.
DIGITS = 10


class KernelName(NamedTuple):
    """``text`` is short; ``commit`` is empty where the kernel is not that of a commit as it is."""

    text: str
    commit: str

    def cut(self, width: int) -> str:
        """So many digits of the commit, or of the text as many characters."""
        return (self.commit or self.text)[:width].rstrip("(")


def source_of(manifest: Manifest, arm: str) -> str:
    """``KernelSpec.source`` of an arm, by its name."""
    specs = {spec.name: spec for spec in manifest.experiment.all_arms}
    kernel = specs[arm].kernel if arm in specs else None
    return (kernel or manifest.experiment.kernel).source


def commit_of(manifest: Manifest, arm: str) -> str:
    """The full name of the commit that an arm's source is; empty for other sources."""
    match = COMMIT.match(source_of(manifest, arm))
    return match["commit"] if match else ""


def all_of_git(session: SessionComparison) -> bool:
    """Whether every arm's source is a commit, with or without patches on top."""
    return all(commit_of(session.manifest, arm.name) for arm in session.arms)


def kernel_names(session: SessionComparison) -> dict[str, KernelName]:
    """The name of every arm's kernel, by arm; no two are the same.

    ``v6.12.38``; ``v6.12.38+series(3)`` with three patches on top, ``-series(3)`` where
    patches take out what the source holds; ``0123456789`` and ``0123456789+series(3)`` of a
    commit.  Arms that share a kernel have their own name behind a slash, as the robot
    joins what it compares by.
    """
    names: dict[str, KernelName] = {}
    for arm in session.arms:
        name = _name(session.manifest, arm)
        if any(name.text == other.text for other in names.values()):
            name = KernelName(f"{name.text}/{arm.name}", "")
        names[arm.name] = name
    return names


def source_address(
    manifest: Manifest, function: str, file: str = "", lines: tuple[int, int] = (0, 0)
) -> str:
    """Where a function can be read; empty where that is not known.

    Its line in its file, of the first of both arms whose kernel is a release without patches;
    else the function's entry in the index of the base's release, which the compiler's suffixes are
    taken off for.  ``lines`` are those of base and patched.
    """
    base = next(arm for arm in manifest.arms if arm.name == manifest.base)
    version = VERSION.match(base.kernel.release)
    name = function.partition(".")[0].partition("@")[0]
    if version is None or not FUNCTION.fullmatch(name):
        return ""
    release = f"{INDEX}/v{version[0].removesuffix('.0')}"
    patched = next(arm for arm in manifest.arms if arm.name == manifest.patched)
    for arm, line in zip((base, patched), lines, strict=True):
        of_release = arm.kernel.release == base.kernel.release and not arm.kernel.patches
        if line and of_release and not commit_of(manifest, arm.name) and FILE.fullmatch(file):
            return f"{release}/source/{file}#L{line}"
    return f"{release}/A/ident/{name}"


def _name(manifest: Manifest, arm: ArmRecord) -> KernelName:
    commit = commit_of(manifest, arm.name)
    patches = len(arm.kernel.patches)
    text = f"{commit[:DIGITS] or _version(arm)}{_series(manifest, arm) if patches else ''}"
    return KernelName(text, "" if patches else commit)


def _version(arm: ArmRecord) -> str:
    """``v6.12.38`` of a kernel built here; all of the release of one that a package ships."""
    match = VERSION.match(arm.kernel.release)
    shipped = arm.kernel.source.startswith(("deb:linux-image", "image:"))
    return f"v{match[0]}" if match and not shipped else arm.kernel.release


def _series(manifest: Manifest, arm: ArmRecord) -> str:
    experiment = manifest.experiment
    spec = next((spec for spec in experiment.all_arms if spec.name == arm.name), None)
    reverted = experiment.series is not None and experiment.series.reverse
    sign = "-" if reverted and spec is not None and spec.patches and spec.series is None else "+"
    return f"{sign}series({len(arm.kernel.patches)})"
