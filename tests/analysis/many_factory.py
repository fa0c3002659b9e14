"""Synthetic sessions of many arms, and of many cases: made of :mod:`tests.analysis.factory`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.many import SessionComparison, compare_session
from experiment.spec import ArmSpec, Compare, Published, SeriesSpec
from results.record import ArmRecord, Manifest, Metric, RunRecord
from tests.analysis import factory
from tests.analysis.measured import measured
from tests.values import but, data

DOCUMENT = "tree_lock thread (2016)"
# Log ratio of bandwidth from the base, and of the share in the slow path.
ARMS: Mapping[str, tuple[float, float]] = data(__file__, "arms")
PUBLISHED = {"sleepy": 295.0, "bourney": 425.0, "sorted-bourney": 465.0, "zr-1": 470.0}
SETTINGS: Mapping[str, Mapping[str, str]] = {"zr-1": {"vm.zone_reclaim_mode": "1"}}
STEPS: Mapping[str, tuple[float, float]] = {
    "0": (0.0, 0.0),
    "1": (0.0002, 0.0),
    "2": (0.0122, 0.0),
    "3": (0.0124, 0.0),
}
SUBJECTS = {
    "0": "as released",
    "1": "mm/filemap: return early if failed to allocate memory for split",
    "2": "lib/xarray: introduce a new helper xas_get_order",
    "3": "mm/filemap: optimize filemap folio adding",
}


@dataclass
class Many:
    """What to make up: arms with their log ratios, how they are compared, and the seeds."""

    arms: Mapping[str, tuple[float, float]] = field(default_factory=lambda: ARMS)
    labels: Mapping[str, str] = field(default_factory=dict)
    compare: Compare = "base"
    seeds: tuple[int, ...] = factory.SEEDS
    title: str = "Overwriting a file three times the size of memory"

    def session(self) -> factory.ExactSession:
        return factory.ExactSession(
            seeds=self.seeds, title=self.title, question="Which arm is fastest?"
        )

    def manifest(self) -> Manifest:
        two = self.session().manifest()
        names = list(self.arms)
        specs = tuple(
            ArmSpec(
                name=name, label=self.labels.get(name, name), sysctl=dict(SETTINGS.get(name, {}))
            )
            for name in names
        )
        first = two.experiment.cases[0]
        figures = tuple(
            Published(
                metric="4k.bw", unit="MB/s", base=470.0, patched=value, document=DOCUMENT, arm=name
            )
            for name, value in PUBLISHED.items()
            if name in names
        )
        experiment = but(
            two.experiment,
            arms=specs,
            compare=self.compare,
            cases=(but(first, published=figures), but(two.experiment.cases[1], published=())),
            series=SeriesSpec(path="configs/series/removal"),
        )
        share = Metric(
            name="4k.slowpath_share",
            title="4k: share in the slow path",
            unit="%",
            direction="lower",
        )
        cases = (but(two.cases[0], metrics=(*two.cases[0].metrics, share)), *two.cases[1:])
        arms = tuple(self._arm(two.arms[0], spec, number) for number, spec in enumerate(specs))
        return but(
            two,
            experiment=experiment,
            cases=cases,
            arms=arms,
            runs_planned=2 * len(arms) * len(self.seeds),
        )

    def _arm(self, like: ArmRecord, spec: ArmSpec, number: int) -> ArmRecord:
        key = f"{number:x}" + like.kernel.key[1:]
        kernel = but(like.kernel, key=key, code_key=key)
        return but(
            like, name=spec.name, label=spec.label, kernel=kernel, settings=dict(spec.settings)
        )

    def records(self) -> list[RunRecord]:
        session = self.session()
        runs = []
        for case in factory.PHASES:
            for block in range(len(self.seeds)):
                for name, (effect, share) in self.arms.items():
                    runs.append(self._run(session, case, name, block, effect, share))
        return [*runs, factory.repeat_of(runs[0])]

    def _run(
        self,
        session: factory.ExactSession,
        case: str,
        arm: str,
        block: int,
        effect: float,
        share: float,
    ) -> RunRecord:
        first = arm == next(iter(self.arms))
        session.effect = dict.fromkeys(factory.LOOKS, effect)
        # Each arm has noise of its own, or steps would have none between them.
        session.noise = 0.0002 + 0.0004 * list(self.arms).index(arm)
        made = factory.run(session, case, "base" if first else "patched", block)
        samples = dict(made.samples or {})
        if case == "filemap-4k":
            samples["4k.slowpath_share"] = 27.0 * math.exp(share) * (1 + 0.001 * block)
        return but(
            made,
            run_id=f"{case}-{block:03d}-{arm}",
            arm=arm,
            kernel_key=arm,
            samples=samples,
            fingerprint=f"{case}{block}{arm}",
        )

    def compared(
        self, records: Sequence[RunRecord] | None = None, **head: Any
    ) -> SessionComparison:
        runs = self.records() if records is None else records
        return compare_session(measured(but(self.manifest(), **head), runs))


def steps() -> Many:
    """A series taken patch by patch: the second gives it."""
    return Many(arms=STEPS, labels=SUBJECTS, compare="steps")


def workloads(many: int = 6) -> tuple[Manifest, list[RunRecord]]:
    """Two arms over many cases, each reading and writing, with changes of every size."""
    session = factory.ExactSession()
    two = session.manifest()
    made: list[RunRecord] = []
    metrics = factory.metrics("4k")
    directions = tuple(
        but(metrics[0], name=f"4k.{side}_bw", title=f"4k: {side} bandwidth")
        for side in ("read", "write")
    )
    cases, specs = [], []
    for number in range(many):
        name = (
            f"thp-matrix:{('sync', 'libaio', 'mmap')[number % 3]}-{('read', 'randrw')[number % 2]}"
        )
        name = f"{name}{number}"
        primary = ("4k.bw",) if number % 2 == 0 else ("4k.read_bw", "4k.write_bw")
        extra = directions if number % 2 else ()
        cases.append(
            but(two.cases[0], name=name, title=name, metrics=(*metrics, *extra), primary=primary)
        )
        specs.append(
            but(
                two.experiment.cases[0],
                workload="thp-matrix",
                variant=name.partition(":")[2],
                primary=primary,
                published=(),
            )
        )
        session.effect = {"4k": (0.98, -0.63, 0.002, -0.05, 1.27, -0.0005)[number % 6]}
        for block in range(len(session.seeds)):
            for arm in ("base", "patched"):
                run = factory.run(session, "filemap-4k", arm, block)
                samples = dict(run.samples or {})
                for metric in extra:
                    samples[metric.name] = samples["4k.bw"] / 2
                made.append(
                    but(
                        run,
                        case=name,
                        run_id=f"{name}-{block:03d}-{arm}",
                        samples=samples,
                        fingerprint=f"{name}{block}{arm}",
                    )
                )
    experiment = but(two.experiment, cases=tuple(specs), name="thp-matrix")
    manifest = but(
        two, cases=tuple(cases), experiment=experiment, runs_planned=2 * many * len(session.seeds)
    )
    return manifest, [*made, factory.repeat_of(made[0])]
