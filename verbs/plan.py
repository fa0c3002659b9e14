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
    """Show the kernels, runs and checks of a session in their order, and about how long."""
    from verbs.actions import plan

    plan.show(request, as_json=as_json)
