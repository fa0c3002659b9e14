"""False sharing in a real guest: named where it is, gone where a member has its own line."""

import re
from pathlib import Path

import pytest

from analysis.explain.modelled import LINES, LinesComparison, MovedLines
from analysis.explain.scaling import EXPLANATION as SCALING
from reports.forms import read_comparison
from tests.integration.conftest import EndedSession, measured
from tests.integration.lab_process import CHECKOUT, records_of
from tests.values import spaced

# Two kernels, and runs of 15 CPU seconds and more.
pytestmark = [pytest.mark.guest, pytest.mark.long]
EXPERIMENT = str(CHECKOUT / "configs/experiments/false-sharing.toml")
SHORT = spaced(
    "--no-check --set guest=smoke --seeds 1 --set twins.0.blocks=1 --set twins.1.blocks=1"
)
LIMIT = "filemap_limit"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> EndedSession:
    """The counter beside what is read, and in a line of its own."""
    return measured(tmp_path_factory.mktemp("lines") / "session", EXPERIMENT, *SHORT)


@pytest.fixture(scope="module")
def lines(session: EndedSession) -> LinesComparison:
    (only,) = LINES.of(read_comparison(session.folder).comparisons[0])
    return only


def pair(lines: LinesComparison, taker: str, holder: str) -> MovedLines:
    return next(
        row for row in lines.pairs if (row.object, row.taker, row.holder) == (LIMIT, taker, holder)
    )


def test_every_run_is_valid(session: EndedSession) -> None:
    runs = records_of(session.folder)
    assert {record.failure for record in runs.values()} == {None}
    assert {record.findings for record in runs.values() if record.twin} == {()}


def test_false_sharing_has_a_name_and_is_gone_once_it_is_padded_away(
    lines: LinesComparison,
) -> None:
    assert lines.falsest is not None
    assert lines.falsest.object == LIMIT
    apart = lines.falsest.apart
    # Several times in ten folios somebody fetches again what never changed, and then nobody.
    assert apart.base > 0.1
    assert apart.patched < 0.01 * apart.base


def test_the_reader_takes_it_from_who_counts_by_other_bytes(lines: LinesComparison) -> None:
    reader = pair(lines, "filemap_fault", "__filemap_add_folio")
    assert (reader.mine, reader.theirs) == ((0, 7), (8, 15))
    assert reader.only_in == "base"
    # The counter itself is shared in earnest, and with its own line it still moves.
    writer = pair(lines, "__filemap_add_folio", "__filemap_add_folio")
    assert writer.all_lines.patched > 0.1
    assert writer.apart.patched == 0


def test_objects_of_slab_caches_and_page_structures_have_members(lines: LinesComparison) -> None:
    named = {row.object: row.all_lines.base for row in lines.objects if row.named}
    for member in ("xa_node.slots", "page._refcount", "page.flags"):
        assert named[member] > 0.5, member
    # The page cache's tree lock is taken for each folio, and lies in the inode.
    assert named["xfs_inode.i_vnode.i_data.i_pages.xa_lock"] > 0.5
    unnamed = next(row for row in lines.objects if row.object == "other kernel memory")
    assert unnamed.all_lines.base < 0.2 * lines.total.all_lines.base


def test_both_lengths_of_turns_say_so(lines: LinesComparison) -> None:
    assert (lines.metronome_ns, lines.other_ns) == (10_000, 20_000)
    assert lines.falsest is not None
    assert lines.falsest.other is not None
    assert lines.falsest.other[0] > lines.falsest.other[1] > 0


def test_the_report_names_it(session: EndedSession) -> None:
    text = " ".join(session.out.split())
    assert re.search(rf"; false sharing: {LIMIT} 0\.\d+ -> 0(\.0\d+)?\b", text)


def test_many_cpus_have_the_lines_that_came_while_the_lock_was_held(session: EndedSession) -> None:
    (scaling,) = SCALING.of(read_comparison(Path(session.folder)).comparisons[0])
    assert scaling.lines_counted
    assert 0 < scaling.lines[0] <= scaling.lines[1] < 20
