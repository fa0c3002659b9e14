"""Many changes at once: the table of workloads, files and addresses."""

import pytest

from analysis.many import SessionComparison, compare_session
from analysis.model import Comparison
from reports.document import Table
from reports.repeat import source_address
from reports.sections import metrics
from reports.sections.view import View
from tests.analysis import counts_factory
from tests.analysis.many_factory import workloads
from tests.analysis.measured import measured, render
from tests.values import but


@pytest.fixture(scope="module")
def many() -> SessionComparison:
    return compare_session(measured(*workloads(9)))


def test_the_changes_stand_before_the_arms(many: SessionComparison) -> None:
    [table] = [
        block for block in metrics.workloads(View(many, drawn=False)) if isinstance(block, Table)
    ]
    assert [column.head for column in table.columns] == [
        "workload",
        "",
        "change",
        *(arm.name for arm in many.arms),
    ]
    assert {len(row.cells) for row in table.rows} == {len(table.columns)}


def test_files_add_up_to_their_part(counted: Comparison) -> None:
    for attribution in counted.headlines:
        for group in attribution.groups:
            assert sum(file.functions for file in group.files) == group.functions
            whole = sum(file.instructions.difference for file in group.files)
            assert whole == pytest.approx(group.instructions.difference)


def test_a_function_leads_to_its_definition_in_the_base_kernel(counted: Comparison) -> None:
    arm = counted.manifest.arms[0]
    assert arm.name == counted.manifest.base
    version = arm.kernel.release.partition("-")[0]
    address = source_address(counted.manifest, "xas_load.isra.0")
    assert address == f"https://elixir.bootlin.com/linux/v{version}/A/ident/xas_load"
    assert source_address(counted.manifest, "[unknown]") == ""
    assert source_address(counted.manifest, '"><script>') == ""


def test_of_a_release_a_function_leads_to_its_line(counted: Comparison) -> None:
    manifest = counted.manifest
    base, patched = manifest.arms
    index = source_address(manifest, "xas_load")
    line = index.removesuffix("A/ident/xas_load") + "source/lib/xarray.c#L237"
    # The series is taken off the release for the base, which has no lines of a release then.
    assert base.kernel.patches
    assert not patched.kernel.patches
    assert source_address(manifest, "xas_load", "lib/xarray.c", (240, 237)) == line
    assert source_address(manifest, "xas_load", "lib/xarray.c", (240, 0)) == index
    swapped = but(
        manifest, arms=(but(base, kernel=patched.kernel), but(patched, kernel=base.kernel))
    )
    assert source_address(swapped, "xas_load", "lib/xarray.c", (237, 240)) == line
    # Nor has a commit, whatever release it is after.
    kernel = but(manifest.experiment.kernel, source=f"git:linux@{'ab' * 20}")
    experiment = but(manifest.experiment, kernel=kernel)
    of_commit = but(manifest, experiment=experiment)
    assert source_address(of_commit, "xas_load", "lib/xarray.c", (240, 237)) == index
    assert source_address(manifest, "xas_load", "lib/x array.c", (240, 237)) == index


def test_lines_of_both_arms_are_known(counted: Comparison) -> None:
    rows = {row.name: row for each in counted.attributions for row in each.functions}
    assert rows["xas_load"].lines == tuple(counts_factory.LINE.values())
    assert {row.lines for row in rows.values() if row.user} == {(0, 0)}
    page = render(counted, "html")
    assert f"/source/{rows['xas_load'].file}#L{rows['xas_load'].lines[1]}" in page
