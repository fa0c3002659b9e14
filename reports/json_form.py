"""The session as JSON: one shape for any number of arms, docs/schema/report.schema.json.

It is the session's head, and a comparison for each pair of arms that is compared: of two arms
there is one.  Changes, thresholds and bounds are fractions; functions beyond the listed ones are in
functions.csv, and call paths beyond those in stacks.csv.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, create_model

from analysis.explain import explanations
from analysis.explain.locks import LockComparison
from analysis.many import SessionComparison
from analysis.model import Comparison, FailureCount, Finding, MetricComparison, Pair
from analysis.native import TimedArms
from reports.sentences import of_finding
from results.record import Manifest, Record, as_json
from results.units import with_shown_units

# Of this form, apart from that of session folders: raised where a reader would break.
VERSION = 2
TITLE, PAIR = "Twinboot report", "PairOfArms"
REPORT = "A session; ``comparisons`` are its pairs of arms, in the order that was asked for."
# What has a value in wall mode only, and is no key of an exact session's document.
OF_WALL = frozenset({"again", "again_values", "wall", "host_findings", "in_wall"})
# What need not be there: what one mode has, and the gate where none was asked.
OPTIONAL = OF_WALL | {"gates"}
WITH_WALL: tuple[type[BaseModel], ...] = (
    MetricComparison,
    Pair,
    FailureCount,
    LockComparison,
)


class FindingInWords(Finding):
    """A finding with ``text``, the sentence that says it."""

    text: str


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
    shown = {"manifest": with_shown_units(comparison.manifest), "explained": {}}
    whole: dict[str, Any] = {}
    for key, value in as_json(comparison.model_copy(update=shown)).items():
        if key == "explained":
            for each in explanations():
                records = map(each.shortened, each.of(comparison))
                whole[each.name] = [as_json(record) for record in records]
        else:
            whole[key] = value
    for key in ("findings", "host_findings"):
        for value, finding in zip(whole[key], getattr(comparison, key), strict=True):
            value["text"] = of_finding(finding)
    if not comparison.gates:
        del whole["gates"]
    if comparison.wall is None:
        _without_wall({key: whole[key] for key in whole if key != "manifest"})
        del whole["wall"], whole["host_findings"]
    del whole["manifest"]
    return whole


def render(session: SessionComparison) -> str:
    """The document of a session, ending in a newline."""
    pairs = []
    for comparison in session.comparisons:
        arms = {"base": comparison.manifest.base, "patched": comparison.manifest.patched}
        pairs.append(arms | _values(comparison))
    document = {
        "schema_version": VERSION,
        "manifest": as_json(with_shown_units(session.manifest)),
        "arms": [arm.name for arm in session.arms],
        "comparisons": pairs,
        **({"timed": as_json(session.timed)} if session.timed else {}),
    }
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """The JSON schema, from the models that are rendered."""
    fields: dict[str, Any] = {}
    for name, field in Comparison.model_fields.items():
        if name == "explained":
            for each in explanations():
                record: Any = each.record
                fields[each.name] = tuple[record, ...], ()
        elif name != "manifest":
            fields[name] = field.annotation, field
    fields["findings"] = tuple[FindingInWords, ...], ...
    fields["host_findings"] = tuple[FindingInWords, ...], ()
    pair = create_model(
        PAIR,
        __base__=Record,
        __doc__="One pair of arms: ``base`` and ``patched`` name them.",
        **fields,
        base=(str, ...),
        patched=(str, ...),
    )
    report = create_model(
        "Report",
        __base__=Record,
        __doc__=REPORT,
        schema_version=(Literal[2], ...),
        manifest=(Manifest, ...),
        arms=(tuple[str, ...], ...),
        comparisons=(tuple[pair, ...], ...),
        timed=(TimedArms | None, None),
    )
    document = report.model_json_schema(mode="serialization")
    definitions = document["$defs"]
    for name in [*(model.__name__ for model in WITH_WALL), PAIR]:
        definition = definitions.get(name, {})
        if "required" in definition:
            definition["required"] = [key for key in definition["required"] if key not in OPTIONAL]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": TITLE,
        "description": " ".join((__doc__ or "").split()),
        **{key: value for key, value in document.items() if key not in ("title", "description")},
    }


def schema_text() -> str:
    """The schema as it is kept in docs/schema/, ending in a newline."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"
