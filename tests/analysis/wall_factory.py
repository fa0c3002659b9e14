"""Synthetic wall sessions: three arms in randomised blocks on a host of a given temper."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from analysis.model import Comparison
from experiment.plan import AGAIN, Conditions
from experiment.spec import Thresholds
from results.record import Manifest, RunRecord
from tests.analysis import factory
from tests.analysis.factory import PHASES
from tests.analysis.measured import compare
from tests.values import but

QUIET = Conditions(stolen=0.0, foreign=0.01, swapped_pages=0, throttled=0)
BUSY = Conditions(stolen=0.0, foreign=0.4, swapped_pages=0, throttled=0)
RUN_S = 40.0
FITNESS = {
    "fitness accelerator": "ok: kvm boots a kernel",
    "fitness governor": "warn: powersave",
    "fitness steal": "ok: 0.0% of CPU time",
    "fitness other guests": "fail: qemu-system-x86 (4711)",
}


@dataclass
class WallSession:
    """``effect`` and ``again`` are log ratios of all bandwidths of the patched and the A/A arm.

    ``spread`` is the standard deviation of a boot, ``drift`` what the whole session moves
    by, ``recorded`` the blocks on record where that is not all, ``most`` those of a session that
    began with 12 and adds some.
    """

    blocks: int = 24
    effect: float = 0.0
    again: float = 0.0
    spread: float = 0.003
    drift: float = 0.0
    accelerator: str = "kvm"
    most: int | None = None
    recorded: int | None = None
    busy: tuple[tuple[str, int, str], ...] = ()
    fitness: dict[str, str] = field(default_factory=lambda: dict(FITNESS))

    def manifest(self) -> Manifest:
        exact = factory.manifest(factory.ExactSession(seeds=tuple(range(1, self.blocks + 1))))
        base = exact.arms[0]
        experiment = but(
            exact.experiment,
            mode="wall",
            thresholds=Thresholds(change=0.01),
            blocks=12 if self.most else self.blocks,
            max_seeds=self.most,
        )
        provenance = but(
            exact.provenance, accelerator=self.accelerator, fitness=self.fitness, snapshot=False
        )
        again = but(base, name=AGAIN, label="without the series, again")
        return but(
            exact,
            experiment=experiment,
            arms=(*exact.arms, again),
            runs_planned=2 * 3 * self.blocks,
            provenance=provenance,
        )

    def records(self) -> list[RunRecord]:
        random = np.random.default_rng(7)
        made: list[RunRecord] = []
        blocks = self.blocks if self.recorded is None else self.recorded
        total = blocks * 6
        for block in range(blocks):
            for case in PHASES:
                for arm in random.permutation(["base", "patched", AGAIN]):
                    at = len(made)
                    made.append(self._run(case, str(arm), block, at, total, random))
        return made

    def _run(
        self, case: str, arm: str, block: int, at: int, total: int, random: np.random.Generator
    ) -> RunRecord:
        still = factory.ExactSession(
            seeds=tuple(range(1, self.blocks + 1)),
            effect=dict.fromkeys(factory.LOOKS, 0.0),
            spread=0.0,
            noise=0.0,
        )
        plain = factory.run(still, case, "patched", block)
        moved = {"patched": self.effect, AGAIN: self.again}.get(arm, 0.0)
        moved += self.spread * float(random.standard_normal()) + self.drift * at / total
        samples = {
            name: value * math.exp(moved) if name.endswith((".bw", ".iops")) else value
            for name, value in (plain.samples or {}).items()
        }
        return but(
            plain,
            run_id=f"{case}.b{block:02d}.{arm}",
            arm=arm,
            kernel_key=arm,
            samples=samples,
            fingerprint=f"{case}{block}{arm}",
            conditions=BUSY if (case, block, arm) in self.busy else QUIET,
            at_s=RUN_S * at,
        )

    def compared(self, runs: Iterable[RunRecord] | None = None) -> Comparison:
        return compare(self.manifest(), self.records() if runs is None else runs)
