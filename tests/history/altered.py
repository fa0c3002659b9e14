"""Made-up entries changed as people change what is measured: seeds, names, cases, nights."""

from collections.abc import Callable, Mapping, Sequence

from analysis.comparison import summarize
from analysis.verdict import Verdict
from experiment.spec import Thresholds
from history.entry import ArmCase, CaseEntry, Conclusion, Ensemble, Entry
from tests.values import but


def on_seeds(entry: Entry, seeds: Sequence[int]) -> Entry:
    """The entry as if only these of its seeds had been measured."""

    def cut(case: CaseEntry) -> CaseEntry:
        at = [case.seeds.index(seed) for seed in seeds]
        return but(case, seeds=tuple(seeds), arms=tuple(_cut(arm, at) for arm in case.arms))

    return each_case(entry, cut)


def on_seeds_from(entries: Sequence[Entry], seeds: Mapping[int, Sequence[int]]) -> list[Entry]:
    """The nights as if from each of these numbers on only these seeds had been measured."""
    nights = list(entries)
    for first, measured in sorted(seeds.items()):
        nights[first:] = [on_seeds(entry, measured) for entry in entries[first:]]
    return nights


def _cut(arm: ArmCase, at: Sequence[int]) -> ArmCase:
    metrics = {}
    for name, ensemble in arm.metrics.items():
        values = tuple(ensemble.values[place] for place in at)
        summary = summarize([value for value in values if value is not None])
        metrics[name] = Ensemble(values=values, summary=summary)
    return but(arm, metrics=metrics, runs=len(at))


def renamed(entry: Entry, old: str, new: str) -> Entry:
    """The entry with another name of a metric."""

    def named(case: CaseEntry) -> CaseEntry:
        arms = [
            but(arm, metrics={new if n == old else n: of for n, of in arm.metrics.items()})
            for arm in case.arms
        ]
        return but(
            case,
            metrics=tuple(but(m, name=new) if m.name == old else m for m in case.metrics),
            primary=tuple(new if name == old else name for name in case.primary),
            arms=tuple(arms),
        )

    return each_case(entry, named)


def each_case(entry: Entry, change: Callable[[CaseEntry], CaseEntry]) -> Entry:
    return but(entry, cases=tuple(map(change, entry.cases)))


def without_case(entry: Entry, name: str) -> Entry:
    return but(entry, cases=tuple(c for c in entry.cases if c.name != name))


def judged_by(entry: Entry, **thresholds: float) -> Entry:
    """The entry with its own thresholds, as ``--set thresholds.change=0.1`` makes it."""
    changed = Thresholds(**{**entry.thresholds.model_dump(), **thresholds})
    return but(entry, thresholds=changed)


def measured_again(entry: Entry) -> Entry:
    """Another session of the same kernel on the same night."""
    later = entry.created.replace("T02", "T05")
    return but(entry, created=later, session=f"{entry.session}-again")


def lost(entry: Entry, blame: str, reason: str = "no run is left") -> Entry:
    """The entry with its verdicts lost: a broken kernel, or a broken host."""

    def without(case: CaseEntry) -> CaseEntry:
        conclusion = Conclusion(
            arm="tonight",
            against="pinned",
            metric=case.primary[0],
            verdict=Verdict.FAILED,
            reason=reason,
            blame=blame,
        )
        return but(case, conclusions=(conclusion,))

    return each_case(entry, without)


def without_last_seed(arm: ArmCase) -> ArmCase:
    """The arm as if the run of its last seed had been lost."""
    metrics = {}
    for name, ensemble in arm.metrics.items():
        values = (*ensemble.values[:-1], None)
        summary = summarize([value for value in values if value is not None])
        metrics[name] = Ensemble(values=values, summary=summary)
    return but(arm, metrics=metrics, failed=1)
