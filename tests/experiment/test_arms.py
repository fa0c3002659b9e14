"""Settings of an arm: what may be set, and what is said of what may not."""

from typing import Any

import pytest
from pydantic import ValidationError

from experiment.arms import ArmSpec


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


@pytest.mark.parametrize(
    "word",
    [
        "thp_anon=16K-64K:always;128K,512K:inherit;256K:madvise;1M-2M:never",
        "slub_debug=FZ,radix_tree_node",
        "mitigations=off",
        "isolcpus=managed_irq,domain,1-3",
        'dyndbg="file mm/vmscan.c +p"',
        "crashkernel=512M@16M",
        "memmap=2G!4G",
        "memmap=1G$4G",
        "root=/dev/disk/by-label/a\\x20b",
        "hugepagesz=1G",
        "init_on_alloc=1",
        "a.b=~c^d&e|f<g>h",
        "earlyprintk=ttyS0,115200",
        "module.param='x'",
        "quiet",
        "x=#1%",
        "--",
    ],
)
def test_a_command_line_holds_what_a_kernel_takes(word: str) -> None:
    assert arm(cmdline=(word,)).cmdline == (word,)


@pytest.mark.parametrize("word", ["", "a b", "a\tb", "a\nb", 'a="b', "a\x00b"])
def test_two_words_are_not_one(word: str) -> None:
    assert refusal(cmdline=(word,)).startswith(f"found {word!r}; one word each is wanted")


def test_a_command_line_ends_before_the_kernel_cuts_it_off() -> None:
    assert "the kernel cuts the rest off" in refusal(cmdline=("x" * 1501,))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"sysctl": {"kernel.mm.lru_gen.enabled": "n"}},
            'is a file of /sys, no sysctl: sysfs = { "kernel/mm/lru_gen/enabled" = ... }',
        ),
        ({"sysctl": {"swappiness": "1"}}, "swappiness is no sysctl; they are called as vm.swapp"),
        ({"sysctl": {"vm": "1"}}, "vm is no sysctl"),
        ({"sysctl": {"vmm.swappiness": "1"}}, "begin with abi, crypto, debug, dev, fs, kernel"),
        ({"sysctl": {"vm.x; reboot": "1"}}, "is no sysctl"),
        ({"sysctl": {"vm.x": "a\nb"}}, "vm.x: a line of text is wanted"),
        ({"sysfs": {"/sys/kernel/mm": "1"}}, "a file below /sys is wanted"),
        ({"sysfs": {"kernel/../../etc/passwd": "1"}}, "a file below /sys is wanted"),
        ({"sysfs": {"fs/cgroup/memory.high": "1"}}, "files of the measured cgroup go into cgroup"),
        ({"sysfs": {"kernel/mm/transparent_hugepage/enabled": "always"}}, "set by each phase"),
        ({"cgroup": {"memory.max": "1"}}, "memory.max is the dataset's: cgroup_limit_mib"),
        ({"cgroup": {"memry.high": "1"}}, "controllers: cpu, cpuset, io, memory, pids"),
        ({"cgroup": {"memory.high/../x": "1"}}, "a file of the measured cgroup is wanted"),
        ({"mount_options": "noatime, discard"}, "options with commas between them are wanted"),
    ],
)
def test_what_cannot_be_set_is_answered_by_what_can(settings: dict[str, Any], words: str) -> None:
    answer = refusal(**settings)
    assert words in answer
    assert "pattern" not in answer
