"""Synthetic sessions, close to what the lab records: eight seeds, two cases, three phases."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from analysis.many import SessionComparison, compare_session
from analysis.model import Comparison
from results.profile import Profile
from results.record import Failure, Manifest, Metric, RunRecord
from results.store import SessionStore
from tests.analysis.measured import compare, measured
from tests.values import but

SEEDS = tuple(range(1001, 1009))
PHASES = {"filemap-4k": ("4k",), "filemap-thp": ("thp", "switch")}
# Mean MiB/s, refaults per I/O, device bytes per fio byte, file_thp MiB of the base arm.
LOOKS = {
    "4k": (259.1, 0.61, 0.63, 0.0),
    "thp": (13.36, 0.012, 331.0, 54.5),
    "switch": (277.4, 0.24, 1.9, 21.0),
}


@dataclass
class ExactSession:
    """What to make up; ``effect`` is the log ratio of bandwidth by phase."""

    seeds: tuple[int, ...] = SEEDS
    effect: dict[str, float] = field(
        default_factory=lambda: {"4k": 0.0130, "thp": 0.0004, "switch": 0.0021}
    )
    spread: float = 0.0025
    noise: float = 0.0018
    title: str = "Fewer tree walks when a folio is added"
    question: str = "Is one walk of the page-cache tree per added folio faster than three?"
    same_code: bool = False
    overrides: tuple[str, ...] = ()

    def manifest(self) -> Manifest:
        return manifest(self)

    def records(self) -> list[RunRecord]:
        return records(self)

    def compared(
        self, runs: Iterable[RunRecord] | None = None, profiles: Iterable[Profile] = (), **head: Any
    ) -> Comparison:
        """What it shows with all of its records, or these, and its manifest but for ``head``."""
        return compare(
            but(self.manifest(), **head), self.records() if runs is None else runs, profiles
        )

    def as_session(self, runs: Iterable[RunRecord] | None = None, **head: Any) -> SessionComparison:
        """The same as every verb reads it, the seeds of a session that adds some included."""
        runs = self.records() if runs is None else runs
        return compare_session(measured(but(self.manifest(), **head), runs))


RECORDED = Manifest.model_validate_json(Path(__file__).with_name("exact.json").read_text("utf-8"))
FIO = RECORDED.cases[0].phases[0].command


def metrics(phase: str) -> tuple[Metric, ...]:
    every = (metric for case in RECORDED.cases for metric in case.metrics)
    return tuple(metric for metric in every if metric.name.startswith(f"{phase}."))


def manifest(session: ExactSession) -> Manifest:
    """What is on record of such a session, ``exact.json``, with what this one has otherwise."""
    seeds, arms = len(session.seeds), RECORDED.arms
    if session.same_code:
        arms = tuple(but(arm, kernel=but(arm.kernel, code_key="5a5a5a5a" * 8)) for arm in arms)
    return but(
        RECORDED,
        experiment=but(
            RECORDED.experiment, title=session.title, question=session.question, blocks=seeds
        ),
        overrides=session.overrides,
        arms=arms,
        seeds=session.seeds,
        runs_planned=0 if session.same_code else 2 * 2 * seeds,
        same_code=session.same_code,
    )


def run(session: ExactSession, case: str, arm: str, block: int) -> RunRecord:
    """One good run: the same seed shifts both arms alike, then each a little on its own."""
    seed = session.seeds[block]
    shared = np.random.default_rng(seed)
    samples: dict[str, float] = {}
    for phase in PHASES[case]:
        bw, refaults, device, thp = LOOKS[phase]
        common = session.spread * shared.standard_normal()
        own = session.noise * shared.standard_normal()
        factor = math.exp(common + (session.effect[phase] + own if arm == "patched" else 0.0))
        bw *= factor
        samples |= {
            f"{phase}.bw": bw,
            f"{phase}.iops": bw * 256,
            f"{phase}.refaults_per_io": refaults * math.exp(-common),
            f"{phase}.device_bytes_per_fio_byte": device * math.exp(-common / 2),
            f"{phase}.major_faults_per_io": refaults / factor,
            f"{phase}.ios": float(round(bw * 2560)),
            f"{phase}.file_thp_mib": thp,
        }
    return RunRecord(
        run_id=f"{case}-{block:03d}-{arm}",
        case=case,
        arm=arm,
        block=block,
        seed=seed,
        kernel_key=arm,
        samples=samples,
        fingerprint=f"{case}{seed}{arm}",
    )


def repeat_of(record: RunRecord, **changes: object) -> RunRecord:
    update = {"run_id": record.run_id + "-repeat", "repeat": True, **changes}
    return but(record, **update)


def records(session: ExactSession) -> list[RunRecord]:
    runs = [
        run(session, case, arm, block)
        for case in PHASES
        for block in range(len(session.seeds))
        for arm in ("base", "patched")
    ]
    return [*runs, repeat_of(runs[0])]


def fails(
    runs: Sequence[RunRecord],
    *run_ids: str,
    kind: str = "invalid",
    blame: str = "workload",
    message: str = "phase 4k: THP was on",
) -> list[RunRecord]:
    """The same records with some runs failed."""
    failure = Failure.model_validate(
        {"kind": kind, "blame": blame, "message": message, "evidence": ("file_thp 54.5 MiB",)}
    )
    missing = set(run_ids) - {record.run_id for record in runs}
    assert not missing, missing
    return [but(r, samples=None, failure=failure) if r.run_id in run_ids else r for r in runs]


def all_equal(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """An A/A: the patched arm's numbers are those of the base arm, to the last digit."""
    base = {(r.case, r.block): r for r in runs if r.arm == "base" and not r.repeat}
    return [r if r.arm == "base" else but(r, samples=base[r.case, r.block].samples) for r in runs]


def stored(
    folder: Path, session: Any, records: Iterable[RunRecord] | None = None, **head: Any
) -> SessionStore:
    """The session on disk: all of its records, or these; its manifest but for ``head``."""
    store = SessionStore(folder)
    store.create(but(session.manifest(), **head))
    for record in session.records() if records is None else records:
        store.append(record)
    return store
