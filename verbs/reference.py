"""What is generated below ``docs/``: schemas, the experiment file's reference, what is executed.

``python -m verbs.reference [FOLDER]`` writes them, as ``make schema`` does.  A file's keys, for
editors (JSON schema) and for readers (Markdown), come from its model alone: what a key means stands
below its field, as a string; names, types, defaults and allowed values are the model's own.  So
neither can say anything that the file's reader does not hold to.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from experiment.frozen import MOST, Name
from experiment.machine import MachineSpec
from experiment.spec import Experiment, Guest
from history.policy import Policy
from reports import json_form
from reports.sessions import ListedSession
from results.coverage import by_folder
from runs.coverage import FOLDERS, GOALS, shipped

# Taplo, which most editors use for TOML, knows no newer draft.
DRAFT = "http://json-schema.org/draft-07/schema#"
NAME_PATTERN = TypeAdapter(Name).json_schema()["pattern"]
Schema = dict[str, Any]


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """What each key of a table means, in one line: the string below its field.

    Raises ValueError: a key has none.
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(model)))
    (body,) = (node.body for node in tree.body if isinstance(node, ast.ClassDef))
    texts: dict[str, str] = {}
    for field, below in pairwise(body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=key)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                texts[key] = " ".join(text.split())
    missing = sorted(model.model_fields.keys() - texts.keys())
    if missing:
        raise ValueError(f"{model.__name__}: no meaning below {', '.join(missing)}")
    return texts


