"""Whether KVM runs a kernel on this host: decided by booting one, with a deadline.

That ``/dev/kvm`` opens, and even that a virtual machine and its vCPUs can be made,
says too little: nested hosts refuse a register at the first reset ("failed to set
MSR 0x10a"), or die emulating an instruction of the kernel.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

from errors import InfraError
from host.facts import text_of
from host.packages import require
from host.process import run
from text import words

Accelerator = Literal["kvm", "kvm,arch-capabilities=off", "tcg"]
# In the order of preference.
ACCELERATORS: tuple[Accelerator, ...] = get_args(Accelerator)
QEMU = "qemu-system-x86_64"
MACHINE = "q35"
WORD = "twinboot: a kernel runs here"
# Seconds: a working KVM needs two or three; one that does not work keeps a CPU busy without a word
# until the deadline, and whoever asked waits.  TCG needs up to a minute.
DEADLINE_S = {"kvm": 30.0, "kvm,arch-capabilities=off": 30.0, "tcg": 180.0}
# On a host that is emulated itself: seen to take thirty seconds, and longer than a minute beside
# other work.
EMULATED_PATIENCE = 5
# Through the kernel's log, which is written out before the power goes; what is written to the
# console itself waits for its interrupts, and is lost where those are slow.
INIT = f"""#!/bin/busybox sh
/bin/busybox mknod /kmsg c 1 11
echo "<0>{WORD}" >/kmsg
/bin/busybox poweroff -f
"""
PACK_TIMEOUT_S = 30.0
REASON_CHARACTERS = 200
DEVICE = Path("/dev/kvm")
# Flavours of configs/kconfig that look for bugs as they run.
DEBUGGING = ("lockdep", "selftest", "kasan")


@dataclass(frozen=True)
class Attempt:
    """One boot: which accelerator, whether the kernel came to its first program, and why not."""

    accelerator: Accelerator
    works: bool
    reason: str


@dataclass(frozen=True)
class AcceleratorTest:
    """What this host can do: the best accelerator, and every attempt on the way.

    ``emulated`` is true where the host itself is a machine of QEMU's translator: KVM works as
    anywhere there, and its time says nothing.
    """

    accelerator: Accelerator
    attempts: tuple[Attempt, ...]
    emulated: bool = False

    @property
    def name(self) -> str:
        """What ran the guests, as sessions record it."""
        return f"emulated {self.accelerator}" if self.emulated else self.accelerator

    @property
    def real_time(self) -> bool:
        """Whether guests run on real CPUs, so that their time means something."""
        return self.accelerator != "tcg" and not self.emulated

    def text(self) -> str:
        """One line: what was chosen, and what was refused with its reason."""
        refused = [f"{a.accelerator}: {a.reason}" for a in self.attempts if not a.works]
        return "; ".join([f"{self.name} boots a kernel", *refused])


def machine_options(accelerator: Accelerator) -> list[str]:
    """QEMU's options for the machine and what runs it; TCG runs all vCPUs in one thread.

    With a thread for each vCPU one boot of Debian's 6.12 in forty panicked (QEMU 7.2, "Oops:
    int3"): a vCPU took the breakpoint of code that another had finished patching, and a kernel
    would be blamed for it.  KVM is named with the machine, as virtme-ng does, since QEMU
    refuses both spellings together.
    """
    if accelerator == "tcg":
        return ["-machine", MACHINE, "-accel", "tcg,thread=single"]
    return ["-machine", f"{MACHINE},accel=kvm"]


def boot_argv(accelerator: Accelerator, kernel: Path, initrd: Path) -> list[str]:
    """The QEMU command line of one attempt: two vCPUs, no device but a console."""
    without = accelerator.partition(",")[2]
    model = "max" if accelerator == "tcg" else ",".join(filter(None, ("host", without)))
    return [
        *(QEMU, *machine_options(accelerator), "-cpu", model),
        *words("-smp 2 -m 256M -nodefaults -no-user-config -display none -no-reboot -serial stdio"),
        *("-kernel", str(kernel), "-initrd", str(initrd)),
        *("-append", "console=ttyS0 panic=-1 rdinit=/init"),
    ]


def reason_in(stdout: str, stderr: str) -> str:
    """Why a boot did not reach its first program, from what QEMU and the kernel said."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    reasons = [line for line in lines if "error" in line or "Could not" in line or "failed" in line]
    if not reasons:
        reasons = [line for line in stdout.splitlines() if "Kernel panic" in line] or lines
    if not reasons:
        printed = [line.strip() for line in stdout.splitlines() if line.strip()]
        reasons = [f"ended after {printed[-1]!r}"] if printed else ["ended without a word"]
    return reasons[0].removeprefix(f"{QEMU}: ")[:REASON_CHARACTERS]


