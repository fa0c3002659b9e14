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
import signal
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer._completion_classes import completion_init
from typer._completion_shared import get_completion_script
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from experiment.series_name import split_range

# Module in verbs/ by name of the verb, then the first sentence of the verb's own help.
VERBS = {
    "doctor": ("host", "Check this host for what the lab needs, and print the command that fixes "
               "each problem."),
    "list": ("host", "List experiments, workloads, guests, series, and kernels in the cache."),
    "fetch": ("host", "Fetch a kernel of a newer Debian than this host's; nothing is installed."),
    "clean": ("host", "Shrink the cache: downloaded packages go first, then what was not used for "
              "longest."),
    "plan": ("plan", "Show the kernels, runs and checks that a session would make, in order, with "
             "an estimate of the time."),
    "build": ("session", "Build the kernels of an experiment that are not in the cache."),
    "cache-key": ("session", "Print one key for all kernels that an experiment needs, for a CI "
                  "cache; builds none."),
    "measure": ("session", "Boot and measure every run of the plan; print the session's folder."),
    "report": ("session", "Write the reports of a session and print one of them; the exit code "
               "is the verdict's."),
    "run": ("session", "Build kernels, measure, and print the report; the exit code is the "
            "verdict's."),
    "tree": ("tree", "Measure commits of the kernel tree in the current folder against the "
             "commit before them."),
    "suggest": ("suggest", "Rank the workloads by how much they execute of what a series changes."),
    "patch": ("patch", "Print what past sessions say of one patch, in one line."),
    "sessions": ("sessions", "List sessions with their verdicts, newest first."),
    "compare": ("sessions", "Compare two sessions of the same cases: the second against the "
                "first."),
    "gate": ("gate", "Turn a session or the newest night of a history into an exit code by a CI "
             "policy."),
    "bisect": ("bisect", "Find the patch of a series, or the commit of a range, that changed a "
               "metric."),
    "repro": ("repro", "Pack a session into an archive, or repeat an archived session and compare "
              "every number."),
    "pages": ("gate", "Write a static web site of the history: trends, nights, and comparisons of "
              "any two nights."),
    "watch": ("watch", "Watch a mailbox, and queue every new, complete series that changes files "
              "under the paths."),
    "history": ("history", "Keep the results of nightly runs, and show what changed between them."),
    "completion": ("cli", "Print the completion script for bash, zsh or fish."),
}  # fmt: skip
QUEUE = {
    "add": ("queue", "Add series to the queue, one entry each; entries that exist are not "
            "changed."),
    "list": ("queue", "Show waiting entries in order, then finished ones with their results."),
    "run": ("queue", "Measure all waiting entries, one session and one report each."),
    "remove": ("queue", "Remove entries from the queue; their sessions are kept, and watch does "
               "not queue them again."),
    "retry": ("queue", "Measure entries again; a session that the host interrupted is resumed, "
              "others start anew."),
}  # fmt: skip
COVERAGE = {
    "show": ("coverage", "Show how many of a folder's functions each workload executes."),
    "add": ("coverage", "Record what the unpatched kernel of these sessions executed, for "
            "`suggest` and `--series`."),
}  # fmt: skip
WORKLOAD = {
    "new": ("workload", "Write a workload that runs: its catalogue file, a program of one "
            "operation, and a test."),
}  # fmt: skip
# Two examples or more end every help; those of a verb are the last paragraph of its docstring.
GROUPS = {
    "": (
        "./lab.py doctor  # what is missing on this host",
        "./lab.py run filemap-v4 --quick  # a first verdict",
    ),
    "queue": (
        "./lab.py queue add v3.mbox  # queue a posting",
        "./lab.py queue run  # measure all waiting entries",
    ),
    "coverage": (
        "./lab.py coverage show mm fs/iomap  # how much of two folders is executed",
        "./lab.py coverage add sessions/NAME  # after a workload was changed",
    ),
    "workload": (
        "./lab.py workload new sockets  # begin a workload",
        "./lab.py list  # the workloads that are there",
    ),
    "history": (
        "./lab.py history add sessions/NAME  # keep a session as a night",
        "./lab.py history show  # what changed",
    ),
}
EXAMPLES = "\n\nExamples:\n"


class LazyVerb(TyperCommand):
    """A verb that is not imported yet: ``app`` of its module holds it, or is it as a group."""

    def __init__(self, name: str, module: str, line: str, group: str = "") -> None:
        super().__init__(name, help=line)
        self.module = f"verbs.{module}"
        self.path = f"{group} {name}".strip()

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """The context of the verb itself, which is what is then invoked."""
        return self.load().make_context(info_name, args, parent=parent, **extra)

    def load(self) -> Any:
        """The verb itself."""
        command: Any = get_command(importlib.import_module(self.module).app)
        command = getattr(command, "commands", {}).get(self.name, command)
        command.help = command.help or self.help
        _with_examples(command, self.path)
        # An interrupt ended the imports, see lab.py; now there may be something to put away.
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return command


def add_verbs(group: TyperGroup) -> None:
    """Give the command line its verbs."""
    group.epilog = _epilog(GROUPS[""])
    for verb in _lazy(VERBS):
        group.add_command(verb)
    for name, line, verbs in (
        ("queue", "A queue of series, measured one after the other.", QUEUE),
        ("coverage", "Which kernel functions the workloads execute.", COVERAGE),
        ("workload", "Workloads of the catalogue.", WORKLOAD),
    ):
        group.add_command(
            TyperGroup(
                name=name,
                help=line,
                no_args_is_help=True,
                epilog=_epilog(GROUPS[name]),
                commands=_lazy(verbs, name),
            )
        )


