"""The verb that prints a shell's completion of this program; pressing TAB runs ``complete``."""

from __future__ import annotations

import enum
import os
from typing import Annotated

import typer
from typer._completion_classes import completion_init
from typer._completion_shared import get_completion_script
from typer.core import TyperGroup

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
