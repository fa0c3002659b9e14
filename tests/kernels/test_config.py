from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import UsageError
from experiment.architecture import ARM64
from kernels.config import (
    ADDITIONS,
    VIRTME,
    Fragment,
    fragments,
    known_flavours,
    likely_reason,
    lost_options,
    merge,
    parse,
    replaced,
    virtme_fragment,
)
from tests.kernels.fake import FAKE_LINUX, Lab
from tests.waiting import completed

CHECKOUT = Path(__file__).parents[2]
FOLDER = "configs/kconfig"
OPTIONS = st.dictionaries(
    st.from_regex(r"[A-Z][A-Z0-9_]{0,8}", fullmatch=True),
    st.sampled_from(["y", "n", "64", '"twinboot"', '""', "0x10"]),
)


def test_parse_reads_values_negations_and_nothing_else() -> None:
    text = '# CONFIG_A is not set\nCONFIG_B=y\n# CONFIG_C=y\nCONFIG_D="x y"\nCONFIG_B=n\n'
    assert parse(text) == {"A": "n", "B": "n", "D": '"x y"'}


@given(st.lists(OPTIONS, max_size=4))
def test_later_fragments_win_and_nothing_is_lost(parts: list[dict[str, str]]) -> None:
    merged = parse(merge(Fragment(str(i), part) for i, part in enumerate(parts)))
    assert merged.keys() == {name for part in parts for name in part}
    for name, value in merged.items():
        assert value == next(part[name] for part in reversed(parts) if name in part)


@given(OPTIONS)
def test_equal_wishes_are_equal_bytes(options: dict[str, str]) -> None:
    backwards = dict(reversed(options.items()))
    assert merge([Fragment("a", options)]) == merge([Fragment("b", backwards)])


def names_of(parts: Sequence[Fragment]) -> list[str]:
    return [part.name for part in parts]


@pytest.mark.parametrize(
    ("fields", "order"),
    [
        ({}, "base perf"),
        ({"mode": "wall"}, "virtme-ng base wall perf"),
        ({"architecture": ARM64, "page_kib": 64}, "base arm64/arch arm64/pages-64k perf"),
        ({"mode": "native"}, "um"),
    ],
)
def test_the_order_of_fragments(fields: dict[str, Any], order: str) -> None:
    names = [VIRTME if name == VIRTME else f"{FOLDER}/{name}.config" for name in order.split()]
    assert names_of(fragments(CHECKOUT, "perf", **fields)) == names


@pytest.mark.parametrize("release", ["6.2", "6.12", "7.3", "7.10", ""])
def test_options_of_a_later_release_are_in_no_earlier_one(release: str) -> None:
    options = parse(merge(fragments(CHECKOUT, "perf", release=release)))
    apart = {"NUMA_MIGRATION": "y"} if release.startswith("7") else {}
    assert options == parse(merge(fragments(CHECKOUT, "perf"))) | apart


def test_a_flavour_on_top_of_another_has_all_of_it(lab: Lab) -> None:
    more = "# on top of perf.config\nCONFIG_SLOW=y\nCONFIG_NR_CPUS=8\n"
    (lab.checkout / FOLDER / "more.config").write_text(more)
    (lab.checkout / FOLDER / "most.config").write_text("# on top of more.config\n")
    parts = fragments(lab.checkout, "most")
    assert [Path(part.name).stem for part in parts] == ["base", "perf", "more", "most"]
    merged = parse(merge(parts))
    assert (merged["PERF_EVENTS"], merged["SLOW"], merged["NR_CPUS"]) == ("y", "y", "8")


def test_the_self_test_kernel_is_the_measured_one_and_its_tests() -> None:
    """No other file depends on these options: all other objects are the measured kernel's."""
    measured, tested = (
        set(merge(fragments(CHECKOUT, flavour)).split()) for flavour in ("perf", "selftest")
    )
    assert tested - measured == {
        "CONFIG_RUNTIME_TESTING_MENU=y",
        "CONFIG_TEST_XARRAY=y",
        "CONFIG_TEST_IDA=y",
    }
    assert measured < tested


def test_a_kernel_that_is_a_process_has_a_fragment_of_its_own_alone() -> None:
    assert "um" not in known_flavours(CHECKOUT)
    options = parse(merge(fragments(CHECKOUT, "um", mode="native")))
    assert (options["UML"], options["SMP"], options["MODULES"]) == ("y", "n", "y")


def test_exact_guests_have_none_of_what_wall_guests_need() -> None:
    exact = parse(merge(fragments(CHECKOUT, "perf")))
    wall = parse(merge(fragments(CHECKOUT, "perf", mode="wall")))
    only_wall = {name for name, value in wall.items() if value == "y"} - exact.keys()
    assert {"NET", "VIRTIO_PCI", "9P_FS", "FUSE_FS", "OVERLAY_FS"} <= only_wall
    # What is measured is the same in both.
    assert exact.items() <= wall.items()


def test_page_sizes_differ_in_their_pages_alone() -> None:
    small, large = (merge(fragments(CHECKOUT, "perf", ARM64, size)) for size in (4, 64))
    assert set(small.split()) ^ set(large.split()) == {
        "CONFIG_ARM64_4K_PAGES=y",
        "CONFIG_ARM64_64K_PAGES=y",
    }
    assert "CONFIG_SERIAL_AMBA_PL011_CONSOLE=y" in small


