"""What the lab would do, as lines for a shell: for ``--dry-run``."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

from experiment.plan import PlannedRun, Size, scaled
from experiment.spec import Experiment, Guest
from guests import initramfs, native, overlay, virtme, virtme_argv
from guests.argv import Files, environment, qemu_argv
from host import accelerator
from host.process import paste
from kernels import build
from kernels.cache import kernels_folder, load
from runs.arms import arms_of, flavours, kernel_spec, patches_of, plan_of, shapes
from runs.check_plan import PlannedCheck, guest_of, planned
from runs.options import Options
from workloads.job import job_text, prepare_text
from workloads.spec import load_catalogue

WORK = Path("/tmp/twinboot-by-hand")  # noqa: S108


def build_commands(asked: Experiment, options: Options) -> list[str]:
    """Lines that build every kernel of the experiment, in folders of their own."""
    lines = []
    for flavour, arm in itertools.product(flavours(asked), asked.all_arms):
        spec = kernel_spec(asked, arm, flavour)
        patches = patches_of(asked, arm, options)
        lines.append(f"# kernel of arm {arm.name}, flavour {spec.flavour}")
        lines += build.commands(spec, patches, checkout=options.checkout, cache=options.cache)
    return lines


def measure_commands(asked: Experiment, options: Options) -> list[str]:
    """Lines that boot the runs of the first block and the checks' guests, each from cold.

    They are in the order in which a session makes them: judged runs, checks, twins.
    """
    boot = _wall_boot if asked.mode == "wall" else _run_boot
    runs = [run for run in plan_of(asked).runs if not run.block and not run.repeat]
    lines = [line for run in runs if not run.twin for line in boot(asked, options, run)]
    for check in planned(asked, load_catalogue()):
        lines += [f"# of the gate: {check.does}"]
        lines += _boot(check.run_id, _check_inputs(asked, options, check), options)
    return lines + [line for run in runs if run.twin for line in boot(asked, options, run)]


@dataclass(frozen=True)
class _Inputs:
    """What both modes boot: guest, size, kernel, its initramfs, and the two texts by name."""

    guest: Guest
    size: Size
    kernel: Path
    initramfs: Path
    texts: dict[str, str]
    cmdline: tuple[str, ...]


def _inputs(asked: Experiment, options: Options, run: PlannedRun) -> _Inputs:
    guest = shapes(asked)[run.twin][run.arm]
    size = scaled(asked.dataset, guest)
    flavour = (asked.twin(run.twin).flavour if run.twin else None) or ""
    case = next(case for case in asked.cases if case.name == run.case)
    arm = next(arm for arm in arms_of(asked) if arm.name == run.arm)
    spec = kernel_spec(asked, arm, flavour)
    where = {"checkout": options.checkout, "cache": options.cache}
    key = build.key_of(spec, patches_of(asked, arm, options), **where)
    image = initramfs.provide(options.cache, spec.architecture)
    root = overlay.path_of(image, key, options.cache) if spec.is_prebuilt else image.path
    kernel = load(options.cache, key)
    if kernel is not None and spec.is_prebuilt:
        overlay.provide(image, kernel, options.cache)
    workload = load_catalogue()[case.workload]
    texts = {
        "prepare": prepare_text(
            workload, file_mib=size.file_mib, jobs=size.jobs, mount_options=arm.mount_options
        ),
        "job": job_text(
            workload.phases_of(case.variant), case.times[asked.guest],
            jobs=size.jobs, seed=run.seed, limit_bytes=size.cgroup_limit_mib << 20,
            observe=asked.twin(run.twin).observe if run.twin else "", sysctl=arm.sysctl,
        ),
    }  # fmt: skip
    booted = kernels_folder(options.cache) / key / spec.architecture.build.target
    return _Inputs(guest, size, booted, root, texts, arm.cmdline)


def _check_inputs(asked: Experiment, options: Options, check: PlannedCheck) -> _Inputs:
    image = initramfs.provide(options.cache)
    given = guest_of(asked, load_catalogue(), check, image.mib)
    key = build.key_of(
        kernel_spec(asked, check.arm, check.flavour),
        patches_of(asked, check.arm, options),
        checkout=options.checkout,
        cache=options.cache,
    )
    bzimage = kernels_folder(options.cache) / key / "bzImage"
    texts = {"prepare": given.prepare_text, "job": given.job_text}
    return _Inputs(given.guest, given.size, bzimage, image.path, texts, given.cmdline)


def _text(text: str, path: Path) -> str:
    # Texts of runs have one fixed length, padded with newlines.
    body = paste(["printf", "%s\\n", *text.rstrip("\n").splitlines()])
    length = len(text.encode())
    pad = f"head -c {length} /dev/zero | tr '\\0' '\\n'"
    return f"{{ {body}; {pad}; }} | head -c {length} > {path}"


def _run_boot(asked: Experiment, options: Options, run: PlannedRun) -> list[str]:
    return _boot(run.run_id, _inputs(asked, options, run), options)


def _boot(run_id: str, given: _Inputs, options: Options) -> list[str]:
    work = WORK / run_id
    files = Files(
        kernel=given.kernel,
        initramfs=given.initramfs, memory=work / "memory",
        memory_shared=True, console=work / "console", result=work / "result",
        prepare=work / "prepare", job=work / "job",
    )  # fmt: skip
    # QEMU does not clear a memory file that is there already.
    lines = [f"# {run_id}", f"rm -rf {work} && mkdir -p {work}"]
    lines += [_text(text, work / name) for name, text in given.texts.items()]
    clock = native.build(native.PRELOAD, native.SHARED_LIBRARY, options.cache)
    argv = qemu_argv(given.guest, given.size, files, cmdline=given.cmdline)
    return [*lines, paste(argv, environment(clock, given.guest))]


def _wall_boot(asked: Experiment, options: Options, run: PlannedRun) -> list[str]:
    """As ``guests.virtme`` lays it out; the machine waits for `cont` on its monitor."""
    given, work = _inputs(asked, options, run), WORK / run.run_id
    files = virtme_argv.Files(work)
    known = accelerator.kept(options.cache)
    argv = virtme_argv.vng_argv(
        given.guest,
        given.size,
        files,
        known.accelerator if known else "kvm",
        cmdline=given.cmdline,
    )
    folders = [files.home, files.temporary, *(files.share / name for name in given.texts)]
    return [
        f"# {run.run_id}",
        f"rm -rf {work} && {paste(['mkdir', '-p', *map(str, folders)])}",
        paste(["ln", "-s", str(given.kernel), str(files.kernel)]),
        paste(["cp", str(virtme.ENTER), str(virtme.WALL_AGENT), str(files.share)]),
        paste(["cp", str(given.initramfs), str(files.share / virtme.ROOT_NAME)]),
        *(_text(text, files.share / name / "raw") for name, text in given.texts.items()),
        paste(virtme_argv.wrapped(argv), virtme_argv.environment(files)),
    ]
