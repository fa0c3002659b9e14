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
    "pages": ("pages", "Write a static web site of the history: trends, nights, and comparisons of "
              "any two nights."),
    "watch": ("watch", "Watch a mailbox, and queue every new, complete series that changes files "
              "under the paths."),
    "history": ("history", "Keep the results of nightly runs, and show what changed between them."),
    "completion": ("completion", "Print the completion script for bash, zsh or fish."),
}  # fmt: skip
QUEUE = {
    "add": ("queue", "Add series to the queue, one entry each; entries that exist are not "
            "changed."),
    "list": ("queue_list", "Show waiting entries in order, then finished ones with their results."),
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
        ("queue", "A queue of series, measured one after the other.", QUEUE),
        ("coverage", "Which kernel functions the workloads execute.", COVERAGE),
        ("workload", "Workloads of the catalogue.", WORKLOAD),
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
