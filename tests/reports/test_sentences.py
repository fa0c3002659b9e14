"""Findings are data, and each has its sentence."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from analysis.model import Comparison, Finding
from reports import sentences

ANALYSIS = Path(__file__).resolve().parents[2] / "analysis"


def test_every_kind_of_finding_has_a_sentence() -> None:
    calls = [
        node
        for path in ANALYSIS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    ]
    makers = {"_warning", "_note", "make"}
    kinds = [
        keyword.value
        for call in calls
        for keyword in call.keywords
        if keyword.arg == "kind" and getattr(call.func, "id", "") == "Finding"
    ]
    kinds += [call.args[1] for call in calls if getattr(call.func, "id", "") in makers]
    used = {kind.value for kind in kinds if isinstance(kind, ast.Constant)}
    assert used == set(sentences.KINDS)


def test_a_finding_is_its_values(normal: Comparison) -> None:
    [exact] = [f for f in normal.findings if f.kind == "exactness"]
    assert exact.values["status"] == "bit-exact"
    assert sentences.of_finding(exact) == f"bit-exact: {exact.values['detail']}"


@pytest.mark.parametrize(("many", "more"), [(5, ""), (7, " and 2 more")])
def test_long_lists_end_in_a_number(many: int, more: str) -> None:
    names = [f"f{number}" for number in range(many)]
    values = {"executed": [], "not_executed": names, "changed": many}
    finding = Finding(level="note", scope="series", kind="executed", values=values)
    assert f"f4{more})" in sentences.of_finding(finding)
