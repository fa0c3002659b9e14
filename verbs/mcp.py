"""The lab's verbs as tools of an agent, by the Model Context Protocol on standard input and output.

Every tool is a call of ``lab.py`` in a process of its own, so that an agent gets what a user gets,
exit code included.  A session goes on while nobody waits for it, and can be finished with
``run --resume`` where the server was ended meanwhile.
"""

from __future__ import annotations

import asyncio
import csv
import json
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from errors import LabError, UsageError
from host.process import Process, ended, run, spawn
from results import door
from verbs.options import CHECKOUT, SESSIONS, opt

app = typer.Typer(add_completion=False)
# Of one answer.
MOST_BYTES = 20_000
MOST_ROWS = 40
# As reports.forms writes it, which takes seconds to import.
FUNCTIONS_FILE = "functions.csv"
POLL_S = 0.2
TIMEOUT_S = 300.0
# Where compiled objects are missing; as kernels.build waits for a build.
COMPILING_TIMEOUT_S = 4 * 3600.0
# The exit codes of ./lab.py report whose answer is a verdict.
JUDGED = (0, 1, 3, 4, 5)
INSTRUCTIONS = """\
Measures what a Linux kernel patch series changes, by exact counts of instructions in emulated
guests.  Order of work: suggest (nothing is built), run (minutes; returns a session, for wait where
it is not finished), report, annotate, explain FUNCTION, then mend the series and run again.
A verdict other than unchanged, improvement or regression is no answer yet: read its reason.
"""


@app.command("mcp")
def mcp_verb(
    sessions: Annotated[
        Path, opt("--sessions FOLDER", "where the sessions of the agent are kept")
    ] = SESSIONS,
) -> None:
    """Serve an agent or an editor, by the Model Context Protocol over standard input and output.

    Series are built in a sandbox, as those from mail are.  The tools are suggest, run, wait,
    stop, report, annotate, explain and sessions; each says what it takes.

    Examples:
    ./lab.py mcp  # the command that a client's configuration names
    ./lab.py mcp --sessions ~/agent  # with another folder for sessions
    """
    if sessions.exists() and not sessions.is_dir():
        what, step = "is no folder", "name a folder, or one that is to be made"
        raise UsageError(what, where=f"--sessions {sessions}", next_step=step)
    with ExitStack() as running:
        server_of(Tools(sessions.absolute(), running)).run()


def server_of(tools: Tools) -> MCPServer:
    """The server of these tools, each by its name and with its docstring."""
    server = MCPServer("twinboot", instructions=INSTRUCTIONS)
    for tool in (
        tools.suggest,
        tools.run,
        tools.wait,
        tools.stop,
        tools.report,
        tools.annotate,
        tools.explain,
        tools.sessions,
    ):
        server.tool(structured_output=False)(tool)
    return server


