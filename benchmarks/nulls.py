r"""What belongs to a build: changes that change nothing, measured and judged like any other.

Twelve arms differ from the base in nothing that a workload executes: words on the kernel's
command line, memory, and kernels that are a little larger (``configs/series/null-*``).  All arms
run all seeds of a shipped experiment, in one session.  Printed for each metric that is judged,
with the metric of its phase that users know beside it:

- the change of each arm against the base, with the standard error of its mean over the seeds,
- the standard deviation of an arm's own shift, over and above what the seeds scatter by, from
  the analysis of variance of arms and seeds, and its F test (a small p: a build has a shift of
  its own, which more seeds do not average out),
- how many of all pairs of arms the rule calls a change, and how many it calls "no change",
- how many pairs have a function that is called changed, which functions those are, and their
  largest change as a share of the phase.

A session that is there already is printed as it is, or finished.  ``--arm`` names the arm of the
experiment whose mount options and sysctls all twelve have, where its arms differ by those.

    .venv/bin/python benchmarks/nulls.py sessions/nulls
    .venv/bin/python benchmarks/nulls.py sessions/nulls-iomap --experiment iomap-dirty
    .venv/bin/python benchmarks/nulls.py sessions/nulls-thp --experiment thp-matrix --arm always \
        --case thp-matrix:sync-randread --guest smoke
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from analysis.comparison import compare_views
from analysis.many import views
from analysis.statistics import Floats
from analysis.verdict import CALLED, Verdict
from experiment.load import load_experiment
from experiment.spec import ArmSpec, Compare, Experiment, SeriesSpec, ShapeSpec
from host.facts import cache_folder
from results.session import MeasuredSession, open_session
from results.store import MANIFEST, SessionStore
from runs import session as sessions
from runs.boots import Reporter
from runs.local import Options
from runs.measure import measure
from runs.resolved import catalogue, resolve

BASE = "base"


def word(length: int) -> str:
    """A word on the kernel's command line that nobody reads, of so many characters.

    It has a dot, as parameters of modules have: others that the kernel does not know are handed on
    to init, and are in the environment of all that a workload executes.
    """
    return f"null.of={'x' * (length - 8)}"


WORDS = {
    "word-13": word(13),
    "word-61": word(61),
    "word-131": word(131),
    "log-1m": "log_buf_len=1M",
    "dentries": "dhash_entries=65536",
    "inodes": "ihash_entries=32768",
}
MEMORY_MIB = (1, 4)
# In place of those that take or give memory, where a run has what memory there is left for the page
# cache: a MiB more of it is a change of the workload there.
LONG_WORDS = (195, 259, 387, 515, 771)
SERIES = ("null-function-64", "null-function-4096", "null-xarray-1024", "null-data-65536")
OF_MEMORY = ("log-1m", "dentries", "inodes", *(f"memory-{mib}m" for mib in MEMORY_MIB))
NULLS = (
    ArmSpec(name=BASE),
    *(ArmSpec(name=name, cmdline=(word,)) for name, word in WORDS.items()),
    *(ArmSpec(name=f"memory-{mib}m", guest=ShapeSpec(more_memory_mib=mib)) for mib in MEMORY_MIB),
    *(ArmSpec(name=name, series=SeriesSpec(path=f"configs/series/{name}")) for name in SERIES),
)
NULLS_OF_MEMORY = (
    *(arm for arm in NULLS if arm.name not in OF_MEMORY),
    *(ArmSpec(name=f"word-{n}", cmdline=(word(n),)) for n in LONG_WORDS),
)


class Shift(NamedTuple):
    """What arms that should be equal have of their own, in % of the value.

    ``pair`` is the standard deviation of the difference of two arms on one seed, ``own`` that of
    an arm's shift beyond it, ``p_value`` of the F test that there is none.
    """

    pair: float
    own: float
    p_value: float


def shift(values: Floats) -> Shift:
    """From logarithms, shape (arms, seeds): two-way analysis of variance, one value a cell.

    Source: Scheffe, The Analysis of Variance, 1959, 4.2 and 7.4.
    """
    arms, seeds = values.shape
    degrees = (arms - 1, (arms - 1) * (seeds - 1))
    centred = values - values.mean(axis=0)
    of_arms = centred.mean(axis=1)
    within = float(((centred - of_arms[:, None]) ** 2).sum() / degrees[1])
    between = float(seeds * of_arms.var(ddof=1))
    own = max(0.0, (between - within) / seeds)
    ratio = between / within if within else float("inf") if between else 1.0
    p_value = float(stats.f.sf(ratio, *degrees))
    return Shift(100 * float(np.sqrt(2 * within)), 100 * float(np.sqrt(own)), p_value)


def nulls_of(experiment: Experiment, case: str = "", arm: str = "") -> Experiment:
    """The experiment with changes that change nothing in place of its arms, every pair compared.

    All of them have the mount options and sysctls of its ``arm``.
    """
    dataset = experiment.dataset
    nulls = NULLS_OF_MEMORY if dataset.memory_mib and not dataset.cgroup_limit_mib else NULLS
    of_arm = next((spec for spec in experiment.all_arms if spec.name == arm), ArmSpec(name=BASE))
    settings = {"mount_options": of_arm.mount_options, "sysctl": of_arm.sysctl}
    return with_arms(
        experiment,
        tuple(spec.model_copy(update=settings) for spec in nulls),
        case,
        "pairs",
        "changes that change nothing",
    )


def with_arms(
    experiment: Experiment, arms: tuple[ArmSpec, ...], case: str, compare: Compare, title: str
) -> Experiment:
    """The experiment with other arms, of one case or all, without what explains and checks."""
    # Published figures are of arms that are not here.
    kept = tuple(
        spec.model_copy(update={"published": ()})
        for spec in experiment.cases
        if case in ("", spec.name)
    )
    return experiment.model_copy(
        update={
            "arms": arms,
            "compare": compare,
            "series": None,
            "twins": (),
            "check": None,
            "cases": kept,
            "title": f"{title}: {experiment.title}",
        }
    )


def arguments_of(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments, with those that say what is measured and how."""
    parser.add_argument("session", type=Path)
    parser.add_argument("--experiment", default="filemap-v4")
    parser.add_argument("--case", default="", help="this case alone")
    parser.add_argument("--guest", default="", help="another guest than the experiment's")
    parser.add_argument("--jobs", type=int, default=None, help="guests at once")
    return parser.parse_args()


