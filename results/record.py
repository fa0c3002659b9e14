"""What is written down about one run and one session.

A run record holds samples or a failure, never both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    model_validator,
)

from experiment.architecture import Arch
from experiment.frozen import MOST, bounded
from experiment.machine import MachineSpec
from experiment.plan import Conditions
from experiment.spec import Direction, Experiment, Guest, Observed

SCHEMA_VERSION = 1
# Of arms, cases, phases, judged metrics; of seeds, and of a case's metrics, eight times as many.
MOST_ITEMS = 256
# Among the overrides of a session that made its first case alone.
QUICK = "--quick"


# What names files, in the cache and in archives: nothing that leads anywhere else.
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+-]{0,120}$")]


class Record(BaseModel):
    """Base of everything in a session folder: immutable, unknown keys refused."""

    # What is not finite has no form in JSON: it would be written, and never be read again.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """The model's, each number in it with a bound: a stranger's record may have any digits."""
        schema = handler(source)
        # What is calculated of records has no bound but that it is finite.
        is_stored = cls.__module__.startswith(f"{__package__}.")
        return bounded(schema, cls) if is_stored else schema


class Metric(Record):
    """What a number means.  ``name`` is ``phase.metric``, for example ``4k.bw``."""

    name: str
    title: str
    unit: str
    direction: Direction


# A run whose kernel, or a module of the lab's for it, does not build.
NOT_BUILT = "not built"


class Failure(Record):
    """Why a run is no data point, and whose fault it is.

    ``kind`` is ``invalid`` (the run measured something else than it says),
    ``boot``, ``panic``, ``oom``, ``hung``, ``lost``, ``timeout``, ``inexact`` or
    :data:`NOT_BUILT`.
    """

    kind: str
    blame: Literal["user", "series", "workload", "host", "lab"]
    message: str
    evidence: tuple[str, ...] = ()


def _can_be_divided_by(value: float) -> float:
    if 0 < abs(value) < 1 / MOST["float"]:
        raise ValueError(f"{value} is smaller than anything that is measured")
    return value


Sample = Annotated[float, AfterValidator(_can_be_divided_by)]


class RunRecord(Record):
    """One boot of one arm for one case in one block.

    ``samples`` maps metric names to values.  ``fingerprint`` is the SHA-256 of
    everything the guest sent: two runs of the same plan entry have the same one
    in exact mode.  ``repeat`` marks the run that checks this promise, ``twin`` names
    the twin a run belongs to; neither is ever a data point.
    In wall mode ``conditions`` is what else the host did meanwhile, and ``at_s`` the
    seconds from the session's begin to the run's, by which a drift is seen.
    """

    run_id: str
    case: str
    arm: str
    block: int
    seed: int
    repeat: bool = False
    twin: str = ""
    kernel_key: str
    samples: dict[str, Sample] | None = None
    failure: Failure | None = None
    findings: tuple[str, ...] = ()
    # Of bandwidth, which records had once.
    timelines: tuple[Any, ...] = ()
    fingerprint: str = ""
    conditions: Conditions | None = None
    at_s: float | None = None

    @model_validator(mode="after")
    def _samples_or_failure(self) -> RunRecord:
        if (self.samples is None) == (self.failure is None):
            raise ValueError(f"{self.run_id}: a record holds samples or a failure, never both")
        return self


class RunCost(Record):
    """What a run cost the host; kept apart so that reports do not depend on it.

    ``inputs`` is the digest of all that an exact run is a function of, ``host`` the one that made
    it.  A run made for another session has the date of that (UTC) in ``kept_at``, and cost there
    what it did; it is empty for one that was measured for this session.
    """

    run_id: str
    elapsed_s: float
    guest_cpu_s: float
    inputs: str = ""
    host: str = ""
    kept_at: str = ""


class StepTime(Record):
    """Elapsed seconds of a step of a session, each time that it was made; apart as costs are."""

    step: str
    elapsed_s: float


class KernelIdentity(Record):
    """A built kernel: all that names it.

    ``code_key`` hashes the built machine code; ``build_id`` is the linker's, which
    a booted kernel shows in ``/sys/kernel/notes``; ``options`` tells what the configuration has
    otherwise than was asked, one line a choice.
    """

    key: FileName
    arch: Arch = "x86_64"
    page_kib: int = 4
    release: str
    source: str
    patches: tuple[str, ...]
    flavour: FileName
    compiler: str
    config_sha256: str
    code_key: str
    build_id: str = ""
    build_log: str = ""
    options: tuple[str, ...] = ()


class UnitRecord(Record):
    """A unit of work that counts are given per: ``name`` is its key in a profile."""

    name: str
    title: str


class RatioRecord(Record):
    """Calls of some kernel functions per unit: "tree walks per folio added".

    ``functions`` are counted together, those of ``less`` taken off; ``unit`` names one
    of the phase's units.
    """

    name: str
    title: str
    functions: tuple[str, ...]
    less: tuple[str, ...] = ()
    unit: str


class PhaseRecord(Record):
    """One phase as it was run: its command line for people, and what is counted in it.

    The first of ``units`` is the one that attribution is given per; ``thp`` is whether pages may be
    huge (``never``, ``madvise``, ``always``).  No function is called changed of a phase that
    ``prepares`` later ones.
    """

    name: str
    command: str
    caches: str
    thp: str = "never"
    prepares: bool = False
    units: tuple[UnitRecord, ...] = ()
    ratios: tuple[RatioRecord, ...] = ()


class CaseSize(Record):
    """What a case ran with, as the guest scales it; 0 of what it has not got.

    Only cases of fio have ``jobs`` and files; the other sizes are in MiB.
    """

    jobs: int = 0
    limit_mib: int = 0
    file_mib: int = 0
    brd_mib: int = 0


class CaseRecord(Record):
    """One case of the session: phases, metrics, and the names of the primary ones."""

    name: str
    title: str
    size: CaseSize = CaseSize()
    phases: Annotated[tuple[PhaseRecord, ...], Field(max_length=MOST_ITEMS)]
    metrics: Annotated[tuple[Metric, ...], Field(max_length=8 * MOST_ITEMS)]
    primary: Annotated[tuple[str, ...], Field(max_length=MOST_ITEMS)]


class TwinRecord(Record):
    """A twin as it is run: what is read and in which guest, on the arms' kernels.

    ``machine`` is what is modelled, None where nothing is.
    """

    name: str
    observe: Observed
    machine: MachineSpec | None = None
    guest: Guest
    cases: tuple[str, ...]
    blocks: int


class PatchRecord(Record):
    """One patch as it was applied; texts are fit to be shown, HTML is not escaped."""

    name: str
    subject: str
    sha256: str
    files: tuple[str, ...]
    author: str = ""
    message_id: str = ""


def patches_apart(
    patches: Sequence[PatchRecord], base: KernelIdentity, patched: KernelIdentity
) -> Sequence[PatchRecord]:
    """Those that one of two kernels has and the other has not; all where that is none of them."""
    apart = {*base.patches} ^ {*patched.patches}
    return [patch for patch in patches if patch.name in apart] or patches


class SeriesRecord(Record):
    """A series as it was taken in: who wrote it, where it came from, what is in it.

    ``kind`` is ``folder``, ``file``, ``thread`` or ``range``; ``origin`` what was
    asked for.  ``title``, ``author`` and ``message_id`` are the cover letter's where
    there is one, else those of the first patch.  ``host_code`` are files with why they are
    executed, or read, on the host that builds (``kernels.series``).
    """

    kind: Literal["folder", "file", "thread", "range"]
    origin: str
    title: str
    author: str = ""
    message_id: str = ""
    version: int = 1
    base_commit: str = ""
    patches: tuple[PatchRecord, ...]
    findings: tuple[str, ...] = ()
    host_code: tuple[str, ...] = ()


class FunctionRecord(Record):
    """A function or variable that differs between the arms: sizes in bytes, None where absent.

    ``file`` is where it is defined, where that is known; ``patches`` are those that
    touch this file, or else a header.
    """

    name: str
    before: int | None
    after: int | None
    file: str = ""
    patches: tuple[str, ...] = ()


class TriageRecord(Record):
    """What the two builds say: the same code, these functions only, or data and layout only.

    ``renamed`` are functions of the same code by old and new name, and no ``functions``.  ``data``
    are variables that differ, as functions do, None where that is not known, ``modules``
    files of modules.  ``left_out`` are files of the series of whose change nothing is in the
    kernel, with the options that keep it out.  ``findings`` name files of the series that are not
    in the kernel or whose change is not, ``warnings`` what the compiler says of the patched arm
    only.
    """

    verdict: Literal["same code", "functions", "data or layout"]
    functions: tuple[FunctionRecord, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    data: tuple[FunctionRecord, ...] | None = None
    modules: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class OptionRecord(Record):
    """An option that two kernels have otherwise; empty where a kernel does not have it at all."""

    name: str
    before: str
    after: str


class ArmRecord(Record):
    """One arm of the session with the kernel that was booted for it, and its settings.

    ``settings`` are by name, as ``sysctl vm.swappiness``; ``guest`` is None where it is
    the session's; ``series`` is the arm's own.  ``triage`` compares its build with that
    of the base, None for the base itself, and ``step`` with that of the arm before, where each is
    compared with the one before it; ``options`` are those that the base's configuration has
    otherwise, ``missing`` names of the kernel's that the cases are counted by and that it has not.
    """

    name: str
    label: str
    kernel: KernelIdentity
    options: tuple[OptionRecord, ...] = ()
    missing: tuple[str, ...] = ()
    settings: dict[str, str] = Field(default_factory=dict)
    guest: Guest | None = None
    series: tuple[SeriesRecord, ...] = ()
    triage: TriageRecord | None = None
    step: TriageRecord | None = None


class Provenance(Record):
    """All that is needed to repeat the session, beside the experiment itself.

    ``probe`` is the SHA-256 of the TCG plugin that counted; empty where none did.
    In wall mode ``accelerator`` is what ran the guests, ``fitness`` maps each check of
    the host to ``status: what was found``.  ``qemu_sha256`` is the binary's, ``qemu_untried``
    what was known of its exactness where that was nothing; empty in wall mode.
    """

    lab_version: str
    lab_commit: str
    host: dict[str, str]
    tools: dict[str, str]
    initramfs_sha256: str
    qemu_argv: tuple[str, ...]
    kernel_command_line: str
    snapshot: bool
    probe: str = ""
    qemu_sha256: str = ""
    qemu_untried: str = ""
    accelerator: str = ""
    fitness: dict[str, str] = Field(default_factory=dict)

    @property
    def real_time(self) -> bool:
        """Whether guests ran on the host's own CPUs, so that their time means something."""
        return self.accelerator.startswith("kvm")


