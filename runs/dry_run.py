"""What a session would do, as lines for a shell: an executor that prints instead of doing.

Everything up to the executor is the session's own: the same preparation, the same stages in the
same order, the same machines and jobs.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from experiment.plan import Plan
from guests import exact, virtme
from guests.argv import environment, qemu_argv
from guests.exact import Machine
from guests.probe.plugin import Probe
from guests.virtme import WallMachine
from host import accelerator, facts
from host.accelerator import AcceleratorTest
from host.process import paste
from kernels import build
from kernels.build import KernelRequest
from kernels.cache import Kernel, load, planned
from kernels.make import MakeProgress
from results.store import SessionStore
from runs import stages
from runs.boots import Boot, Judge, Place, Reporter
from runs.building import build_arms
from runs.check import run_gate
from runs.local import Options
from runs.measure import measure
from runs.prepare import Prepared, prepare, wall_boot_of, with_kernels
from runs.resolved import Resolved

BY_HAND = "by-hand"
NOTHING = "# the arms' machine code is the same: nothing is booted (--measure-anyway does)"


@dataclass(frozen=True)
class PrintingExecutor:
    """As ``runs.boots.Executor``: it builds and boots nothing, and writes down what would be.

    A kernel that is in no cache is one with its key and its place, and code of its own.
    """

    cache: Path
    lines: list[str] = field(default_factory=list)
    known: dict[str, Kernel] = field(default_factory=dict)
    name: str = "printing"

    def slots(self, memory_mib: int, limit: int | None) -> int:
        """One line after the other."""
        return 1

    def boot(self, batches: Sequence[Sequence[Boot]], judge: Judge, place: Place) -> float:
        """Write down each guest, booted from cold; the judge hears of none."""
        for boot in (boot for batch in batches for boot in batch):
            self.lines.extend(exact_lines(boot.name, boot.machine, boot.job_text, boot.probe))
        return 0.0

    def keeping(self) -> AbstractContextManager[PrintingExecutor]:
        """Nothing is booted, so nothing is kept."""
        return nullcontext(self)

    def require_wall(self) -> None:
        """It can be written down."""

    def accelerator(self, cache: Path, image: Path) -> AcceleratorTest:
        """What this host has; KVM where nobody has found that out yet, which takes a boot."""
        return accelerator.kept(cache) or AcceleratorTest("kvm", ())

    def expect_kernels(self, kernels: Sequence[KernelRequest]) -> None:
        """Nothing is gained by knowing."""

    def provide_kernel(
        self, kernel: KernelRequest, progress: Callable[[MakeProgress], None] | None = None
    ) -> Kernel:
        """The kernel as it is in the cache, or will be; lines that build it on its own."""
        key = build.key_of(kernel)
        if key not in self.known:
            flavour = kernel.spec.configuration
            title = f"# kernel {key}, flavour {flavour}, {len(kernel.patches)} patches"
            self.lines.extend([title, *build.commands(kernel)])
            self.known[key] = load(kernel.cache, key) or planned(kernel.spec, key, kernel.cache)
        return self.known[key]


def kernel_lines(resolved: Resolved, options: Options) -> list[str]:
    """Lines that build every kernel of the experiment, in folders of their own.

    Raises LabError: as for building, as far as nothing is built.
    """
    executor = PrintingExecutor(options.cache)
    for flavour in resolved.flavours:
        build_arms(resolved, replace(options, executor=executor), _quiet, flavour)
    return executor.lines


def session_lines(resolved: Resolved, options: Options) -> list[str]:
    """Lines that build a session's kernels, and boot the runs of its first seed and its checks.

    Each guest boots from cold, which gives the bytes that a restored one gives.  Raises LabError:
    whatever preparing a session says.
    """
    executor = PrintingExecutor(options.cache)
    options = replace(options, executor=executor, fit_only=False, kept=None)
    reporter = Reporter(Console(file=io.StringIO()))
    session = prepare(resolved, options, _quiet)
    if session.same_code:
        return [*executor.lines, NOTHING]
    with tempfile.TemporaryDirectory(prefix="twinboot-dry-run-") as folder:
        store = SessionStore(Path(folder))

        def boot(part: Prepared) -> None:
            runs = tuple(run for run in part.plan.runs if not run.block and not run.repeat)
            part = replace(part, plan=Plan(runs=runs, seeds=part.plan.seeds))
            if part.wall is None:
                measure(part, options, store, reporter)
            else:
                for run in part.plan.runs:
                    executor.lines.extend(wall_lines(run.run_id, *wall_boot_of(part, run)))

        boot(stages.of_twins(session, ("",)))
        for stage in stages.stages_of(session):
            session = with_kernels(session, options, _quiet, stage.flavours)
            if stage.twins:
                boot(stages.of_twins(session, stage.twins, repeats=stage.repeats))
            else:
                run_gate(session, options, store, reporter)
    return executor.lines


def _work(name: str) -> Path:
    """A folder in the user's own cache: in /tmp somebody else may have made it first."""
    return facts.cache_folder() / BY_HAND / name


def exact_lines(name: str, machine: Machine, job_text: str, probe: Probe | None) -> list[str]:
    """Lines that boot an exact guest to its end, without snapshot and monitor."""
    work = _work(name)
    files = exact.files_of(machine, work, work)
    texts = {files.prepare: machine.prepare_text, files.job: job_text}
    argv = qemu_argv(
        machine.guest,
        machine.size,
        files,
        plugin=exact.plugin_of(probe, work, files.memory),
        cmdline=machine.cmdline,
    )
    return [
        f"# {name}",
        # QEMU does not clear a memory file that is there already.
        f"{paste(['rm', '-rf', str(work)])} && {paste(['mkdir', '-p', str(work)])}",
        *(_text(text, path) for path, text in texts.items()),
        paste(argv, environment(machine.preload, machine.guest)),
    ]


def wall_lines(name: str, machine: WallMachine, job_text: str) -> list[str]:
    """As ``guests.virtme`` lays it out; the machine waits for `cont` on its monitor."""
    work = _work(name)
    files = virtme.WallFiles(work)
    argv = virtme.vng_argv(
        machine.guest, machine.size, files, machine.accelerator, cmdline=machine.cmdline
    )
    texts = {"prepare": machine.prepare_text, "job": job_text}
    folders = [files.home, files.temporary, *(files.share / text for text in texts)]
    return [
        f"# {name}; by hand the guest reads this host's /, in a session a root of its own",
        f"{paste(['rm', '-rf', str(work)])} && {paste(['mkdir', '-p', *map(str, folders)])}",
        paste(["ln", "-s", str(machine.kernel), str(files.kernel)]),
        paste(["cp", str(virtme.ENTER), str(virtme.WALL_AGENT), str(files.share)]),
        paste(["cp", str(machine.initramfs), str(files.share / virtme.ROOT_NAME)]),
        *(_text(text, files.share / word / "raw") for word, text in texts.items()),
        paste(virtme.wrapped(argv), virtme.environment(files)),
    ]


def _text(text: str, path: Path) -> str:
    # Texts of runs have one fixed length, padded with newlines.
    body = paste(["printf", "%s\\n", *text.rstrip("\n").splitlines()])
    length = len(text.encode())
    pad = f"head -c {length} /dev/zero | tr '\\0' '\\n'"
    return f"{{ {body}; {pad}; }} | head -c {length} > {path}"


def _quiet(arm: str, progress: MakeProgress) -> None:
    """Nothing is built."""