def measured(
    arguments: argparse.Namespace, arms_of: Callable[[Experiment], Experiment]
) -> MeasuredSession:
    """The session in the folder that is named: begun, finished, or as it is."""
    folder: Path = arguments.session
    options, reporter = Options(CHECKOUT, cache_folder(), guests_at_once=arguments.jobs), Reporter()
    if (folder / MANIFEST).exists():
        with sessions.SessionLock(folder, must_exist=True):
            store = SessionStore(folder)
            if store.manifest().runs_planned > len(store.records()):
                opened, store, options = sessions.reopen(folder, options, reporter.building)
                measure(opened, options, store, reporter)
        return open_session(folder)
    overrides = (f"guest={arguments.guest}",) if arguments.guest else ()
    loaded = load_experiment(
        Path(arguments.experiment), overrides=overrides, catalogue=catalogue(CHECKOUT)
    )
    with sessions.SessionLock(folder):
        resolved = resolve(arms_of(loaded), checkout=CHECKOUT, cache=options.cache)
        opened, store = sessions.start(resolved, options, folder, overrides, reporter.building)
        measure(opened, options, store, reporter)
    return open_session(folder)


class JudgedPair(NamedTuple):
    """Two arms: a verdict by case and metric, and the functions that are called changed.

    ``changed`` has the share of its phase by (case, phase, function), ``tested`` is how many were
    tested in each phase.
    """

    arms: tuple[str, str]
    verdicts: dict[tuple[str, str], Verdict | None]
    changed: dict[tuple[str, str, str], float]
    tested: list[int]


