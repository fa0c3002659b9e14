"""What is generated below ``docs/``: schemas, and the reference of the experiment file.

``python -m verbs.actions.reference [FOLDER]`` writes them, as ``make schema`` does.
"""

from __future__ import annotations

import sys
from pathlib import Path

from experiment.machine import MachineSpec
from experiment.reference import markdown, schema_of, schema_text
from experiment.spec import Experiment, Guest
from history.policy import Policy
from reports import json_form

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
EXPERIMENT_PAGE = """\
# The experiment file

<!-- Written by `make schema` from experiment/spec.py and its neighbours; edit those. -->

An experiment is a TOML file under `configs/experiments/`, or anywhere: `./lab.py run FILE`.
[`noop.toml`](../configs/experiments/noop.toml) is a short one,
[`filemap-v4.toml`](../configs/experiments/filemap-v4.toml) has correctness checks, diagnostic
runs and published figures,
[`reclaim-contention.toml`](../configs/experiments/reclaim-contention.toml) has arms.

    ./lab.py plan FILE                  # reads it, and names every mistake at once
    ./lab.py run FILE --set blocks=16   # any key; tables by dots: kernel.compiler=clang

What `docs/` says of some of these at length: [series](series.md), [kernels](kernels.md),
[correctness checks](correctness.md), [locks](locks.md) for diagnostic runs, and
[adding a workload](adding-a-workload.md).

**In an editor.** A first line `#:schema ../../docs/schema/experiment.schema.json` (a path from the
file, or the address of a copy) gives completion, explanations and errors in every editor that uses
Taplo, such as VS Code with "Even Better TOML". Guests (`configs/guests/`), machines
(`configs/machines/`) and `configs/gate.toml` have schemas of their own beside it.

A *name* has lower-case letters, digits, `-` and `_`, at most 64 of them.

"""


def generated() -> dict[str, str]:
    """Text by file, relative to ``docs/``."""
    experiment = schema_of(Experiment, "Twinboot experiment")
    return {
        "schema/report.schema.json": json_form.schema_text(),
        "schema/experiment.schema.json": schema_text(experiment),
        "schema/guest.schema.json": schema_text(schema_of(Guest, "Twinboot guest")),
        "schema/machine.schema.json": schema_text(schema_of(MachineSpec, "Twinboot machine")),
        "schema/gate.schema.json": schema_text(schema_of(Policy, "Twinboot CI policy")),
        "experiment-file.md": EXPERIMENT_PAGE + markdown(experiment),
    }


def write(docs: Path) -> None:
    """Write every file below ``docs``."""
    for name, text in generated().items():
        place = docs / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS)
