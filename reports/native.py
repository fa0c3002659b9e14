"""The report of a session of native mode: nanoseconds on this CPU, as blocks."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from analysis.native import Judged, judge, reached
from analysis.verdict import CALLED, Change
from errors import UsageError
from reports import wording
from reports.document import (
    Block,
    Column,
    Heading,
    Paragraph,
    Table,
    VerdictRow,
    Verdicts,
    facts,
    listing,
    row,
)
from reports.render import html, markdown, text
from reports.sentences import MARKS
from results import door, native
from results.native import NativeBoot, NativeHead
from text import counted

COLUMNS = (
    Column("phase", left=True),
    Column("ns each", under="base"),
    Column("change"),
    Column("interval"),
    Column("base again", under="A/A"),
    Column("± of A/A", drop=2),
    Column("slow", under="rounds", drop=4),
    Column("crossing", drop=1),
)
MEANING = (
    "Real time of a kernel that is an ordinary process of this host (User-Mode Linux, one CPU): "
    "the kernel's own code on the real CPU, with its caches and predictors. A phase is a loop "
    "that stays in the kernel, in nanoseconds of each folio, object, entry, request or file; "
    "crossing is the share of it that goes to system calls, which are slower here than on any "
    "other kernel. It has no locks of several CPUs, no huge pages, and no devices. An interval "
    "holds what lies between kernels whose objects are in other orders. "
    "None of these numbers is in one verdict with instructions counted in exact mode."
)


def _bounds(change: Change | None) -> str:
    both = wording.ends(change)
    return wording.between(*both) if both else wording.NOTHING


def names_of(head: NativeHead, judged: Iterable[Judged]) -> dict[Judged, str]:
    """The phase, before it the arm where there are several, behind it a case that shares it."""
    many = len(head.arms) > 2
    cases = Counter(itertools.chain.from_iterable(head.phases.values()))
    return {
        each: f"{f'{each.arm}: ' * many}{each.phase}{f', {each.case}' * (cases[each.phase] > 1)}"
        for each in judged
    }


def blocks(head: NativeHead, boots: Sequence[NativeBoot], judged: Sequence[Judged]) -> list[Block]:
    """The whole report below its title."""
    names = names_of(head, judged)
    rows = [
        VerdictRow(
            word=str(each.verdict),
            mark=MARKS[each.verdict],
            case=names[each],
            change="" if each.change is None else wording.percent(each.change.estimate),
            interval=f"{_bounds(each.change)} at {100 - 100 * head.alpha:g} %" * bool(each.change),
            lines=(each.reason,),
        )
        for each in judged
    ]
    table = Table(
        "Phases",
        COLUMNS,
        tuple(
            row(
                names[each],
                wording.figure(each.base_ns, 4),
                wording.percent(wording.estimate(each.change)),
                _bounds(each.change),
                wording.percent(wording.estimate(each.again)),
                f"{50 * (again[1] - again[0]):.2f} %" if again else wording.NOTHING,
                f"{each.slow} of {each.rounds}",
                wording.NOTHING if each.crossing is None else f"{100 * each.crossing:.0f} %",
                strong=each.verdict in CALLED,
            )
            for each in judged
            for again in [wording.ends(each.again)]
        ),
    )
    arms = [
        (
            arm.name,
            f"{arm.label or arm.name}: {counted(len(arm.patches), 'patch file')}, linked in "
            f"{counted(head.orders, 'order')} of its objects",
        )
        for arm in head.arms
    ]
    host = [(name.replace("_", " "), fact) for name, fact in head.host.items()]
    looks = reached(head, boots)[0]
    judged_after = ", ".join(map(str, looks.seeds))
    how = f", judged after {judged_after} rounds of at most {head.rounds}" * looks.sequential
    made = sum(boot.seconds for boot in boots)
    foreign, stolen = (
        sum(getattr(boot, name) for boot in boots) / max(len(boots), 1)
        for name in ("foreign", "stolen")
    )
    during = (
        f"{counted(len(boots), 'boot')}, together {made:.0f} s{how}; of the host's CPU time others "
        f"and these boots used up to {100 * foreign:.0f} %, a hypervisor took {100 * stolen:.1f} %"
    )
    left = [f"not measured: {case}: {why}" for case, why in head.left_out.items()]
    return [
        Verdicts(tuple(rows)),
        *listing(left),
        Heading("Time on this CPU", 2, "time"),
        *([table] if boots else []),
        Paragraph(MEANING, "note"),
        Heading("What was compared", 2, "subject"),
        *facts(
            [
                ("Source", f"{head.source}, {head.release}"),
                *arms,
                *((case, ", ".join(phases)) for case, phases in head.phases.items()),
                ("Measured", during),
            ]
        ),
        Heading("This CPU", 2, "host"),
        *facts(host),
    ]


def _in_all_forms(
    head: NativeHead, boots: Sequence[NativeBoot], judged: Sequence[Judged]
) -> dict[str, str]:
    """The report by its form: for a terminal, as Markdown, as a page, and as JSON.

    The JSON has head, verdicts and numbers, changes as fractions.
    """
    over = f"Twinboot · {head.name} · native mode · {head.created[:16].replace('T', ' ')} UTC"
    top, body = Heading(head.title, 1), blocks(head, boots, judged)
    metrics = [
        {
            **asdict(each),
            "change": each.change and each.change.model_dump(),
            "again": each.again and each.again.model_dump(),
        }
        for each in judged
    ]
    whole = {"mode": "native", **head.model_dump(mode="json"), "boots": len(boots)}
    return {
        "text": text.text([top, Paragraph(over, "cause"), *body]),
        "markdown": markdown.text([top, *body]),
        "html": html.page(head.title, [top], body, over),
        "json": json.dumps({**whole, "metrics": metrics}, indent=2) + "\n",
    }


# By form.
FILES = {
    "text": "report.txt",
    "markdown": "report.md",
    "html": "report.html",
    "json": "report.json",
}


def write_all(folder: Path, form: str, *, write: bool = True) -> tuple[str, tuple[Judged, ...]]:
    """One form of a session's report, and its verdicts; ``write`` every form into its folder.

    Raises:
        UsageError: a form that native mode does not have.
        StoreError: no session of native mode, or damaged.
    """
    if form not in FILES:
        raise UsageError(
            f"native mode has no form {form!r}",
            where="--form",
            next_step=f"one of: {', '.join(FILES)}",
        )
    head, boots = native.read(folder)
    judged = judge(head, boots)
    written = _in_all_forms(head, boots, judged)
    for name, content in written.items() if write else ():
        door.write(folder, FILES[name], content)
    return written[form], judged