def pairs_of(session: MeasuredSession) -> Iterator[JudgedPair]:
    """Every pair of arms, each judged as a session of its own would be.

    Of what was counted without what explains it, and one after the other: a whole comparison of
    78 pairs has gigabytes of rows that nothing here is printed of.
    """
    profiles = [
        profile.model_copy(
            update={
                "phases": tuple(
                    phase.model_copy(
                        update={
                            "locks": None,
                            "user_kinds": {},
                            "interruptions": None,
                            "kernel": tuple(
                                dataclasses.replace(each, kinds=()) for each in phase.kernel
                            ),
                        }
                    )
                    for phase in profile.phases
                )
            }
        )
        for profile in session.profiles
    ]
    plain = dataclasses.replace(session, profiles=tuple(profiles))
    for view in views(session.manifest):
        pair = compare_views([view], plain)[0]
        base, patched = (arm.name for arm in view.arms)
        yield JudgedPair(
            (base, patched),
            {(each.case, each.name): each.judgement.verdict for each in pair.primary},
            {
                (each.case, each.phase, function.name): abs(function.size) / each.total.base
                for each in pair.headlines
                for function in each.changed
            },
            [each.tested for each in pair.headlines],
        )


def values_of(session: MeasuredSession, case: str, metric: str) -> dict[str, list[float]]:
    """Values by arm, in the order of the seeds that all arms have."""
    by_arm: dict[str, dict[int, float]] = {arm.name: {} for arm in session.manifest.arms}
    for record in session.records:
        value = (record.samples or {}).get(metric)
        if record.case == case and not record.repeat and not record.twin and value:
            by_arm[record.arm][record.block] = value
    blocks = sorted(set.intersection(*(set(by_block) for by_block in by_arm.values())))
    return {arm: [by_block[block] for block in blocks] for arm, by_block in by_arm.items()}


def apart(values: Mapping[str, Sequence[float]], arm: str) -> str:
    """The change of an arm against the base: mean over the seeds and its standard error, in %."""
    logs = 100 * (np.log(values[arm]) - np.log(values[BASE]))
    return f"{logs.mean():+.3f} ± {logs.std(ddof=1) / np.sqrt(len(logs)):.3f}"


def main() -> None:
    """Measure what is not measured yet, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--arm", default="", help="an arm whose settings all have")
    arguments = arguments_of(parser)
    session = measured(arguments, lambda all_: nulls_of(all_, arguments.case, arguments.arm))
    pairs = list(pairs_of(session))
    print("| case | metric | seeds scatter | a build's own | p | called | no change |")
    print("|---|---|---|---|---|---|---|")
    for case in session.manifest.cases:
        # A phase with a program of its own has no bandwidth.
        known = {metric.name for metric in case.metrics}
        beside = (f"{phase.name}.bw" for phase in case.phases if f"{phase.name}.bw" in known)
        shown = dict.fromkeys((*case.primary, *beside))
        for metric in shown:
            values = values_of(session, case.name, metric)
            scatter = shift(np.log(np.array(list(values.values()))))
            judged = case.name, metric
            verdicts = [pair.verdicts[judged] for pair in pairs if judged in pair.verdicts]
            called, same = sum(v in CALLED for v in verdicts), verdicts.count(Verdict.NO_CHANGE)
            counted = f"{called} of {len(verdicts)} | {same}" if verdicts else "not judged |"
            print(
                f"| {case.name} | {metric} | {scatter.pair:.3f} | {scatter.own:.3f} "
                f"| {scatter.p_value:.3f} | {counted} |"
            )
            changes = (f"{arm} {apart(values, arm)}" for arm in values if arm != BASE)
            print(f"  {', '.join(changes)}", file=sys.stderr)
    counts = Counter(function for pair in pairs for function in pair.changed)
    wrong = sum(bool(pair.changed) for pair in pairs)
    tested = [number for pair in pairs for number in pair.tested]
    print(
        f"\n{wrong} of {len(pairs)} pairs have a function that is called changed, of "
        f"{min(tested)} to {max(tested)} tested in a phase"
    )
    for function, count in counts.most_common():
        most = max(pair.changed.get(function, 0.0) for pair in pairs)
        print(f"  {' '.join(function)}: {count}, at most {most:.3%} of the phase")
    arms = session.manifest.arms
    print(
        f"{len(arms)} arms, {len({arm.kernel.code_key for arm in arms})} kernels, "
        f"{len(arms) * (len(arms) - 1) // 2} pairs"
    )


if __name__ == "__main__":
    main()
