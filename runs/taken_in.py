"""What was taken in: the series of an experiment in words, and whether they fit their source.

Said by every verb that takes a series, before anything is built: a wrong patch, author or base is
seen at once here, and after an hour in a report.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

from errors import LabError, SeriesError
from experiment.spec import Experiment
from host import sandbox
from kernels import at_hand
from kernels.diff import of_kernel
from kernels.series import apply, read_patch
from kernels.settle import COMMON, Settled, series_records
from results.record import SeriesRecord
from runs.options import Options
from runs.resolved import patches_of
from text import clean

WIDTH = 80
MOST_FILES = 8
MOST_PATCHES = 9


@dataclass(frozen=True)
class SeriesIntake:
    """The series of an experiment: their records, what the host runs of them, what is to be said.

    ``problem`` is why they can be measured with this source in no way.
    """

    records: tuple[SeriesRecord, ...]
    source: str
    notes: tuple[str, ...] = ()
    problem: SeriesError | None = None

    def lines(self, width: int = WIDTH, *, with_problem: bool = False) -> list[str]:
        """All of it for people, of at most ``width`` columns; the problem only if it is wanted."""
        lines: list[str] = []
        for record in self.records:
            lines += _of_series(record, self.source, width)
        problem = self.problem if with_problem else None
        for note in (*self.notes, *([problem.in_one_line] if problem else [])):
            lines += _wrapped(f"note: {note}", width)
        return lines


def taken_in(settled: Settled, options: Options) -> SeriesIntake:
    """The series of a settled experiment, tried on its source where that is at hand."""
    experiment, every = settled
    common = every[COMMON].records if COMMON in every else ()
    records = series_records(experiment, common, checkout=options.checkout)
    for name, taken in every.items():
        records += taken.records if name != COMMON else ()
    boxed = any(record.kind == "thread" for record in records)
    notes: list[str] = []
    problem = None
    try:
        for source, patches in _to_be_tried(settled):
            notes += _tried(source, patches, options, boxed=boxed)
    except SeriesError as error:
        problem = error
    return SeriesIntake(records, experiment.kernel.source, tuple(dict.fromkeys(notes)), problem)


def _to_be_tried(settled: Settled) -> list[tuple[str, tuple[Path, ...]]]:
    """Each source with the longest lists of patches that are applied to it."""
    every: list[tuple[str, tuple[Path, ...]]] = []
    experiment: Experiment = settled.experiment
    pairs = [
        ((arm.kernel or experiment.kernel).source, patches_of(arm, settled.series))
        for arm in experiment.all_arms
    ]
    for source, patches in sorted(pairs, key=lambda pair: len(pair[1]), reverse=True):
        longer = (p for s, p in every if s == source)
        if patches and not any(p[: len(patches)] == patches for p in longer):
            every.append((source, patches))
    return every


def _tried(source: str, paths: Sequence[Path], options: Options, *, boxed: bool) -> list[str]:
    """What is to be said of patches on a source.

    Raises:
        SeriesError: they are no kernel's, or do not apply.
    """
    patches = [read_patch(path) for path in paths]
    files = tuple(dict.fromkeys(name for patch in patches for name in patch.files))
    shown = clean(source)
    with tempfile.TemporaryDirectory(prefix="twinboot-tried-") as name:
        folder = Path(name) / "tree"
        folder.mkdir()
        try:
            has = at_hand.lay_out(
                source, files, folder, checkout=options.checkout, cache=options.cache
            )
        except LabError as error:
            return [f"not tried whether it applies: {error.in_one_line}"]
        if has is None:
            _require_kernels(files, of_kernel(files), shown)
            return [f"not tried whether it applies: {shown} is not unpacked yet"]
        _require_kernels(files, bool(has.files or has.folders), shown)
        notes = []
        if not has.files:
            notes.append(f"adds files, and changes none of {shown}: is anything built of them?")
        if boxed and sandbox.available() is None:
            return [*notes, "not tried whether it applies: it came by mail, and there is no box"]
        apply(patches, folder, boxed=boxed)
    return notes


def _require_kernels(files: Sequence[str], is_kernels: bool, source: str) -> None:
    if not is_kernels:
        names = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
        raise SeriesError(
            f"no path or folder of it is in the kernel's source ({source})",
            where=clean(names),
            next_step="it is another project's patch; name the one for the kernel",
        )


def _of_series(record: SeriesRecord, source: str, width: int) -> list[str]:
    version = f" v{record.version}" if record.version > 1 else ""
    author = f", by {record.author}" if record.author else ""
    count = len(record.patches)
    files = tuple(dict.fromkeys(file for patch in record.patches for file in patch.files))
    more = f" and {len(files) - MOST_FILES} more" if len(files) > MOST_FILES else ""
    base = f"base-commit {record.base_commit[:12]}" if record.base_commit else "no base is named"
    subjects = [f"{number}. {each.subject}" for number, each in enumerate(record.patches, 1)]
    texts = [
        f"{count} patch{'es'[: 2 * (count != 1)]} from {record.origin}",
        *(subjects[:MOST_PATCHES] if count > 1 else ()),
        *([f"... {count}. {record.patches[-1].subject}"] if count > MOST_PATCHES else ()),
        f"changes {', '.join(files[:MOST_FILES])}{more}",
        f"{base}; built on {clean(source)}",
        *(f"finding: {text}" for text in record.findings),
    ]
    if record.host_code:
        texts.append(f"runs on this host when it is built: {', '.join(record.host_code)}")
    head = _wrapped(f'series: "{record.title}"{version}{author}', width, indent="")
    return head + [line for text in texts for line in _wrapped(text, width)]


def _wrapped(text: str, width: int, indent: str = "  ") -> list[str]:
    return wrap(
        clean(text, 1000),
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        break_on_hyphens=False,
    )
