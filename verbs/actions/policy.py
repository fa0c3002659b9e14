"""The policy of a gate, for the workloads that there are."""

from __future__ import annotations

from pathlib import Path

from experiment.spec import CaseSpec
from history.policy import Policy, load_policy
from workloads.metrics import thresholds_of
from workloads.spec import load_catalogue


def policy_of(file: Path) -> Policy:
    """Read a policy, which knows the smallest changes that workloads' metrics have of their own.

    Raises:
        SpecError: the policy or a workload is wrong; a line for each mistake.
    """
    return load_policy(file).with_workloads(
        {
            (CaseSpec(workload=workload, variant=variant).name, metric): change
            for (workload, variant), own in thresholds_of(load_catalogue()).items()
            for metric, change in own.items()
        }
    )
