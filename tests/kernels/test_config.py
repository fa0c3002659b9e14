"""What is asked of a configuration; how it bends where it may and breaks where it must, by make."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errors import InfraError, SeriesError, SpecError, UsageError
from experiment.spec import KernelSpec
from host import sandbox
from kernels import compiled, config
from kernels.build import provide
from kernels.cache import Kernel
from kernels.compare import compare, options_apart
from kernels.config import (
    ADDITIONS,
    FILE,
    VIRTME,
    Fragment,
    Lost,
    Reasons,
    adapt,
    added_options,
    agreed,
    fragments,
    known_flavours,
    likely_reason,
    load_reasons,
    lost_options,
    merge,
    parse,
    replaced,
    virtme_fragment,
)
from kernels.series import read_patch
from tests.kernels.fake import COMMENT, FAKE_LINUX, FASTER, Lab, replace
from tests.values import but, data
from tests.waiting import completed

CHECKOUT = Path(__file__).parents[2]
FOLDER = "configs/kconfig"
OPTIONS = st.dictionaries(
    st.from_regex(r"[A-Z][A-Z0-9_]{0,8}", fullmatch=True),
    st.sampled_from(["y", "n", "64", '"twinboot"', '""', "0x10"]),
)


def parts_of(
    checkout: Path, flavour: str, release: str = "", **fields: Any
) -> tuple[Fragment, ...]:
    spec = KernelSpec(source="dir:x", flavour=flavour, **fields)
    return fragments(checkout, spec, release)


def test_parse_reads_values_negations_and_nothing_else() -> None:
    text = '# CONFIG_A is not set\nCONFIG_B=y\n# CONFIG_C=y\nCONFIG_D="x y"\nCONFIG_B=n\n'
    assert parse(text) == {"A": "n", "B": "n", "D": '"x y"'}


@settings(max_examples=40)
@given(st.lists(OPTIONS, max_size=4))
def test_later_fragments_win_and_nothing_is_lost(parts: list[dict[str, str]]) -> None:
    merged = parse(merge(Fragment(str(i), part) for i, part in enumerate(parts)))
    assert merged.keys() == {name for part in parts for name in part}
    for name, value in merged.items():
        assert value == next(part[name] for part in reversed(parts) if name in part)


@settings(max_examples=40)
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
        ({"arch": "arm64", "page_kib": 64}, "base arm64/arch arm64/pages-64k perf"),
        ({"mode": "native"}, "um"),
    ],
)
def test_the_order_of_fragments(fields: dict[str, Any], order: str) -> None:
    names = [VIRTME if name == VIRTME else f"{FOLDER}/{name}.config" for name in order.split()]
    assert names_of(parts_of(CHECKOUT, "perf", **fields)) == names


@pytest.mark.parametrize("release", ["6.2", "6.12", "7.3", "7.10", ""])
def test_options_of_a_later_release_are_in_no_earlier_one(release: str) -> None:
    options = parse(merge(parts_of(CHECKOUT, "perf", release=release)))
    apart = {"NUMA_MIGRATION": "y"} if release.startswith("7") else {}
    assert options == parse(merge(parts_of(CHECKOUT, "perf"))) | apart


def test_a_flavour_on_top_of_another_has_all_of_it(lab: Lab) -> None:
    more = "# on top of perf.config\nCONFIG_SLOW=y\nCONFIG_NR_CPUS=8\n"
    (lab.checkout / FOLDER / "more.config").write_text(more)
    (lab.checkout / FOLDER / "most.config").write_text("# on top of more.config\n")
    parts = parts_of(lab.checkout, "most")
    assert [Path(part.name).stem for part in parts] == ["base", "perf", "more", "most"]
    merged = parse(merge(parts))
    assert (merged["PERF_EVENTS"], merged["SLOW"], merged["NR_CPUS"]) == ("y", "y", "8")


def test_the_self_test_kernel_is_the_measured_one_and_its_tests() -> None:
    """No other file depends on these options: all other objects are the measured kernel's."""
    measured, tested = (
        set(merge(parts_of(CHECKOUT, flavour)).split()) for flavour in ("perf", "selftest")
    )
    assert tested - measured == {
        "CONFIG_RUNTIME_TESTING_MENU=y",
        "CONFIG_TEST_XARRAY=y",
        "CONFIG_TEST_IDA=y",
    }
    assert measured < tested


