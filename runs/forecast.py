"""What a session would take, before it is begun: kernels to build, guests to boot, how long.

Times are estimates: builds take as long as the last one like them did, and a run as long as in
the newest session of the same experiment and guest.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from errors import LabError
from experiment.spec import Experiment
from kernels import build
from kernels.cache import load
from results.store import MANIFEST, SessionStore
from runs.arms import planned_kernels
from runs.coverage import shipped
from runs.options import Options

# Of a guest with a virtual second or two of work, where nothing tells: one CPU of the host.
UNKNOWN_RUN_S = 20.0


@dataclass(frozen=True)
class KernelForecast:
    """One kernel: the first arm that boots it, its key, and seconds to build; 0 if cached."""

    arm: str
    flavour: str
    key: str
    cached: bool
    seconds: float


@dataclass(frozen=True)
class RunForecast:
    """Seconds that a run takes, and the session that this is known from; empty if none."""

    seconds: float
    session: str


def forecast_kernels(experiment: Experiment, options: Options) -> tuple[KernelForecast, ...]:
    """Every kernel of a session, in the order they are built.

    Raises:
        LabError: the source, a patch or a tool is missing.
    """
    where = {"checkout": options.checkout, "cache": options.cache}
    rows: list[KernelForecast] = []
    before: list[tuple[str, str]] = []
    for kernel in planned_kernels(experiment, options):
        key = build.key_of(kernel.spec, kernel.patches, **where)
        cached = load(options.cache, key) is not None
        kind = (kernel.spec.source, kernel.spec.flavour)
        seconds = 0.0
        if not cached:
            seconds = build.seconds_to_build(
                kernel.spec, kernel.patches, before.count(kind), **where
            )
            before.append(kind)
        rows.append(KernelForecast(kernel.arm, kernel.spec.flavour, key, cached, seconds))
    return tuple(rows)


def forecast_run(experiment: Experiment, sessions: Path) -> RunForecast:
    """How long one run of the experiment takes, by the newest session in ``sessions``.

    Without one by the CPU seconds that a run of its cases took where coverage was counted.
    """
    manifests = sorted(
        sessions.glob(f"*/{MANIFEST}"), key=lambda path: path.stat().st_mtime, reverse=True
    )
    for path in manifests:
        store = SessionStore(path.parent)
        try:
            manifest = store.manifest()
            # Guests of the checks are on record with the runs' costs, and take longer.
            runs = {record.run_id for record in store.records()}
            costs = [cost for cost in store.costs() if cost.run_id in runs]
        except LabError:
            continue
        then = manifest.experiment
        same = (then.name, then.mode, then.guest) == (
            experiment.name, experiment.mode, experiment.guest,
        )  # fmt: skip
        if same and costs:
            return RunForecast(sum(cost.elapsed_s for cost in costs) / len(costs), path.parent.name)
    counted = {(case.case, case.guest): case.run_cpu_s for case in shipped().cases}
    seconds = [
        counted.get((case.name, experiment.guest), UNKNOWN_RUN_S) for case in experiment.cases
    ]
    return RunForecast(sum(seconds) / len(seconds), "")
