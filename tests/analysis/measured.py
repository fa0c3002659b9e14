"""Sessions on record for tests, made of records instead of a folder."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from analysis.comparison import compare_views
from analysis.many import SessionComparison, of_comparisons
from analysis.model import Comparison
from reports import forms
from results.profile import Annotation, Calls, Locks, Profile
from results.record import Check, Manifest, RunRecord
from results.session import MeasuredSession

GOLDEN = Path(__file__).resolve().parents[1] / "reports/golden"


def is_golden(name: str, rendered: str) -> bool:
    """Whether a file of ``golden/`` holds this text; TWINBOOT_GOLDEN=write has it written anew."""
    if os.environ.get("TWINBOOT_GOLDEN") == "write":
        (GOLDEN / name).write_text(rendered, encoding="utf-8")
    return rendered == (GOLDEN / name).read_text(encoding="utf-8")


def whole(shown: Comparison | SessionComparison) -> SessionComparison:
    """A comparison as a session of its two arms."""
    if isinstance(shown, SessionComparison):
        return shown
    return of_comparisons(shown.manifest, (shown,))


def render(shown: Comparison | SessionComparison, form: str, **how: Any) -> str:
    """A form of a session, or of one of two arms."""
    return forms.render(whole(shown), form, **how)


def measured(
    manifest: Manifest,
    records: Iterable[RunRecord],
    profiles: Iterable[Profile] = (),
    locks: Iterable[Locks] = (),
    checks: Iterable[Check] = (),
    calls: Calls | None = None,
    annotation: Annotation | None = None,
) -> MeasuredSession:
    """What ``open_session`` gives for a folder that holds these."""
    of_runs = (tuple(records), tuple(checks), tuple(profiles), tuple(locks), ())
    return MeasuredSession(manifest, *of_runs, calls, annotation)


def compare(
    manifest: Manifest,
    records: Iterable[RunRecord],
    profiles: Iterable[Profile] = (),
    locks: Iterable[Locks] = (),
) -> Comparison:
    """The comparison of a session of two arms, without correctness checks."""
    return compare_views([manifest], measured(manifest, records, profiles, locks))[0]
