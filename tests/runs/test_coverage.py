"""Workloads for a series, and repeats of runs: the shipped counts, and a choice."""

from pathlib import Path

import pytest

from errors import SpecError
from experiment.ad_hoc import NotYetKnownError, NoWorkloadError, from_series, load_auto
from kernels.diff import changed_functions
from kernels.series import read_patch
from results.coverage import Coverage, CoveredCase, suggest
from runs.coverage import automatic, shipped, workloads_for
from runs.resolved import catalogue as known
from tests.values import data
from workloads.spec import load_catalogue

SERIES = Path(__file__).resolve().parents[2] / "configs/series"


def texts(name: str) -> tuple[dict[str, str], tuple[str, ...]]:
    patches = sorted((SERIES / name).glob("*.patch"))
    files = tuple(file for path in patches for file in read_patch(path).files)
    return {path.name: path.read_text() for path in patches}, files


@pytest.mark.parametrize(
    ("series", "best", "changed"),
    data(__file__, "the_workload_of_each_shipped_series_is_suggested"),
)
def test_the_workload_of_each_shipped_series_is_suggested(
    series: str, best: str, changed: str
) -> None:
    patches, files = texts(series)
    names = [name for text in patches.items() for name in changed_functions(text[1], text[0])]
    assert changed in names
    suggestion = suggest(shipped(), names, files)
    assert suggestion.candidates[0].case.workload == best


def test_automatic_takes_what_can_be_measured_together() -> None:
    assert automatic(*texts("filemap-walks")) == ("filemap-4k", "filemap-thp")
    assert automatic(*texts("slow-reclaim-34")) == ("filemap-4k", "swap")


def test_automatic_never_leaves_out_the_best() -> None:
    """It is measured with what executes a function that it does not."""
    assert automatic(*texts("iomap-whole-folio")) == ("filemap-thp", "mapped-file")


def test_automatic_takes_no_more_than_five() -> None:
    chosen = automatic(*texts("slow-slab-200"))
    assert len(chosen) == 5
    assert {"memory", "syscalls"} <= {*chosen}


def test_fewer_are_those_of_the_best_scores() -> None:
    patches, files = texts("slow-slab-200")
    names = [name for text in patches.items() for name in changed_functions(text[1], text[0])]
    suggestion = suggest(shipped(), names, files)
    best = workloads_for(suggestion, files, most=2)
    assert len(best) == 2
    assert {*best} < {*workloads_for(suggestion, files)}
    assert suggestion.candidates[0].case.case in best


def test_automatic_has_a_kernel_built_with_additions_only_for_what_nothing_else_shows() -> None:
    assert automatic(*texts("vmalloc-per-page")) == ("vmalloc",)
    chosen = automatic(*texts("reclaim-backoff"))
    assert not any(load_catalogue()[name].additions for name in chosen)


def test_automatic_names_the_variant_where_the_workload_alone_executes_next_to_nothing() -> None:
    assert automatic(*texts("published/p04-tmpfs-no-offsets")) == ("metadata:tmpfs",)
    assert automatic(*texts("published/p18-jbd2-committed-lock")) == ("direct:ext4",)
    # ext4's reads execute a little more of it than those of XFS do.
    assert automatic(*texts("slow-add-16")) == ("filemap-4k", "filemap-thp")


def test_a_variant_is_measured_by_the_phases_that_it_has() -> None:
    catalogue = known(SERIES.parents[1])
    (plain,) = from_series(
        ["configs/series/noop"], workloads=["metadata"], catalogue=catalogue
    ).cases
    (tmpfs,) = from_series(
        ["configs/series/noop"], workloads=["metadata:tmpfs"], catalogue=catalogue
    ).cases
    assert (tmpfs.name, tmpfs.variant) == ("metadata:tmpfs", "tmpfs")
    phases = catalogue.workloads["metadata"]["tmpfs"]
    assert tmpfs.primary == tuple(m for m in plain.primary if m.partition(".")[0] in phases)
    with pytest.raises(SpecError, match="did you mean 'tmpfs'"):
        from_series(["configs/series/noop"], workloads=["metadata:tmps"], catalogue=catalogue)


def test_headers_are_chosen_for_by_name() -> None:
    assert automatic({}, ["include/linux/huge_mm.h"]) == ("filemap-thp",)
    with pytest.raises(SpecError, match=r"net/core/dev\.c"):
        automatic({}, ["net/core/dev.c"])


def test_of_a_header_that_is_measured_which_is_compiled_otherwise() -> None:
    series = texts("published/p07-folio-batch-15")
    with pytest.raises(NotYetKnownError, match=r"pagevec\.h: .* known once both kernels are built"):
        automatic(*series)
    code = ("lru_add", "folio_batch_move_lru", "shrink_folio_list")
    chosen = automatic(*series, code=lambda: code)
    assert chosen == automatic({}, ["mm/swap.c"], code=lambda: code)
    ranked = suggest(shipped(), code, series[1])
    assert ranked.candidates[0].case.workload in chosen
    # Nothing is: the usual ones, of which the session says that they run the same code.
    assert automatic(*series, code=lambda: ()) == ()
    with pytest.raises(NoWorkloadError, match="no workload executes bdi_put") as never:
        automatic(*series, code=lambda: ("bdi_put",))
    assert not isinstance(never.value, NotYetKnownError)


def test_nothing_is_built_where_the_lines_of_a_patch_say_it() -> None:
    def compare() -> None:
        pytest.fail("kernels are asked for")

    automatic(*texts("filemap-walks"), code=compare)
    # What built kernels cannot tell either: a C file that none of them has, and one that no
    # workload runs anything of.
    for file in ("sound/core/pcm.c", "drivers/pci/vpd.c"):
        hunk = "@@ -1,2 +1,2 @@ int of_it(void)\n-\tone();\n+\ttwo();\n }\n"
        with pytest.raises(NoWorkloadError, match=file) as refused:
            automatic({"0001.patch": f"--- a/{file}\n+++ b/{file}\n{hunk}"}, [file], code=compare)
        assert not isinstance(refused.value, NotYetKnownError)


def test_where_only_an_experiment_executes_it_that_is_named() -> None:
    rows = {("mm/a.c", "f"): {"matrix:x": 1.0}, ("mm/a.c", "g"): {}}
    only = CoveredCase(
        case="matrix:x",
        workload="matrix",
        experiment="thp-matrix",
        guest="smoke",
        ios=1.0,
        instructions=1.0e09,
        run_cpu_s=1.0,
    )
    coverage = Coverage("deb:linux", "6.12", (only,), rows)
    with pytest.raises(SpecError, match="run thp-matrix"):
        workloads_for(suggest(coverage, ["f"], ["mm/a.c"]), ["mm/a.c"])
    with pytest.raises(SpecError, match="no workload executes g"):
        workloads_for(suggest(coverage, ["g"], ["mm/a.c"]), ["mm/a.c"])


def test_shipped_counts_are_of_workloads_that_are_there() -> None:
    # redis was not measured yet: docs/workloads.md.
    known = {*load_auto().workloads} - {"redis"}
    counted = {case.workload for case in shipped().cases}
    assert known <= counted