def test_unknown_flavour_names_the_known_ones(lab: Lab) -> None:
    with pytest.raises(UsageError) as caught:
        fragments(lab.checkout, "prf")
    assert caught.value.next_step == "did you mean perf? known flavours: perf"
    (lab.checkout / FOLDER / "wall.config").write_text("CONFIG_NET=y\n")
    for name in ("base", "wall"):
        with pytest.raises(UsageError):
            fragments(lab.checkout, name)


def test_virtme_fragment_is_free_of_the_users_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / ".config/virtme-ng"
    mine.mkdir(parents=True)
    (mine / "kernel.config").write_text("CONFIG_MINE=y\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    options = parse(virtme_fragment())
    assert options["VIRTIO_CONSOLE"] == "y"
    assert "MINE" not in options


def test_only_the_last_wish_counts() -> None:
    parts = [Fragment("a", {"X": "y", "Y": "y"}), Fragment("b", {"X": "n"})]
    assert lost_options(parts, "CONFIG_Y=y\n") == ()
    lost = lost_options(parts, "CONFIG_X=y\n")
    assert [(option.option, option.fragment) for option in lost] == [("X", "b"), ("Y", "a")]


def test_an_option_turned_off_that_the_source_does_not_have_is_fine() -> None:
    assert lost_options([Fragment("a", {"GONE": "n"})], "CONFIG_X=y\n") == ()


def test_likely_reason_reads_the_entry(tmp_path: Path) -> None:
    assert likely_reason(FAKE_LINUX, "NET_9P", {}) == ("Kconfig:7: depends on NET, and NET is n")
    assert likely_reason(FAKE_LINUX, "NET_9P", {"NET": "y"}) == "Kconfig:7: depends on NET"
    assert "no such option" in likely_reason(FAKE_LINUX, "NOPE", {})
    assert "what selects it" in likely_reason(FAKE_LINUX, "SMP", {})
    (tmp_path / "Kconfig.debug").write_text(
        'menuconfig X\n\tbool "x"\n\tdepends on A && !B\n\tdepends on C\n\tdefault y\n\nconfig Z\n'
    )
    reason = likely_reason(tmp_path, "X", {"A": "y", "B": "y"})
    assert reason == "Kconfig.debug:1: depends on A && !B && C, and B is y, C is n"


def test_shipped_fragments_do_not_contradict_themselves() -> None:
    """An option set twice in one file is a slip: the first line would be a lie."""
    for path in (CHECKOUT / "configs/kconfig").rglob("*.config"):
        names = [line.split("=")[0] for line in path.read_text().splitlines() if line[:1] == "C"]
        assert len(names) == len(set(names)), path.name
    assert "perf" in known_flavours(CHECKOUT)


def test_additions_come_last_and_win(lab: Lab) -> None:
    folder = lab.checkout / FOLDER / "additions"
    folder.mkdir()
    (folder / "big.config").write_text("CONFIG_NR_CPUS=128\n")
    parts = fragments(lab.checkout, "perf", additions=("big",))
    assert names_of(parts)[-1] == f"{FOLDER}/additions/big.config"
    assert parse(merge(parts))["NR_CPUS"] == "128"
    assert "big" not in known_flavours(lab.checkout)
    with pytest.raises(UsageError, match="bigger") as caught:
        fragments(lab.checkout, "perf", additions=("bigger",))
    assert caught.value.next_step == "known additions: big"


def test_what_the_default_workloads_boot_has_nothing_added() -> None:
    """Its key decides what every cached kernel, night and published time is of."""
    usual = merge(fragments(CHECKOUT, "perf"))
    assert "MODULES=n" in usual
    assert "MODULES=y" in merge(fragments(CHECKOUT, "perf", additions=("workloads",)))


@pytest.mark.parametrize(
    ("declared", "flags"),
    [
        ("int mas_expected_entries(struct ma_state *mas, unsigned long nr_entries);\n", ""),
        (
            "int mas_preallocate(struct ma_state *mas, void *entry, gfp_t gfp);\n",
            "-DNO_EXPECTED_ENTRIES",
        ),
    ],
)
def test_the_maple_trees_module_is_built_of_what_a_kernel_has(
    tmp_path: Path, declared: str, flags: str
) -> None:
    header = tmp_path / "include/linux/maple_tree.h"
    header.parent.mkdir(parents=True)
    header.write_text(declared)
    kbuild = CHECKOUT / ADDITIONS / "trees/Kbuild"
    rule = f"include {kbuild}\nshow:\n\t@echo $(ccflags-y)\n"
    argv = ["make", "-f", "-", f"srctree={tmp_path}", "show"]
    done = completed(argv, input=rule)
    assert done.stdout.strip() == flags


def test_an_option_in_the_place_of_another_may_itself_be_replaced() -> None:
    parts = (Fragment("base", {"PREEMPT_VOLUNTARY": "y", "BRD": "y"}),)
    instead = {"PREEMPT_VOLUNTARY": "PREEMPT_LAZY", "PREEMPT_LAZY": "PREEMPT_NONE"}
    options = [option for part in replaced(parts, instead) for option in part.options.items()]
    assert sorted(options) == [("BRD", "y"), ("PREEMPT_NONE", "y")]


def test_a_kernel_does_not_contain_its_configuration() -> None:
    """Its text differs with the host's tools, and its size decides where all data is."""
    folder = CHECKOUT / "configs" / "kconfig"
    texts = {path: path.read_text() for path in folder.rglob("*.config")}
    assert not [path for path, text in texts.items() if "CONFIG_IKCONFIG=y" in text]
    assert texts
