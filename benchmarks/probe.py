"""What the probe costs, and how exactly it counts, on this host.

Runs the unpatched kernel of an experiment from one snapshot in turns: without the probe,
with it, with it watching locks, too, as sessions do, with call stacks besides, with a machine's
caches modelled, without the others and with all of them as in a session's diagnostic run, or, with
several vCPUs, with lines that move between them.  The lab promises that all
send the same bytes, that counts are the same bytes each time, at most 1.3 times the host's CPU
time, and at most 1.15 times that of a probe without locks.  A model is to take at most 2.5 times
the plain run on one vCPU and 3 times on several (memory.md and lines.md in docs/notebook).

    .venv/bin/python benchmarks/probe.py --runs 3
    .venv/bin/python benchmarks/probe.py --vcpus 4 --cpu Nehalem,-hypervisor
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from experiment.load import load_experiment, load_machine
from guests import channel, exact
from guests.exact import Machine, Outcome
from guests.probe import fold, models, plugin
from guests.probe.plugin import Probe
from host.facts import cache_folder
from kernels.cache import Kernel
from runs.local import Options
from runs.prepare import boot_of, parts_of, prepare
from runs.requirements import can_be_modelled, can_share_lines
from runs.resolved import catalogue, resolve

# Forms of the probe that write more than it, and what they do.
MORE = {
    "locks": "",
    "stacks": "call stacks followed",
    "memory": "caches modelled",
    "diagnostic": "caches modelled, locks and call stacks",
    "lines": "lines followed",
}


def silent(word: str) -> None:
    """Nobody watches."""


def reshaped(machine: Machine, vcpus: int, cpu: str) -> Machine:
    """The machine with another number or model of vCPUs, where asked."""
    changes = {"vcpus": vcpus or machine.guest.vcpus, "cpu": cpu or machine.guest.cpu}
    return dataclasses.replace(machine, guest=machine.guest.model_copy(update=changes))


def forms_of(
    probe: Probe, kernel: Kernel, machine: Machine, modelled: str
) -> dict[str, Probe | None]:
    """Forms of the probe that this guest can have, by name; ``modelled`` is a machine or none."""
    locks = dataclasses.replace(probe, locks=fold.locks_of(kernel))
    forms: dict[str, Probe | None] = {"plain": None, "probe": probe, "locks": locks}
    full = locks
    if words := fold.stack_words(kernel):
        full = dataclasses.replace(locks, functions=kernel.system_map, stacks=words)
        forms["stacks"] = full
    if modelled != "none" and can_be_modelled([machine.guest]):
        caches = models.memory_words(load_machine(Path(modelled)), kernel)
        forms["memory"] = dataclasses.replace(probe, model=caches)
        forms["diagnostic"] = dataclasses.replace(full, model=caches)
    if modelled != "none" and can_share_lines([machine.guest]):
        shared = models.line_words(load_machine(Path(modelled)), kernel)
        forms["lines"] = dataclasses.replace(locks, model=shared)
    return forms


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--experiment", default="filemap-v4")
    parser.add_argument("--guest", default="laptop")
    parser.add_argument("--vcpus", type=int, default=0)
    parser.add_argument("--cpu", default="")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--memory", default="ice-lake-sp", help="a machine, or none")
    arguments = parser.parse_args()

    overrides = [f"guest={arguments.guest}", "blocks=1"]
    experiment = load_experiment(
        Path(arguments.experiment), overrides=overrides, catalogue=catalogue(CHECKOUT)
    )
    experiment = experiment.model_copy(update={"twins": ()})
    resolved = resolve(experiment, checkout=CHECKOUT, cache=cache_folder())
    session = prepare(resolved, Options(CHECKOUT, cache_folder()), lambda arm, progress: None)
    planned = session.plan.runs[0]
    parts, booted = parts_of(session, planned), boot_of(session, planned, cold=False)
    machine = reshaped(booted.machine, arguments.vcpus, arguments.cpu)
    phases = [phase.name for phase in parts.phases]
    text = booted.job_text
    probe = plugin.provide(cache_folder())
    print(f"QEMU {probe.qemu}, form {probe.api}, {machine.guest.vcpus} vCPUs")
    kernel = parts.kernel
    forms = forms_of(probe, kernel, machine, arguments.memory)
    outcomes: dict[str, list[Outcome]] = {form: [] for form in forms}
    with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
        top = Path(folder)
        snapshot = exact.take_snapshot(machine, top / "snapshot", top / "logs", silent)
        for number in range(arguments.runs):
            for form, used in forms.items():
                place = top / f"run-{number}-{form}"
                done = exact.run_restored(snapshot, text, place, place / "logs", silent, probe=used)
                outcomes[form].append(done)
                print(f"{form:10} {done.cpu_s:7.2f} s CPU  {done.ending.message}")

    everything = [done for form in outcomes.values() for done in form]
    if any(done.files is None for done in everything):
        return 1
    results = {channel.fingerprint(done.files or {}) for done in everything}
    counts = {
        hashlib.sha256(done.counts or b"").hexdigest()
        for form in MORE
        for done in outcomes.get(form, ())
    }
    kinds = len(set(MORE) & forms.keys())
    # Whatever else the host does only adds.
    cpu_s = {form: min(done.cpu_s for done in outcomes[form]) for form in forms}
    plain, counted, locked = cpu_s["plain"], cpu_s["probe"], cpu_s["locks"]
    first = outcomes["locks"][0]
    print(f"different results {len(results)}, different counts {len(counts)}")
    print(
        f"CPU time of the probe {counted / plain:.3f} x, with locks {locked / plain:.3f} x, "
        f"{locked / counted:.3f} x of the probe; {len(first.counts or b'') / 1e6:.1f} MB"
    )
    for form, title in MORE.items():
        if form in forms and title:
            print(f"CPU time with {title} {cpu_s[form] / plain:.3f} x the plain run")
    for phase, share in fold.overcount(first.counts or b"", first.files or {}, phases).items():
        print(f"{phase}: counted {share:+.4%} against the guest's clock")
    return len(results) != 1 or len(counts) != kinds


if __name__ == "__main__":
    sys.exit(main())
