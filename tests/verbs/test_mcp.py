"""The lab as tools of an agent, through the client of the protocol's own SDK."""

import asyncio
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.factory import ExactSession, stored
from tests.values import there
from verbs.options import CHECKOUT


def calls(server: Any, *tools: tuple[str, dict[str, Any]]) -> list[tuple[bool, str]]:
    """Whether each call of a tool of a server's failed, and its text."""
    # It takes a second, and every worker collects this file.
    from mcp.client import Client

    async def session() -> list[tuple[bool, str]]:
        answers = []
        async with Client(server) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert {name for name, _ in tools} <= names
            for name, arguments in tools:
                done = await client.call_tool(name, arguments)
                answers.append((bool(done.is_error), done.content[0].text))  # type: ignore[union-attr]
        return answers

    return asyncio.run(session())


def test_a_series_is_looked_up_and_a_session_is_read(tmp_path: Path) -> None:
    from mcp.client.stdio import StdioServerParameters, stdio_client  # as above

    session = ExactSession()
    stored(tmp_path / "one", session)
    (tmp_path / "one/functions.csv").write_text(
        "case,phase,unit,function,difference,low_95\n"
        "filemap-4k,4k,work,xas_load,-8.5,\n"
        "filemap-4k,4k,work,xas_find,9.5,1\n"
    )
    words = [str(CHECKOUT / "lab.py"), "mcp", "--sessions", str(tmp_path)]
    parameters = StdioServerParameters(command=sys.executable, args=words)
    (listed, advice), (read, verdicts), (ranked, first), (selected, row) = calls(
        # By default it is what stood for it when the client was imported: no file of a test's.
        stdio_client(parameters, errlog=there(sys.__stderr__)),
        ("sessions", {}),
        ("report", {"session": "one"}),
        ("explain", {"session": "one"}),
        ("explain", {"session": "one", "function": "xas_load"}),
    )
    assert [listed, read, ranked, selected] == [False] * 4
    assert [Path(each["folder"]).name for each in json.loads(advice)] == ["one"]
    assert (json.loads(verdicts)["state"], json.loads(verdicts)["experiment"]) == (
        "finished",
        session.manifest().experiment.name,
    )
    assert [each["function"] for each in json.loads(first)] == ["xas_find", "xas_load"]
    assert json.loads(row) == [
        {
            "case": "filemap-4k",
            "phase": "4k",
            "unit": "work",
            "function": "xas_load",
            "difference": "-8.5",
        }
    ]


def test_what_a_verb_refuses_is_an_error_of_the_tool(tmp_path: Path) -> None:
    from verbs.mcp import Tools, server_of  # as above

    refused: dict[tuple[str, str], str] = {
        ("wait", '{"session": "none"}'): "run began no such session",
        ("report", '{"session": "none"}'): "exit code 2: error: ",
        ("explain", '{"session": "none"}'): "functions.csv is not there",
        ("suggest", '{"series": "--help"}'): "exit code 2: error: ",
        ("run", '{"series": "configs/series/noop", "guest": "none"}'): "exit code 2: error: ",
    }
    with ExitStack() as running:
        server = server_of(Tools(tmp_path, running))
        answers = calls(server, *((tool, json.loads(given)) for tool, given in refused))
    for (failed, text), (call, message) in zip(answers, refused.items(), strict=True):
        assert failed, call
        assert message in text, call


def test_a_verb_that_takes_too_long_is_an_error_of_the_tool() -> None:
    from mcp.server.mcpserver.exceptions import ToolError

    from verbs.mcp import called  # as above

    with pytest.raises(ToolError, match="timed out after 0 s"):
        asyncio.run(called("sessions", timeout_s=0.01))


@pytest.mark.parametrize("many", [3, 3000])
def test_an_answer_that_is_shortened_can_be_read_and_says_so(many: int) -> None:
    from verbs.mcp import MOST_BYTES, shortened  # as above

    candidates = [{"case": f"{n:04}"} for n in range(many)]
    short = json.loads(shortened(json.dumps({"functions": ["xas_load"], "candidates": candidates})))
    assert len(json.dumps(short)) <= MOST_BYTES
    assert short.pop("shortened", False) == (many == 3000)
    kept = short.pop("candidates")
    assert kept == candidates[: len(kept)] != []
    assert short == {"functions": ["xas_load"]}
    *lines, last = shortened("a line\n" * many).splitlines()
    assert set(lines) == {"a line"}
    assert ("shortened" in last) == (many == 3000)