class Manifest(Record):
    """The head of a session folder, written before the first run.


    ``arguments`` are those with which ``./lab.py run`` begins such a session; empty where
    another verb began it.
    ``machine`` is the one whose many CPUs are estimated, None in wall mode.
    ``same_code`` is true where the arms' built machine code is equal, so that
    nothing was booted; ``runs_planned`` counts the runs without repeats.  ``case_seeds`` says how
    many of the ``seeds`` a case has, where it was decided with fewer than all.
    """

    schema_version: Annotated[int, Field(ge=1)] = SCHEMA_VERSION
    session: str
    created: str
    experiment: Experiment
    guest: Guest
    arguments: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    arms: Annotated[tuple[ArmRecord, ...], Field(min_length=1, max_length=MOST_ITEMS)]
    cases: Annotated[tuple[CaseRecord, ...], Field(max_length=MOST_ITEMS)]
    seeds: Annotated[tuple[int, ...], Field(max_length=8 * MOST_ITEMS)]
    runs_planned: int
    case_seeds: dict[str, int] = Field(default_factory=dict)
    same_code: bool = False
    twins: tuple[TwinRecord, ...] = ()
    series: tuple[SeriesRecord, ...] = ()
    triage: TriageRecord | None = None
    machine: MachineSpec | None = None
    provenance: Provenance

    @property
    def base(self) -> str:
        """Name of the base arm."""
        return self.arms[0].name

    @property
    def patched(self) -> str:
        """Name of the arm compared with the base."""
        return self.arms[1].name

    def seeds_of(self, case: str) -> tuple[int, ...]:
        """The seeds of a case: the first of all, as many as it has."""
        return self.seeds[: self.case_seeds.get(case, len(self.seeds))]

    def with_seeds(self, seeds: Sequence[int], counts: Mapping[str, int]) -> Manifest:
        """The same with these seeds, and so many of them a case; with the runs that they make."""
        before = sum(len(self.seeds_of(case.name)) for case in self.cases)
        each = self.runs_planned // before
        return self.model_copy(
            update={
                "seeds": tuple(seeds),
                "case_seeds": {case: n for case, n in counts.items() if n < len(seeds)},
                "runs_planned": each * sum(counts.values()),
            }
        )


