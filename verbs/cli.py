"""The command line: its verbs, their help and examples, options of dataclasses, and completion.

What measures or reports needs scipy, pandas and matplotlib: seconds of CPU time that ``--help``,
``list`` and a mistyped verb must not cost.  So a verb's module is imported when it is called, and
imports next to nothing until then.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import inspect
import os
import re
import signal
import textwrap
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer._completion_classes import completion_init
from typer._completion_shared import get_completion_script
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from experiment.series_name import split_range
from runs.request import RARELY, SUBJECT
from text import words
from verbs.options import WHERE, opt

# Module in verbs/ by name of the verb; what it does is said by its docstring there alone.
VERBS = {
    "doctor": "host",
    "run": "session",
    "loop": "loop",
    "suggest": "coverage",
    "plan": "session",
    "report": "session",
    "annotate": "session",
    "sessions": "sessions",
    "compare": "sessions",
    "bisect": "bisect",
    "list": "host",
    "watch": "queue",
    "gate": "history",
    "pages": "history",
    "build": "session",
    "measure": "session",
    "cache-key": "session",
    "repro": "sessions",
    "fetch": "host",
    "clean": "host",
    "completion": "cli",
    "answer": "answer",
    "recall": "recall",
    "mcp": "mcp",
}
# Verbs called by several words, in the module of the last before theirs; a help ends with two
# examples or more.
GROUPS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "history": (
        "Keep the results of nightly runs, and show what changed.",
        ("add", "show"),
        (
            "./lab.py history add sessions/NAME  # keep a session as a night",
            "./lab.py history show  # what changed",
        ),
    ),
    "queue": (
        "A queue of series, measured one after the other.",
        ("add", "list", "run", "remove", "retry"),
        (
            "./lab.py queue add v3.mbox  # queue a posting",
            "./lab.py queue run  # measure all waiting entries",
        ),
    ),
    "dev": (
        "For developers of workloads.",
        (),
        (
            "./lab.py dev coverage add latest  # what a session's workloads execute",
            "./lab.py dev coverage add sessions/NAME  # of a session that is named",
        ),
    ),
    "dev coverage": (
        "Which kernel functions the workloads execute.",
        ("add",),
        (
            "./lab.py dev coverage add latest  # the newest session",
            "./lab.py dev coverage add sessions/NAME  # after a workload was changed",
        ),
    ),
}
FIRST = (
    "./lab.py doctor  # what is missing on this host",
    "./lab.py run filemap-v4 --quick  # a first verdict",
)
EXAMPLES = "\n\nExamples:\n"


EVERYTHING = "--help-all"
# Options that ``--help`` leaves to ``--help-all``.
HIDDEN = (RARELY, WHERE)
# The verbs that are shown with what they do; the others by their names.
START = words("doctor run loop suggest plan report sessions compare bisect list")
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


# The text of a module, which is looked at for each of its verbs.
_source = functools.cache(
    lambda module: Path(__file__).with_name(f"{module}.py").read_text("utf-8")
)


class LazyVerb(TyperCommand):
    """A verb that is not imported yet: ``app`` of its module holds it, or it alone."""

    def __init__(self, name: str, module: str, group: str = "") -> None:
        _, _, below = _source(module).partition(f'@app.command("{name}")')
        line = below.partition('"""')[2].partition('"""')[0].partition("\n\n")[0]
        super().__init__(name, help=" ".join(line.split()))
        self.module = f"verbs.{module}"
        self.path = f"{group} {name}".strip()

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """The context of the verb itself, which is what is then invoked."""
        command = self.load()
        command.format_help = functools.partial(write_verb, command, everything=EVERYTHING in args)
        return command.make_context(info_name, args, parent=parent, **extra)

    def load(self) -> Any:
        """The verb itself; its examples, the last paragraph of its docstring, end its help."""
        command = _made(self.module, str(self.name))
        # An interrupt ended the imports, see lab.py; now there may be something to put away.
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return command


@functools.cache
def _made(module: str, name: str) -> Any:
    """A verb of a module as typer makes it of its functions, which takes 10 ms."""
    command: Any = get_command(importlib.import_module(module).app)
    command = getattr(command, "commands", {}).get(name, command)
    command.help, _, examples = command.help.partition(EXAMPLES)
    command.epilog = _epilog(examples.splitlines())
    return command


def add_verbs(group: TyperGroup) -> None:
    """Give the command line its verbs."""
    group.epilog = _epilog(FIRST)
    for name, module in VERBS.items():
        group.add_command(LazyVerb(name, module))
    for path, (line, verbs, examples) in GROUPS.items():
        above, _, name = path.rpartition(" ")
        parent = group.commands[above] if above else group
        assert isinstance(parent, TyperGroup)
        parent.add_command(
            VerbGroup(
                name=name,
                help=line,
                no_args_is_help=True,
                epilog=_epilog(examples),
                commands=[LazyVerb(verb, name, path) for verb in verbs],
            )
        )


def _epilog(examples: Iterable[str]) -> str:
    """The end of a help: an example a paragraph, what it is for as a comment."""
    lines = (" ".join(example.split()).replace(" # ", "  # ") for example in examples)
    return "\n\n".join(["Examples:", *lines])


class Without:
    """Fields that a verb has in its own way: ``Annotated[Request, Without("series")]``."""

    def __init__(self, *names: str) -> None:
        self.names = names


def flattened(verb: Callable[..., None]) -> Callable[..., None]:
    """A command of typer's in which each parameter that is a dataclass is given by its fields.

    A field carries its option: ``Annotated[TYPE, typer.Option(...)]``.  Everything is passed by
    name.  Two parameters that bring the same field are a mistake of the program.  Raises TypeError:
    two fields, or a field and a parameter, have one name.
    """
    hints = get_type_hints(verb, include_extras=True)
    kinds: dict[str, tuple[Any, list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(verb).parameters.values():
        hint = hints[parameter.name]
        plain, *more = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if not dataclasses.is_dataclass(plain):
            parameters.append(_option(parameter.name, hint, parameter.default))
            continue
        left_out = {name for each in more if isinstance(each, Without) for name in each.names}
        own = [each for each in dataclasses.fields(plain) if each.name not in left_out]
        kinds[parameter.name] = plain, [each.name for each in own]
        of_field = get_type_hints(plain, include_extras=True)
        parameters += [_option(each.name, of_field[each.name], each.default) for each in own]
    names = [parameter.name for parameter in parameters]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise TypeError(f"{verb.__name__}: declared twice: {', '.join(twice)}")

    @functools.wraps(verb)
    def command(**values: Any) -> None:
        for name, (kind, fields) in kinds.items():
            given = {field: values.pop(field) for field in fields}
            # typer knows tuples of a fixed length only, and makes lists of the others.
            values[name] = kind(
                **{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
            )
        verb(**values)

    # typer reads both, and must not find the verb's own behind the wrapper.
    del command.__wrapped__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _option(name: str, hint: Any, default: Any) -> inspect.Parameter:
    plain, *more = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if get_origin(plain) is tuple:
        plain = types.GenericAlias(list, (get_args(plain)[0],))
        default = list(default)
    if more:
        plain = Annotated[plain, *more]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=plain
    )


def expanded(arguments: Sequence[str]) -> list[str]:
    """The arguments with the verb that a short form leaves out; any others as they are.

    ``A..B`` and ``--dirty`` are ``run A..B`` and ``run --dirty``; ``help VERB`` is ``VERB --help``;
    ``report --json=full`` is ``report --form=json``.
    """
    first, *rest = arguments or [""]
    parts = split_range(first)
    if first == "help":
        return [*rest, "--help"]
    if first == "report":
        return ["report", *("--form=json" if word == "--json=full" else word for word in rest)]
    if first == "--dirty" or (parts is not None and not parts[0]):
        return ["run", *arguments]
    return list(arguments)


# The environment variable by which a shell asks; the same whatever the program is called.
VARIABLE = "_TWINBOOT_COMPLETE"
PROGRAM = "twinboot"
app = typer.Typer(add_completion=False)


class Shell(enum.StrEnum):
    """Shells that have a completion, and the reader of manual pages."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"
    man = "man"