def attempt(accelerator: Accelerator, kernel: Path, initrd: Path) -> Attempt:
    """Boot ``kernel`` once; a boot that fails in whatever way is an answer too."""
    timeout_s = DEADLINE_S[accelerator] * (EMULATED_PATIENCE if cpu_is_emulated() else 1)
    try:
        done = run(boot_argv(accelerator, kernel, initrd), timeout_s=timeout_s, check=False)
    except InfraError as error:
        return Attempt(accelerator, False, error.what)
    works = WORD in done.stdout
    return Attempt(accelerator, works, "" if works else reason_in(done.stdout, done.stderr))


def decide(boot_with: Callable[[Accelerator], Attempt]) -> AcceleratorTest:
    """The first accelerator, in order, that works; InfraError: not even TCG boots the kernel."""
    attempts: list[Attempt] = []
    for accelerator in ACCELERATORS:
        attempts.append(boot_with(accelerator))
        if attempts[-1].works:
            return AcceleratorTest(accelerator, tuple(attempts))
    what = f"QEMU boots no kernel: {attempts[-1].reason}"
    raise InfraError(what, where=QEMU, next_step="./lab.py doctor")


def some_kernel(cache: Path, *, boot: Path = Path("/boot")) -> Path | None:
    """A kernel to boot: the newest of the cache without patches or debugging, or the host's own."""
    built = []
    for path in cache.glob("kernels/*/bzImage"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            identity = json.loads(path.with_name("identity.json").read_text())
            debugging = identity["flavour"].partition("+")[0] in DEBUGGING
            is_own = identity["arch"] == os.uname().machine
            if is_own and not identity["patches"] and not debugging:
                built.append(path)
    own = boot / f"vmlinuz-{os.uname().release}"
    if built:
        return max(built, key=lambda path: path.stat().st_mtime)
    return own if os.access(own, os.R_OK) else None


def cpu_is_emulated(*, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> bool:
    """Whether QEMU's translator runs this machine: one of QEMU's without KVM's clock."""
    clocks = text_of(sys / "devices/system/clocksource/clocksource0/available_clocksource")
    return (
        text_of(sys / "class/dmi/id/sys_vendor").strip() == "QEMU"
        # A hypervisor says that it is there; Arm's do not say it here.
        and re.search(r"^flags\s*:.*\bhypervisor\b", text_of(proc / "cpuinfo"), re.M) is not None
        and "kvm-clock" not in clocks.split()
    )


@lru_cache
def provide(kernel: Path) -> AcceleratorTest:
    """What this host can do, found out once a process.

    Raises InfraError: QEMU, busybox or cpio is missing, or QEMU boots no kernel at all.
    """
    with tempfile.TemporaryDirectory(prefix="twinboot-accelerator-") as name:
        initrd = small_root(Path(name))
        result = decide(lambda accelerator: attempt(accelerator, kernel, initrd))
    return replace(result, emulated=cpu_is_emulated())


def require_device(ran_by: str, *, device: Path = DEVICE) -> None:
    """See that what ran guests before is there; InfraError: KVM's device is gone."""
    if "kvm" not in ran_by:
        return
    try:
        os.close(os.open(device, os.O_RDWR))
    except OSError as error:
        what = f"KVM is gone, by which guests ran so far: {error.strerror}"
        step = "bring it back (./lab.py doctor --wall), then go on with --resume SESSION"
        raise InfraError(what, where=str(device), next_step=step) from None


def small_root(folder: Path) -> Path:
    """A root of busybox and one script, packed in a folder."""
    busybox = require("busybox")
    root, image = folder / "root", folder / "root.cpio"
    (root / "bin").mkdir(parents=True)
    shutil.copy(busybox.resolve(), root / "bin" / "busybox")
    (root / "init").write_text(INIT)
    (root / "init").chmod(0o755)
    run(
        ["cpio", "--create", "--format=newc", "--owner=+0:+0", "--quiet", f"--file={image}"],
        cwd=root,
        stdin_text="init\nbin\nbin/busybox\n",
        timeout_s=PACK_TIMEOUT_S,
    )
    return image
