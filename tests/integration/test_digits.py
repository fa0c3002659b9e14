"""README's digits: its table is that of a recorded session, and guests here give them again."""

from pathlib import Path

import pytest

from experiment.load import load_experiment
from host.facts import CHECKOUT
from kernels.cache import Kernel
from reports import forms
from results.session import MeasuredSession, open_session
from runs.local import Options
from runs.resolved import catalogue, resolve
from tests.integration.machines import measure_judged
from tests.values import but
from tests.waiting import completed

RECORD = CHECKOUT / "configs" / "gallery" / "filemap-v4.tar.xz"
# What a guest is made of and on; the rest of a host is not in its numbers.
MADE_BY = ("qemu", "fio", "gcc", "ld", "busybox", "mkfs.xfs", "libc")


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("record")
    completed(["tar", "-xJf", RECORD, "-C", folder])
    return folder / "filemap-v4"


def rows(text: str) -> list[list[str]]:
    """The words of each result in a text."""
    return [line.split() for line in text.splitlines() if " %  [" in line]


@pytest.fixture(scope="module")
def recorded(record: Path) -> list[list[str]]:
    return rows("\n".join(forms.answer_lines(forms.read_comparison(record))))


def samples(session: MeasuredSession) -> dict[str, dict[str, float]]:
    """What the first seed gave on each arm of each case."""
    return {
        run.run_id: dict(run.samples or {})
        for run in session.records
        if run.block == 0 and not run.twin and not run.repeat
    }


@pytest.mark.parametrize("page", ["README.md", "docs/reading.md", "docs/tutorial.md"])
def test_results_that_a_page_shows_are_those_of_the_record(
    recorded: list[list[str]], page: str
) -> None:
    shown = rows((CHECKOUT / page).read_text(encoding="utf-8"))
    assert shown
    assert [row for row in shown if row not in recorded] == []
    assert page != "README.md" or shown == recorded


@pytest.mark.guest
def test_guests_here_give_the_digits_of_the_record(
    record: Path, kernels: dict[str, Kernel], options: Options, tmp_path: Path
) -> None:
    """To the last one, wherever what the guests are made of is the same."""
    experiment = load_experiment(
        Path("filemap-v4"), overrides=["blocks=1"], catalogue=catalogue(CHECKOUT)
    )
    made = resolve(
        but(experiment, twins=(), check=None), checkout=options.checkout, cache=options.cache
    )
    measure_judged(made, options, tmp_path)
    kept, here = open_session(record, counted=False), open_session(tmp_path, counted=False)
    tools = [session.manifest.provenance.tools for session in (kept, here)]
    others = [name for name in MADE_BY if tools[0].get(name) != tools[1].get(name)]
    if others:
        pytest.skip(f"made by another {', '.join(others)}: {[tools[1].get(n) for n in others]}")
    configs = [[arm.kernel.config_sha256 for arm in s.manifest.arms] for s in (kept, here)]
    assert configs[0] == configs[1], "another configuration than the record's"
    assert samples(kept) == samples(here)
    assert len(samples(here)) == 4
