"""What was run, how to make it again, and all that it was made with."""

from __future__ import annotations

import shlex

from reports import repeat
from reports.document import Block, Code, Fold, Heading, Mono, Paragraph, Words, facts, listing
from reports.sections.view import View, titled
from results.record import Manifest
from text import wrap_command

PAGE_WIDTH = 92


def again(view: View) -> list[Block]:
    """The commands that make the session again, and the numbers that must come out."""
    repetition = repeat.repeat(view.session, view.folder)
    blocks: list[Block] = [
        Paragraph(f"{repetition.lab}."),
        Code("\n".join(repetition.commands), "sh"),
    ]
    blocks += [Paragraph(" ".join(repetition.notes), "note")] if repetition.notes else []
    if repetition.results:
        blocks.append(Fold(repetition.expected, tuple(listing(repetition.results))))
    return titled("How to repeat this", "repeat", blocks)


def made_with(view: View) -> list[Block]:
    """The command line of each phase, and everything that the session was made with, folded."""
    manifest = view.session.manifest
    commands: list[Block] = []
    for case in view.first.cases:
        for phase in case.phases:
            commands.append(Heading(f"{case.name}, phase {phase.name}, caches {phase.caches}", 3))
            lines = wrap_command(phase.command, PAGE_WIDTH)
            commands.append(Code("\n".join(lines), "shell"))
    inner: list[Block] = []
    for title, rows in (*_groups(manifest), *_kernels(manifest)):
        inner += [Heading(title, 3), *facts(rows)] if rows else []
    inner += [
        Heading("QEMU", 3), Code(wrapped_command(manifest.provenance.qemu_argv), "shell"),
        Heading("Kernel command line", 3), Code(manifest.provenance.kernel_command_line),
    ]  # fmt: skip
    many = len(view.first.cases)
    return [
        Fold(f"What was run: the command lines of {many} case{'' if many == 1 else 's'}",
             tuple(commands)),
        Fold("Made with: session, host, tools, kernels and QEMU", tuple(inner)),
    ]  # fmt: skip


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


def _groups(manifest: Manifest) -> list[tuple[str, Rows]]:
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


def _kernels(manifest: Manifest) -> list[tuple[str, Rows]]:
    facts = []
    for arm in manifest.arms:
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
        facts.append((f"Kernel of {arm.name}: {arm.label or arm.name}", rows))
    return facts
