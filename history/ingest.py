"""From a session folder to an entry of the history: pure but for reading the folder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ValidationError

from analysis.comparison import summarize, unfinished
from analysis.explain.functions import MOST_CHANGED, Attribution
from analysis.many import SessionComparison, compare_session
from analysis.operations import per_operation
from errors import RecordError
from experiment.frozen import first_of
from history.entry import (
    PINNED,
    ArmCase,
    ArmEntry,
    CaseEntry,
    ChangedFunction,
    ChangedFunctions,
    Conclusion,
    Ensemble,
    Entry,
    FunctionDifference,
    role_of,
)
from reports.headline import pending
from reports.sentences import of_finding, title
from results.record import CaseRecord, Manifest, RunRecord
from results.session import MeasuredSession, open_session
from text import clean

COMMIT = re.compile(r"@([0-9a-f]{12,40})$")
DIGITS = 7
MOST_TEXTS = 20


def read_session(folder: Path, *, night: str = "", link: str = "") -> Entry:
    """The entry of the session in ``folder``.

    ``night`` is a date that takes the place of the session's own; ``link`` leads to the
    session's reports.

    Raises StoreError: the folder is no session, or cannot be read; ReportError: its records
    cannot be compared; RecordError: planned runs or correctness checks are missing in it, or a
    value is none of a night's.
    """
    # Of what is counted an entry has functions alone.
    session = open_session(folder, counted=False)
    try:
        return entry_of(session, night=night, link=link)
    except ValidationError as error:
        raise RecordError(f"{session.manifest.session}: {clean(first_of(error))}") from None


def entry_of(session: MeasuredSession, *, night: str = "", link: str = "") -> Entry:
    """:func:`read_session` from what is in a session folder."""
    manifest = session.manifest
    experiment, provenance = manifest.experiment, manifest.provenance
    if experiment.mode == "wall":
        raise RecordError(
            f"{manifest.session}: wall mode, whose nights are not compared; each is judged against "
            f"its own pinned kernel: ./lab.py gate {manifest.session}"
        )
    compared = compare_session(session)
    if open_runs := unfinished(session):
        raise RecordError(f"{manifest.session}: {open_runs}; finish it with --resume")
    if pending(compared):
        raise RecordError(f"{manifest.session}: checks pending; finish it with --resume")
    of_operations = per_operation(compared)
    measured = [record for record in session.records if not record.twin and not record.repeat]
    looks = experiment.looks(len(manifest.seeds))
    warnings = [of_finding(each) for each in compared.findings if each.level == "warning"]
    sources = {arm.name: arm.kernel.source for arm in experiment.all_arms if arm.kernel}
    return Entry(
        night=night or manifest.created[:10],
        created=manifest.created,
        session=manifest.session,
        link=link,
        experiment=experiment.name,
        title=title(manifest),
        mode=experiment.mode,
        guest=manifest.guest.name,
        thresholds=experiment.thresholds,
        lab_version=provenance.lab_version,
        lab_commit=provenance.lab_commit,
        setting=setting_of(manifest),
        tools=provenance.tools,
        initramfs_sha256=provenance.initramfs_sha256,
        arms=tuple(
            ArmEntry(
                name=arm.name,
                label=arm.label,
                role=role_of(arm.name),
                kernel=arm.kernel,
                settings=arm.settings,
                commit=commit_of(sources.get(arm.name, experiment.kernel.source)),
            )
            for arm in manifest.arms
        ),
        cases=tuple(
            _case(manifest, measured, case, compared, of_operations) for case in manifest.cases
        ),
        exactness=compared.comparisons[0].exactness.status,
        looks=looks.seeds if looks.sequential else (),
        same_code=manifest.same_code,
        findings=tuple(warnings[:MOST_TEXTS]),
        counted=bool(session.profiles),
    )


def commit_of(source: str) -> str:
    """The commit in ``git:PATH@COMMIT``; empty for a branch, a tag or another kind."""
    match = COMMIT.search(source) if source.startswith("git:") else None
    return match[1] if match else ""


def setting_of(manifest: Manifest) -> dict[str, str]:
    """All that may move a number besides the kernel, by name.

    Compiler and configuration are of the pinned arm where there is one: its build is the lab's.
    """
    experiment, provenance = manifest.experiment, manifest.provenance
    steady = next((arm for arm in manifest.arms if arm.name == PINNED), None)
    kernel = (steady or manifest.arms[0]).kernel
    commands = [phase for case in manifest.cases for phase in case.phases]
    setting = {
        "lab": provenance.lab_version,
        "qemu": provenance.tools.get("qemu", ""),
        "fio": provenance.tools.get("fio", ""),
        "libc": provenance.tools.get("libc", ""),
        "initramfs": provenance.initramfs_sha256[:12],
        "guest": _digest(manifest.guest),
        "dataset": _digest(experiment.dataset),
        "cases": _digest(
            *(f"{command.name} {command.caches} {command.command}" for command in commands)
        ),
        "command line": provenance.kernel_command_line,
        "compiler": kernel.compiler,
        "flavour": kernel.flavour,
    }
    if kernel.arch != "x86_64":
        setting["architecture"] = f"{kernel.arch}, pages of {kernel.page_kib} KiB"
    for arm in manifest.arms:
        if arm.settings:
            settings = sorted(arm.settings.items())
            setting[f"arm {arm.name}"] = ", ".join(f"{name} {value}" for name, value in settings)
    if steady:
        setting["config"] = kernel.config_sha256[:12]
        setting[PINNED] = " + ".join((kernel.source, *kernel.patches))
    return setting


def _digest(*values: BaseModel | str) -> str:
    text = "\n".join(
        value if isinstance(value, str) else value.model_dump_json(exclude_defaults=True)
        for value in values
    )
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _case(
    manifest: Manifest,
    records: Sequence[RunRecord],
    case: CaseRecord,
    compared: SessionComparison,
    of_operations: SessionComparison,
) -> CaseEntry:
    seeds = manifest.seeds_of(case.name)
    arms = []
    for name in (arm.name for arm in manifest.arms):
        mine = [record for record in records if (record.case, record.arm) == (case.name, name)]
        samples = {r.block: r.samples for r in mine if r.samples}
        metrics = {}
        for metric in case.metrics:
            values = tuple(samples.get(at, {}).get(metric.name) for at in range(len(seeds)))
            if numbers := [value for value in values if value is not None]:
                metrics[metric.name] = Ensemble(values=values, summary=summarize(numbers))
        failures = [record.failure for record in mine if record.failure]
        texts = dict.fromkeys(f"{f.kind} (blame: {f.blame}): {f.message}" for f in failures)
        arms.append(
            ArmCase(
                arm=name,
                metrics=metrics,
                runs=len(mine),
                failed=len(failures),
                failures=tuple(texts)[:MOST_TEXTS],
            )
        )
    conclusions, functions = [], []
    for comparison, shown in zip(compared.comparisons, of_operations.comparisons, strict=True):
        pair = {"arm": comparison.manifest.patched, "against": comparison.manifest.base}
        for judged in (each for each in comparison.primary if each.case == case.name):
            judgement, change = judged.judgement, judged.judgement.change
            assert judgement.verdict is not None
            conclusions.append(
                Conclusion(
                    **pair,
                    metric=judged.name,
                    verdict=judgement.verdict,
                    reason=judgement.reason,
                    blame=judgement.blame,
                    estimate=change.estimate if change else None,
                    low=change.low if change else None,
                    high=change.high if change else None,
                    level=change.level if change else None,
                    pairs=judgement.pairs,
                )
            )
        functions += [
            _changed(pair, phase)
            for phase in shown.judged_functions
            if phase.case == case.name and phase.tested
        ]
    return CaseEntry(
        name=case.name,
        title=case.title,
        seeds=seeds,
        metrics=case.metrics,
        primary=case.primary,
        arms=tuple(arms),
        conclusions=tuple(conclusions),
        functions=tuple(functions),
    )


def _changed(pair: Mapping[str, str], attribution: Attribution) -> ChangedFunctions:
    total = attribution.total.base
    differences = []
    for each in attribution.changed:
        counted = each.instructions if "instructions" in each.moved else each.calls
        half = 0.0
        if counted.high is not None and counted.low is not None and counted.difference:
            half = (counted.high - counted.low) / 2 / abs(counted.difference)
        sizes = (each.instructions.difference, each.size / total, half * abs(each.size) / total)
        differences.append(FunctionDifference(each.name, each.file, *map(_short, sizes)))
    return ChangedFunctions(
        **pair,
        phase=attribution.phase,
        unit_title=attribution.unit_title,
        tested=attribution.tested,
        count=len(attribution.changed),
        size=_short(attribution.largest_change),
        largest=tuple(
            ChangedFunction(
                name=each.name,
                file=each.file,
                base=_short(each.instructions.base),
                patched=_short(each.instructions.patched),
                difference=_short(each.instructions.difference),
                calls_base=_short(each.calls.base),
                calls_patched=_short(each.calls.patched),
                moved=each.moved,
            )
            for each in attribution.changed[:MOST_CHANGED]
        ),
        differences=tuple(differences),
    )


def _short(value: float) -> float:
    """Seven significant digits: counts per unit explain, and are many."""
    return float(f"{value:.{DIGITS}g}")