@dataclass
class Tools:
    """What an agent may call; ``running`` ends the sessions under way with the server."""

    folder: Path
    running: ExitStack
    started: dict[str, Process] = field(default_factory=dict)

    async def suggest(self, series: str, source: str = "") -> str:
        """Rank workloads by how much they execute of what a series changes; nothing is built.

        series: folder or file of patches, message-id, or commits A..B.
        source: the kernel, as deb:linux-source-6.12 or git:PATH@REF; for A..B git:PATH.
        """
        return await called("suggest", "--json", *option("source", source), "--", series)

    async def run(
        self,
        ctx: Context[Any],
        series: str = "",
        source: str = "",
        tree: str = "",
        commits: str = "",
        dirty: bool = False,
        workloads: str = "",
        guest: str = "",
        seeds: int = 0,
        quick: bool = False,
        wait_s: float = 50.0,
    ) -> str:
        """Build both kernels, measure them, and return the verdicts; takes minutes.

        Give either series (folder or file of patches, message-id), or tree (a kernel's git tree)
        with commits (as HEAD~2..), with dirty also its uncommitted changes.
        source: the kernel that a series applies to, as deb:linux-source-6.12.
        workloads: names, with commas between; by default those that execute the change.
        guest: smoke is the smallest. seeds: as many, and no more. quick: one workload, no checks.
        Returns after wait_s seconds at the latest; wait goes on with the session that it names.
        """
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        name = f"agent-{stamp}-{len(self.started) + 1}"
        words = [
            "run",
            "--sandbox",
            f"--session={self.folder / name}",
            *option("series", series),
            *option("source", source),
            *option("tree", tree),
            *option("workloads", workloads),
            *option("guest", guest),
            *option("seeds", str(seeds or "")),
            *(["--dirty"] if dirty else []),
            *(["--quick"] if quick else []),
            *(["--", commits] if commits else []),
        ]
        self.folder.mkdir(parents=True, exist_ok=True)
        # In the thread of the event loop: a child ends with the thread that started it.
        child = spawn(command(*words), log=self._log(name))
        self.started[name] = self.running.enter_context(child)
        return await self.wait(ctx, name, wait_s)

    async def wait(self, ctx: Context[Any], session: str, wait_s: float = 50.0) -> str:
        """Wait up to wait_s seconds for a session that run began: its verdicts, or its progress."""
        process = self._started(session)
        loop = asyncio.get_running_loop()
        deadline, size, line = loop.time() + wait_s, 0, ""
        log = self._log(session)
        while not ended(process) and loop.time() < deadline:
            await asyncio.sleep(POLL_S)
            if log.stat().st_size > size:
                size, lines = log.stat().st_size, self._printed(session).splitlines()
                line = lines[-1]
                await ctx.report_progress(len(lines), message=line)
        if not ended(process):
            return json.dumps({"session": session, "state": "running", "progress": line})
        exit_code = process.wait()
        if exit_code not in JUDGED or not (self.folder / session / "manifest.json").is_file():
            raise ToolError(failure(exit_code, self._printed(session)))
        return await self.report(session)

    async def stop(self, session: str) -> str:
        """Stop a session that run began; what it has measured stays on record."""
        process = self._started(session)
        process.terminate()
        while not ended(process):
            await asyncio.sleep(POLL_S)
        return json.dumps({"session": session, "state": "stopped", "exit_code": process.wait()})

    async def report(self, session: str, form: str = "") -> str:
        """The verdicts, intervals and exit code of a session, or its report in a form as text.

        session: a name, a folder, or latest. form: text, markdown or letter.
        """
        place = self._place(session)
        if form:
            return await called("report", *option("form", form), "--", place, judged=True)
        answer = json.loads(await called("report", "--json", "--", place, judged=True))
        return json.dumps({"session": session, "state": "finished", **answer})

    async def annotate(self, session: str) -> str:
        """The series as a diff with how often each line ran per read or operation (emulated).

        On base to the left, on patched to the right; ##### marks code that never ran.
        Takes minutes where files that the series touches have to be compiled again.
        """
        words = ["annotate", "--form=markdown", "--", self._place(session)]
        return await called(*words, timeout_s=COMPILING_TIMEOUT_S)

    async def explain(self, session: str, function: str = "") -> str:
        """What a function of the kernel, or those that moved most, executed in both kernels.

        Instructions, calls, loads and stores are per unit of work of the case and phase (emulated).
        """
        place = Path(self._place(session))
        try:
            lines = door.read(place, FUNCTIONS_FILE).decode().splitlines()
        except FileNotFoundError:
            what = f"{place / FUNCTIONS_FILE} is not there: report --write makes it"
            raise ToolError(what) from None
        rows = [{k: v for k, v in row.items() if v} for row in csv.DictReader(lines)]
        if function and not any(row["function"] == function for row in rows):
            raise ToolError(f"{function}: no function of this name was executed in {session}")
        rows = [row for row in rows if not function or row["function"] == function]
        rows.sort(key=lambda row: -abs(float(row["difference"])))
        while len(text := json.dumps(rows[:MOST_ROWS])) > MOST_BYTES:
            rows = rows[: min(len(rows), MOST_ROWS) // 2]
        return text

    async def sessions(self, limit: int = 10) -> str:
        """The newest sessions, with their verdicts."""
        return await called("sessions", "--json", f"--limit={limit}", "--", str(self.folder))

    def _started(self, session: str) -> Process:
        if session not in self.started:
            known = ", ".join(self.started) or "none"
            raise ToolError(f"{session}: run began no such session; it began {known}")
        return self.started[session]

    def _log(self, session: str) -> Path:
        return self.folder / f"{session}.log"

    def _printed(self, session: str) -> str:
        return door.read(self.folder, self._log(session).name).decode(errors="replace")

    def _place(self, session: str) -> str:
        return str(self.folder / session) if (self.folder / session).is_dir() else session


def command(*words: str) -> list[str]:
    """The command line of the lab with these words."""
    return [sys.executable, str(CHECKOUT / "lab.py"), *words]


def option(name: str, value: str) -> list[str]:
    """An option with its value in one word, so that no value is read as another option."""
    return [f"--{name}={value}"] if value else []


async def called(*words: str, judged: bool = False, timeout_s: float = TIMEOUT_S) -> str:
    """What a verb prints, cut to an answer's size.
    Raises ToolError: it failed, with its error, next step and exit code; or it timed out.
    """
    try:
        done = await asyncio.to_thread(run, command(*words), timeout_s=timeout_s, check=False)
    except LabError as error:
        raise ToolError(str(error)) from error
    if done.returncode not in (JUDGED if judged else (0,)) or not done.stdout:
        raise ToolError(failure(done.returncode, done.stderr))
    return shortened(done.stdout)


def shortened(text: str) -> str:
    """An answer that fits: of JSON the longest list is halved until it does, of text the end goes.

    Either says so, by a key ``shortened`` or in a last line.
    Raises ToolError: it is JSON without a list that could be shorter.
    """
    if len(text.encode()) <= MOST_BYTES:
        return text
    try:
        answer = json.loads(text)
    except ValueError:
        kept = text.encode()[:MOST_BYTES].decode(errors="ignore").rpartition("\n")[0]
        return f"{kept}\n(shortened: this answer is longer than {MOST_BYTES} bytes)"
    if not isinstance(answer, dict):
        answer = {"items": answer}
    lists = [value for value in answer.values() if isinstance(value, list)]
    while len(json.dumps(answer)) > MOST_BYTES:
        longest = max(lists, key=lambda each: len(json.dumps(each)), default=[])
        if not longest:
            raise ToolError(f"the answer is longer than {MOST_BYTES} bytes")
        del longest[len(longest) // 2 :]
        answer["shortened"] = True
    return json.dumps(answer)


def failure(exit_code: int, log: str) -> str:
    """What a tool answers for a verb that failed: the end of its log, from the error on."""
    at = log.rfind("error: ")
    return f"exit code {exit_code}: {log[at if at >= 0 else -1000 :].strip()[:MOST_BYTES]}"
