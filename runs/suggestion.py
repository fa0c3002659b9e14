"""Workloads for a series, by what they execute of it: suggested, and taken of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from errors import SpecError
from experiment.ad_hoc import Auto, alike, choose, load_auto
from experiment.spec import Experiment, SeriesSpec
from kernels.diff import changed_functions
from kernels.intake import patches_of, records_of
from kernels.source import identify, release_of
from results.coverage import Candidate, Coverage, Suggestion, suggest
from runs.coverage import changed_by, shipped
from runs.options import Options
from workloads.spec import load_catalogue

# Of the best workload's score, what another one must have to be taken, and how many are at most:
# of two that show a change the one of large folios spends less of its time in adding them.
SHARE, MOST_CHOSEN = 0.2, 5
# Of the same, what the best that needs nothing built or installed must have to be the first.
USUAL_SHARE = 0.5
# Seeds and arms of a first session, and guests at once: for an estimate of its time.
RUNS, AT_ONCE = 16, 2


@dataclass(frozen=True)
class Advice:
    """A suggestion with its ground: the series' files, and whether kernels or hunks were read.

    ``chosen`` are the workloads that are measured where nobody names any, empty where none can be.
    """

    coverage: Coverage
    suggestion: Suggestion
    files: tuple[str, ...]
    by_kernels: bool
    chosen: tuple[str, ...]

    def seconds(self, candidate: Candidate) -> float:
        """About how long a session of the workload takes on two cores, kernels cached."""
        return candidate.case.run_cpu_s * RUNS / AT_ONCE


def answer(experiment: Experiment, options: Options) -> Advice:
    """What to measure the settled series of ``experiment`` with.

    Raises:
        LabError: the series cannot be read, or the coverage that comes with the lab.
    """
    assert experiment.series is not None
    series, where = experiment.series, {"checkout": options.checkout, "cache": options.cache}
    texts, files = texts_and_files(series, **where)
    functions, by_kernels = changed_by(experiment, texts, options)
    coverage = shipped(release_of(identify(experiment.kernel.source, **where)))
    suggestion = suggest(coverage, functions, files)
    try:
        chosen = workloads_for(suggestion, files)
    except SpecError:
        chosen = ()
    return Advice(coverage, suggestion, files, by_kernels, chosen)


def texts_and_files(
    series: SeriesSpec, *, checkout: Path, cache: Path
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The patches of a series by the names of their files, and the files that they change.

    Raises as ``kernels.intake.keep``.
    """
    records = records_of(series, checkout=checkout, cache=cache)
    files = dict.fromkeys(
        file for record in records for patch in record.patches for file in patch.files
    )
    texts = {
        path.name: path.read_text(encoding="utf-8", errors="replace")
        for path in patches_of(series, checkout=checkout, cache=cache)
    }
    return texts, tuple(files)


def workloads_for(
    suggestion: Suggestion, files: Sequence[str], auto: Auto | None = None
) -> tuple[str, ...]:
    """The workloads that a series is measured with where nobody names any, in the file's order.

    Of those that can be measured in one session, and that together execute its functions most: the
    best five, as far as they have a fifth of the score of the best one (``Candidate.score``): a
    workload of many operations executes a little of everything.  Those that need a kernel with
    additions, which has to be built, or programs that set-up does not install, are left out where
    another one has half the score of the best.  Where no function of the series is known, those
    that the names of its files stand for, as far as they execute any of the files' functions.

    Raises:
        SpecError: there are none; names the shipped experiment that would do, if any.
    """
    auto = auto or load_auto()
    catalogue = load_catalogue()
    able = [
        candidate
        for candidate in suggestion.candidates
        if candidate.case.workload in auto.workloads and candidate.case.workload in catalogue
    ]
    usual = [
        each
        for each in able
        for workload in [catalogue[each.case.workload]]
        if not (workload.additions or workload.host_programs)
    ]
    if usual and usual[0].score >= USUAL_SHARE * able[0].score:
        able = usual
    if able:
        groups = [alike([first, *auto.workloads], auto) for first in auto.workloads]
        if suggestion.by_files:
            # That a file's other functions are executed says little: many workloads do that.
            with suppress(SpecError):
                known = choose(files, auto)
                able = [each for each in able if each.case.workload in known] or able
            together = next(names for names in groups if _weight(able, names) > 0)
        else:
            # Not without the one that shows it most, whatever others show together.
            with_best = [names for names in groups if able[0].case.workload in names]
            together = max(with_best, key=lambda names: _weight(able, names))
        able = [candidate for candidate in able if candidate.case.workload in together]
        least = SHARE * max(candidate.score for candidate in able)
        # They are in the order of their scores.
        chosen = {
            candidate.case.workload
            for candidate in able[:MOST_CHOSEN]
            if candidate.score >= least
        }  # fmt: skip
        return tuple(name for name in auto.workloads if name in chosen)
    if suggestion.candidates:
        best = suggestion.candidates[0].case
        raise SpecError(
            [
                f"--series: only {best.workload} executes what the series changes; measure it in "
                f"its experiment: ./lab.py run {best.experiment} --set series.path=SERIES"
            ]
        )
    if suggestion.never:
        raise SpecError(
            [
                f"--series: no workload executes {', '.join(suggestion.never[:5])}; "
                f"name some all the same: --workloads {','.join(auto.workloads)}"
            ]
        )
    return choose(files, auto)


def _weight(candidates: Sequence[Candidate], workloads: Sequence[str]) -> float:
    """The score of these workloads together: of each function the largest share."""
    chosen = [candidate for candidate in candidates if candidate.case.workload in workloads]
    functions = {function for candidate in chosen for function in candidate.shares}
    return sum(
        max(candidate.shares.get(function, 0.0) for candidate in chosen) for function in functions
    )


def automatic(
    patches: Mapping[str, str], files: Sequence[str], release: str = ""
) -> tuple[str, ...]:
    """As :func:`workloads_for`, from the texts of ``patches`` alone, on a source's ``release``."""
    functions = [name for text in patches.items() for name in changed_functions(text[1], text[0])]
    return workloads_for(suggest(shipped(release), functions, files), files)
