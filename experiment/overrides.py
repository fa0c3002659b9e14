"""``--set key=value`` and ``--config CONFIG_X=y``: an experiment, changed from the command line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from typing import Any

from errors import SpecError
from experiment.arms import OPTION_NAME, OPTION_VALUE, KernelSpec
from experiment.frozen import KeyPath, Problem, key_path, shortened
from experiment.spec import Experiment
from text import escaped

_KEY = re.compile(r"[A-Za-z0-9_-]+|\[\d+\]")


def place_of(text: str) -> str:
    """How an override is named in messages."""
    return f"--set {shortened(escaped(text))}"


def apply_override(data: dict[str, Any], text: str) -> KeyPath | str:
    """Put the value of ``key=value`` into ``data``; return what it wrote, or what is wrong.

    The value is TOML where it can be read as TOML and a plain string otherwise, so
    that ``guest=smoke`` needs no quotes.  Tables that are missing on the way are made, and then
    the path of the first of them is returned; whether their keys are known is decided with all
    others.
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    # "cases[0]" and "cases.0" are the same key.
    parts = [part for part in key.replace("[", ".[").split(".") if part]
    well_formed = parts and all(_KEY.fullmatch(part) for part in parts)
    if not equals or not well_formed or ".." in key or key.startswith(".") or key.endswith("."):
        return (
            f"{place_of(text)}: is not KEY=VALUE; for example blocks=4 or "
            "cases.0.times.laptop.4k.runtime_s=1.5"
        )
    here: Any = data
    above: Any = None
    path: KeyPath = ()
    made: KeyPath = ()
    for part in parts:
        problem = None
        step: str | int = part
        if isinstance(here, list):
            index = part.strip("[]")
            step = int(index) if index.isdecimal() else index
            if not isinstance(step, int) or step >= len(here):
                allowed = tuple(key_path((*path, number)) for number in range(len(here)))
                words = f"the array has {len(here)} entries"
                problem = Problem((*path, step), words, allowed=allowed)
        elif not isinstance(here, dict):
            problem = Problem(path, "is a value and has no keys", value=here)
        elif part.startswith("["):
            words = f"is a table, {part} asks for an array"
            problem = Problem(path, words, allowed=tuple(here))
        elif part not in here:
            here[part] = {}
            made = made or (*path, part)
        if problem:
            return problem.line(place_of(text))
        path, above, here = (*path, step), here, here[step]
    above[path[-1]] = _value(value.strip())
    return made or path


def _value(text: str) -> object:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    # A line break in the text could have brought other keys with it.
    return parsed["value"] if list(parsed) == ["value"] else text


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
    kernel = experiment.kernel
    changed: dict[str, object] = {"kernel": _with_options(kernel, common)}
    if own or experiment.arms:
        changed["arms"] = tuple(
            arm.model_copy(
                update={
                    "kernel": arm.kernel and _with_options(arm.kernel, common),
                    "config": {**arm.config, **own.get(arm.name, {})},
                }
            )
            for arm in experiment.all_arms
        )
    # Through the model's own checks, which a plain copy would pass by.
    return Experiment.model_validate(dict(experiment) | changed)


def _with_options(kernel: KernelSpec, options: dict[str, str]) -> KernelSpec:
    return KernelSpec.model_validate(dict(kernel) | {"config": {**kernel.config, **options}})
