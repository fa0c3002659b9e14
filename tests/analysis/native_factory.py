"""Boots of native mode that nobody made, with what is known to differ between them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from results import native
from results.native import NativeArm, NativeBoot, NativeHead, NativePhase

ORDERS, PLACES, FOLIOS, HERTZ = 24, 40, 64, 2e9


def head_of(
    rounds: int, *, same_code: bool = False, phases: tuple[str, ...] = ("readahead",)
) -> NativeHead:
    """A session of two arms; what a world changes is in the first of its phases."""
    arms = tuple(
        NativeArm(name=name, label=name, patches=(), contents=(), kernel="a")
        for name in ("base", "patched")
    )
    return NativeHead(
        name="made-up",
        title="Made up",
        created="2026-01-01T00:00:00Z",
        source="deb:linux-source-6.12",
        release="6.12.1",
        arms=arms,
        orders=ORDERS,
        phases={"filemap-4k": phases},
        left_out={},
        rounds=rounds,
        seed=1,
        change=0.01,
        alpha=0.01,
        equivalence_alpha=0.05,
        same_code=same_code,
        host={"cpu": "a CPU"},
    )


@dataclass(frozen=True)
class World:
    """What is true: a change, and standard deviations of layout and of boots; all of logarithms.

    ``slow`` is how often a boot is 15 % slower, ``biased`` what the second boot of the base is.
    """

    change: float = 0.0
    layout: float = 0.0015
    noise: float = 0.0015
    slow: float = 0.0
    biased: float = 0.0
    stolen: float = 0.0


def boots_of(head: NativeHead, world: World, seed: int) -> tuple[NativeBoot, ...]:
    """Every boot of a session in such a world."""
    random = np.random.default_rng(seed)
    places = {arm.name: random.normal(0, world.layout, head.orders) for arm in head.arms}
    boots = []
    for number in range(head.rounds):
        order = number % head.orders
        for arm, again in (("base", False), ("base", True), ("patched", False)):
            phases = {"crossing": NativePhase(folios=1, calls=1, ticks=(9000,) * 4)}
            for name in head.phases["filemap-4k"]:
                effect = places[arm][order] + random.normal(0, world.noise)
                if len(phases) == 1:
                    effect += world.change * (arm == "patched") + world.biased * again
                effect += 0.15 * (random.random() < world.slow)
                windows = 100_000 * np.exp(effect + np.abs(random.normal(0, 0.01, PLACES)))
                ticks = tuple(windows.astype(int).tolist())
                phases[name] = NativePhase(folios=FOLIOS, calls=2, ticks=ticks)
            boots.append(
                NativeBoot(
                    round=number,
                    arm=arm,
                    order=order,
                    again=again,
                    hertz=HERTZ,
                    phases=phases,
                    seconds=1.0,
                    stolen=world.stolen,
                    foreign=0.1,
                )
            )
    return tuple(boots)


def on_disk(
    folder: Path, world: World, head: NativeHead | None = None, boots: int | None = None
) -> Path:
    """A session of such a world, or its first boots, in a folder."""
    head = head or head_of(24)
    folder.mkdir(exist_ok=True)
    native.begin(folder, head)
    for boot in boots_of(head, world, 1)[:boots]:
        native.append(folder, boot)
    return folder