def test_a_kernel_that_is_a_process_has_a_fragment_of_its_own_alone() -> None:
    assert "um" not in known_flavours(CHECKOUT)
    options = parse(merge(parts_of(CHECKOUT, "um", mode="native")))
    assert (options["UML"], options["SMP"], options["MODULES"]) == ("y", "n", "y")


def test_exact_guests_have_none_of_what_wall_guests_need() -> None:
    exact = parse(merge(parts_of(CHECKOUT, "perf")))
    wall = parse(merge(parts_of(CHECKOUT, "perf", mode="wall")))
    only_wall = {name for name, value in wall.items() if value == "y"} - exact.keys()
    assert {"NET", "VIRTIO_PCI", "9P_FS", "OVERLAY_FS"} <= only_wall
    # Headers that nearly all files include ask for these: they cost a whole kernel's time.
    assert only_wall.isdisjoint({"EARLY_PRINTK", "TASKSTATS", "INET", "FUSE_FS"})
    # What is measured is the same in both.
    assert exact.items() <= wall.items()


def test_page_sizes_differ_in_their_pages_alone() -> None:
    small, large = (
        merge(parts_of(CHECKOUT, "perf", arch="arm64", page_kib=size)) for size in (4, 64)
    )
    assert set(small.split()) ^ set(large.split()) == {
        "CONFIG_ARM64_4K_PAGES=y",
        "CONFIG_ARM64_64K_PAGES=y",
    }
    assert "CONFIG_SERIAL_AMBA_PL011_CONSOLE=y" in small


def test_unknown_flavour_names_the_known_ones(lab: Lab) -> None:
    with pytest.raises(UsageError) as caught:
        parts_of(lab.checkout, "prf")
    assert caught.value.next_step == "did you mean perf? known flavours: perf"
    (lab.checkout / FOLDER / "wall.config").write_text("CONFIG_NET=y\n")
    for name in ("base", "wall"):
        with pytest.raises(UsageError):
            parts_of(lab.checkout, name)


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
    # One turned off that the source does not have is fine.
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
    parts = parts_of(lab.checkout, "perf", additions=("big",))
    assert names_of(parts)[-1] == f"{FOLDER}/additions/big.config"
    assert parse(merge(parts))["NR_CPUS"] == "128"
    assert "big" not in known_flavours(lab.checkout)
    with pytest.raises(UsageError, match="bigger") as caught:
        parts_of(lab.checkout, "perf", additions=("bigger",))
    assert caught.value.next_step == "known additions: big"


def test_what_the_default_workloads_boot_has_nothing_added() -> None:
    """Its key decides what every cached kernel, night and published time is of."""
    usual = merge(parts_of(CHECKOUT, "perf"))
    assert "MODULES=n" in usual
    assert "MODULES=y" in merge(parts_of(CHECKOUT, "perf", additions=("workloads",)))


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


REASONS = data(__file__, "reasons")


@pytest.fixture
def reasons(lab: Lab, base: Kernel) -> Lab:
    """With a file of reasons, and the kernel of its source as it is."""
    (lab.checkout / FILE).write_text(REASONS)
    return lab


def options_of(kernel: Kernel) -> dict[str, str]:
    return parse(kernel.config.read_text())


def kconfig(lab: Lab, old: str, new: str) -> None:
    replace("Kconfig", old, new)(lab.source)


def added(name: str, *lines: str) -> Callable[[Path], None]:
    """An edit that brings an option, on by default."""
    body = "".join(f"\t{line}\n" for line in ('bool "New"', *lines, "default y"))
    return replace("Kconfig", "config SMP\n", f"config {name}\n{body}\nconfig SMP\n")


def test_an_option_in_the_context_after_an_added_line_is_not_the_series_own(tmp_path: Path) -> None:
    path = tmp_path / "0001-new.patch"
    path.write_text(
        "Subject: [PATCH] mm: new\n\ndiff --git a/mm/Kconfig b/mm/Kconfig\n--- a/mm/Kconfig\n"
        "+++ b/mm/Kconfig\n@@ -1,3 +1,5 @@\n+config NEW\n+\tbool\n-\n config OLD\n+\n config Z\n"
    )
    assert added_options([read_patch(path)]) == ("NEW",)


