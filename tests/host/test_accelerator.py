"""Decisions over told boots, and reasons from recorded output.

A real decision is in tests/integration/test_wall_guests.py.
"""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from errors import InfraError
from host import accelerator
from host.accelerator import (
    ACCELERATORS,
    WORD,
    Accelerator,
    Attempt,
    boot_argv,
    cpu_is_emulated,
    decide,
    reason_in,
    require_device,
    some_kernel,
)
from host.process import Finished
from tests.values import data


def booting(*working: Accelerator) -> Callable[[Accelerator], Attempt]:
    return lambda name: Attempt(name, name in working, "" if name in working else "told not to")


@pytest.mark.parametrize(
    ("working", "chosen"),
    [
        (("kvm", "tcg"), "kvm"),
        (("kvm,arch-capabilities=off", "tcg"), "kvm,arch-capabilities=off"),
        (("tcg",), "tcg"),
    ],
)
def test_first_that_boots_is_chosen(working: tuple[Accelerator, ...], chosen: Accelerator) -> None:
    decision = decide(booting(*working))
    assert decision.accelerator == chosen
    assert decision.real_time == (chosen != "tcg")
    # Nothing is tried behind the one that works.
    assert len(decision.attempts) == ACCELERATORS.index(chosen) + 1


def test_host_that_boots_nothing_is_an_error_with_the_last_reason() -> None:
    with pytest.raises(InfraError, match="boots no kernel: told not to"):
        decide(booting())


def test_text_names_what_was_refused() -> None:
    assert decide(booting("tcg")).text() == (
        "tcg boots a kernel; kvm: told not to; kvm,arch-capabilities=off: told not to"
    )


@pytest.mark.parametrize(("stdout", "stderr", "reason"), data(__file__, "reasons"))
def test_reasons(stdout: str, stderr: str, reason: str) -> None:
    assert reason_in(stdout, stderr) == reason


@pytest.mark.parametrize(
    ("name", "machine", "model"),
    [
        ("kvm", ["q35,accel=kvm"], "host"),
        ("tcg", ["q35", "-accel", "tcg,thread=single"], "max"),
        ("kvm,arch-capabilities=off", ["q35,accel=kvm"], "host,arch-capabilities=off"),
    ],
)
def test_command_line_falls_back_to_nothing(
    name: Accelerator, machine: list[str], model: str
) -> None:
    argv = boot_argv(name, Path("k"), Path("i"))
    assert argv[argv.index("-machine") + 1 : argv.index("-cpu")] == machine
    assert argv[argv.index("-cpu") + 1] == model


def test_newest_plain_kernel_then_the_hosts_own(tmp_path: Path) -> None:
    """Kernels that may hang for reasons of their own say nothing of the host."""
    boot = tmp_path / "boot"
    assert some_kernel(tmp_path, boot=boot) is None
    boot.mkdir()
    own = boot / f"vmlinuz-{os.uname().release}"
    own.touch()
    assert some_kernel(tmp_path, boot=boot) == own
    plain: dict[str, object] = {"arch": os.uname().machine, "patches": [], "flavour": "perf"}
    newest_first: dict[str, dict[str, object]] = {
        "patched": plain | {"patches": ["0001-hang.patch"]},
        "lockdep": plain | {"flavour": "lockdep"},
        "selftest": plain | {"flavour": "selftest"},
        "foreign": plain | {"arch": "none"},
        "torn": {},
        "new": plain,
        "old": plain | {"flavour": "prebuilt"},
    }
    for at, (name, identity) in enumerate(newest_first.items()):
        (tmp_path / "kernels" / name).mkdir(parents=True)
        built = tmp_path / "kernels" / name / "bzImage"
        built.touch()
        os.utime(built, (100 - at, 100 - at))
        built.with_name("identity.json").write_text(json.dumps(identity))
        if name != "new" and name != "old":
            assert some_kernel(tmp_path, boot=boot) == own
    assert some_kernel(tmp_path, boot=boot) == tmp_path / "kernels/new/bzImage"


def test_an_emulated_host_has_more_time_to_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where others share its host KVM took longer than a minute, and was taken for broken."""
    given: list[float] = []

    def run(argv: object, *, timeout_s: float, check: bool) -> Finished:
        given.append(timeout_s)
        return Finished((), 0, WORD, "", 0.0)

    monkeypatch.setattr(accelerator, "run", run)
    for emulated in (False, True):
        monkeypatch.setattr(accelerator, "cpu_is_emulated", lambda emulated=emulated: emulated)
        assert accelerator.attempt("kvm", tmp_path, tmp_path).works
    assert given[1] >= 5 * given[0]


@pytest.mark.parametrize(
    ("vendor", "flags", "clocks", "emulated"), data(__file__, "a_host_that_is_emulated_itself")
)
def test_a_host_that_is_emulated_itself(
    vendor: str, flags: str, clocks: str, emulated: bool, tmp_path: Path
) -> None:
    """What an emulated host, a guest of KVM's and a machine of metal show of themselves."""
    files = {
        "proc/cpuinfo": f"processor\t: 0\nflags\t\t: {flags}\n" if flags else "",
        "sys/devices/system/clocksource/clocksource0/available_clocksource": f"{clocks} \n",
        "sys/class/dmi/id/sys_vendor": f"{vendor}\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cpu_is_emulated(proc=tmp_path / "proc", sys=tmp_path / "sys") is emulated


def test_kvm_of_an_emulated_host_is_no_real_time() -> None:
    decision = replace(decide(booting("kvm")), emulated=True)
    assert not decision.real_time
    assert decision.name == "emulated kvm"
    assert decision.text() == "emulated kvm boots a kernel"


def test_kvm_that_is_gone_is_an_error_with_its_reason(tmp_path: Path) -> None:
    device = tmp_path / "kvm"
    device.touch()
    require_device("kvm", device=device)
    device.unlink()
    with pytest.raises(InfraError, match="No such file") as caught:
        require_device("kvm,arch-capabilities=off", device=device)
    assert caught.value.where == str(device)
    assert "--resume" in caught.value.next_step
    require_device("tcg", device=device)


@pytest.mark.guest
def test_what_is_no_kernel_does_not_boot(tmp_path: Path) -> None:
    image = tmp_path / "bzImage"
    image.write_bytes(b"no kernel" * 1000)
    done = accelerator.attempt("tcg", image, image)
    assert not done.works
    assert done.reason
    assert WORD not in done.reason
