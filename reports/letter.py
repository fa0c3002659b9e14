"""The Before/After block of a cover letter: ASCII, at most 75 columns, ready to paste.

The percentages come from the same comparison as the figures around them, and the
averages are the geometric means whose ratio that percentage is: the block cannot
say +10.4 % over numbers that give +12.5 %.
"""

from __future__ import annotations

import textwrap

from reports import count_wording, differences, gate_wording, mail, wall_wording, wording
from reports.mail import WIDTH, ascii_only
from reports.many import SessionComparison
from reports.model import CaseComparison, Comparison, MetricComparison, Summary
from reports.verdict import CALLED
from results.record import Manifest, PhaseRecord
from results.units import is_virtual, shown_name

SHOWN = ("bw", "iops")
# Lines on where the change came from, in the whole letter.
MOST_LINES = 3
DROP_CACHES = "echo 3 > /proc/sys/vm/drop_caches"
# (decimals of min and max, decimals of avg and stdev): the first that fits, fio's own last but one.
PRECISIONS = ((2, 2), (0, 2), (0, 1), (0, 0))


def _size(mib: float) -> str:
    return f"{mib / 1024:g}G" if mib >= 1024 else f"{mib:g}M"


def setup(comparison: Comparison, manifest: Manifest, case: CaseComparison) -> list[str]:
    """The setup in one sentence."""
    data, guest = manifest.experiment.dataset, manifest.guest
    limit, file, brd = (
        _size(mib / guest.scale) for mib in (data.cgroup_limit_mib, data.file_mib, data.brd_mib)
    )
    # Without a limit or a device there is nothing to say of one.
    within = f" in a {limit} cgroup" if data.cgroup_limit_mib else ""
    files = f"a {file} file on a {brd} brd" if data.brd_mib else f"{file} of files"
    sentence = (
        f"{case.title}: {guest.jobs} jobs{within}, {files}, "
        f"{guest.vcpus} vCPU{'s' if guest.vcpus > 1 else ''}"
    )
    if manifest.experiment.mode == "exact":
        sentence += " under QEMU TCG -icount, times are virtual"
    if comparison.wall is not None:
        on = (
            "KVM on this host, real time"
            if comparison.wall.real_time
            else "TCG, a translator's time"
        )
        sentence += f" under {on}"
    most = max((metric for metric in case.metrics if metric.base), default=None,
               key=lambda metric: metric.base.n if metric.base else 0)  # fmt: skip
    sentence += f"; samples are {wording.samples(most)}:" if most else ":"
    return textwrap.wrap(ascii_only(sentence), WIDTH, break_on_hyphens=False)


def commands(phases: tuple[PhaseRecord, ...]) -> list[str]:
    """The command lines, with what has to be done before them."""
    lines = []
    for phase in phases:
        if phase.caches == "dropped":
            lines.append(DROP_CACHES)
        lines += wording.wrap_command(ascii_only(phase.command), WIDTH)
    return lines


def summary_line(label: str, summary: Summary) -> list[str]:
    """One line in fio's words; the spread is printed in the metric's unit as fio does."""
    deviation = (summary.stddev or 0.0) * summary.mean
    text = ""
    for outer, inner in PRECISIONS:
        text = (
            f"{label}: min={summary.minimum:.{outer}f}, max={summary.maximum:.{outer}f}, "
            f"avg={summary.mean:.{inner}f}, stdev={deviation:.{inner}f}, samples={summary.n}"
        )
        if len(text) <= WIDTH:
            return [text]
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ")


def _label(metric: MetricComparison) -> str:
    short = metric.name.rpartition(".")[2]
    if short == "bw":
        return f"bw ({metric.unit})"
    return f"{short} (virtual)" if is_virtual(metric.unit) else short


def _shown(case: CaseComparison, phase: PhaseRecord) -> list[MetricComparison]:
    found = (case.metric(f"{phase.name}.{short}") for short in SHOWN)
    return [metric for metric in found if metric is not None and metric.base and metric.patched]


def percentage(metric: MetricComparison) -> str:
    """The change as cover letters print it: ``+1.31%``."""
    found = metric.judgement.change
    return ascii_only(wording.percent(found.estimate if found else None)).replace(" ", "")


