"""How to repeat a session: the commands first, then the numbers that must come out."""

from analysis.many import SessionComparison
from analysis.model import Comparison
from reports.repeat import repeat, source_address
from results.record import SeriesRecord
from tests.analysis import counts_factory
from tests.analysis.factory import ExactSession
from tests.analysis.many_factory import Many
from tests.analysis.measured import compare, render, whole
from tests.analysis.wall_factory import WallSession
from tests.reports.test_headline import unfinished
from tests.values import but, spaced

NAME = "filemap-v4-20260101-000000"


def begun(*arguments: str, commit: str = "0123456789ab") -> SessionComparison:
    session = ExactSession()
    provenance = but(session.manifest().provenance, lab_commit=commit)
    return whole(session.compared(arguments=arguments, provenance=provenance))


def test_the_commands_are_those_of_the_session() -> None:
    again = repeat(begun("filemap-v4", "--set", "blocks=8", "--set", "title=a b"))
    assert again.lab == "Twinboot 0.1.0, commit 0123456789ab"
    assert again.commands == (
        "git checkout 0123456789ab",
        "./lab.py run filemap-v4 --set blocks=8 --set 'title=a b'",
        f"./lab.py repro sessions/{NAME}",
        f"./lab.py repro --check {NAME}.tar.gz",
    )
    assert again.results[0] == "filemap-4k 4k.bw: 259.019 -> 262.032 virtual MiB/s"
    assert len(again.results) == 3


def test_what_is_not_known_is_not_made_up() -> None:
    unknown = repeat(begun(commit="not found"))
    assert unknown.commands[0].startswith("./lab.py repro ")
    assert "not on record" in unknown.notes[0]
    dirty = repeat(begun("filemap-v4", commit="0123456789ab-dirty"))
    assert dirty.commands[0] == "git checkout 0123456789ab"
    assert "changes" in dirty.notes[0]
    assert repeat(unfinished()).results == ()


def test_the_folder_that_is_known_is_packed() -> None:
    again = repeat(begun(), "/srv/s1")
    assert again.commands[-2:] == ("./lab.py repro /srv/s1", "./lab.py repro --check s1.tar.gz")


def test_real_time_promises_no_digits() -> None:
    again = repeat(whole(WallSession(effect=0.03).compared()))
    assert not any("repro" in command for command in again.commands)
    assert "virtual" not in again.results[0]
    assert again.results[0].endswith("improvement")


def test_many_arms_have_a_result_a_pair() -> None:
    again = repeat(Many().compared())
    assert len(again.results) == 12
    assert again.results[0].startswith("vanilla -> sleepy: filemap-4k 4k.bw: 259.019 -> 247.255")


def test_a_pasted_block_is_the_commands() -> None:
    session = begun("--series", "s" * 50, "--set", "t=" + "u" * 60)
    pasted = render(session, "text").split("commit 0123456789ab.\n")[1]
    joined = [line for line in pasted.replace("\\\n", "").split("\n") if line.strip()]
    for command, line in zip(repeat(session).commands, joined, strict=False):
        assert line.split() == command.split()


def test_others_read_of_nothing_that_they_have_not_got() -> None:
    arguments = spaced(
        "--series /home/me/thread.mbox --source git:/home/me/linux@v7.3 "
        "--arm=git:../linux@v6.12 --set kernel.source=dir:~/linux --guest laptop"
    )
    manifest = begun(*arguments).manifest
    own = repeat(whole(compare(manifest, ExactSession().records())))
    assert "/home/me/thread.mbox" in own.commands[1]
    record = SeriesRecord(
        kind="file",
        origin="/home/me/thread.mbox",
        title="x",
        message_id="<2026.1@example.org>",
        patches=(),
    )
    posted = but(manifest, series=(record,))
    for of, name in ((manifest, "PATH/thread.mbox"), (posted, "2026.1@example.org")):
        again = repeat(whole(compare(of, ExactSession().records())), of_others=True)
        assert again.commands == (
            "git checkout 0123456789ab",
            f"./lab.py run --series {name} --source git:PATH/linux@v7.3 --arm=git:PATH/linux@v6.12 "
            "--set kernel.source=dir:PATH/linux --guest laptop",
        )
        assert any("PATH" in note for note in again.notes)


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
