"""What is compared, how to repeat it, what it was made with, and what its numbers mean."""

from __future__ import annotations

import shlex

from analysis.model import Comparison
from reports import repeat, sentences, wording
from reports.document import (
    Block,
    Code,
    Column,
    Fold,
    Heading,
    Link,
    Mono,
    Paragraph,
    Table,
    Words,
    facts,
    listing,
    row,
)
from reports.headline import headline
from reports.sections import View, titled
from results.profile import WORK
from results.record import ArmRecord, Manifest
from results.units import INSTRUCTIONS
from text import counted, wrap_command

PAGE_WIDTH = 92
PUBLISHED_HEADS = (
    *(
        Column("case and metric", left=True),
        Column("arm", left=True, drop=3),
        Column("without", narrow=True),
    ),
    *(
        Column("with", narrow=True),
        Column("change"),
        Column("here"),
        Column("document", left=True, drop=1),
    ),
)
EXACT = (
    "Exact mode: one guest instruction is one virtual nanosecond, so bandwidth is path length, and "
    "every rate says “virtual”. The same kernel, guest and seed give the same bits on any host "
    "under any load: the seeds show how much a result depends on the access pattern. Cache misses, "
    "NUMA latency and true parallelism are not seen, and no real machine's bandwidth is predicted."
)
REAL_TIME = "Wall mode: times are real and of this host, noise and all."
TRANSLATED = (
    "Wall mode without real CPUs: times are those of QEMU's translator, and say nothing of any "
    "machine."
)
DESIGN = (
    "Each boot is one sample; the change is the Hodges-Lehmann estimate over whole blocks. "
    "base-again is the base once more; what it differs by is noise."
)
PATH_AND_WORK = (
    "Bandwidth is instructions and work together. Work is what an I/O needed: I/Os, pages read, "
    "folios added and pages scanned, added up at costs that are the same for all kernels. "
    "Instructions per read or write are those of an I/O that needs as much work as one of base "
    "does on average: what is judged is the index of instructions for a standard amount of work."
)


def title(view: View) -> list[Block]:
    """The experiment's title and question."""
    experiment = view.session.manifest.experiment
    body: list[Block] = [Paragraph(experiment.question, "question")] if experiment.question else []
    return [Heading(sentences.title(view.session.manifest), 1), *body]


def origin(view: View) -> str:
    """``session filemap-v4-..., 2026-11-22 09:39 UTC, Twinboot 0.9``: which report this is."""
    manifest = view.session.manifest
    when = manifest.created[:16].replace("T", " ")
    return f"session {manifest.session}, {when} UTC, Twinboot {manifest.provenance.lab_version}"


def brief(view: View) -> list[Block]:
    """The subject in a sentence, and which session this is."""
    manifest = view.session.manifest
    experiment = manifest.experiment
    subject = (
        f"{experiment.name}: {sentences.subject(experiment)}, guest {manifest.guest.name}, "
        f"{experiment.mode} mode; {sentences.against(view.session)}"
    )
    return [Paragraph(subject, "cause"), Paragraph(sentences.upper_first(origin(view)), "cause")]


def full(view: View) -> list[Block]:
    """Source, series, arms, guest and how often each was run."""
    session, wall = view.session, view.first.wall
    manifest, many = session.manifest, len(session.arms)
    experiment = manifest.experiment
    compared = sentences.against(session)
    if headline(session).has_verdicts:
        compared = f"{compared}; {sentences.family(session)}"
    fewer = ", ".join(f"{n} of {case}" for case, n in manifest.case_seeds.items())
    made = counted(len(manifest.seeds), experiment.repeated.removesuffix("s"))
    on = "both" if many == 2 else f"all {many}"
    each = "every arm once in each, in random order" if wall else f"each on {on} arms"
    how = f"{made}{f' ({fewer})' if fewer else ''}, {each}"
    looks = experiment.looks(len(manifest.seeds))
    if looks.sequential:
        after = ", ".join(map(str, looks.seeds))
        how = f"{how}, judged after {after}, of at most {experiment.max_seeds}"
    addresses = (sentences.posting(series.message_id) for series in manifest.series)
    rows: Rows = [
        ("Source", sentences.sources(experiment)),
        ("Series", sentences.series_title(experiment)),
        *(("Posting", (Link(to, to),)) for to in dict.fromkeys(addresses) if to),
        *((arm.name, _arm(arm)) for arm in session.arms),
        ("Guest", f"{manifest.guest.name}: {manifest.guest.title}"),
        ("Mode", experiment.mode),
        ("Compared", compared),
        ("Blocks" if wall else "Seeds", f"{how}; {session.exactness.text}"),
    ]
    return [Heading("What was compared", 2, "subject"), *facts(rows)]


def _arm(arm: ArmRecord) -> str:
    """What an arm is made of."""
    patches = len(arm.kernel.patches)
    settings = "; ".join(f"{name} = {value}" for name, value in sorted(arm.settings.items()))
    many = counted(patches, "patch") if patches else "no patches"
    text = f"{arm.label or arm.name}: {arm.kernel.release}, {many}"
    return f"{text}; {settings}" if settings else text


