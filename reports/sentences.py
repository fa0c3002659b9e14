"""The sentence of every finding, made of its values: the one place; imports nothing of reports.

A finding is data (kind and values); what is said of it stands here and is the same wherever it
is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

# Seeds, blocks and functions that are named; more are a number.
NAMED, NAMED_BLOCKS = 5, 6

Values = Mapping[str, Any]


def of_finding(kind: str, values: Values) -> str:
    """What a finding of this kind says; one line without a full stop."""
    return KINDS[kind](values)


def listed(names: Sequence[str], between: str = ", ") -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{between.join(names[:NAMED])}{more}"


def _exactness(values: Values) -> str:
    if values["status"] in ("not asked", "inexact"):
        return str(values["detail"])
    return f"{values['status']}: {values['detail']}"


def _seeds(values: Values) -> str:
    seeds = values["seeds"]
    named, rest = ", ".join(map(str, seeds[:NAMED])), ", ..." if len(seeds) > NAMED else ""
    return (
        f"arm {values['arm']}: different seeds gave bit-identical values ({named}{rest}); "
        "they count as one sample, not as several"
    )


def _failed_runs(values: Values) -> str:
    arms = ", ".join(f"{failed}:{runs} in {arm}" for arm, failed, runs in values["arms"])
    kinds = values["kinds"]
    each = f" ({'; '.join(f'{number} {kind}' for kind, number in kinds.items())})" if kinds else ""
    return f"fail:runs {arms}{each}; their {values['repeated']} are left out whole"


def _of_runs(values: Values) -> str:
    count = values["runs"]
    return f"{values['text']} ({count} {'run' if count == 1 else 'runs'})"


def _diagnostic(values: Values) -> str:
    runs = values["runs"]
    return f"{', '.join(runs)} failed and explain{'s' * (len(runs) == 1)} nothing: {values['why']}"


def _executed(values: Values) -> str:
    ran, idle, many = values["executed"], values["not_executed"], values["changed"]
    if not ran:
        return (
            f"no phase executed a function that changed ({listed(idle)}): nothing that was "
            "measured can show what the series does; choose other workloads"
        )
    said = f"executed: {len(ran)} of {many} changed functions: {listed(ran, '; ')}"
    return f"{said}; not executed: {listed(idle)}" if idle else said


def _accelerator(values: Values) -> str:
    name = values["accelerator"]
    if values["real_time"]:
        return f"guests ran on this host's CPUs ({name})"
    ran = "TCG" if name == "tcg" else name or "an unknown accelerator"
    return (
        f"guests ran under {ran}: the time is that of a translator and no verdict is given; "
        'mode = "exact" answers the question here'
    )


def _dropped(values: Values) -> str:
    blocks = values["blocks"]
    named = "; ".join(f"block {number}: {why}" for number, why in blocks[:NAMED_BLOCKS])
    rest = "; ..." if len(blocks) > NAMED_BLOCKS else ""
    what = "dropped whole"
    if values["kept"]:
        what = "would be dropped, and are shown because no verdict hangs on them"
    return f"{values['case']}: {len(blocks)} of {values['of']} blocks {what} ({named}{rest})"


def _early(values: Values) -> str:
    return (
        f"judged early, at the look after {values['blocks']} of {values['planned']} blocks, which "
        f"has {100 * values['share']:g} % of the error rates"
    )


def _text(values: Values) -> str:
    """What is on record as a text: of a mail, a build, or a run."""
    return str(values["text"])


KINDS: Mapping[str, Callable[[Values], str]] = MappingProxyType(
    {
        "quick": lambda _: (
            "made with --quick: the experiment's first case alone, no correctness check, no "
            "diagnostic run"
        ),
        "exactness": _exactness,
        "qemu-untried": lambda v: f"{v['why']}; ./lab.py doctor --exact tries it",
        "few-ios": lambda v: (
            f"phase {v['phase']}: {v['ios']} I/Os in a run, too few I/Os to be evidence"
        ),
        "seeds-without-effect": _seeds,
        "failed-runs": _failed_runs,
        "not-finished": lambda v: (
            f"{v['recorded']} of {v['planned']} runs recorded; --resume finishes the session"
        ),
        "checks-pending": lambda _: (
            "correctness checks are pending, and one that fails takes the verdict back: "
            "./lab.py run --resume SESSION makes them"
        ),
        "same-code": lambda _: "the built machine code of both arms is equal",
        "same-code-differs": lambda v: (
            f"the code is the same and {v['differ']} of {v['of']} {v['repeated']} differ"
        ),
        "of-runs": _of_runs,
        "published": lambda v: f"{v['metric']}: {v['note']}",
        "diagnostic-failed": _diagnostic,
        "events-dropped": lambda v: (
            f"{v['case']}, phase {v['phase']}: {v['events']} events were dropped, waits are not "
            "complete"
        ),
        "series": _text,
        "origin": _text,
        "build": _text,
        "triage": _text,
        "executed": _executed,
        "accelerator": _accelerator,
        "host-check": lambda v: f"{v['name']}: {v['found']} ({v['status']})",
        "dropped-blocks": _dropped,
        "early": _early,
    }
)
