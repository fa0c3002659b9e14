"""Options of kernels from the command line, for every arm or one."""

import pytest

from errors import SpecError
from experiment.load import with_config
from experiment.spec import ArmSpec, KernelSpec, SeriesSpec
from tests.experiment.test_plan import make_experiment
from tests.values import but

SERIES = SeriesSpec(path="x")


def test_an_option_of_all_arms_is_the_kernels() -> None:
    before = make_experiment([("w", "default")], series=SERIES)
    after = with_config(before, ["CONFIG_LRU_GEN=y", "CONFIG_NR_CPUS=8"])
    assert after.kernel.config == {"CONFIG_LRU_GEN": "y", "CONFIG_NR_CPUS": "8"}
    assert after.arms == ()
    assert with_config(before, []) is before


def test_an_option_of_one_arm_is_that_arms() -> None:
    after = with_config(
        make_experiment([("w", "default")], series=SERIES),
        ["patched:CONFIG_LRU_GEN=y", "CONFIG_KSM=n"],
    )
    base, patched = after.all_arms
    assert (base.name, base.config, base.patches) == ("base", {}, False)
    assert (patched.config, patched.patches) == ({"CONFIG_LRU_GEN": "y"}, True)
    assert after.kernel.config == {"CONFIG_KSM": "n"}


def test_an_arm_with_a_kernel_of_its_own_has_the_option_of_all_arms() -> None:
    other = KernelSpec(source="git:/linux@v7.3", config={"CONFIG_A": "y"})
    arms = (ArmSpec(name="one"), ArmSpec(name="two", kernel=other))
    after = with_config(make_experiment([("w", "default")], arms=arms), ["CONFIG_B=y"])
    assert after.arms[1].kernel is not None
    assert after.arms[1].kernel.config == {"CONFIG_A": "y", "CONFIG_B": "y"}


@pytest.mark.parametrize(
    "text", ["LRU_GEN=y", "CONFIG_LRU_GEN", "CONFIG_LRU_GEN=yes", "CONFIG_A=y\nCONFIG_B=y", ":="]
)
def test_what_is_no_option_is_refused_with_an_example(text: str) -> None:
    experiment = make_experiment([("w", "default")], series=SERIES)
    with pytest.raises(SpecError, match="for example CONFIG_LRU_GEN=y or patched:"):
        with_config(experiment, [text])


def test_an_unknown_arm_names_the_known_ones() -> None:
    experiment = make_experiment([("w", "default")], series=SERIES)
    with pytest.raises(SpecError, match="allowed: patched, base; did you mean 'patched'"):
        with_config(experiment, ["patchd:CONFIG_LRU_GEN=y"])


def test_kernels_that_differ_in_options_are_two() -> None:
    plain = KernelSpec(source="git:/linux@v7.3")
    other = but(plain, config={"CONFIG_A": "y"})
    assert len({plain, other, KernelSpec(source="git:/linux@v7.3")}) == 2