def test_a_release_with_other_names_gets_those_on_both_arms(reasons: Lab) -> None:
    kconfig(reasons, "config NET_9P\n", "config NET_NINE\n")
    kconfig(reasons, "config SMP\n", "config SMP_LAZY\n")
    kernel = provide(reasons.request())
    options = options_of(kernel)
    assert (options["NET_NINE"], options["SMP_LAZY"]) == ("y", "y")
    assert kernel.identity.options == (
        "CONFIG_NET_NINE in the place of CONFIG_NET_9P: since 7.0 spelled out",
        "CONFIG_SMP_LAZY in the place of CONFIG_SMP: many processors",
    )
    patched = provide(reasons.request(reasons.series("faster", FASTER)))
    assert options_apart(kernel, patched) == ()
    assert patched.identity.options == kernel.identity.options


def test_facts_of_compilers_in_a_configuration_are_no_difference(reasons: Lab) -> None:
    """A box hides the compiler of Rust, and the base beside it was built outside of one."""
    base = provide(reasons.request())
    patched = provide(reasons.request(reasons.series("faster", FASTER)))
    facts = "CONFIG_RUSTC_VERSION=108100\nCONFIG_RUSTC_LLVM_VERSION=180107\nCONFIG_RUSTC_HAS_X=y\n"
    chosen = "CONFIG_CC_OPTIMIZE_FOR_SIZE=y\n"
    base.config.write_text(base.config.read_text() + facts + chosen)
    assert [each.name for each in options_apart(base, patched)] == ["CONFIG_CC_OPTIMIZE_FOR_SIZE"]


def test_an_option_of_comparability_alone_is_noted(reasons: Lab) -> None:
    kconfig(reasons, "config PERF_EVENTS\n", "config PERF\n")
    kernel = provide(reasons.request())
    assert kernel.identity.options == ("CONFIG_PERF_EVENTS is n, y is wanted for comparability",)


def test_an_option_that_is_needed_ends_the_build_and_names_what_for(reasons: Lab) -> None:
    kconfig(reasons, "config NET_9P\n", "config NET_10P\n")
    with pytest.raises(InfraError) as caught:
        provide(reasons.request())
    assert "needed by the share of the host's root" in caught.value.what
    assert "CONFIG_NET_NINE" in caught.value.what
    assert "this source has no such option" in caught.value.what


def test_a_new_option_has_its_authors_default_in_the_patched_arm(reasons: Lab) -> None:
    patches = reasons.series("hint", added("HINT"))
    base = provide(reasons.request())
    patched = provide(reasons.request(patches))
    assert options_of(patched)["HINT"] == "y"
    (option,) = options_apart(base, patched)
    assert (option.name, option.before, option.after) == ("CONFIG_HINT", "", "y")
    # Alone, or after the base: the same kernel.
    elsewhere = reasons.cache.with_name("other")
    alone = provide(reasons.request(patches, cache=elsewhere))
    assert alone.config.read_bytes() == patched.config.read_bytes()
    assert alone.identity == patched.identity


@pytest.mark.parametrize(("own", "after"), [({}, "18"), ({"CONFIG_LOG_SHIFT": "16"}, "16")])
def test_another_default_of_a_number_is_the_patched_arms_unless_it_is_set(
    reasons: Lab, own: dict[str, str], after: str
) -> None:
    kconfig(reasons, "config SMP\n", 'config LOG_SHIFT\n\tint "Size"\n\tdefault 17\n\nconfig SMP\n')
    patches = reasons.series("larger", replace("Kconfig", "default 17", "default 18"))
    spec = but(reasons.spec, config=own)
    base, patched = (
        provide(reasons.request(spec=spec)),
        provide(reasons.request(patches, spec=spec)),
    )
    shifts = [options_of(kernel)["LOG_SHIFT"] for kernel in (base, patched)]
    assert shifts == [own.get("CONFIG_LOG_SHIFT", "17"), after]


def test_a_new_option_of_a_strangers_series_has_its_default_too(reasons: Lab) -> None:
    if sandbox.available() is None:
        pytest.skip("this host can make no boxes")
    patches = reasons.series("hint", added("HINT"))
    patched = provide(reasons.request(patches, boxed=True))
    assert options_of(patched)["HINT"] == "y"


