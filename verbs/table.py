"""Every verb by name: where it is, and its help line; its module is imported when it is called.

What measures or reports needs scipy, pandas and matplotlib: seconds of CPU time that ``--help``,
``list`` and a mistyped verb must not cost.
"""

from __future__ import annotations

import importlib
import signal
from collections.abc import Mapping
from typing import Any

from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from verbs import examples

# Module in verbs/ by name of the verb, then the first sentence of the verb's own help.
VERBS = {
    "doctor": ("host", "Say what this host can do, and the command that mends what it cannot."),
    "list": ("host", "List experiments, workloads, guests, series, and kernels in the cache."),
    "clean": ("host", "Bound the cache: what was not used for longest goes first, fetched "
              "packages before all."),
    "plan": ("plan", "Show the kernels, runs and checks of a session in their order, and about "
             "how long."),
    "build": ("measuring", "Build the kernels of an experiment, as far as the cache lacks them."),
    "cache-key": ("measuring", "Name the kernels that an experiment needs in one key, without "
                  "building any."),
    "measure": ("measuring", "Boot and measure every run of the plan; print the session's folder."),
    "report": ("measuring", "Write a session's reports, and print it in one form; the exit code "
               "is the verdict's."),
    "run": ("measuring", "Build, measure and report; the exit code is the verdict's."),
    "tree": ("tree", "Measure commits of the kernel tree that you stand in, with and without "
             "them."),
    "suggest": ("suggest", "Rank the workloads by how much they execute of what a series changes."),
    "patch": ("patch", "Say in one line what is known of one patch; nothing where it was measured "
              "and all is well."),
    "sessions": ("sessions", "List sessions, newest first, with the verdicts that `report` gives."),
    "compare": ("compare", "Set two sessions of the same cases side by side, and judge the second "
                "against the first."),
    "gate": ("gate", "Exit 0, 1, 2, 3, 4 or 5 by a policy, and say why."),
    "bisect": ("bisect", "Find the patch of a series, or the commit of a range, that moved a "
               "metric."),
    "repro": ("repro", "Pack a session into one archive, or repeat one and compare every number."),
    "pages": ("pages", "Make a static site of the history: trends, nights, and any two nights "
              "compared."),
    "watch": ("watch", "Follow a mailbox: queue every new, complete series that touches the "
              "given paths."),
    "history": ("history", "Keep nights, and see what changed."),
    "completion": ("completion", "Print the completion of verbs, options and their values for a "
                   "shell to read."),
}  # fmt: skip
QUEUE = {
    "add": ("queue", "Queue series, each as an entry of its own; what is there already stays as "
            "it is."),
    "list": ("queue_list", "Show the queue in the order it is worked, then what came out."),
    "run": ("queue", "Measure what waits, one session and one report an entry, until nothing is "
            "left."),
    "remove": ("queue", "Take entries out of the queue; sessions stay, and no watch queues the "
               "same again."),
    "retry": ("queue", "Measure entries again; a session that the host ended goes on, any other "
              "is a new one."),
}  # fmt: skip
COVERAGE = {
    "show": ("coverage", "Show how many of a folder's functions each workload executes."),
    "add": ("coverage", "Record what the unpatched kernel of these sessions executed, for "
            "`suggest` and `--auto`."),
}  # fmt: skip
USERLAND = {
    "show": ("userland", "Name the programs that guests of this host get, by version and content."),
    "export": ("userland", "Write the programs that guests of this host get into one file; print "
               "their key."),
    "import": ("userland", "Give guests of this host the programs of another one, from now on."),
    "forget": ("userland", "Give guests this host's own programs again."),
}  # fmt: skip


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
        _add_examples(command, self.path)
        # An interrupt ended the imports, see lab.py; now there may be something to put away.
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return command


def add_verbs(group: TyperGroup) -> None:
    """Give the command line its verbs."""
    group.epilog = examples.text_of("")
    for verb in _lazy(VERBS):
        group.add_command(verb)
    for name, line, verbs in (
        ("queue", "Series that wait, measured one after the other.", QUEUE),
        ("coverage", "Which kernel functions the workloads execute.", COVERAGE),
        ("userland", "The programs of guests, and how two hosts get the same ones.", USERLAND),
    ):
        group.add_command(
            TyperGroup(
                name=name,
                help=line,
                no_args_is_help=True,
                epilog=examples.text_of(name),
                commands=_lazy(verbs, name),
            )
        )


def _add_examples(command: Any, path: str) -> None:
    command.epilog = examples.text_of(path)
    for name, below in getattr(command, "commands", {}).items():
        _add_examples(below, f"{path} {name}")


def _lazy(verbs: Mapping[str, tuple[str, str]], group: str = "") -> list[LazyVerb]:
    return [LazyVerb(name, module, line, group) for name, (module, line) in verbs.items()]
