"""The session as JSON: one shape for any number of arms, docs/schema/report.schema.json.

It is the session's head, and a comparison for each pair of arms that is compared: of two arms
there is one.  Changes, thresholds and bounds are fractions; timelines are in the raw results,
functions beyond the listed ones in functions.csv, and call paths beyond those in stacks.csv.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel

from reports.lock_model import LockComparison
from reports.many import SessionComparison
from reports.model import CaseComparison, Comparison, FailureCount, MetricComparison, Pair
from results.record import Manifest, Record, as_json
from results.units import with_shown_units

# Of this form, apart from that of session folders: raised where a reader would break.
VERSION = 2
TITLE = "Twinboot report"
# What has a value in wall mode only, and is no key of an exact session's document.
OF_WALL = frozenset({"again", "again_values", "wall", "host_findings", "in_wall"})
# What need not be there: what one mode has, and the gate where none was asked.
OPTIONAL = OF_WALL | {"gates"}
WITH_WALL: tuple[type[BaseModel], ...] = (
    Comparison, MetricComparison, Pair, FailureCount, LockComparison,
)  # fmt: skip


class PairOfArms(Comparison):
    """One pair of arms: ``base`` and ``patched`` name them."""

    base: str
    patched: str


class Report(Record):
    """A session; ``comparisons`` are its pairs of arms, in the order that was asked for."""

    schema_version: Literal[2]
    manifest: Manifest
    arms: tuple[str, ...]
    comparisons: tuple[PairOfArms, ...]


def _without_wall(schema: Any) -> None:
    """Take the keys of wall mode out of a record that has nothing in them, in place."""
    if isinstance(schema, dict):
        for key in OF_WALL & schema.keys():
            if not schema[key]:
                del schema[key]
        for value in schema.values():
            _without_wall(value)
    elif isinstance(schema, list):
        for value in schema:
            _without_wall(value)


def _values(comparison: Comparison) -> dict[str, Any]:
    whole = as_json(
        comparison.model_copy(update={"manifest": with_shown_units(comparison.manifest)})
    )
    for attribution in whole["attributions"]:
        attribution["functions"] = attribution["functions"][: attribution["listed"]]
    for kinds in whole["kinds"]:
        kinds["rows"] = kinds["rows"][: kinds["listed"]]
    for interruptions in whole["interruptions"]:
        interruptions["rows"] = interruptions["rows"][: interruptions["listed"]]
    for stacks in whole["stacks"]:
        stacks["rows"] = [stacks["rows"][number] for number in stacks["listed"]]
        stacks["listed"] = list(range(len(stacks["rows"])))
    for case in whole["cases"]:
        del case["timelines"]
    if not comparison.gates:
        del whole["gates"]
    if comparison.wall is None:
        _without_wall({key: whole[key] for key in whole if key != "manifest"})
        del whole["wall"], whole["host_findings"]
    return whole


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def render(session: SessionComparison) -> str:
    """The document of a session, ending in a newline."""
    pairs = []
    for comparison in session.comparisons:
        values = _values(comparison)
        del values["manifest"]
        pairs.append(
            {"base": comparison.manifest.base, "patched": comparison.manifest.patched, **values}
        )
    return _text(
        {
            "schema_version": VERSION,
            "manifest": as_json(with_shown_units(session.manifest)),
            "arms": [arm.name for arm in session.arms],
            "comparisons": pairs,
        }
    )


def schema() -> dict[str, Any]:
    """The JSON schema, from the models that are rendered."""
    document = Report.model_json_schema(mode="serialization")
    definitions = document["$defs"]
    _drop(definitions[CaseComparison.__name__], "timelines")
    _drop(definitions[PairOfArms.__name__], "manifest")
    definitions.pop("TimelineComparison", None)
    for name in [*(model.__name__ for model in WITH_WALL), PairOfArms.__name__]:
        definition = definitions.get(name, {})
        if "required" in definition:
            definition["required"] = [key for key in definition["required"] if key not in OPTIONAL]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": TITLE,
        "description": " ".join((__doc__ or "").split()),
        **{key: value for key, value in document.items() if key not in ("title", "description")},
    }


def _drop(definition: dict[str, Any], key: str) -> None:
    """Take a key that is not rendered out of an object's definition."""
    del definition["properties"][key]
    definition["required"].remove(key)


def schema_text() -> str:
    """The schema as it is kept in docs/schema/, ending in a newline."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"
