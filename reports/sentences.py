"""The sentences of findings, made of their values, and of functions that changed: the one place.

A finding is data (kind and values); what is said of it stands here and is the same wherever it
is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from analysis.explain.functions import Attribution
from analysis.model import Finding
from reports.wording import signed
from text import enumerated

# Seeds, blocks and functions that are named; more are a number.
NAMED, NAMED_BLOCKS = 5, 6
CHANGED_NAMED = 4
ONE_BUILD = (
    "each kernel is one build, and what its layout gives is in no interval: base against itself is "
    "one binary, and more blocks do not average it out"
)

Values = Mapping[str, Any]


def of_finding(finding: Finding) -> str:
    """What a finding says; one line without a full stop."""
    return KINDS[finding.kind](finding.values)


def changed_words(tested: int, count: int, largest: Sequence[tuple[str, float]]) -> str:
    """``3 of 512 functions changed: xas_load -3.9, xas_start -1.2``; or that none did.

    ``largest`` are names and differences in instructions per unit of work, of some or all of the
    ``count`` that changed.  Empty where none was tested.
    """
    if not tested:
        return ""
    if not count:
        return f"no function changed, of {tested} tested"
    names = [f"{name} {signed(apart, 2)}" for name, apart in largest[:CHANGED_NAMED]]
    rest = f" and {count - len(names)} more" if count > len(names) else ""
    return f"{count} of {tested} functions changed: {', '.join(names)}{rest}"


def changed(attribution: Attribution) -> str:
    """The functions of a phase that changed, as :func:`changed_words` has them."""
    largest = [(each.name, each.instructions.difference) for each in attribution.changed]
    return changed_words(attribution.tested, len(largest), largest)


def changed_per_unit(attribution: Attribution) -> str:
    """The same with what the numbers are of; empty where nothing was tested."""
    unit = f" instructions per {attribution.unit_title}" * bool(attribution.changed)
    return f"{changed(attribution)}{unit}"


def _exactness(values: Values) -> str:
    if values["status"] in ("not asked", "inexact"):
        return str(values["detail"])
    return f"{values['status']}: {values['detail']}"


def _seeds(values: Values) -> str:
    seeds = values["seeds"]
    text, rest = ", ".join(map(str, seeds[:NAMED])), ", ..." if len(seeds) > NAMED else ""
    return (
        f"arm {values['arm']}: different seeds gave bit-identical values ({text}{rest}); "
        "they count as one sample"
    )


def _failed_runs(values: Values) -> str:
    arms = ", ".join(f"{arm} {failed} of {runs}" for arm, failed, runs in values["arms"])
    kinds = values["kinds"]
    each = f" ({'; '.join(f'{number} {kind}' for kind, number in kinds.items())})" if kinds else ""
    return f"failed runs: {arms}{each}; their {values['repeated']} are excluded on all arms"


def _of_runs(values: Values) -> str:
    count = values["runs"]
    return f"{values['text']} ({count} {'run' if count == 1 else 'runs'})"


def _diagnostic(values: Values) -> str:
    runs = values["runs"]
    return f"diagnostic run{'s' * (len(runs) > 1)} failed: {', '.join(runs)}: {values['why']}"


def _executed(values: Values) -> str:
    executed, idle, many = values["executed"], values["not_executed"], values["changed"]
    if not executed:
        return (
            f"none of the changed functions was executed ({enumerated(idle)}): these workloads "
            "cannot show an effect of the series; choose others"
        )
    text = f"executed: {len(executed)} of {many} changed functions: {enumerated(executed, '; ')}"
    return f"{text}; not executed: {enumerated(idle)}" if idle else text


def _accelerator(values: Values) -> str:
    name = values["accelerator"]
    if values["real_time"]:
        return f"guests ran on this host's CPUs ({name})"
    text = "TCG" if name == "tcg" else name or "an unknown accelerator"
    return (
        f"guests ran under {text}, an emulator: its time says nothing about hardware, so no "
        'verdict is given; measure with mode = "exact"'
    )


def _dropped(values: Values) -> str:
    blocks = values["blocks"]
    text = "; ".join(f"block {number}: {why}" for number, why in blocks[:NAMED_BLOCKS])
    rest = "; ..." if len(blocks) > NAMED_BLOCKS else ""
    what = "excluded"
    if values["kept"]:
        what = "would be excluded, but are shown because no verdict depends on them"
    return f"{values['case']}: {len(blocks)} of {values['of']} blocks {what} ({text}{rest})"


def _early(values: Values) -> str:
    return (
        f"stopped early: the interim analysis after {values['blocks']} of {values['planned']} "
        f"blocks was conclusive, at {100 * values['share']:g} % of the error rates"
    )


def _text(values: Values) -> str:
    """What is on record as a text: of a mail, a build, or a run."""
    return str(values["text"])


KINDS: Mapping[str, Callable[[Values], str]] = MappingProxyType(
    {
        "quick": lambda _: (
            "made with --quick: only the experiment's first case, without correctness checks and "
            "diagnostic runs"
        ),
        "exactness": _exactness,
        "qemu-untried": lambda v: f"{v['why']}; to check it: ./lab.py doctor --exact",
        "few-ios": lambda v: (
            f"phase {v['phase']}: only {v['ios']} I/Os in a run, too few for a verdict"
        ),
        "seeds-without-effect": _seeds,
        "failed-runs": _failed_runs,
        "not-finished": lambda v: (
            f"{v['recorded']} of {v['planned']} runs recorded; --resume finishes the session"
        ),
        "between-looks": lambda v: (
            f"stopped while seeds were added: judged after {v['judged']} seeds, "
            f"{v['planned']} were planned; --resume goes on"
        ),
        "checks-pending": lambda _: (
            "correctness checks are pending, and the verdict is withdrawn if one fails; to run "
            "them: ./lab.py run --resume SESSION"
        ),
        "same-code": lambda _: "the machine code of both arms is identical",
        "same-code-differs": lambda v: (
            f"the machine code is identical, but {v['differ']} of {v['of']} {v['repeated']} differ"
        ),
        "of-runs": _of_runs,
        "not-known": _text,
        "published": lambda v: f"{v['metric']}: {v['note']}",
        "diagnostic-failed": _diagnostic,
        "events-dropped": lambda v: (
            f"{v['case']}, phase {v['phase']}: {v['events']} trace events were lost, so waits are "
            "incomplete"
        ),
        "series": _text,
        "origin": _text,
        "build": _text,
        "triage": _text,
        "executed": _executed,
        "accelerator": _accelerator,
        "host-check": lambda v: f"{v['name']}: {v['found']} ({v['status']})",
        "one-build": lambda v: ONE_BUILD,
        "dropped-blocks": _dropped,
        "early": _early,
    }
)