def _with_examples(command: Any, path: str) -> None:
    """Have the examples behind a verb's options, where its docstring has them last."""
    command.help, _, examples = (command.help or "").partition(EXAMPLES)
    command.epilog = _epilog(GROUPS.get(path) or examples.splitlines())
    for name, below in getattr(command, "commands", {}).items():
        _with_examples(below, f"{path} {name}")


def _epilog(examples: Sequence[str]) -> str:
    """The end of a help, for typer's markup: an example a line, what it is for as a comment."""
    lines = (" ".join(example.split()).replace(" # ", "  # ") for example in examples)
    return "\n\n".join(["Examples:", *lines])


def _lazy(verbs: Mapping[str, tuple[str, str]], group: str = "") -> list[LazyVerb]:
    return [LazyVerb(name, module, line, group) for name, (module, line) in verbs.items()]


class Without:
    """Fields that a verb has in its own way: ``Annotated[Request, Without("series")]``."""

    def __init__(self, *names: str) -> None:
        self.names = names


def flattened(verb: Callable[..., None]) -> Callable[..., None]:
    """A command of typer's in which each parameter that is a dataclass is given by its fields.

    A field carries its option: ``Annotated[TYPE, typer.Option(...)]``.  Everything is passed by
    name.  Two parameters that bring the same field are a mistake of the program.

    Raises:
        TypeError: two fields, or a field and a parameter, have one name.
    """
    signature, hints = inspect.signature(verb), get_type_hints(verb, include_extras=True)
    plain_types: dict[str, tuple[Any, tuple[str, ...]]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        plain, left_out = _without(hints[parameter.name])
        if not dataclasses.is_dataclass(plain):
            parameters.append(_option(parameter.name, hints[parameter.name], parameter.default))
            continue
        of_field = get_type_hints(plain, include_extras=True)
        own_fields = [each for each in dataclasses.fields(plain) if each.name not in left_out]
        plain_types[parameter.name] = (plain, tuple(each.name for each in own_fields))
        parameters += [_option(each.name, of_field[each.name], each.default) for each in own_fields]
    names = [parameter.name for parameter in parameters]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise TypeError(f"{verb.__name__}: declared twice: {', '.join(twice)}")

    @functools.wraps(verb)
    def command(**values: Any) -> None:
        for name, (kind, fields) in plain_types.items():
            values[name] = kind(**{field: _frozen(values.pop(field)) for field in fields})
        verb(**values)

    # typer reads both, and must not find the verb's own behind the wrapper.
    del command.__wrapped__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _without(hint: Any) -> tuple[Any, tuple[str, ...]]:
    """The type behind an annotation, and the fields that the verb leaves out."""
    if get_origin(hint) is not Annotated:
        return hint, ()
    plain, *more = get_args(hint)
    return plain, tuple(name for each in more if isinstance(each, Without) for name in each.names)


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


def _frozen(value: Any) -> Any:
    # typer knows tuples of a fixed length only, and makes lists of the others.
    return tuple(value) if isinstance(value, list) else value


TREE = "tree"
DIRTY = "--dirty"
BASE = "--base"


def expanded(arguments: Sequence[str]) -> list[str]:
    """The arguments with the verb that a short form leaves out; any others as they are.

    ``A..B`` and ``--dirty`` are ``tree A..B`` and ``tree --dirty``; ``run BRANCH --base REF``
    is ``tree BRANCH --base REF``.
    """
    first, *rest = [*arguments[:1], *arguments[1:]] or [""]
    parts = split_range(first)
    if first == DIRTY or (parts is not None and not parts[0]):
        return [TREE, *arguments]
    if first == "run" and any(word == BASE or word.startswith(f"{BASE}=") for word in rest):
        return [TREE, *rest]
    return list(arguments)


# The environment variable by which a shell asks; the same whatever the program is called.
VARIABLE = "_TWINBOOT_COMPLETE"
PROGRAM = "twinboot"

app = typer.Typer(add_completion=False)


class Shell(enum.StrEnum):
    """Shells that have a completion."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


@app.command("completion")
def completion_verb(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish")],
    program: Annotated[
        str,
        typer.Option("--program", metavar="NAME", help="the command name that you use for the lab"),
    ] = PROGRAM,
) -> None:
    """Print the completion script for bash, zsh or fish.

    In ~/.bashrc: eval "$(twinboot completion bash)". In ~/.zshrc, behind compinit:
    eval "$(twinboot completion zsh)". In ~/.config/fish/config.fish:
    twinboot completion fish | source.

    Examples:
    ./lab.py completion bash  # what ~/.bashrc evaluates
    ./lab.py completion fish --program lab.py  # for another name of the program
    """
    print(get_completion_script(prog_name=program, complete_var=VARIABLE, shell=shell.value))


def is_completing() -> bool:
    """Whether a shell started this program to complete a command line."""
    return bool(os.environ.get(VARIABLE))


def complete(group: TyperGroup) -> None:
    """Print what may come next, and end with the status that the shell expects.

    Raises:
        SystemExit: always.
    """
    completion_init()
    group.main(args=[], prog_name=PROGRAM, complete_var=VARIABLE)
