"""What the user asked of this invocation, beside the experiment."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from runs.boots import Executor
from runs.local import LocalExecutor


@dataclass(frozen=True)
class Options:
    """``checkout`` holds ``configs/``; ``guests_at_once`` None lets the lab choose.

    ``probe`` loads the plugin that counts into every run but those that check that
    it is not felt.  ``fit_only`` refuses to measure real time on a host with anything
    to mend.  ``executor`` is where kernels are built and guests run.  ``sandbox`` says whether
    patches are built in a box; None has those that came by mail built so, and those that change
    what a build executes.  ``trusted`` names series that may do that without one.  ``root`` is
    the initramfs that guests get in place of one of this host's programs.
    """

    checkout: Path
    cache: Path
    snapshot: bool = True
    measure_anyway: bool = False
    probe: bool = True
    fit_only: bool = False
    guests_at_once: int | None = None
    sandbox: bool | None = None
    trusted: tuple[str, ...] = ()
    root: Path | None = None
    executor: Executor = field(default_factory=LocalExecutor)