def models_of(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """The model and those of all tables in it, by name."""
    models = {model.__name__: model}
    waiting: list[Any] = [model]
    while waiting:
        annotation = waiting.pop()
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            models[annotation.__name__] = annotation
            waiting += [field.annotation for field in annotation.model_fields.values()]
        else:
            waiting += getattr(annotation, "__args__", ())
    return models


def schema_of(model: type[BaseModel], title: str) -> Schema:
    """The JSON schema of a file of this model.

    Keys that only the lab writes are left out.  What depends on several keys, or on the files
    of the catalogues, is no part of it: the lab checks that when it reads the file.
    """
    schema = model.model_json_schema()
    tables: dict[str, Schema] = schema.pop("$defs", {})
    models = models_of(model)
    tables[model.__name__] = schema
    for name, table in tables.items():
        means = meanings(models[name])
        table["description"] = " ".join((models[name].__doc__ or "").split())
        table.pop("title", None)
        table["properties"] = {
            key: _key(value, means[key])
            for key, value in table["properties"].items()
            if not value.get("readOnly")
        }
    del tables[model.__name__]
    return {"$schema": DRAFT, "title": title, **schema, "definitions": dict(sorted(tables.items()))}


def _key(value: Schema, meaning: str) -> Schema:
    """One key as editors want it: without null, which TOML has not, and with its meaning."""
    plain = _plain(value)
    default = plain.pop("default", None)
    if "$ref" in plain:
        # What stands beside a reference is not read (draft 7, 8.3).
        plain = {"allOf": [plain]}
    if default is not None and not isinstance(default, dict):
        plain["default"] = default
    return {"description": meaning.replace("``", "`"), **plain}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    options = [option for option in value.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        rest = {key: each for key, each in value.items() if key != "anyOf"}
        return _plain({**rest, **options[0]})
    schema = {
        key: _plain(each)
        for key, each in value.items()
        # Bounds that all numbers have are none that anybody writes.
        if key != "title"
        and not (key in ("minimum", "maximum") and abs(each) >= min(MOST.values()))
    }
    if "patternProperties" in schema:
        schema["additionalProperties"] = False
    if "$ref" in schema:
        schema["$ref"] = schema["$ref"].replace("#/$defs/", "#/definitions/")
    return schema


def tables_of(schema: Schema) -> Iterator[tuple[Schema, tuple[str, ...]]]:
    """Every table of a file with the places where it may stand, the file itself first.

    A place is written as in TOML: ``[kernel]``, ``[[arms]]``, ``arms.kernel``.
    """
    places: dict[str, list[str]] = {}
    waiting = [("", schema)]
    while waiting:
        above, table = waiting.pop(0)
        for key, value in table["properties"].items():
            name, shape = _table_named(value)
            if not name:
                continue
            place = f"{above}.{key}" if above else key
            is_placed = name in places
            places.setdefault(name, []).append(shape.format(place))
            if not is_placed:
                waiting.append((place, schema["definitions"][name]))
    yield schema, ()
    for name, standing in places.items():
        yield schema["definitions"][name], tuple(standing)


def _table_named(value: Schema) -> tuple[str, str]:
    """The table that a key holds, and how its place is written; empty where it holds none."""
    reference = value.get("$ref") or next(
        (part["$ref"] for part in value.get("allOf", ()) if "$ref" in part), ""
    )
    if reference:
        return str(reference).rpartition("/")[2], "[{}]"
    if isinstance(value.get("items"), dict):
        name, _ = _table_named(value["items"])
        return name, "[[{}]]"
    if isinstance(value.get("additionalProperties"), dict):
        name, shape = _table_named(value["additionalProperties"])
        return name, shape.format("{}.NAME")
    return "", ""


def markdown(schema: Schema) -> str:
    """The tables of a file, each as a heading, a line, and a table of its keys."""
    parts: list[str] = []
    for table, places in tables_of(schema):
        titles = ", ".join(f"`{place}`" for place in places)
        parts.append(f"## {titles or 'At the top of the file'}")
        parts.append(table["description"].replace("``", "`"))
        rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
        required = table.get("required", ())
        for key, value in table["properties"].items():
            default = value.get("default")
            shown = "" if default in (None, "", []) else json.dumps(default, ensure_ascii=False)
            shown = "required" if key in required else f"`{shown}`" * bool(shown)
            cells = (f"`{key}`", _type(value), shown, value["description"])
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"


def _type(value: Schema) -> str:
    """What may stand behind a key, in words of TOML."""
    name, shape = _table_named(value)
    if name:
        return "tables" if shape == "[[{}]]" else "table" if shape == "[{}]" else "tables by name"
    if "enum" in value:
        return ", ".join(f"`{each}`" for each in value["enum"])
    kind = value.get("type")
    if kind == "array":
        return f"array of {_type(value['items'])}"
    if kind == "object":
        inner = value.get("additionalProperties") or next(iter(value["patternProperties"].values()))
        return f"table of {_type(inner)} by name"
    if kind == "string":
        return "name" if value.get("pattern") == NAME_PATTERN else "text"
    if kind == "boolean":
        return "`true`, `false`"
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = (f"{sign} {value[key]}" for key, sign in signs.items() if key in value)
    return " ".join([{"integer": "integer", "number": "number"}[str(kind)], *bounds])


DOCS = Path(__file__).resolve().parent.parent / "docs"
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
[correctness checks](correctness.md), [reading a report](reading.md) for diagnostic runs, and
[adding a workload](adding-a-workload.md).

**In an editor.** A first line `#:schema ../../docs/schema/experiment.schema.json` (a path from the
file, or the address of a copy) gives completion, explanations and errors in every editor that uses
Taplo, such as VS Code with "Even Better TOML". Guests (`configs/guests/`), machines
(`configs/machines/`) and `configs/gate.toml` have schemas beside it.

A *name* has lower-case letters, digits, `-` and `_`, at most 64 of them.

"""
COVERAGE_PAGE = """\
# How much of the kernel the workloads execute

<!-- Written by `make schema` from configs/coverage/, which `dev coverage add` writes. -->

Functions of {release} that are built in, without init code, those that the workloads together
execute, and those of each one ([how they were counted](coverage.md)). *Without tracing* are shares
of the functions that are not made of a trace event, which run while somebody traces alone. What
nothing executes are the rows of [configs/coverage](../configs/coverage) without a number.

"""


def coverage_page() -> str:
    """The table of what workloads execute, beside the goals."""
    coverage = shipped()
    workloads = sorted({case.workload for case in coverage.cases})
    rows = [("", "built in", "executed", "", "without tracing", "goal", *workloads)]
    rows.append(("---",) * len(rows[0]))
    for row in by_folder(coverage, FOLDERS):
        goal = f"{GOALS[row.folder]} %" if row.folder in GOALS else ""
        counts = (str(row.by_workload.get(name, 0)) for name in workloads)
        shares = (f"{100 * share:.0f} %" for share in (row.share, row.untraced_share))
        rows.append(
            (f"`{row.folder}`", str(row.functions), str(row.executed), *shares, goal, *counts)
        )
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return COVERAGE_PAGE.format(release=coverage.release) + table


def generated() -> dict[str, str]:
    """Text by file, relative to ``docs/``."""
    experiment = schema_of(Experiment, "Twinboot experiment")
    schemas = {
        "experiment": experiment,
        "guest": schema_of(Guest, "Twinboot guest"),
        "machine": schema_of(MachineSpec, "Twinboot machine"),
        "gate": schema_of(Policy, "Twinboot CI policy"),
    }
    verdicts = {"title": "Twinboot verdicts"} | ListedSession.model_json_schema(
        mode="serialization"
    )
    return {
        "schema/report.schema.json": json_form.schema_text(),
        "schema/verdicts.schema.json": json.dumps(verdicts, indent=1) + "\n",
        **{
            f"schema/{name}.schema.json": json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
            for name, schema in schemas.items()
        },
        "experiment-file.md": EXPERIMENT_PAGE + markdown(experiment),
        "coverage-table.md": coverage_page(),
    }


def write(docs: Path) -> None:
    """Write every file below ``docs``."""
    for name, text in generated().items():
        place = docs / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS)
