"""Settings of an arm: what may be set, and what is said of what may not."""

from typing import Any

import pytest
from pydantic import ValidationError

from experiment.arms import ArmSpec
from tests.values import data


def arm(**settings: Any) -> ArmSpec:
    return ArmSpec(name="a", **settings)


def refusal(**settings: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        arm(**settings)
    (error,) = caught.value.errors()
    return error["msg"].removeprefix("Value error, ")


def test_files_of_sys_and_of_the_cgroup_are_set_by_their_whole_paths() -> None:
    spec = arm(
        sysctl={"vm.swappiness": "10", "net/ipv4/conf/eth0.1/forwarding": "1"},
        sysfs={"kernel/mm/lru_gen/enabled": "y", "block/ram0/queue/read_ahead_kb": "64"},
        cgroup={"memory.high": "24M", "cpuset.mems": "0-1", "cpu.max": "50000 100000"},
    )
    assert spec.files == {
        "/sys/block/ram0/queue/read_ahead_kb": "64",
        "/sys/kernel/mm/lru_gen/enabled": "y",
        "/sys/fs/cgroup/twinboot/cpu.max": "50000 100000",
        "/sys/fs/cgroup/twinboot/cpuset.mems": "0-1",
        "/sys/fs/cgroup/twinboot/memory.high": "24M",
    }
    assert ("sysfs kernel/mm/lru_gen/enabled", "y") in spec.settings
    assert ("cgroup memory.high", "24M") in spec.settings


@pytest.mark.parametrize("word", data(__file__, "a_command_line_holds_what_a_kernel_takes"))
def test_a_command_line_holds_what_a_kernel_takes(word: str) -> None:
    assert arm(cmdline=(word,)).cmdline == (word,)


@pytest.mark.parametrize("word", ["", "a b", "a\tb", "a\nb", 'a="b', "a\x00b"])
def test_two_words_are_not_one(word: str) -> None:
    assert refusal(cmdline=(word,)).startswith(f"found {word!r}; one word each is wanted")


def test_a_command_line_ends_before_the_kernel_cuts_it_off() -> None:
    assert "the kernel cuts the rest off" in refusal(cmdline=("x" * 1501,))


@pytest.mark.parametrize(
    ("settings", "words"), data(__file__, "what_cannot_be_set_is_answered_by_what_can")
)
def test_what_cannot_be_set_is_answered_by_what_can(settings: dict[str, Any], words: str) -> None:
    answer = refusal(**settings)
    assert words in answer
    assert "pattern" not in answer
