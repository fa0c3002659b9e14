"""What helps show: the verbs in panels, a verb's usual options in groups, and all of them.

Plain text in two columns, in as many lines as a terminal has: ``--help-all`` has the rest.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from typer.core import TyperGroup

from runs.request import RARELY, SUBJECT
from verbs.options import WHERE

EVERYTHING = "--help-all"
# Options that ``--help`` leaves to ``--help-all``.
HIDDEN = (RARELY, WHERE)
# The verbs that are shown with what they do; the others by their names.
START = (
    "doctor",
    "run",
    "loop",
    "suggest",
    "plan",
    "report",
    "sessions",
    "compare",
    "bisect",
    "list",
)
PANELS = {"Start": START, "Every night": ("queue", "watch", "history", "gate", "pages")}
Rows = list[tuple[str, str]]
UNBROKEN: Any = {"break_long_words": False, "break_on_hyphens": False, "replace_whitespace": False}


class VerbGroup(TyperGroup):
    """Verbs below a word, or the lab's: in panels, where it has those of ``PANELS``."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, what it is, its verbs, and examples."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        shown = {
            name: str(command.help).partition(";")[0].rstrip(".")
            for name, command in self.commands.items()
        }
        if ctx.parent is not None:
            _section(formatter, "Verbs", shown.items())
        else:
            for panel, names in PANELS.items():
                _section(formatter, panel, ((name, shown.pop(name)) for name in names))
            with formatter.section("More"):
                formatter.write_text(", ".join(sorted(shown)))
                formatter.write_text("./lab.py help VERB, or VERB --help, says what each does.")
        _examples(formatter, self.epilog)


def write_verb(command: Any, ctx: Any, formatter: Any, *, everything: bool = False) -> None:
    """Write the help of a verb; its rare options are left out unless ``everything`` is asked."""
    command.format_usage(ctx, formatter)
    command.format_help_text(ctx, formatter)
    panels = options_of(command, ctx)
    for panel, rows in panels.items():
        if everything or panel not in HIDDEN:
            _section(formatter, panel, rows)
    _examples(formatter, command.epilog)


def options_of(command: Any, ctx: Any) -> Mapping[str, Rows]:
    """How arguments and options are written, and what they mean, by the panel they are in."""
    panels: dict[str, Rows] = {"Arguments": [], SUBJECT: []}
    for each in command.get_params(ctx):
        is_argument = each.param_type_name == "argument"
        panel = each.rich_help_panel or ("Arguments" if is_argument else "Options")
        help_text = (each.help or "").rstrip(".")
        more = [f"{each.min}-{each.max}"] if each.max is not None else []
        if isinstance(each.default, str) and each.default:
            more.append(f"default: {each.default}")
        if each.envvar:
            more.append(f"${each.envvar}")
        if "--help" in each.opts:
            written, help_text = f"-h, --help, {EVERYTHING}", "show the usual options, or all"
        elif is_argument:
            written = each.metavar or each.name.upper()
        else:
            # The others of its names are former ones.
            written = each.opts[0].replace("--", "--[no-]" if each.secondary_opts else "--")
            if not each.is_flag:
                kind = each.metavar or str(each.display_type(ctx)).strip("<").partition(">")[0]
                written += f" {kind if each.metavar else kind.split()[0].upper()}"
        panels.setdefault(panel, []).append(
            (written, " ".join([help_text, *(f"({part})" for part in more)]).strip())
        )
    return {**panels, "Options": panels.pop("Options")}


def _section(formatter: Any, title: str, rows: Iterable[tuple[str, str]]) -> None:
    if rows := list(rows):
        with formatter.section(title):
            formatter.write_dl(rows)


def _examples(formatter: Any, epilog: str | None) -> None:
    title, *examples = str(epilog).split("\n\n")
    formatter.write(f"\n{title}\n")
    for each in examples:
        lines = textwrap.fill(each, formatter.width - 2, subsequent_indent="    ", **UNBROKEN)
        formatter.write(f"{textwrap.indent(lines, '  ')}\n")
