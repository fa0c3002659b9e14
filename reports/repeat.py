"""How a session is made again, and what the kernel of each arm is called in a mail; pure."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath
from typing import NamedTuple

from analysis.many import SessionComparison
from analysis.model import Comparison, MetricComparison
from reports import sentences, wording
from reports.headline import headline
from results.profile import PER_WORK, WORK, stem
from results.record import ArmRecord, Manifest
from results.units import INSTRUCTIONS

DIRTY = "-dirty"
UNKNOWN = ("", "not found")
# A repository is settled to a commit's full name before anything is built.
COMMIT = re.compile(r"^git:(?P<place>.*)@(?P<commit>[0-9a-f]{40}(?:[0-9a-f]{24})?)$")
VERSION = re.compile(r"^\d+\.\d+(?:\.\d+)?(?:-rc\d+)?")
FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*")
INDEX = "https://elixir.bootlin.com/linux"
# Of a commit, where it stands in a line.
DIGITS = 10


class Repeat(NamedTuple):
    """``commands`` are lines for a shell in a checkout of the lab; ``results`` a line a number.

    ``expected`` says what the results are, ``notes`` what the commands do not say.
    """

    lab: str
    commands: tuple[str, ...]
    notes: tuple[str, ...]
    expected: str
    results: tuple[str, ...]


def repeat(session: SessionComparison, folder: str = "", *, of_others: bool = False) -> Repeat:
    """The commands that make the session again; ``folder`` is as for ``headline``.

    ``of_others`` are those who have neither the session's folder nor the sender's files: a posted
    series is named by its message-id, whatever file the sender has it in, and of other places only
    the last name is theirs, below ``PATH``.
    """
    manifest = session.manifest
    exact, dirty = manifest.experiment.mode == "exact", manifest.provenance.lab_commit
    commit, known = dirty.removesuffix(DIRTY), dirty not in UNKNOWN
    arguments = list(manifest.arguments)
    notes = []
    if of_others:
        named = {record.origin: record.message_id.strip("<>") for record in manifest.series}
        for at, argument in enumerate(arguments):
            option, equals, value = argument.rpartition("=" if argument[:2] == "--" else "\0")
            value = named.get(value) or sentences.elsewhere(value)
            arguments[at] = f"{option}{equals}{value}"
        if any(f"{sentences.ELSEWHERE}/" in argument for argument in arguments):
            notes.append(f"{sentences.ELSEWHERE} is where your own copy lies.")
    commands = [f"git checkout {shlex.quote(commit)}"] if known else []
    if dirty.endswith(DIRTY):
        notes.append("The lab had changes that are not in this commit.")
    if arguments:
        commands.append(shlex.join(["./lab.py", "run", *arguments]))
    else:
        notes.append("The command that started the session is not on record.")
    if exact and not of_others:
        folder = folder or f"sessions/{manifest.session}"
        archive = f"{PurePath(folder).name}.tar.gz"
        commands.append(shlex.join(["./lab.py", "repro", folder]))
        commands.append(shlex.join(["./lab.py", "repro", "--check", archive]))
        notes.append(
            "repro packs the session into an archive; repro --check measures it again, on any "
            "machine, and compares every number."
        )
    results = []
    for pair in session.comparisons if headline(session).has_verdicts else ():
        name = f"{pair.name}: " if len(session.comparisons) > 1 else ""
        measured = (metric for metric in pair.primary if metric.base and metric.patched)
        results += [
            f"{name}{_result(metric, exact=pair.wall is None)}{_index(pair, metric)}"
            for metric in measured
        ]
    expected = ""
    if results:
        expected = (
            "Expected means, equal to the last digit on any host"
            if exact
            else "Real time gives other digits: the verdicts must come out, with intervals that "
            "overlap these"
        )
    of_commit = f"commit {dirty}" if known else "its commit is not known"
    lab = f"Twinboot {manifest.provenance.lab_version}, {of_commit}"
    return Repeat(lab, tuple(commands), tuple(notes), expected, tuple(results))


def _result(metric: MetricComparison, *, exact: bool) -> str:
    """``filemap-4k 4k.bw: 287.053 -> 289.965 virtual MiB/s``; in wall mode the verdict, too."""
    unit = wording.after(metric.unit)
    text = f"{metric.case} {metric.name}: {sentences.means(metric)}{unit}"
    parts = (wording.change(metric), wording.interval(metric), sentences.verdict(metric))
    return text if exact else f"{text}, {', '.join(part for part in parts if part)}"


def _index(comparison: Comparison, metric: MetricComparison) -> str:
    """`` (index 945.132 -> 937.434)``: what is judged of instructions per I/O, and on record.

    It is counted per :data:`PER_WORK` ns of work, of which base has as much as its own metric says.
    """
    work = comparison.metric(metric.case, f"{metric.phase}.{WORK}")
    both = metric.base, metric.patched
    if metric.name != f"{metric.phase}.{INSTRUCTIONS}" or work is None or work.base is None:
        return ""
    scale = PER_WORK / work.base.mean
    means = (wording.figure(scale * each.mean if each else None) for each in both)
    return f" (index {' -> '.join(means)})"


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


def kernel_names(session: SessionComparison) -> dict[str, KernelName]:
    """The name of every arm's kernel, by arm; no two are the same.

    ``v6.12.38``; ``v6.12.38+series(3)`` with three patches on top, ``-series(3)`` where
    patches take out what the source holds; ``0123456789`` and ``0123456789+series(3)`` of a
    commit; all of the release of one that a package ships.  Arms that share a kernel have their
    own name behind a slash, as the robot joins what it compares by.
    """
    names: dict[str, KernelName] = {}
    for arm in session.arms:
        name = _name(session.manifest, arm)
        if any(name.text == other.text for other in names.values()):
            name = KernelName(f"{name.text}/{arm.name}", "")
        names[arm.name] = name
    return names


def _name(manifest: Manifest, arm: ArmRecord) -> KernelName:
    commit, patches = commit_of(manifest, arm.name), len(arm.kernel.patches)
    version = VERSION.match(arm.kernel.release)
    shipped = arm.kernel.source.startswith(("deb:linux-image", "image:"))
    release = f"v{version[0]}" if version and not shipped else arm.kernel.release
    text = commit[:DIGITS] or release
    if not patches:
        return KernelName(text, commit)
    experiment = manifest.experiment
    spec = next((spec for spec in experiment.all_arms if spec.name == arm.name), None)
    reverted = experiment.series is not None and experiment.series.reverse
    sign = "-" if reverted and spec is not None and spec.patches and spec.series is None else "+"
    return KernelName(f"{text}{sign}series({patches})", "")


def source_address(
    manifest: Manifest, function: str, file: str = "", lines: tuple[int, int] = (0, 0)
) -> str:
    """Where a function can be read; empty where that is not known.

    Its line in its file, of the first of both arms whose kernel is a release without patches;
    else the function's entry in the index of the base's release, which the compiler's suffixes are
    taken off for.  ``lines`` are those of base and patched.
    """
    named = {arm.name: arm for arm in manifest.arms}
    base, patched = named[manifest.base], named[manifest.patched]
    version = VERSION.match(base.kernel.release)
    name = stem(function)
    if version is None or not FUNCTION.fullmatch(name):
        return ""
    release = f"{INDEX}/v{version[0].removesuffix('.0')}"
    for arm, line in zip((base, patched), lines, strict=True):
        of_release = arm.kernel.release == base.kernel.release and not arm.kernel.patches
        if line and of_release and not commit_of(manifest, arm.name) and FILE.fullmatch(file):
            return f"{release}/source/{file}#L{line}"
    return f"{release}/A/ident/{name}"
