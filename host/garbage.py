"""How often this process looks for garbage.

What the lab reads of a session lives until its report is written.  Looking for garbage among it
as often as Python does by itself was a third of a report's CPU time.
"""

from __future__ import annotations

import gc

THRESHOLDS = (50_000, 50, 100)


def collect_seldom() -> None:
    """Let this process look for garbage seldom, from here to its end."""
    gc.set_threshold(*THRESHOLDS)
