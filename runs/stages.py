"""What a session does after its judged runs: what may take the verdict back, then what explains.

The order is that of what a reader waits for: a repeat of each case, which takes seconds;
correctness, whose kernels take long to build; diagnostic runs, on the judged kernels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from experiment.plan import Plan, remaining
from experiment.spec import Looks
from results.store import SessionStore
from runs.boots import Reporter
from runs.building import Building, forecast_kernels
from runs.check import run_gate, unmade, without_broken
from runs.local import Options
from runs.measure import host_failed
from runs.prepare import Prepared, with_kernels
from runs.resolved import kernel_keys
from runs.session import with_seeds
from text import counted

Measure = Callable[[Prepared, Options], None]
# The verdicts of each case by the names of its primary metrics, empty while more seeds may decide.
ByCase = Mapping[str, Mapping[str, str]]
Verdicts = Callable[[], ByCase]


# A report takes seconds itself: one that another replaces as soon is not written.
SOON_S = 10.0


@dataclass(frozen=True)
class Stage:
    """Guests booted together: those of the checks, or runs (made once more) of ``twins``."""

    title: str
    twins: tuple[str, ...]
    flavours: tuple[str, ...]
    repeats: bool = False


@dataclass(frozen=True)
class Pending:
    """A stage that is not made: kernels to build, and guests to boot."""

    title: str
    kernels: tuple[str, ...]
    guests: int

    def __str__(self) -> str:
        kernels = f"{counted(len(self.kernels), 'kernel')} to build ({', '.join(self.kernels)})"
        parts = [*([kernels] if self.kernels else []), counted(self.guests, "guest")]
        return f"{self.title} pending: {', '.join(parts)}"


def stages_of(session: Prepared) -> tuple[Stage, ...]:
    """What follows the judged runs, in order; nothing where the arms are the same code."""
    if session.same_code:
        return ()
    experiment = session.experiment
    stages = []
    if any(run.repeat for run in session.plan.runs):
        stages.append(Stage("repeated runs", ("",), (), repeats=True))
    if experiment.check is not None:
        own = tuple(name for name in experiment.check.flavours if name != experiment.kernel.flavour)
        stages.append(Stage("correctness checks", (), own))
    twins = tuple(bench.name for bench in session.benches[1:])
    if twins:
        stages.append(Stage("diagnostic runs", twins, ()))
    return tuple(stages)


def of_twins(session: Prepared, twins: Sequence[str], *, repeats: bool = False) -> Prepared:
    """The session with the runs of these twins alone (``""``: judged ones), or their repeats."""
    runs = tuple(run for run in session.plan.runs if run.twin in twins and run.repeat == repeats)
    return dataclasses.replace(session, plan=Plan(runs=runs, seeds=session.plan.seeds))


def make(
    session: Prepared,
    options: Options,
    store: SessionStore,
    reporter: Reporter,
    *,
    building: Building,
    measure: Measure,
    verdict: Callable[[tuple[Pending, ...]], None],
    verdicts: Verdicts,
) -> None:
    """Make the judged runs of a session, then every stage; what is on record stays.

    ``measure`` makes the runs of a session's plan on the options' executor.  ``verdict`` is called
    before a stage with what is pending from there on, but for repeated runs of a few seconds: what
    is judged is on record by then.  ``verdicts`` judges what is on record, where seeds are added
    until all is decided.  Raises LabError: whatever building and booting say; KeyboardInterrupt:
    passed on; a later call goes on where this one was.
    """
    # A check that was lost is made again: what it was of is not broken yet.
    answered = [check for check in store.checks() if check.status != "not run"]
    sound = without_broken(session, answered, reporter)
    judged = of_twins(sound, ("",))
    if judged.plan.runs:
        # What one look boots the next boots again.
        with store.timed("judged runs"), options.executor.keeping() as executor:
            keeping = dataclasses.replace(options, executor=executor)
            measure(judged, keeping)
            sound = _decided(sound, keeping, store, reporter, measure, verdicts)
    elif session.plan.runs:
        reporter.log("nothing is measured: what is broken has no speed")
    stages = stages_of(session)
    booted = -1
    for number, stage in enumerate(stages):
        guests = [_guests(each, sound, options, store) for each in stages[number:]]
        if not guests[0]:
            continue
        kernels = forecast_kernels(sound.resolved, options, timed=False)
        missing = [each for each in kernels if not each.cached]
        pending = tuple(
            Pending(
                each.title,
                tuple(f"{k.flavour} of {k.arm}" for k in missing if k.flavour in each.flavours),
                left,
            )
            for each, left in zip(stages[number:], guests, strict=True)
            if left
        )
        seconds = [cost.elapsed_s for cost in store.costs() if not cost.kept_at]
        # Nobody reads a report while a stage was all kept runs, or one boots for seconds.
        soon = stage.repeats and bool(seconds) and guests[0] * max(seconds) < SOON_S
        if len(seconds) != booted and not soon:
            booted = len(seconds)
            verdict(pending)
        if stage.flavours:
            with store.timed(f"kernels of {stage.title}"):
                sound = with_kernels(sound, options, building, stage.flavours)
        with store.timed(stage.title):
            if stage.twins:
                measure(of_twins(sound, stage.twins, repeats=stage.repeats), options)
            else:
                sound = run_gate(sound, options, store, reporter)


def _decided(
    session: Prepared,
    options: Options,
    store: SessionStore,
    reporter: Reporter,
    measure: Measure,
    verdicts: Verdicts,
) -> Prepared:
    """Add seeds to open cases until all is decided or the budget is spent."""
    looks = session.experiment.looks()
    if not looks.sequential or session.same_code:
        return session
    while True:
        manifest, answers = store.manifest(), verdicts()
        counts = {case.name: len(manifest.seeds_of(case.name)) for case in manifest.cases}
        adding = to_add(counts, [case for case in counts if not decided(answers, case)], looks)
        repeated = session.experiment.repeated
        reporter.log(look_text(len(manifest.seeds), answers, counts, adding, repeated))
        if not adding:
            return session
        counts |= adding
        seeds = max(counts.values())
        fewer = {case: n for case, n in counts.items() if n < seeds}
        session = with_seeds(session, seeds, fewer)
        # On record before the first of these runs: a session that is stopped is not finished.
        store.create(manifest.with_seeds(session.plan.seeds, counts))
        measure(of_twins(session, ("",)), options)


def decided(verdicts: ByCase, case: str) -> bool:
    """Whether no verdict of a case is open."""
    return all(verdicts.get(case, {}).values())


def to_add(counts: Mapping[str, int], open_: Sequence[str], looks: Looks) -> dict[str, int]:
    """How many seeds open cases get next; one that was decided first gets what others have."""
    most = max(counts.values())
    behind = [case for case in open_ if counts[case] < most]
    if behind:
        return dict.fromkeys(behind, most)
    following = next((look for look in looks.seeds if look > most), None)
    return dict.fromkeys(open_, following) if following is not None else {}


def look_text(
    seeds: int,
    verdicts: ByCase,
    counts: Mapping[str, int],
    adding: Mapping[str, int],
    repeated: str = "seeds",
) -> str:
    """``after 8 seeds: 4k.instructions decided (improvement), 4k.work undecided; ...``.

    With several cases of which some are decided it says of which; ``adding`` is of :func:`to_add`,
    empty where all is decided or the budget is spent.
    """
    every = [name for words in verdicts.values() for name in words]
    words = {
        f"{case} {name}" if every.count(name) > 1 else name: word
        for case, named in verdicts.items()
        for name, word in named.items()
    }
    parts = [
        f"{name} failed" if word == "failed" else f"{name} decided ({word})"
        for name, word in words.items()
        if word
    ]
    parts += [f"{name} undecided" for name, word in words.items() if not word]
    after = f"after {counted(seeds, repeated.removesuffix('s'))}: {', '.join(parts)}"
    if all(words.values()):
        return after
    if not adding:
        return f"{after}; the budget is spent, --resume with a larger --max-seeds goes on"
    more = max(most - counts[case] for case, most in adding.items())
    of = f" of {', '.join(adding)}" if len(adding) < len(counts) else ""
    return f"{after}; measuring {more} more{of}"


def _guests(stage: Stage, session: Prepared, options: Options, store: SessionStore) -> int:
    """How many guests of a stage are still to be booted."""
    if not stage.twins:
        keys = kernel_keys(session.resolved, checkout=options.checkout, cache=options.cache)
        return len(unmade(session, store.checks(), keys))
    in_wall = session.wall is not None
    done = {each.run_id for each in store.records() if in_wall or not host_failed(each)}
    return len(remaining(of_twins(session, stage.twins, repeats=stage.repeats).plan, done))