def as_json(record: Record) -> dict[str, Any]:
    """Return the record as JSON-ready values, tuples as lists."""
    return record.model_dump(mode="json")


# What the gate found of one arm in one guest; none of it is a data point.
CheckStatus = Literal["green", "red", "not run"]
ArmStanding = Literal["green", "red", "red before the series", "not run", "pending"]


class CheckProblem(Record):
    """Something that a correct kernel does not do.

    ``kind`` is that of the splat (``locks``, ``sleeping``, ``crash`` and so on), or
    ``selftest``, ``data``, ``step``, ``leak`` or ``taint``; ``title`` is what was said,
    ``where`` a function of the kernel or empty, ``says`` the kind in words.
    """

    kind: str
    title: str
    says: str
    where: str = ""
    evidence: tuple[str, ...] = ()

    @property
    def cause(self) -> str:
        """What two problems of one cause have in common: not their numbers and addresses."""
        title = re.sub(r"0x[0-9a-f]+|\b[0-9a-f]{16}\b|\d+", "#", self.title)
        return f"{self.kind} {title} {self.where}".strip()


class Check(Record):
    """One guest of the gate.

    ``of`` counts the guests of this arm.  ``checked`` has a line for each thing that was
    looked at and is well; ``reason`` says why a check was not run, and is empty else.
    ``console`` is the log, relative to the session's folder, and ``kept_at`` the date of an answer
    that stands from another session.
    """

    run_id: str
    arm: str
    of: int
    flavour: str
    vcpus: int
    cases: tuple[str, ...]
    kernel_key: str
    status: CheckStatus
    problems: tuple[CheckProblem, ...] = ()
    checked: tuple[str, ...] = ()
    reason: str = ""
    console: str = ""
    kept_at: str = ""


