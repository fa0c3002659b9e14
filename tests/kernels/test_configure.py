"""Configurations that bend where they may and break where they must, by the real make."""

from collections.abc import Callable
from pathlib import Path

import pytest

from errors import InfraError, SeriesError, SpecError, UsageError
from experiment.spec import KernelSpec
from host import sandbox
from kernels import compiled, config
from kernels.build import provide
from kernels.cache import Kernel
from kernels.compare import compare, options_apart
from kernels.config import Lost, parse
from kernels.configure import FILE, Reasons, adapt, added_options, agreed, load_reasons
from kernels.series import read_patch
from tests.kernels.fake import COMMENT, FASTER, Lab, replace
from tests.values import but, data

REASONS = data(__file__, "reasons")


@pytest.fixture
def reasons(lab: Lab) -> Lab:
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


def test_a_release_with_other_names_gets_those(reasons: Lab) -> None:
    kconfig(reasons, "config NET_9P\n", "config NET_NINE\n")
    kconfig(reasons, "config SMP\n", "config SMP_LAZY\n")
    kernel = provide(reasons.request())
    options = options_of(kernel)
    assert (options["NET_NINE"], options["SMP_LAZY"]) == ("y", "y")
    assert kernel.identity.options == (
        "CONFIG_NET_NINE in the place of CONFIG_NET_9P: since 7.0 spelled out",
        "CONFIG_SMP_LAZY in the place of CONFIG_SMP: many processors",
    )


def test_the_choice_is_equal_on_both_arms(reasons: Lab) -> None:
    kconfig(reasons, "config SMP\n", "config SMP_LAZY\n")
    base = provide(reasons.request())
    patched = provide(reasons.request(reasons.series("faster", FASTER)))
    assert options_apart(base, patched) == ()
    assert base.identity.options == patched.identity.options != ()


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


@pytest.mark.skipif(sandbox.available() is None, reason="this host can make no boxes")
def test_a_new_option_of_a_strangers_series_has_its_default_too(reasons: Lab) -> None:
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
    gone = replace("Kconfig", "config PERF_EVENTS\n", "config PERF_OTHERS\n")
    base = provide(reasons.request())
    patched = provide(reasons.request(reasons.series("gone", COMMENT, gone)))
    assert base.identity.options == patched.identity.options == ()
    assert [(each.name, each.before, each.after) for each in options_apart(base, patched)] == [
        ("CONFIG_PERF_EVENTS", "y", "")
    ]


def test_a_users_option_is_on_top_and_refused_where_there_is_none(reasons: Lab) -> None:
    on = KernelSpec(source=reasons.spec.source, config={"CONFIG_DEBUG_MM": "y"})
    assert options_of(provide(reasons.request(spec=on)))["DEBUG_MM"] == "y"
    off = KernelSpec(source=reasons.spec.source, config={"CONFIG_NO_SUCH": "y"})
    with pytest.raises(UsageError) as caught:
        provide(reasons.request(spec=off))
    assert caught.value.where == "CONFIG_NO_SUCH=y"
    assert "this source has no such option" in caught.value.what


def test_a_needed_option_that_a_series_takes_is_the_series_fault(reasons: Lab) -> None:
    gone = replace("Kconfig", "config NET\n", "config NETWORK\n")
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


CHECKOUT = Path(__file__).parents[2]
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
