"""What a wall session shows beside its verdicts: its host, dropped blocks, A/A; pure."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.model import Again, DroppedBlock, HostCheck, Pair, WallFacts
from analysis.power import FEWEST_AGAIN, Question, change_level, seeds_to_decide
from analysis.statistics import as_change, log_ratios, noise_floor
from analysis.verdict import WITHHELD, Evidence, Judgement, judge_secondary
from experiment.plan import Conditions, dropped_blocks
from experiment.spec import SEED_LOOKS, Looks, Thresholds
from results.record import Manifest, RunRecord

# A run on record without conditions broke no rule that anybody knows of.
QUIET = Conditions(stolen=0.0, foreign=0.0, swapped_pages=0, throttled=0)
UNSTEADY = "withheld: the A/A difference of this case is significant"


def dropped(manifest: Manifest, records: Sequence[RunRecord]) -> tuple[DroppedBlock, ...]:
    """Blocks that a rule set before leaves out, blind to arms and values.

    Under TCG no verdict hangs on them, so what the host did only is said, and the
    numbers are shown; a block with a failed run is no block there either.
    """
    real_time = manifest.provenance.real_time
    result = []
    for case in manifest.cases:
        blocks: dict[int, list[Conditions | None]] = {}
        for record in records:
            if record.case == case.name:
                conditions = None if record.failure is not None else record.conditions or QUIET
                blocks.setdefault(record.block, []).append(conditions)
        result += [
            DroppedBlock(
                case=case.name,
                block=block,
                reason=reason,
                failed=None in blocks[block],
                kept=not real_time and None not in blocks[block],
            )
            for block, reason in sorted(dropped_blocks(blocks).items())
        ]
    return tuple(result)


def facts_of(manifest: Manifest, records: Sequence[RunRecord]) -> WallFacts:
    """The host of a wall session, and the blocks that are left out."""
    provenance = manifest.provenance
    checks = (
        HostCheck(name=name.removeprefix("fitness "), status=status, found=detail)
        for name, text in provenance.fitness.items()
        for status, _, detail in [text.partition(": ")]
    )
    return WallFacts(
        accelerator=provenance.accelerator,
        real_time=provenance.real_time,
        # What runs the guests has a line of its own.
        checks=tuple(c for c in checks if c.status != "ok" and c.name != "accelerator"),
        images=len({arm.kernel.code_key for arm in manifest.arms}),
        dropped=dropped(manifest, records),
    )


def again(pairs: Sequence[Pair], thresholds: Thresholds, looks: Looks, *, family: int) -> Again:
    """A/A of one metric at the last of these looks, and blocks that would see the threshold here.

    These are of a session with a fixed number; ``family`` primary metrics share the error rate.
    """
    measured = Again(pairs=len(pairs), level=1 - thresholds.alpha, change=thresholds.change)
    try:
        ratios = log_ratios(
            [pair.base for pair in pairs],
            [pair.again for pair in pairs if pair.again is not None],
        )
        noise = noise_floor(ratios, change_level(looks, thresholds.alpha), thresholds.change)
    except ValueError:
        return measured
    interval, needed = noise.interval, None
    if foreseen := noise.sd is not None and len(ratios) >= FEWEST_AGAIN:
        rates = thresholds.alpha, thresholds.equivalence_alpha
        question = Question(thresholds.change, *rates, max(1, family), ranked=True)
        fewest = Looks(SEED_LOOKS[:1], sequential=False)
        needed = seeds_to_decide(thresholds.change, noise.sd or 0.0, fewest, question)
    return measured.model_copy(
        update={
            "estimate": as_change(noise.estimate),
            "low": None if interval is None else as_change(interval.low),
            "high": None if interval is None else as_change(interval.high),
            "floor": None if interval is None else as_change(interval.width / 2),
            "sd": noise.sd,
            "differs": noise.differs,
            "needed": needed,
            "beyond": foreseen and needed is None,
        }
    )


def describe(
    metrics: Sequence[Evidence], withheld: Sequence[str], thresholds: Thresholds
) -> list[Judgement]:
    """Describe secondary metrics; where ``withheld`` gives a reason nothing stands out.

    Their estimate is that of the primary ones: one boot that the host stood still for would
    move a mean by as much as it likes.
    """
    described = []
    for judgement, why in zip(judge_secondary(metrics, thresholds), withheld, strict=True):
        other: dict[str, object] = {"differs": False, "reason": why} if why else {}
        if judgement.change is not None:
            estimate = {"estimate": judgement.change.hodges_lehmann}
            other["change"] = judgement.change.model_copy(update=estimate)
        described.append(judgement.model_copy(update=other))
    return described


def withheld(facts: WallFacts, noise: Again, of_case: Sequence[Again]) -> str:
    """Why nothing is said of a secondary metric; ``of_case`` are its case's primary ones."""
    if not facts.real_time:
        return WITHHELD
    return UNSTEADY if any(each.differs for each in (noise, *of_case)) else ""
