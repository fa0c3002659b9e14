"""``--config [ARM:]CONFIG_X=y``: options of kernels, for every arm or one.  Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from errors import SpecError
from experiment.arms import OPTION_NAME, OPTION_VALUE, ArmSpec, KernelSpec
from experiment.problems import Problem
from experiment.spec import Experiment

FORM = re.compile(rf"(?:(?P<arm>[^:=]+):)?(?P<name>{OPTION_NAME})=(?P<value>{OPTION_VALUE})")


def with_config(experiment: Experiment, texts: Sequence[str]) -> Experiment:
    """The experiment whose kernels, or those of one arm, have these options besides.

    Raises:
        SpecError: a text is no option, or there is no such arm; one line for each mistake.
    """
    names = tuple(arm.name for arm in experiment.all_arms)
    mistakes = []
    common: dict[str, str] = {}
    own: dict[str, dict[str, str]] = {}
    for text in texts:
        match = FORM.fullmatch(text)
        if match is None:
            mistakes.append(
                f"--config {text}: is not [ARM:]CONFIG_NAME=VALUE (y, m, n, a number, '\"text\"'); "
                f"for example CONFIG_LRU_GEN=y or {names[-1]}:CONFIG_LRU_GEN=y"
            )
        elif match["arm"] and match["arm"] not in names:
            problem = Problem((), "no such arm", match["arm"], names)
            mistakes.append(problem.line(f"--config {text}"))
        elif match["arm"]:
            own.setdefault(match["arm"], {})[match["name"]] = match["value"]
        else:
            common[match["name"]] = match["value"]
    if mistakes:
        raise SpecError(mistakes)
    if not texts:
        return experiment
    changed: dict[str, object] = {"kernel": _of_kernel(experiment.kernel, common)}
    if own or experiment.arms:
        changed["arms"] = tuple(
            _of_arm(arm, common, own.get(arm.name, {})) for arm in experiment.all_arms
        )
    # Through the model's own checks, which a plain copy would pass by.
    return Experiment.model_validate(dict(experiment) | changed)


def _of_kernel(kernel: KernelSpec, options: dict[str, str]) -> KernelSpec:
    return KernelSpec.model_validate(dict(kernel) | {"config": {**kernel.config, **options}})


def _of_arm(arm: ArmSpec, common: dict[str, str], own: dict[str, str]) -> ArmSpec:
    kernel = _of_kernel(arm.kernel, common) if arm.kernel else None
    return arm.model_copy(update={"kernel": kernel, "config": {**arm.config, **own}})
