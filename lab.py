#!/usr/bin/env python3
"""Twinboot: what did this series change, by how much, and can I believe it?"""

from __future__ import annotations

import os
import signal
import sys

# Nothing is begun before a verb is imported: until then an interrupt just ends the process
# (verbs/cli.py), where Python would print a traceback.
if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from importlib.util import find_spec
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent
VENV = CHECKOUT / ".venv"
INTERRUPTED = 130

if __name__ == "__main__":
    # ./lab.py is started by whatever python3 comes first; its packages, and
    # virtme-ng's programs, are in the environment that `make setup` made.
    if (VENV / "bin" / "python").exists():
        os.environ["PATH"] = f"{VENV / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
        if Path(sys.prefix).resolve() != VENV.resolve():
            # The next interpreter has its own handler until it is here: it gets one later.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            python = str(VENV / "bin" / "python")
            os.execv(python, [python, *sys.argv])  # noqa: S606
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

if not all(map(find_spec, ("pydantic", "typer"))):
    print("lab.py: its Python packages are not installed\nnext: make setup", file=sys.stderr)
    raise SystemExit(3)

import errno
import logging
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from errors import Exit, LabError
from host import facts
from host.process import collect_seldom
from verbs.cli import EVERYTHING, VerbGroup, add_verbs, complete, expanded, is_completing
from verbs.invocation import log, write_out

# What the system says of a path that was named, and not of the host.
OF_PATH = {
    errno.EACCES,
    errno.EEXIST,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}
HELP = {"help_option_names": ["-h", "--help", EVERYTHING]}


def show_version(requested: bool) -> None:
    """Print the lab's version and its checkout's commit, and end."""
    if requested:
        write_out(f"twinboot {facts.lab_version()} ({facts.lab_commit()})")
        raise typer.Exit()


def before_any_verb(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", is_eager=True, callback=show_version),
    ] = False,
) -> None:
    """Options of the lab as a whole."""


def command_line() -> TyperGroup:
    """The lab with its verbs."""
    app = typer.Typer(
        name="lab.py",
        cls=VerbGroup,
        help=__doc__,
        no_args_is_help=True,
        add_completion=False,
        context_settings=HELP,
        callback=before_any_verb,
    )
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    add_verbs(group)
    return group


def main(arguments: list[str] | None = None) -> int:
    """Run one verb and return its exit code."""
    collect_seldom()
    if os.getuid() == 0:
        # Root's boxes are a user's that owns nothing: what they read has to be readable for all.
        os.umask(os.umask(0o077) & ~0o055)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if is_completing():
        complete(command_line())
    try:
        words = expanded(sys.argv[1:] if arguments is None else arguments)
        status = command_line().main(args=words, standalone_mode=False)
        sys.stdout.flush()
    except LabError as error:
        log(error.for_terminal)
        return error.exit_code
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        lab = context.find_root().info_name or "" if context else ""
        verb = context.command_path.removeprefix(lab).strip() if context else " ".join(words[:1])
        message = in_words(error)
        if message.startswith("Usage:"):
            write_out(message)
            message = "no verb named"
        log(f"error: {message}\nnext: {' '.join(filter(None, ('./lab.py', verb, '--help')))}")
        return Exit.USAGE
    except (SystemExit, BrokenPipeError):
        # The reader of standard output has left; typer would say 1, a regression.
        # What is still buffered needs somewhere to go when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        status = INTERRUPTED
    except Exception as error:
        return failed(error, sys.argv[1:] if arguments is None else arguments)
    if status == INTERRUPTED:
        # typer turns the signal into this status without a word; how to go on is for the verb.
        log("interrupted")
    return int(status or 0)


def in_words(error: typer.TyperException) -> str:
    """What is wrong with the command line: values in the words of experiment files."""
    cause: Any = error.__cause__
    if not hasattr(cause, "errors"):
        return error.format_message()
    # Imported here: --help would wait for it.
    from experiment.frozen import from_validation

    problem, *_ = from_validation(cause)
    option: Any = error
    return problem.line(option.param.opts[0])


def failed(error: Exception, arguments: Sequence[str]) -> int:
    """Say what went wrong that is no :class:`LabError`, and return the exit code.

    An EOFError comes as typer's Abort, and nobody interrupted anything.
    """
    if isinstance(error, OSError):
        if option := option_of(error, arguments):
            log(f"error: {option}: {error.strerror}\nnext: name a place that can be used")
            return Exit.USAGE
        log(f"error: {error}\nnext: ./lab.py doctor")
        return Exit.INFRASTRUCTURE
    # A status of 1 would be read as a regression.
    log(f"{traceback.format_exc()}error: a bug in the lab; what was measured is on record")
    return Exit.INFRASTRUCTURE


def option_of(error: OSError, arguments: Sequence[str]) -> str:
    """The option and the path given with it that the system refused; empty where it is neither.

    The path in the error may be that of a file to be made in it, or of a folder above it.
    """
    if error.errno not in OF_PATH or not isinstance(error.filename, str):
        return ""
    refused = Path(error.filename).absolute()
    option = ""
    for word in arguments:
        name, equals, value = word.partition("=")
        if word.startswith("-"):
            option = name
        text = value if word.startswith("-") and equals else word
        path = Path(text).absolute()
        if path == refused or path in refused.parents or refused in path.parents:
            return f"{option} {text}".strip()
    return ""


if __name__ == "__main__":
    sys.exit(main())