@app.command("completion")
def completion_verb(
    ctx: typer.Context,
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh, fish or man")],
    program: Annotated[
        str, opt("--program NAME", "the command name that you use for it")
    ] = PROGRAM,
) -> None:
    """Print the completion script for bash, zsh or fish; for man, the manual page.

    In ~/.bashrc: eval "$(twinboot completion bash)". In ~/.zshrc, behind compinit:
    eval "$(twinboot completion zsh)". In ~/.config/fish/config.fish:
    twinboot completion fish | source. twinboot completion man | man -l - reads the page.

    Examples:
    ./lab.py completion bash  # what ~/.bashrc evaluates
    ./lab.py completion fish --program lab.py  # for another name of the program
    """
    if shell is Shell.man:
        print(man_page(ctx.find_root(), program))
    else:
        print(get_completion_script(prog_name=program, complete_var=VARIABLE, shell=shell.value))


def man_page(root: Any, program: str) -> str:
    """All verbs with their options, as man(7) reads it."""

    def plain(text: str) -> str:
        # A backslash, and a dot or an apostrophe that begins a line, would be a request.
        return re.sub(r"^(?=[.'])", r"\\&", text.replace("\\", r"\e"), flags=re.M)

    lines = [f".TH {program.upper()} 1", ".SH NAME", f"{program} \\- {plain(root.command.help)}"]
    lines += [".SH SYNOPSIS", f"{program} VERB [OPTIONS]", ".SH VERBS"]
    waiting = list(root.command.commands.items())
    while waiting:
        path, command = waiting.pop(0)
        inner = getattr(command, "commands", {})
        waiting = [(f"{path} {name}", each) for name, each in inner.items()] + waiting
        verb = command.load() if isinstance(command, LazyVerb) else command
        lines += [f".SS {path}", *plain(verb.help).replace("\n\n", "\n.PP\n").splitlines()]
        for rows in () if inner else options_of(verb, root).values():
            for written, text in rows:
                lines += [".TP", plain(written), plain(text)]
        for example in str(verb.epilog).split("\n\n")[1:]:
            lines += [".PP", plain(example)]
    return "\n".join(lines)


def is_completing() -> bool:
    """Whether a shell started this program to complete a command line."""
    return bool(os.environ.get(VARIABLE))


def complete(group: TyperGroup) -> None:
    """Print what may come next, and end with the status that the shell expects.

    Raises SystemExit: always.
    """
    completion_init()
    group.main(args=[], prog_name=PROGRAM, complete_var=VARIABLE)
