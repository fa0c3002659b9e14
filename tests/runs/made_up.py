"""Sessions that are prepared without a build, of kernels that are nowhere, and their guests."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiment.load import load_experiment
from experiment.plan import make_plan
from experiment.spec import Experiment
from guests.channel import Kind
from guests.initramfs import Initramfs
from host import limited
from kernels.cache import Kernel
from results.store import SessionStore
from runs.prepare import Prepared
from runs.resolved import Resolved, catalogue, resolve
from tests.values import identity
from workloads import parse, validity

CHECKOUT = Path(__file__).resolve().parents[2]
SMALL = CHECKOUT / "tests/integration/small.toml"
NOWHERE = Path("/nowhere")


def shipped(name: str | Path, *overrides: str) -> Experiment:
    """An experiment by name or file, as it ships but for the overrides."""
    return load_experiment(Path(name), overrides=overrides, catalogue=catalogue(CHECKOUT))


def resolved(experiment: Experiment) -> Resolved:
    return resolve(experiment, checkout=CHECKOUT, cache=NOWHERE)


class ToldGuests:
    """A session's folders, and guests whose boots end as was told beforehand; else well."""

    def __init__(self, folder: Path) -> None:
        self.cache, self.store = folder / "cache", SessionStore(folder / "session")
        (self.cache / "locks").mkdir(parents=True)
        self.store.raw.mkdir(parents=True)
        self.booted: list[str] = []
        self.endings: dict[str, list[Kind]] = {}
        self._lock = threading.Lock()

    def boot(self, name: str, how: str = "") -> Kind:
        """Note a boot; how it ends."""
        with self._lock:
            self.booted.append(f"{how}{name}")
            endings = self.endings.get(name, [])
            return endings.pop(0) if endings else "done"


def sound_results(
    monkeypatch: pytest.MonkeyPatch,
    problems: Callable[[object, validity.Claim], tuple[str, ...]] = lambda result, claim: (),
) -> None:
    """Whatever guests send is a result; ``problems`` are what is wrong with it."""
    # A helper process would read with the real functions.
    monkeypatch.setattr(
        limited, "call", lambda function, *given, **named: function(*given, **named)
    )
    result = SimpleNamespace(phases=(), build_id="")
    monkeypatch.setattr(parse, "guest_result", lambda files, names: result)
    monkeypatch.setattr(validity, "problems", problems)


def kernels_in(folder: Path, arms: Sequence[str], suffix: str = "") -> dict[str, Kernel]:
    return {arm: Kernel(folder / f"{arm}{suffix}", identity(f"{arm}{suffix}")) for arm in arms}


def prepared(
    experiment: Experiment | int = 1,
    *,
    kernels: Path = NOWHERE / "kernels",
    flavours: Sequence[str] = (),
    **changes: Any,
) -> Prepared:
    """A session of this experiment, or of the small one with as many seeds.

    The judged kernels lie in a folder of ``kernels`` by arm, those of more ``flavours`` beside
    them.
    """
    if isinstance(experiment, int):
        experiment = shipped(SMALL, f"blocks={experiment}")
    made = changes.pop("resolved", None) or resolved(experiment)
    arms = [arm.spec.name for arm in made.arms]
    values: dict[str, Any] = {
        "resolved": made,
        "experiment": experiment,
        "plan": make_plan(experiment),
        "kernels": {
            made.flavours[0]: kernels_in(kernels, arms),
            **{each: kernels_in(kernels, arms, f"-{each}") for each in flavours},
        },
        "initramfs": Initramfs(NOWHERE / "initramfs", "0"),
        "preload": NOWHERE / "preload",
        "probe": None,
        "same_code": False,
    }
    if (given := changes.pop("kernels_by_flavour", None)) is not None:
        values["kernels"] = given
    return Prepared(**{**values, **changes})
