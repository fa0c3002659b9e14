"""The verb that shows what a session would make."""

from __future__ import annotations

import typer

from runs.request import Request
from verbs.fields import flattened
from verbs.options import Json

app = typer.Typer(add_completion=False)


@app.command("plan")
@flattened
def plan_verb(request: Request, as_json: Json = False) -> None:
    """Show the kernels, runs and checks that a session would make, in order, with an estimate of
    the time.
    """
    from verbs.actions import plan

    plan.show(request, as_json=as_json)
