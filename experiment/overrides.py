"""``--set key=value`` and ``--config CONFIG_X=y``: an experiment, changed from the command line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from errors import SpecError
from experiment.arms import OPTION_NAME, OPTION_VALUE, ArmSpec, KernelSpec
from experiment.frozen import KeyPath, Problem, key_path, shortened
from experiment.spec import Experiment
from text import escaped

_KEY = re.compile(r"[A-Za-z0-9_-]+|\[\d+\]")


@dataclass(frozen=True)
class Override:
    """One ``--set``: the text given, the parts of its key, and its value."""

    text: str
    parts: tuple[str, ...]
    value: object

    @property
    def place(self) -> str:
        """How the override is named in messages."""
        return _place(self.text)


def parse_override(text: str) -> Override | str:
    """Read ``key=value``; return what is wrong as one line when it cannot be read.

    The value is TOML where it can be read as TOML and a plain string otherwise, so
    that ``guest=smoke`` needs no quotes.
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    # "cases[0]" and "cases.0" are the same key.
    parts = tuple(part for part in key.replace("[", ".[").split(".") if part)
    well_formed = bool(parts) and all(_KEY.fullmatch(part) for part in parts)
    if not equals or not well_formed or ".." in key or key.startswith(".") or key.endswith("."):
        return (
            f"{_place(text)}: is not KEY=VALUE; for example blocks=4 or "
            "cases.0.times.laptop.4k.runtime_s=1.5"
        )
    return Override(text, parts, _value(value.strip()))


def apply_override(data: dict[str, Any], override: Override) -> KeyPath | Problem:
    """Put the value into ``data``; return what it wrote, or why there is no such place.

    Tables that are missing on the way are made, and then the path of the first of
    them is returned; whether their keys are known is decided with all others.
    """
    here: Any = data
    path: KeyPath = ()
    made: KeyPath = ()
    for position, part in enumerate(override.parts):
        last = position == len(override.parts) - 1
        if isinstance(here, list):
            index = part.strip("[]")
            if not index.isdecimal() or int(index) >= len(here):
                wrong = (*path, int(index) if index.isdecimal() else index)
                allowed = tuple(key_path((*path, number)) for number in range(len(here)))
                return Problem(wrong, f"the array has {len(here)} entries", allowed=allowed)
            key: str | int = int(index)
        elif isinstance(here, dict):
            if part.startswith("["):
                keys = tuple(here)
                return Problem(path, f"is a table, {part} asks for an array", allowed=keys)
            key = part
        else:
            return Problem(path, "is a value and has no keys", value=here)
        path = (*path, key)
        if last:
            here[key] = override.value
            break
        if isinstance(here, dict) and key not in here:
            here[key] = {}
            made = made or path
        here = here[key]
    return made or path


def _place(text: str) -> str:
    return f"--set {shortened(escaped(text))}"


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
