"""What a wall session shows beside its verdicts: looks, dropped blocks, A/A; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.model import Again, DroppedBlock, HostCheck, Pair, WallFacts
from analysis.power import FEWEST_AGAIN, blocks_to_detect
from analysis.statistics import as_change, log_ratios, noise_floor
from analysis.verdict import WITHHELD, Evidence, Judgement, judge_secondary
from experiment.plan import LOOKS, Conditions, Look, at_look, dropped_blocks
from experiment.spec import Thresholds
from results.record import Manifest, RunRecord

# A run on record without conditions broke no rule that anybody knows of.
QUIET = Conditions(stolen=0.0, foreign=0.0, swapped_pages=0, throttled=0)
UNSTEADY = "withheld: the A/A difference of this case is significant"


@dataclass(frozen=True)
class WallStanding:
    """What of a wall session may be judged, and how strictly.

    ``without`` are the blocks left out of each case; ``unusable`` says why no verdict may
    be given at all although there are numbers.
    """

    facts: WallFacts
    thresholds: Thresholds
    without: Mapping[str, frozenset[int]]
    unusable: str = ""

    def dropped(self, case: str) -> tuple[str, ...]:
        """Why blocks of a case were left out for the host's sake."""
        blocks = (d for d in self.facts.dropped if d.case == case and not (d.kept or d.failed))
        return tuple(d.reason for d in blocks)


def looks_of(planned: int) -> tuple[Look, ...]:
    """The looks of a session of ``planned`` blocks: the pre-set ones before its end, and its end.

    The end has what the others leave of the error rates, so that all add up to 1.
    """
    before = tuple(look for look in LOOKS[:-1] if look.blocks < planned)
    return (*before, Look(planned, 1.0 - sum(look.share for look in before)))


def whole_blocks(manifest: Manifest, records: Sequence[RunRecord]) -> frozenset[int]:
    """Blocks of which every arm of every case is on record, as samples or as a failure."""
    complete = {(case.name, arm.name) for case in manifest.cases for arm in manifest.arms}
    by_block: dict[int, set[tuple[str, str]]] = {}
    for record in records:
        by_block.setdefault(record.block, set()).add((record.case, record.arm))
    return frozenset(block for block, pairs in by_block.items() if pairs >= complete)


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


def standing(manifest: Manifest, records: Sequence[RunRecord]) -> WallStanding:
    """What of the session may be judged now, and at which thresholds.

    Early looks are judged at their share of the error rates.  Between looks nothing is
    judged: a session that is watched until it pleases always pleases in the end.
    """
    experiment, provenance = manifest.experiment, manifest.provenance
    planned, thresholds = len(manifest.seeds), experiment.thresholds
    whole = whole_blocks(manifest, records)
    look = next((look for look in looks_of(planned) if look.blocks == len(whole)), None)
    if not experiment.wall.early_looks and len(whole) < planned:
        look = None
    unfinished = look is None
    share = look.share if look is not None and experiment.wall.early_looks else None
    if look is not None and share is not None:
        thresholds = at_look(thresholds, look)
    left_out = dropped(manifest, records)
    partial = frozenset(record.block for record in records) - whole
    checks = (
        HostCheck(name=name.removeprefix("fitness "), status=status, found=detail)
        for name, text in provenance.fitness.items()
        for status, _, detail in [text.partition(": ")]
    )
    return WallStanding(
        facts=WallFacts(
            accelerator=provenance.accelerator,
            real_time=provenance.real_time,
            # What runs the guests has a line of its own.
            checks=tuple(c for c in checks if c.status != "ok" and c.name != "accelerator"),
            blocks=len(whole),
            planned=planned,
            look_share=share,
            early=look is not None and len(whole) < planned,
            unfinished=unfinished,
            images=len({arm.kernel.code_key for arm in manifest.arms}),
            dropped=left_out,
        ),
        thresholds=thresholds,
        without={
            case.name: partial | {d.block for d in left_out if d.case == case.name and not d.kept}
            for case in manifest.cases
        },
        unusable=f"{len(whole)} of {planned} blocks is none of the pre-set looks; --resume goes on"
        if unfinished and whole and provenance.real_time
        else "",
    )


def again(
    pairs: Sequence[Pair], thresholds: Thresholds, *, specified: Thresholds, family: int
) -> Again:
    """A/A of one metric, and how many blocks would see the threshold on this host.

    ``thresholds`` are those of the look, ``specified`` those of the whole session, whose error
    rate ``family`` primary metrics share.
    """
    measured = Again(pairs=len(pairs), level=1 - thresholds.alpha, change=thresholds.change)
    try:
        ratios = log_ratios(
            [pair.base for pair in pairs],
            [pair.again for pair in pairs if pair.again is not None],
        )
        noise = noise_floor(ratios, thresholds.alpha)
    except ValueError:
        return measured
    interval, needed = noise.interval, None
    if foreseen := noise.sd is not None and len(ratios) >= FEWEST_AGAIN:
        alpha = specified.alpha / max(1, family)
        needed = blocks_to_detect(noise.sd or 0.0, specified.change, alpha)
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


def withheld(standing: WallStanding, noise: Again, of_case: Sequence[Again]) -> str:
    """Why nothing is said of a secondary metric; ``of_case`` are its case's primary ones."""
    if not standing.facts.real_time:
        return WITHHELD
    if standing.unusable:
        return standing.unusable
    return UNSTEADY if any(each.differs for each in (noise, *of_case)) else ""
