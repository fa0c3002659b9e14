"""What the lab would do, as lines for a shell: for ``--dry-run``."""

from __future__ import annotations

import itertools
from pathlib import Path

from experiment.plan import PlannedRun, make_plan, scaled
from experiment.spec import Experiment
from guests import initramfs, native
from guests.argv import Files, environment, qemu_argv
from host.process import paste
from kernels import build
from kernels.cache import kernels_folder
from runs import prepare
from runs.options import Options
from workloads.job import job_text, prepare_text
from workloads.spec import load_catalogue

WORK = Path("/tmp/twinboot-by-hand")  # noqa: S108


def build_commands(asked: Experiment, options: Options) -> list[str]:
    """Lines that build every kernel of the experiment, in folders of their own."""
    lines = []
    for flavour, arm in itertools.product(prepare.flavours(asked), asked.both_arms):
        spec = asked.kernel.model_copy(update={"flavour": flavour})
        patches = prepare.patches_of(asked, arm, options)
        lines.append(f"# kernel of arm {arm.name}, flavour {flavour}")
        lines += build.commands(spec, patches, checkout=options.checkout, cache=options.cache)
    return lines


def measure_commands(asked: Experiment, options: Options) -> list[str]:
    """Lines that boot the runs of the first block, each from cold."""
    lines = []
    for run in make_plan(asked).runs:
        if not run.block and not run.repeat:
            lines += _boot(asked, options, run)
    return lines


def _boot(asked: Experiment, options: Options, run: PlannedRun) -> list[str]:
    guest = prepare.shapes(asked)[run.twin]
    size = scaled(asked.dataset, guest)
    flavour = (asked.twin(run.twin).flavour if run.twin else None) or asked.kernel.flavour
    case = next(case for case in asked.cases if case.name == run.case)
    arm = next(arm for arm in asked.both_arms if arm.name == run.arm)
    key = build.key_of(
        asked.kernel.model_copy(update={"flavour": flavour}),
        prepare.patches_of(asked, arm, options),
        checkout=options.checkout,
        cache=options.cache,
    )
    work = WORK / run.run_id
    workload = load_catalogue()[case.workload]
    texts = {
        "prepare": prepare_text(workload, file_mib=size.file_mib, metronome_ns=guest.metronome_ns),
        "job": job_text(
            workload.phases_of(case.variant), case.times[asked.guest],
            jobs=size.jobs, seed=run.seed, limit_bytes=size.cgroup_limit_mib << 20,
            observe=asked.twin(run.twin).observe if run.twin else "",
        ),
    }  # fmt: skip
    files = Files(
        kernel=kernels_folder(options.cache) / key / "bzImage",
        initramfs=initramfs.provide(options.cache).path, memory=work / "memory",
        memory_shared=True, console=work / "console", result=work / "result",
        prepare=work / "prepare", job=work / "job",
    )  # fmt: skip
    # QEMU does not clear a memory file that is there already.
    lines = [f"# {run.run_id}", f"rm -rf {work} && mkdir -p {work}"]
    for name, text in texts.items():
        # fw_cfg files have one fixed length, padded with newlines.
        body = paste(["printf", "%s\\n", *text.rstrip("\n").splitlines()])
        pad = f"head -c {len(text.encode())} /dev/zero | tr '\\0' '\\n'"
        lines.append(f"{{ {body}; {pad}; }} | head -c {len(text.encode())} > {work / name}")
    clock = native.build(native.PRELOAD, native.SHARED_LIBRARY, options.cache)
    return [*lines, paste(qemu_argv(guest, size, files), environment(clock))]
