"""What is asked in the place of options that a release does not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from errors import SpecError
from kernels import config
from kernels.config import Lost
from kernels.options import FILE, Reasons, adapt, agreed, load_reasons

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
        "CONFIG_PREEMPT_VOLUNTARY": "n", "CONFIG_PREEMPT_LAZY": "y",
    }  # fmt: skip


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
