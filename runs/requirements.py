"""What is asked of an experiment before anything is built for it."""

from __future__ import annotations

from experiment.spec import Experiment, Guest, SpecError
from guests.probe.plugin import Probe
from workloads.metrics import SLOWPATH_SHARE


def require_counted(experiment: Experiment, guest: Guest, probe: Probe | None) -> None:
    """Refuse to judge by what nobody counts.

    Raises:
        SpecError: one line for each case and metric.
    """
    if probe is not None and guest.vcpus > 1:
        return
    why = f"{guest.name} has one vCPU" if probe else "nothing is counted without the probe"
    problems = [
        f"case {case.name}: primary: {name} is of guests of several vCPUs with the probe; {why}"
        for case in experiment.cases
        for name in case.primary
        if name.endswith(f".{SLOWPATH_SHARE}")
    ]
    if problems:
        raise SpecError(problems)