def test_a_new_option_that_stays_off_names_the_command(reasons: Lab) -> None:
    base = provide(reasons.request())
    patched = provide(reasons.request(reasons.series("off", added("HINT", "depends on MODULES"))))
    record = compare(base, patched, [])
    assert record is not None
    (finding,) = record.findings
    assert "depends on MODULES, and MODULES is n" in finding
    assert "--config patched:CONFIG_HINT=y" in finding
    on = but(
        reasons.spec, config={"CONFIG_HINT": "y", "CONFIG_MODULES": "n", "CONFIG_DEBUG_MM": "y"}
    )
    with pytest.raises(UsageError, match="CONFIG_HINT: --config sets y, the result is n"):
        provide(
            reasons.request(reasons.series("again", added("HINT", "depends on MODULES")), spec=on)
        )


def test_what_a_series_takes_away_is_away_and_named(reasons: Lab) -> None:
    gone = replace("Kconfig", 'config PERF_EVENTS\n\tbool "Counters"\n', "")
    base = provide(reasons.request())
    patched = provide(reasons.request(reasons.series("gone", COMMENT, gone)))
    assert base.identity.options == patched.identity.options == ()
    assert [(each.name, each.before, each.after) for each in options_apart(base, patched)] == [
        ("CONFIG_PERF_EVENTS", "y", "")
    ]


@pytest.mark.parametrize("option", ["PERF_EVENTS", "NET_9P"])
def test_an_option_that_a_series_renames_keeps_its_value(reasons: Lab, option: str) -> None:
    """One for comparability and one that is needed: a new name is no option switched off."""
    renames = replace("Kconfig", f"config {option}\n", f"config {option}_NOW\n")
    base = provide(reasons.request())
    patched = provide(reasons.request(reasons.series("renames", COMMENT, renames)))
    assert {(each.name, each.before, each.after) for each in options_apart(base, patched)} == {
        (f"CONFIG_{option}", "y", ""),
        (f"CONFIG_{option}_NOW", "", "y"),
    }


def test_an_option_that_two_patches_rename_keeps_its_value(reasons: Lab) -> None:
    names = ("NET_9P", "NET_SHARED", "NET_PLAN9")
    renames = [
        replace("Kconfig", f"config {old}\n", f"config {new}\n")
        for old, new in itertools.pairwise(names)
    ]
    patched = provide(reasons.request(reasons.series("renames", *renames)))
    assert [options_of(patched).get(name) for name in names] == [None, None, "y"]


def test_a_users_option_is_on_top_and_refused_where_there_is_none(reasons: Lab) -> None:
    on = KernelSpec(source=reasons.spec.source, config={"CONFIG_DEBUG_MM": "y"})
    assert options_of(provide(reasons.request(spec=on)))["DEBUG_MM"] == "y"
    off = KernelSpec(source=reasons.spec.source, config={"CONFIG_NO_SUCH": "y"})
    with pytest.raises(UsageError) as caught:
        provide(reasons.request(spec=off))
    assert caught.value.where == "CONFIG_NO_SUCH=y"
    assert "this source has no such option" in caught.value.what


def test_a_needed_option_that_a_series_takes_is_the_series_fault(reasons: Lab) -> None:
    gone = replace("Kconfig", 'config NET\n\tbool "Networking"\n', "")
    with pytest.raises(SeriesError) as caught:
        provide(reasons.request(reasons.series("gone", COMMENT, gone)))
    assert caught.value.where.startswith("0002-")
    first, lost = caught.value.what.split("\n")
    assert first == "takes options away that the measurement needs"
    # To its end: what for is said last.
    assert lost.startswith("CONFIG_NET: ")
    assert lost.endswith("; needed by the share of the host's root")
    assert caught.value.next_step.startswith("leave it in the series")