def published(view: View) -> list[Block]:
    """One row a figure; the change is computed from the figures."""
    here = {
        (comparison.manifest.patched, metric.case, metric.name): wording.change(metric)
        for comparison in reversed(view.session.comparisons)
        for case in comparison.cases
        for metric in case.metrics
    }
    rows = []
    for arm, r in sentences.references(view.session):
        figures = f"{r.base:.2f}", f"{r.patched:.2f} {r.unit}", wording.reference_change(r)
        ours = here.get((arm, r.case, r.metric), wording.NOTHING)
        rows.append(row(f"{r.case} {r.metric}", arm, *figures, ours, r.document))
    note = (
        "Measured by others on other machines in real time. The change is computed from the "
        "figures; “here” is that of this session."
    )
    table = Table("Published figures", PUBLISHED_HEADS, tuple(rows))
    return titled(table.label, "published", [table, Paragraph(note, "note")] if rows else [])


def again(view: View) -> list[Block]:
    """The commands that make the session again, and the numbers that must come out."""
    made = repeat.repeat(view.session, view.folder, of_others=view.of_others)
    blocks: list[Block] = [Paragraph(f"{made.lab}."), Code("\n".join(made.commands), "sh")]
    blocks += [Paragraph(" ".join(made.notes), "note")] if made.notes else []
    blocks += [Fold(made.expected, tuple(listing(made.results)))] if made.results else []
    return titled("How to repeat this", "repeat", blocks)


def made_with(view: View) -> list[Block]:
    """The command line of each phase, and everything that the session was made with, folded."""
    manifest = view.session.manifest
    commands: list[Block] = []
    for case in view.first.cases:
        for phase in case.phases:
            commands.append(Heading(f"{case.name}, phase {phase.name}, caches {phase.caches}", 3))
            commands.append(Code("\n".join(wrap_command(phase.command, PAGE_WIDTH)), "shell"))
    inner: list[Block] = []
    for title, rows in (*_made_of(manifest), *map(_kernel, manifest.arms)):
        inner += [Heading(title, 3), *facts(rows)] if rows else []
    inner += [Heading("QEMU", 3), Code(wrapped_command(manifest.provenance.qemu_argv), "shell")]
    inner += [Heading("Kernel command line", 3), Code(manifest.provenance.kernel_command_line)]
    what = f"What was run: the command lines of {counted(len(view.first.cases), 'case')}"
    made = "Made with: session, host, tools, kernels and QEMU"
    return [Fold(what, tuple(commands)), Fold(made, tuple(inner))]


def wrapped_command(argv: tuple[str, ...]) -> str:
    """An argument vector as a command that can be pasted, one option a line."""
    lines: list[str] = []
    for word in (shlex.quote(argument) for argument in argv):
        if word.startswith("-") or not lines:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return " \\\n  ".join(lines)


Rows = list[tuple[str, Words]]


def _made_of(manifest: Manifest) -> list[tuple[str, Rows]]:
    experiment, provenance, guest = manifest.experiment, manifest.provenance, manifest.guest
    lab: Rows = [
        ("session", manifest.session),
        ("created", manifest.created),
        ("lab", f"{provenance.lab_version}, commit {provenance.lab_commit}"),
        ("experiment", experiment.name),
        ("overrides", ", ".join(manifest.overrides) or "none"),
        ("seeds", ", ".join(map(str, manifest.seeds))),
        ("guest", f"{guest.name}: {guest.title}"),
        ("restored from a snapshot", "yes" if provenance.snapshot else "no, cold boot"),
        ("initramfs SHA-256", provenance.initramfs_sha256),
        *([("QEMU's binary SHA-256", provenance.qemu_sha256)] if provenance.qemu_sha256 else []),
        *([("accelerator", provenance.accelerator)] if provenance.accelerator else []),
    ]
    return [
        ("Session", lab),
        ("Host", sorted(provenance.host.items())),
        ("Host before the session", sorted(provenance.fitness.items())),
        ("Tools", sorted(provenance.tools.items())),
    ]


def _kernel(arm: ArmRecord) -> tuple[str, Rows]:
    kernel = arm.kernel
    rows: Rows = [
        ("release", kernel.release),
        ("source", kernel.source),
        ("patches", "\n".join(kernel.patches) or "none"),
        ("flavour", kernel.flavour),
        ("compiler", kernel.compiler),
        ("key", (Mono(kernel.key),)),
        ("config SHA-256", (Mono(kernel.config_sha256),)),
        ("machine code", (Mono(kernel.code_key),)),
    ]
    return f"Kernel of {arm.name}: {arm.label or arm.name}", rows


def path_and_work(pair: Comparison) -> str:
    """What path and work are, where one of a phase that has both is judged; else empty."""
    judged = (m for m in pair.primary if m.name.partition(".")[2] in (INSTRUCTIONS, WORK))
    return PATH_AND_WORK if any(pair.metric(m.case, f"{m.phase}.{WORK}") for m in judged) else ""


def meaning(view: View) -> list[Block]:
    """One paragraph for each of the ways to measure, and one for path and work."""
    wall = view.first.wall
    text = EXACT if wall is None else f"{REAL_TIME if wall.real_time else TRANSLATED} {DESIGN}"
    more = path_and_work(view.first)
    body: list[Block] = [Paragraph(part, "note") for part in (text, more) if part]
    return titled("What these numbers mean", "meaning", body)