class ArmGate(Record):
    """One arm's correctness.

    ``problems`` are those of this arm alone, ``inherited`` those that the base arm of the
    session has, too; each with the run id of its check.  ``checks`` are all its guests.
    """

    arm: str
    standing: ArmStanding
    problems: tuple[tuple[str, CheckProblem], ...] = ()
    inherited: tuple[tuple[str, CheckProblem], ...] = ()
    checks: tuple[Check, ...] = ()
    reason: str = ""

    @property
    def withholds(self) -> bool:
        """Whether this arm has no speed that could be judged."""
        return self.standing in ("red", "not run")


def gate_of(arm: str, base: str, checks: Sequence[Check]) -> ArmGate:
    """What the checks of a session say of one arm; ``base`` is the session's first arm.

    What is red there is red before the series, and no arm's fault.  An arm some of whose guests
    were lost was not checked; one some of whose guests were not made yet waits for them.
    """
    own = tuple(check for check in checks if check.arm == arm)
    causes = {problem.cause for check in checks if check.arm == base for problem in check.problems}
    problems = [(check.run_id, problem) for check in own for problem in check.problems]
    new = tuple(each for each in problems if each[1].cause not in causes)
    old = tuple(each for each in problems if each[1].cause in causes)
    lost = [check for check in own if check.status == "not run"]
    standing: ArmStanding = "red before the series" if old else "green"
    reason = ""
    if new:
        standing = "red"
    elif not own or len(own) < own[0].of:
        standing = "pending"
        reason = f"{len(own)} of {own[0].of} checks made" if own else "no check made yet"
    elif lost:
        standing, reason = "not run", lost[0].reason
    return ArmGate(
        arm=arm, standing=standing, problems=new, inherited=old, checks=own, reason=reason
    )