def test_objects_that_a_changed_option_compiles_again_are_counted(tmp_path: Path) -> None:
    text = "deps_x.o := \\\n    $(wildcard include/config/{0}) \\\n  ../include/{0}.h \\\n"
    for name, option in (("a", "SLUB_DEBUG"), ("b", "SLUB_DEBUG_ON"), ("c", "NUMA")):
        (tmp_path / f".{name}.o.cmd").write_text(text.format(option))
    assert compiled.dependent(tmp_path, ["SLUB_DEBUG"]) == 1
    assert compiled.dependent(tmp_path, ["SLUB_DEBUG", "NUMA"]) == 2
    assert compiled.dependent(tmp_path, []) == 0
    # So are those that a changed header does.
    assert compiled.dependent(tmp_path, [], ["include/SLUB_DEBUG.h"]) == 1
    assert compiled.dependent(tmp_path, ["NUMA"], ["include/SLUB_DEBUG.h", "mm/x.h"]) == 2


SHIPPED = load_reasons(CHECKOUT)


def lost(*names: str) -> list[Lost]:
    return [Lost(name, "y", "n", "base.config") for name in names]


def test_an_option_with_another_name_is_replaced_by_it() -> None:
    adapted = adapt(lost("PROC_SYSCTL"), frozenset({"PROC_SYSCTL"}), SHIPPED)
    assert adapted.instead == {"PROC_SYSCTL": "SYSCTL"}
    assert adapted.notes[0].startswith("CONFIG_SYSCTL in the place of CONFIG_PROC_SYSCTL: since")


def test_alternatives_are_taken_in_their_order() -> None:
    first = frozenset({"PREEMPT_VOLUNTARY"})
    assert adapt(lost("PREEMPT_VOLUNTARY"), first, SHIPPED).instead == {
        "PREEMPT_VOLUNTARY": "PREEMPT_LAZY"
    }
    both = first | {"PREEMPT_LAZY"}
    assert adapt(lost("PREEMPT_LAZY"), both, SHIPPED).instead == {"PREEMPT_LAZY": "PREEMPT_NONE"}
    every = both | {"PREEMPT_NONE"}
    assert adapt(lost("PREEMPT_NONE"), every, SHIPPED).instead == {}


def test_what_is_gone_is_left_out_and_what_nobody_knows_stays() -> None:
    gone, unknown = "ARM64_PAN", "NO_SUCH_OPTION"
    adapted = adapt(lost(gone, unknown), frozenset({gone, unknown}), SHIPPED)
    assert adapted.instead == {gone: ""}
    assert "since 7.0" in adapted.notes[0]


def test_arms_of_two_releases_agree_on_what_both_have() -> None:
    options = {"PREEMPT_VOLUNTARY": "y"}
    assert agreed(options, ["6.12.117"], SHIPPED) == {}
    assert agreed(options, ["6.1.3", "6.12.0"], SHIPPED) == {}
    # 7.3 has neither voluntary preemption nor none: each has its own.
    assert agreed(options, ["6.12.117", "7.3.4"], SHIPPED) == {}
    assert agreed(options, ["6.19.0", "7.3.4"], SHIPPED) == {
        "CONFIG_PREEMPT_VOLUNTARY": "n",
        "CONFIG_PREEMPT_LAZY": "y",
    }


def test_what_two_releases_have_not_in_common_is_left_to_each() -> None:
    reasons = Reasons.model_validate_json(
        '{"alternatives": [{"why": "any", "options": '
        '[{"name": "OLD", "until": "7.0"}, {"name": "NEW", "since": "6.13"}]}]}'
    )
    assert agreed({"OLD": "y"}, ["6.12", "7.3"], reasons) == {}


def test_every_name_in_the_file_is_one_that_a_fragment_asks_for() -> None:
    files = [*(CHECKOUT / config.CONFIG_FOLDER).rglob("*.config")]
    requested = {name for file in files for name in config.parse(file.read_text())}
    named = {name for each in SHIPPED.needed for name in each.options}
    named |= {each.option for each in SHIPPED.renamed}
    named |= {name for each in SHIPPED.gone for name in each.options}
    named |= {each.names[0] for each in SHIPPED.alternatives}
    assert named - requested == set()


def test_a_mistake_in_the_file_names_its_place(tmp_path: Path) -> None:
    (tmp_path / FILE).parent.mkdir(parents=True)
    (tmp_path / FILE).write_text('[[renamed]]\noption = "A"\nwhy = "none"\n')
    with pytest.raises(SpecError, match=r"options.toml: renamed\[0\].now"):
        load_reasons(tmp_path)
    assert load_reasons(tmp_path / "none") == Reasons()
