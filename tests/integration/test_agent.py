"""An agent's whole loop: a slow patch, the function that it made slow, the patch mended."""

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from analysis.explain.locks import EXPLANATION as MEASURED_LOCKS
from reports.forms import read_comparison
from tests.integration.lab_process import CHECKOUT

pytestmark = [pytest.mark.guest, pytest.mark.usefixtures("kept_runs")]
XA_LOCK = "i_pages.xa_lock"
SLOW = CHECKOUT / "configs/series/slow-add-locked-4096"
HOW = {"workloads": "filemap-4k", "guest": "smoke", "seeds": 8, "quick": True, "wait_s": 1}


def require_known_cause(folder: Path) -> None:
    """What was added to one function is counted there, with its lock held."""
    compared = read_comparison(folder).comparisons[0]
    of_folios = next(each for each in compared.attributions if each.unit == "folio")
    first = next(row for row in of_folios.functions if not row.user)
    assert (first.name, first.file) == ("__filemap_add_folio", "mm/filemap.c")
    # 4096 no-ops, once a folio but where an old entry is split.
    assert first.instructions.difference == pytest.approx(4096, rel=0.05)
    # They are executed with the tree's lock held, and that is the lock that moved.
    locks = MEASURED_LOCKS.of(compared)[0]
    assert locks.moved_most == XA_LOCK
    (row,) = [row for row in locks.rows if row.label == XA_LOCK]
    (adds,) = [site for site in row.sites if site.function == "__filemap_add_folio"]
    assert adds.taken.base == adds.taken.patched == 1.0
    assert adds.held.difference == pytest.approx(4096, rel=0.05)


def test_a_slow_patch_is_mended_and_measured_again(tmp_path: Path) -> None:
    # They take a second, and every worker collects this file.
    from mcp import StdioServerParameters
    from mcp.client import Client

    series, sessions = tmp_path / "series", tmp_path / "sessions"
    shutil.copytree(SLOW, series)

    async def loop() -> None:
        lab = [str(CHECKOUT / "lab.py"), "mcp", "--sessions", str(sessions)]
        reached: list[float] = []

        async def reach(progress: float, total: float | None, message: str | None) -> None:
            reached.append(progress)

        async with Client(StdioServerParameters(command=sys.executable, args=lab)) as client:

            async def tool(name: str, **arguments: Any) -> Any:
                done = await client.call_tool(name, arguments, progress_callback=reach)
                assert not done.is_error, done.content
                return done.content[0].text  # type: ignore[union-attr]

            async def measured() -> Any:
                answer = json.loads(await tool("run", series=str(series), **HOW))
                while answer["state"] == "running":
                    text = await tool("wait", session=answer["session"], wait_s=30)
                    answer = json.loads(text)
                return answer

            slow = await measured()
            assert (slow["state"], slow["exit_code"]) == ("finished", 1)
            assert slow["primary"][0]["verdict"] == "regression"
            assert reached
            diff = await tool("annotate", session=slow["session"])
            require_known_cause(sessions / slow["session"])
            (added,) = [line for line in diff.splitlines() if ".rept 4096" in line]
            assert float(added.split()[0]) > 0
            (first, *_) = json.loads(await tool("explain", session=slow["session"]))
            assert first["function"] == "__filemap_add_folio"
            for patch in series.glob("*.patch"):
                # What was added is now a comment, on as many lines.
                lines = patch.read_text().splitlines(keepends=True)
                patch.write_text(
                    "".join(
                        "+\t/* mended */\n" if each.startswith("+\t") else each for each in lines
                    )
                )
            mended = await measured()
            assert mended["exit_code"] == 0

    asyncio.run(loop())
