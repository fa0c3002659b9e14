"""The robot's form and the letter: columns, what is called a commit, and no look of hardware."""

import re
import shlex
from pathlib import Path

import pytest

from analysis.many import SessionComparison
from analysis.model import Comparison
from experiment.spec import ArmSpec, KernelSpec
from reports import lkp, repeat
from results.record import ArmRecord, Manifest
from tests.analysis import factory
from tests.analysis.factory import FIO, ExactSession, fails
from tests.analysis.many_factory import Many
from tests.analysis.measured import compare, render, whole
from tests.analysis.wall_factory import WallSession
from tests.values import but

COMMITS = ("0123456789abcdef0123456789abcdef01234567", "fedcba9876543210fedcba9876543210fedcba98")
LAYOUT = Path(__file__).parent / "robot_layout.txt"


def layout(name: str) -> list[str]:
    """The robot's lines by columns; letters are fields, all else is as it is printed."""
    blocks = LAYOUT.read_text(encoding="utf-8").strip().split("\n\n")
    lines = next(block for block in blocks if block.startswith(f"{name}\n"))
    return [line.removesuffix("$") for line in lines.splitlines()[1:]]


def of_git(manifest: Manifest, *, patches: tuple[str, ...] = ()) -> Manifest:
    """The same session with a commit as the source of each arm, and patches on the last."""
    specs, arms = [], []
    for arm, commit in zip(manifest.arms, COMMITS, strict=False):
        source = f"git:/home/somebody/src/linux@{commit}"
        specs.append(ArmSpec(name=arm.name, kernel=KernelSpec(source=source)))
        kernel = but(arm.kernel, patches=patches if arm.name != "base" else ())
        arms.append(but(arm, kernel=kernel))
    experiment = but(manifest.experiment, arms=tuple(specs), series=None)
    return but(manifest, experiment=experiment, arms=tuple(arms))


def git_session(*, patches: tuple[str, ...] = ()) -> SessionComparison:
    session = ExactSession(spread=0.1)
    records = fails(session.records(), "filemap-4k-002-patched")
    return whole(compare(of_git(session.manifest(), patches=patches), records))


def block(rendered: str, case: str) -> list[str]:
    """The lines of one case's table, from the ids on."""
    lines = rendered.splitlines()
    at = next(n for n, line in enumerate(lines) if line.endswith(f"/{case}"))
    start = next(n for n in range(at, len(lines)) if lines[n].startswith("-" * 16)) - 1
    return lines[start : lines.index("", start)]


def assert_in_columns(line: str, columns: str) -> None:
    """A row against the robot's columns: what a field does not fill is blank."""
    at = columns.index("NAME")
    assert re.match(r"\S+$", line[at:]), line
    for field in re.finditer(r"([a-zA-Z])\1*", columns[:at]):
        text = line[field.start() : field.end()]
        left = field[1] == "F"
        assert text == (text.strip().ljust(len(text)) if left else text.strip().rjust(len(text)))
        assert not text.strip() or float(text) is not None, line
    for position, mark in enumerate(columns[:at]):
        if not mark.isalpha():
            assert line[position] in (mark, " "), (position, line)


def test_heads_and_rows_are_in_the_robots_columns() -> None:
    table, expected = block(lkp.render(git_session()), "filemap-4k"), layout("two")
    hexadecimal = re.sub(r"[0-9a-f]", "x", table[0])
    assert [hexadecimal, *table[1:4], *table[5:7]] == [*expected[:4], *expected[5:7]]
    assert_in_columns(table[4], expected[4])
    assert table[4].endswith("  filemap-4k.invalid")
    assert len(table) > 8
    for row in table[7:]:
        assert_in_columns(row, expected[7])
    assert re.match(r"    \d{3}\.\d\d ± {2}\d% ", table[7])


def test_a_third_kernel_is_a_further_column(five: SessionComparison) -> None:
    table, expected = block(lkp.render(five), "filemap-4k"), layout("three")
    assert table[1:4] == expected[1:4]
    assert [len(table[0][:17].strip()), len(table[0])] == [15, len(expected[0])]
    for row in table[4:]:
        assert_in_columns(row, expected[4])


def test_spreads_of_three_digits_keep_their_sign() -> None:
    rendered = lkp.render(whole(ExactSession(spread=1.2).compared()))
    assert re.search(r" ±1\d\d% ", rendered)


def test_a_commit_is_a_commit_in_10_16_27_and_40_digits() -> None:
    rendered = lkp.render(git_session())
    base, patched = COMMITS
    assert f'commit: {patched} ("with the series")' in rendered
    assert f'\ncommit: \n  {base[:10]} ("without the series")\n  {patched[:10]} ("' in rendered
    assert f"\n{base[:16]} {patched[:27]} \n" in rendered
    assert lkp.subject(git_session()).startswith(f"[linux:filemap-v4]  {patched[:10]}: ")
    assert "/home" not in rendered
    for arm in git_session().arms:
        assert arm.kernel.key[:10] not in rendered


def test_patches_on_a_commit_are_no_commit() -> None:
    session = git_session(patches=("1.patch", "2.patch"))
    names = repeat.kernel_names(session)
    assert names["base"].commit == COMMITS[0]
    assert names["patched"] == ("fedcba9876+series(2)", "")