def _block(comparison: Comparison, case: CaseComparison, *, after: bool) -> list[str]:
    several = len(case.phases) > 1
    lines = []
    for phase in case.phases:
        shown = _shown(case, phase)
        if not shown:
            continue
        prefix = ascii_only(f", {phase.name} phase") if several else ""
        bw = shown[0]
        # A percentage in this place is a claim, whatever the words below it say.
        claim = "" if wall_wording.withheld(comparison, bw) else f" ({percentage(bw)})"
        lines.append(f"After{prefix}{claim}:" if after else f"Before{prefix}:")
        for metric in shown:
            summary = metric.patched if after else metric.base
            assert summary is not None
            lines += summary_line(ascii_only(_label(metric)), summary)
    return lines


def _closing(comparison: Comparison, case: CaseComparison) -> list[str]:
    """One sentence from the same judgements: what may be claimed, and what may not."""
    said = []
    for metric in case.primary:
        word, name = metric.judgement.verdict, shown_name(metric.name, metric.unit)
        if metric.judgement.change is None or wall_wording.withheld(comparison, metric):
            said.append(f"{name}: {word} ({metric.judgement.reason})")
            continue
        bounds = wording.interval(metric).replace(" %", "%")
        claim = f"{name} {percentage(metric)} {bounds}".rstrip()
        because = "" if word in CALLED else (
            f" ({metric.judgement.reason})"
        )  # fmt: skip
        said.append(f"{claim}: {word}{because}")
    text = ascii_only("; ".join(said)).replace(" %", "%")
    return textwrap.wrap(f"{text}.", WIDTH, break_on_hyphens=False) if said else []


def _noise(case: CaseComparison) -> list[str]:
    """What base differs by from itself, in one line a primary metric; wall mode only."""
    lines = []
    for metric in case.primary:
        if metric.again is not None and metric.again.estimate is not None:
            seen = metric.again
            within = ""
            if seen.low is not None and seen.high is not None:
                within = f" {wording.between(seen.low, seen.high)} at {100 * seen.level:g}%"
            size = wording.percent(seen.estimate).replace(" ", "")
            lines.append(ascii_only(f"A/A noise of {metric.name}: {size}{within}."))
    return lines


def _case(comparison: Comparison, case: CaseComparison) -> list[str]:
    before, after = _block(comparison, case, after=False), _block(comparison, case, after=True)
    parts = [
        setup(comparison, comparison.manifest, case), commands(case.phases), before, after,
        [*_closing(comparison, case), *_noise(case)],
    ]  # fmt: skip
    return [line for part in parts if part for line in (*part, "")]


def _origin(comparison: Comparison) -> list[str]:
    """Where the change came from, by fewer words until it fits into three lines."""
    said = [ascii_only(text).replace(" %", "%") for text in count_wording.letter(comparison)]
    for count in range(len(said), 0, -1):
        lines = textwrap.wrap(" ".join(said[:count]), WIDTH, break_on_hyphens=False)
        if len(lines) <= MOST_LINES:
            return lines
    return []


def _apart(comparison: Comparison) -> list[str]:
    """What the arms differ by beyond the series, as no Before and After says it."""
    said = differences.sentences(comparison.manifest.arms)
    text = ascii_only(f"{differences.LEAD}: {'; '.join(said)}.")
    return [*textwrap.wrap(text, WIDTH, break_on_hyphens=False), ""] if said else []


def _family(comparison: Comparison) -> list[str]:
    """That all verdicts are one family; nothing where there is one, or none."""
    if not any(metric.judgement.change for metric in comparison.primary):
        return []
    session = SessionComparison(manifest=comparison.manifest, comparisons=(comparison,))
    return mail.family(session)


def _checked(comparison: Comparison) -> list[str]:
    """How the arms stand after their checks; nothing without a gate."""
    text = ascii_only(gate_wording.sentence(comparison.gates))
    return [*textwrap.wrap(text, WIDTH, break_on_hyphens=False), ""] if text else []


def render(comparison: Comparison) -> str:
    """Return the block of every case and where the change came from, ending in a newline."""
    lines = [*mail.wrapped(mail.measured_under(comparison.manifest), hang=""), ""]
    lines += _apart(comparison)
    lines += [line for case in comparison.cases for line in _case(comparison, case)]
    lines += _family(comparison)
    lines += [*_checked(comparison), *_origin(comparison)]
    return "\n".join(lines).rstrip() + "\n"
