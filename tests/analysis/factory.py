"""Synthetic sessions, close to what the lab records: eight seeds, two cases, three phases."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from experiment.spec import (
    CaseSpec,
    Dataset,
    Experiment,
    Guest,
    KernelSpec,
    PhaseTimes,
    Published,
    SeriesSpec,
)
from results.record import (
    ArmRecord,
    CaseRecord,
    CaseSize,
    Failure,
    Manifest,
    Metric,
    PhaseRecord,
    Provenance,
    RunRecord,
    Timeline,
)
from results.store import SessionStore
from tests.values import but, identity, spaced

SEEDS = tuple(range(1001, 1009))
DOCUMENT = "filemap v4 (2024)"
FIO = (
    "fio -name=cached --numjobs=4 --filename=/mnt/test.img --buffered=1 --ioengine=mmap "
    "--rw=randread --time_based --ramp_time=2s --runtime=10s --group_reporting"
)
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


def metrics(phase: str) -> tuple[Metric, ...]:
    rows = (
        ("bw", "bandwidth", "MiB/s", "higher"),
        ("iops", "I/Os a second", "1/s", "higher"),
        ("refaults_per_io", "refaults per I/O", "1/IO", "lower"),
        ("device_bytes_per_fio_byte", "device bytes per fio byte", "B/B", "lower"),
        ("major_faults_per_io", "major faults per I/O", "1/IO", "lower"),
        ("ios", "I/Os", "count", "higher"),
        ("file_thp_mib", "huge pages in the page cache", "MiB", "higher"),
    )
    return tuple(
        Metric.model_validate(
            {"name": f"{phase}.{name}", "title": title, "unit": unit, "direction": direction}
        )
        for name, title, unit, direction in rows
    )


def _experiment(session: ExactSession) -> Experiment:
    times = {"laptop": {phase: PhaseTimes(ramp_s=2, runtime_s=10) for phase in ("4k", "thp")}}
    note = "the document prints +10.4 % over these figures and +12.5 % below them"

    def published(metric: str, unit: str, base: float, patched: float, note: str = "") -> Published:
        return Published(
            metric=metric, unit=unit, base=base, patched=patched, document=DOCUMENT, note=note
        )

    return Experiment(
        name="filemap-v4",
        title=session.title,
        question=session.question,
        kernel=KernelSpec(source="deb:linux-source-6.12"),
        series=SeriesSpec(
            path="configs/series/filemap-walks", title="filemap: three walks again", reverse=True
        ),
        dataset=Dataset(cgroup_limit_mib=8192, brd_mib=16384, file_mib=15360, jobs=16),
        cases=(
            CaseSpec(
                workload="filemap-4k",
                primary=("4k.bw",),
                times=times,
                published=(
                    published("4k.bw", "MiB/s", 2445.02, 2625.56),
                    published("4k.iops", "1/s", 625924.36, 672142.61),
                ),
            ),
            CaseSpec(
                workload="filemap-thp",
                primary=("thp.bw", "switch.bw"),
                times=times,
                published=(published("thp.bw", "KiB/s", 7935.51, 8928.74, note),),
            ),
        ),
        blocks=len(session.seeds),
    )


def manifest(session: ExactSession) -> Manifest:
    def arm(name: str, label: str, patches: tuple[str, ...], key: str) -> ArmRecord:
        kernel = identity(
            key * 4,
            release="6.12.38-twinboot",
            source="deb:linux-source-6.12 6.12.38-1",
            patches=patches,
            compiler="gcc (Debian 12.2.0-14) 12.2.0",
            config_sha256="c0ffee" * 10 + "c0ff",
            code_key="5a5a5a5a" * 8 if session.same_code else key * 4,
        )
        return ArmRecord(name=name, label=label, kernel=kernel)

    walks = (
        "0001-mm-filemap-look-up-the-order-before-taking-the-lock.patch",
        "0002-mm-filemap-check-for-conflicts-in-a-walk-of-its-own.patch",
        "0003-mm-filemap-ask-for-the-order-once-more-after-the-check.patch",
    )
    return Manifest(
        session="filemap-v4-20260101-000000",
        created="2026-01-01T00:00:00Z",
        experiment=_experiment(session),
        guest=Guest(
            name="laptop",
            title="one vCPU, 2 GiB",
            vcpus=1,
            memory_mib=2048,
            cpu="Nehalem",
            scale=128,
            jobs=4,
            boot_timeout_s=120,
            silence_timeout_s=60,
            run_timeout_s=900,
        ),
        overrides=session.overrides,
        arms=(
            arm("base", "without the series", walks, "9f8b2c41d7e65a30"),
            arm("patched", "with the series", (), "41d7e65a309f8b2c"),
        ),
        cases=tuple(
            CaseRecord(
                name=case,
                size=CaseSize(jobs=4, limit_mib=64, file_mib=120, brd_mib=128),
                title={
                    "filemap-4k": "4K pages, random mmap reads",
                    "filemap-thp": "huge pages, then 4K pages on the same cache",
                }[case],
                phases=tuple(
                    PhaseRecord(
                        name=phase,
                        command=FIO if phase != "thp" else FIO + " -thp=1 --readonly",
                        caches="kept" if phase == "switch" else "dropped",
                    )
                    for phase in phases
                ),
                metrics=tuple(metric for phase in phases for metric in metrics(phase)),
                primary=tuple(f"{phase}.bw" for phase in phases),
            )
            for case, phases in PHASES.items()
        ),
        seeds=session.seeds,
        runs_planned=0 if session.same_code else 2 * 2 * len(session.seeds),
        same_code=session.same_code,
        provenance=Provenance(
            lab_version="0.1.0",
            lab_commit="0123456789ab",
            host={
                "cpu": "AMD EPYC 7B13",
                "cores": "2",
                "memory": "24 GiB",
                "kernel": "6.1.0-38-amd64",
                "distribution": "Debian GNU/Linux 12",
            },
            tools={
                "qemu": "QEMU emulator version 7.2.17",
                "fio": "fio-3.33",
                "gcc": "gcc (Debian 12.2.0-14) 12.2.0",
                "mkfs.xfs": "6.1.0",
            },
            initramfs_sha256="ab12" * 16,
            qemu_argv=(
                *spaced(
                    "qemu-system-x86_64 -accel tcg -cpu Nehalem -icount shift=0,sleep=off "
                    "-rtc clock=vm,base=2026-01-01T00:00:00 -m 2G -smp 1 -nodefaults "
                    "-display none -kernel KERNEL/bzImage -append"
                ),
                "console=ttyS0 panic=-1 quiet nokaslr norandmaps",
            ),
            kernel_command_line="console=ttyS0 panic=-1 quiet nokaslr norandmaps",
            snapshot=True,
        ),
    )


def run(session: ExactSession, case: str, arm: str, block: int) -> RunRecord:
    """One good run: the same seed shifts both arms alike, then each a little on its own."""
    seed = session.seeds[block]
    shared = np.random.default_rng(seed)
    samples: dict[str, float] = {}
    timelines = []
    for phase in PHASES[case]:
        bw, refaults, device, thp = LOOKS[phase]
        common = session.spread * shared.standard_normal()
        own = session.noise * shared.standard_normal()
        factor = math.exp(common + (session.effect[phase] + own if arm == "patched" else 0.0))
        shape = np.random.default_rng([seed, arm == "patched"]).standard_normal(40)
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
        warm = 1 - 0.2 * np.exp(-np.arange(40) / 6)
        timelines.append(
            Timeline(
                phase=phase,
                t_ms=tuple(250.0 * (i + 1) for i in range(40)),
                bw_kib_s=tuple(float(x) for x in 1024 * bw * warm * (1 + 0.01 * shape)),
            )
        )
    return RunRecord(
        run_id=f"{case}-{block:03d}-{arm}",
        case=case,
        arm=arm,
        block=block,
        seed=seed,
        kernel_key=arm,
        samples=samples,
        timelines=tuple(timelines),
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
    return [
        but(r, samples=None, timelines=(), failure=failure) if r.run_id in run_ids else r
        for r in runs
    ]


def all_equal(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """An A/A: the patched arm's numbers are those of the base arm, to the last digit."""
    base = {(r.case, r.block): r for r in runs if r.arm == "base" and not r.repeat}
    return [
        r
        if r.arm == "base"
        else but(
            r, samples=base[r.case, r.block].samples, timelines=base[r.case, r.block].timelines
        )
        for r in runs
    ]


def stored(
    folder: Path, session: Any, records: Iterable[RunRecord] | None = None, **head: Any
) -> SessionStore:
    """The session on disk: all of its records, or these; its manifest but for ``head``."""
    store = SessionStore(folder)
    store.create(but(session.manifest(), **head))
    for record in session.records() if records is None else records:
        store.append(record)
    return store