@pytest.mark.parametrize(
    ("source", "release", "name"),
    [
        ("deb:linux-source-6.12", "6.12.117", "v6.12.117"),
        ("tarball:linux.tar", "6.13.0-rc3+", "v6.13.0-rc3"),
        ("deb:linux-image-6.1.0-38-amd64", "6.1.0-38-amd64", "6.1.0-38-amd64"),
    ],
)
def test_without_a_repository_it_is_version_and_series(
    source: str, release: str, name: str
) -> None:
    def built(arm: ArmRecord) -> ArmRecord:
        update = {"release": release, "source": source, "patches": ()}
        return but(arm, kernel=but(arm.kernel, **update))

    session = ExactSession()
    base, patched = session.manifest().arms
    versioned = whole(session.compared([], arms=(base, built(patched))))
    names = repeat.kernel_names(versioned)
    assert names["base"].text == "v6.12.38-series(3)"
    assert names["base"].cut(16) == "v6.12.38-series"
    assert names["patched"].text == name


def test_no_name_is_a_key_of_the_cache(five: SessionComparison, normal: Comparison) -> None:
    for session in (five, whole(normal)):
        rendered = lkp.render(session)
        assert "\nkernels: \n" in rendered
        assert "\ncommit: \n" not in rendered
        for arm in session.arms:
            assert arm.kernel.key[:10] not in rendered
        texts = [name.text for name in repeat.kernel_names(session).values()]
        assert len(set(texts)) == len(session.arms)


def test_a_subject_of_real_time_does_not() -> None:
    rendered = lkp.render(whole(WallSession(effect=0.03).compared()))
    assert "virtual" not in rendered
    assert "/kvm-laptop/" in rendered


def test_rows_without_a_change_are_left_out(normal: Comparison) -> None:
    session = whole(normal)
    rendered = lkp.render(session)
    rows = {line.split()[-1] for line in block(rendered, "filemap-4k")[4:]}
    case = normal.cases[0]
    expected = {
        f"filemap-4k.4k.{'virtual_' if metric.name in ('4k.bw', '4k.iops') else ''}"
        + metric.name.removeprefix("4k.")
        for metric in case.metrics
        if metric.primary or metric.judgement.differs
    }
    assert rows == expected
    assert "filemap-4k.4k.file_thp_mib" not in rows


def test_long_names_stay_in_their_row() -> None:
    session = ExactSession()
    manifest = session.manifest()
    long = "x" * 120
    case = but(manifest.cases[0], name=long)
    manifest = but(manifest, cases=(case,))
    records = [but(r, case=long) for r in session.records() if r.case == "filemap-4k"]
    rows = block(lkp.render(whole(compare(manifest, records))), long)[4:]
    assert rows
    for row in rows:
        assert_in_columns(row, layout("two")[7])
        assert row[46:].startswith(f"{long}.4k.")


def test_nothing_measured_is_the_paragraph_alone() -> None:
    unmeasured = whole(ExactSession().compared([]))
    rendered = " ".join(lkp.render(unmeasured).split())
    reasons = {metric.judgement.reason for metric in unmeasured.primary}
    assert "=====" not in rendered
    assert "%stddev" not in rendered
    assert "family" not in rendered
    assert [rendered.count(reason[1:]) for reason in reasons] == [1]


def test_more_arms_than_a_mail_can_hold_go_into_even_tables() -> None:
    arms = {f"arm{number}": (0.0001 * number, 0.0) for number in range(5)}
    rendered = lkp.render(Many(arms=arms).compared())
    heads = [line for line in rendered.splitlines() if line.startswith("-" * 16)]
    assert [head.count("-" * 27) for head in heads] == [2, 2] * len(factory.PHASES)


def blocks(letter: str) -> list[tuple[float, float, float]]:
    """(average before, average after, printed percentage) of each pair of bw lines."""
    percentages = [
        float(x) for x in re.findall(r"^After.*\(([-+0-9.]+)%\):$", letter, re.MULTILINE)
    ]
    section = re.findall(r"^(Before|After)[^\n]*:\n(bw .*?avg=([0-9.]+))", letter, re.MULTILINE)
    before = [float(avg) for when, _, avg in section if when == "Before"]
    after = [float(avg) for when, _, avg in section if when == "After"]
    return list(zip(before, after, percentages, strict=True))


@pytest.mark.parametrize("effect", [0.1250, 0.073, -0.02, 0.5])
def test_printed_percentages_are_those_of_the_printed_figures(effect: float) -> None:
    session = ExactSession(effect=dict.fromkeys(factory.LOOKS, effect), spread=0.1)
    pairs = blocks(render(session.compared(), "letter"))
    assert len(pairs) == 3
    for before, after, printed in pairs:
        rounding = 0.005 + 100 * 0.005 * (1 / before + after / before**2)
        assert 100 * (after / before - 1) == pytest.approx(printed, abs=rounding)


def test_commands_can_be_pasted(normal: Comparison) -> None:
    letter = render(normal, "letter")
    start = letter.index("fio -name")
    command = letter[start : letter.index("\n\n", start)]
    assert shlex.split(command.replace("\\\n", "")) == shlex.split(FIO)
    assert letter.count("echo 3 > /proc/sys/vm/drop_caches") == 2


def test_nothing_measured_claims_nothing() -> None:
    letter = render(ExactSession(same_code=True).compared([]), "letter")
    assert "Before" not in letter
    assert letter.startswith("Identical machine code: nothing was booted.")
    assert "counted under emulation" not in letter
    assert "seeds" not in letter.partition("\n\n")[2].partition("\n\n")[0]
