"""Made-up nights: entries of one experiment with levels, seeds, kernels and settings."""

import math
from dataclasses import dataclass, field
from datetime import date, timedelta

import numpy as np

from analysis.comparison import summarize
from experiment.spec import Thresholds
from history.entry import (
    PINNED,
    ArmCase,
    ArmEntry,
    CaseEntry,
    ChangedFunctions,
    Ensemble,
    Entry,
    FunctionDifference,
    role_of,
)
from results.record import KernelIdentity, Metric
from tests.values import but, identity

FIRST = date(2026, 1, 1)
SETTING = {"lab": "0.1.0", "qemu": "7.2.17", "fio": "3.33", "initramfs": "1b1297c72cfd"}
METRIC = Metric(name="4k.bw", title="bandwidth", unit="MiB/s", direction="higher")
SECONDARY = Metric(name="4k.iops", title="I/Os a second", unit="1/s", direction="higher")
# Scatter of a seed from kernel to kernel: paired differences have 0.25 %.
SCATTER = 0.0025 / math.sqrt(2)


def release_of(code: str, release: str = "6.12.40") -> KernelIdentity:
    source = f"deb:linux-source-6.12={release}-1"
    return identity(f"{code:0>32}", release=release, source=source, code_key=f"{code:0>64}")


@dataclass
class Nights:
    """A track: ``levels`` are the logarithms of the tonight arm's change from the first night.

    ``codes`` are the kernels' (each night another by default); ``lab`` by night moves both
    arms by its logarithm and changes the setting.
    """

    levels: tuple[float, ...]
    codes: tuple[str, ...] = ()
    lab: dict[int, float] = field(default_factory=dict)
    pinned: bool = True
    seeds: int = 8
    scatter: float = SCATTER
    cases: tuple[str, ...] = ("filemap-4k",)
    experiment: str = "nightly"
    random_seed: int = 1
    functions: bool = False

    def entries(self) -> list[Entry]:
        codes = self.codes or tuple(f"a{night:x}" for night in range(len(self.levels)))
        lab, setting = 0.0, dict(SETTING)
        entries = []
        for night, (level, code) in enumerate(zip(self.levels, codes, strict=True)):
            if night in self.lab:
                lab += self.lab[night]
                setting = {**setting, "qemu": f"8.{night}"}
            entries.append(self._entry(night, level, code, lab, setting))
        return entries

    def _entry(
        self, night: int, level: float, code: str, lab: float, setting: dict[str, str]
    ) -> Entry:
        day = (FIRST + timedelta(days=night)).isoformat()
        names = [*([PINNED] if self.pinned else []), "tonight"]
        if not self.pinned:
            names.append("patched")
        kernels = {
            PINNED: release_of("f00d"),
            "tonight": release_of(code),
            "patched": release_of(code),
        }
        cases = []
        for number, case in enumerate(self.cases):
            arms = []
            for name in names:
                key = int(code, 16) if name != PINNED else 1
                # The dice are thrown anew for another kernel, case or setting, not another night.
                dice = np.random.default_rng(
                    [
                        self.random_seed,
                        key % 2**32,
                        number,
                        len(setting["qemu"]) > 5,
                        *(ord(c) for c in setting["qemu"]),
                    ]
                )
                logs = math.log(250.0) + lab + self.scatter * dice.standard_normal(self.seeds)
                if name != PINNED:
                    logs = logs + level
                values = tuple(float(value) for value in np.exp(logs))
                both = {"4k.bw": values, "4k.iops": tuple(256 * value for value in values)}
                arms.append(
                    ArmCase(
                        arm=name,
                        metrics={
                            m: Ensemble(values=v, summary=summarize(v)) for m, v in both.items()
                        },
                        runs=self.seeds,
                        failed=0,
                    )
                )
            cases.append(
                CaseEntry(
                    name=case,
                    title=case,
                    seeds=tuple(range(1, self.seeds + 1)),
                    metrics=(METRIC, SECONDARY),
                    primary=("4k.bw",),
                    arms=tuple(arms),
                )
            )
        return Entry(
            night=day,
            created=f"{day}T02:00:00Z",
            session=f"{self.experiment}-{day}",
            experiment=self.experiment,
            title="tonight's kernel",
            mode="exact",
            guest="laptop",
            thresholds=Thresholds(change=0.0025),
            lab_version="0.1.0",
            lab_commit="0123456789ab",
            setting=setting,
            tools={},
            initramfs_sha256="ab" * 32,
            cases=tuple(cases),
            exactness="bit-exact",
            arms=tuple(
                ArmEntry(name=n, label=n, role=role_of(n), kernel=kernels[n]) for n in names
            ),
            counted=self.functions,
        )


def with_functions(entry: Entry, sizes: dict[str, float] | None, half: float = 1e-4) -> Entry:
    """The night with functions that changed, each by a fraction of the phase."""
    if sizes is None:
        return entry
    changed = ChangedFunctions(
        arm="tonight",
        against="pinned",
        phase="4k",
        unit_title="I/O",
        tested=200,
        count=len(sizes),
        size=max(sizes.values(), key=abs, default=0.0),
        differences=tuple(
            FunctionDifference(name, "mm/filemap.c", 1e4 * size, size, half)
            for name, size in sizes.items()
        ),
    )
    (case,) = entry.cases
    return but(entry, cases=(but(case, functions=(changed,)),))
