#!/usr/bin/env python3
"""Twinboot: what did this series change, by how much, and can I believe it?"""

from __future__ import annotations

import os
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent
VENV = CHECKOUT / ".venv"
INTERRUPTED = 130

# ./lab.py is started by whatever python3 comes first; its packages, and
# virtme-ng's programs, are in the environment that `make setup` made.
if __name__ == "__main__" and (VENV / "bin" / "python").exists():
    os.environ["PATH"] = f"{VENV / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    if Path(sys.prefix).resolve() != VENV.resolve():
        os.execv(VENV / "bin" / "python", [str(VENV / "bin" / "python"), *sys.argv])  # noqa: S606

try:
    import pydantic  # noqa: F401
    import typer
except ImportError:
    print("lab.py: its Python packages are not installed\nnext: make setup", file=sys.stderr)
    raise SystemExit(3) from None

import logging
import signal
import traceback

from experiment.spec import SpecError
from host.errors import Exit, LabError
from reports.model import ReportError
from results.store import StoreError
from verbs import (
    bisect,
    compare,
    gate,
    history,
    look,
    measuring,
    pages,
    queue,
    repro,
    sessions,
    tree,
    watch,
)
from verbs.asked import log
from verbs.shorthand import expanded

app = typer.Typer(
    help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)
# A group without a name: its verbs are the lab's own.
for group in (look, measuring, tree, sessions, compare, gate, bisect, repro, pages, watch):
    app.add_typer(group.app)
app.add_typer(history.app, name="history", help="Keep nights, and see what changed.")
app.add_typer(queue.app, name="queue", help="Series that wait, measured one after the other.")


def main(arguments: list[str] | None = None) -> int:
    """Run one verb and return its exit code."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        words = expanded(sys.argv[1:] if arguments is None else arguments)
        status = app(args=words, standalone_mode=False)
        sys.stdout.flush()
    except SpecError as error:
        log("\n".join(f"error: {problem}" for problem in error.problems))
        return Exit.USAGE
    except (StoreError, ReportError) as error:
        log(f"error: {error}")
        return Exit.USAGE
    except LabError as error:
        log(f"error: {error}")
        return error.exit_code
    except typer.TyperException as error:
        log(f"error: {error.format_message() or 'no verb named'}\nnext: ./lab.py --help")
        return Exit.USAGE
    except (SystemExit, BrokenPipeError):
        # The reader of standard output has left; typer would say 1, a regression.
        # What is still buffered needs somewhere to go when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 128 + signal.SIGPIPE
    except OSError as error:
        log(f"error: {error}\nnext: ./lab.py doctor")
        return Exit.INFRASTRUCTURE
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except Exception:
        # A status of 1 would be read as a regression.
        log(f"{traceback.format_exc()}error: a bug in the lab; what was measured is on record")
        return Exit.INFRASTRUCTURE
    if status == INTERRUPTED:
        # typer turns the signal into this status without a word.
        log("interrupted; every finished run is on record: ./lab.py run --resume SESSION")
    return int(status or 0)


if __name__ == "__main__":
    sys.exit(main())
