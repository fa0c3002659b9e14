"""The form of the 0-day robot: a subject line and a table that kernel people know by sight.

Lines are at most 75 columns where the robot has 89, for mail; arms that do not fit go into
a further table.  Below each table stands what the robot leaves out: units, n, interval
and verdict.
"""

from __future__ import annotations

import re

from reports import across, mail, many_wording, wording
from reports.across import Cell, Row
from reports.letter import percentage
from reports.mail import WIDTH, ascii_only, fit
from reports.many import SessionComparison
from reports.model import MetricComparison
from reports.verdict import Verdict
from results.record import ArmRecord, Manifest

COMPILER = re.compile(r"\S*\b(?:gcc|clang)\b")

HEX = 10
SLANT = "\\"
FIRST, OTHER = 16, 27
# Below it a spread is not worth the room: the robot's own rule.
SPREAD_SHOWN = 0.02


def subject(session: SessionComparison) -> str:
    """``[tree:branch] [subsys] 10-hex: WORKLOAD.METRIC -4.7% regression``, unwrapped.

    It names the largest regression, else the largest improvement, else how all ended.
    """
    manifest = session.manifest
    called = _called(session, Verdict.REGRESSION) or _called(session, Verdict.IMPROVEMENT)
    tree, branch = _tree(manifest)
    subsystem = _subsystem(manifest)
    lead = f"[{tree}:{branch}]" + (f" [{subsystem}]" if subsystem else "")
    ids = _ids(session)
    if called is None:
        last = ids[session.arms[-1].name]
        return ascii_only(f"{lead} {last}: {wording.bottom_line(session).lower()}")
    name, metric = called
    size = _short_change(metric)
    said = f"{ids[name]}: {metric.case}.{metric.name} {size} {metric.judgement.verdict}"
    return ascii_only(f"{lead} {said}")


def _short_change(metric: MetricComparison) -> str:
    """One decimal, as the robot prints it; two where one would say nothing."""
    assert metric.judgement.change is not None
    estimate = metric.judgement.change.estimate
    return f"{100 * estimate:+.1f}%" if abs(estimate) >= 0.001 else percentage(metric)


def _called(session: SessionComparison, verdict: Verdict) -> tuple[str, MetricComparison] | None:
    found = [
        (one.manifest.patched, metric)
        for one in session.comparisons
        for metric in one.primary
        if metric.judgement.verdict is verdict and metric.judgement.change is not None
    ]
    return max(found, key=lambda seen: abs(_size(seen[1])), default=None)


def _size(metric: MetricComparison) -> float:
    return metric.judgement.change.estimate if metric.judgement.change else 0.0


def _tree(manifest: Manifest) -> tuple[str, str]:
    """Where the source and the series come from, as the robot names tree and branch."""
    experiment = manifest.experiment
    tree = re.split(r"[:/@]", experiment.kernel.source.rstrip("/"))
    series = experiment.series
    branch = re.split(r"[/:]", series.path.rstrip("/"))[-1] if series else experiment.name
    return tree[-1] if experiment.kernel.source.startswith("deb:") else tree[-1] or "tree", branch


def _subsystem(manifest: Manifest) -> str:
    """``mm/filemap``: what stands before the colon of the first patch's subject."""
    for series in manifest.series:
        for patch in series.patches:
            before, colon, _ = re.sub(r"^\[[^]]*\]\s*", "", patch.subject).partition(":")
            if colon and " " not in before.strip():
                return before.strip()
    return ""


def _ids(session: SessionComparison) -> dict[str, str]:
    """Ten hexadecimal digits an arm, with its name behind where an arm before has the same."""
    found: dict[str, str] = {}
    for arm in session.arms:
        key = arm.kernel.key[:HEX]
        found[arm.name] = f"{key}+{arm.name}" if key in found.values() else key
    return found


def _value(row: Row, cell: Cell) -> str:
    """The average in the robot's three precisions, and its spread where that is large."""
    if cell.summary is None:
        return " " * 10 + " " * 6
    mean, spread = cell.summary.mean, cell.summary.stddev
    size = abs(mean)
    text = f"{mean:10.2f}" if size < 1000 else f"{mean:10.0f}" if size < 1e8 else f"{mean:10.4g}"
    around = f" \xb1{100 * spread:2.0f}%" if spread is not None and spread > SPREAD_SHOWN else ""
    return f"{text}{around.replace(chr(0xB1), '+-'):<6}"[:16]


def _change(row: Row, cell: Cell) -> str:
    """The change in percent; of a percentage the difference, without the sign."""
    if row.is_share:
        difference = many_wording.difference(row, cell)
        return " " * 11 if difference is None else f"{difference:+10.1f} "
    if cell.change is None:
        return " " * 11
    size = 100 * cell.change.estimate
    return f"{size:+10.1f}%" if abs(size) < 1e6 else f"{size:+10.2g}%"


def _failure_table(session: SessionComparison, others: tuple[ArmRecord, ...]) -> list[str]:
    """``fail:runs`` of every case in which a run failed, by kind of failure."""
    base = session.arms[0].name
    kinds = sorted({(run.case, run.failure.kind) for run in session.failed_runs if not run.repeat})
    if not kinds:
        return []
    counts = across.failures(session)

    def failed(case: str, kind: str, arm: str) -> int:
        return sum(
            (r.case, r.failure.kind, r.arm, r.repeat) == (case, kind, arm, False)
            for r in session.failed_runs
        )

    head, rule = f"{'fail:runs':>{FIRST}}", f"{'|':>{FIRST - 4}}    "
    for _ in others:
        head += f"{'%reproduction':>15}{'fail:runs':>13}"
        rule += f"{'|':>9}{'|':>15}    "
    lines = [head, rule.rstrip()]
    for case, kind in kinds:
        first = (failed(case, kind, base), counts.get((case, base), (0, 0))[1])
        line = f"{first[0]:>{FIRST - 4}}:{first[1]:<3}"
        for arm in others:
            bad, runs = failed(case, kind, arm.name), counts.get((case, arm.name), (0, 0))[1]
            was = 100 * first[0] / first[1] if first[1] else 0.0
            rate = (100 * bad / runs if runs else 0.0) - was
            line += f"{rate:>12.0f}%  {bad:>9}:{runs:<3}"
        lines += _named(line, f"{case}.{kind}")
    return [*lines, ""]


def _named(line: str, name: str) -> list[str]:
    """A row with its name behind it, or below it where 75 columns do not hold both."""
    name = fit(name, WIDTH)
    if len(line) + 2 + len(name) <= WIDTH:
        return [f"{line}  {name}"]
    return [line.rstrip(), f"{name:>{WIDTH}}"]


def _table(session: SessionComparison, case: str, rows: list[Row]) -> list[str]:
    arms, ids = session.arms, _ids(session)
    longest = min(31, max((len(row.name) for row in rows), default=0))
    lines: list[str] = []
    for others in mail.chunks(arms, WIDTH - FIRST - longest - 2, OTHER):
        prefix = f"{case}."
        width = FIRST + OTHER * len(others) + 2
        full = all(len(prefix) + len(row.name) + width <= WIDTH for row in rows)
        lines += [f"{fit(ids[arms[0].name], FIRST):<{FIRST}}"
                  + "".join(f" {fit(ids[arm.name], OTHER - 1):<{OTHER - 1}}" for arm in others),
                  "-" * FIRST + (" " + "-" * (OTHER - 1)) * len(others)]  # fmt: skip
        lines += _failure_table(_only(session, case), tuple(others))
        lines.append(f"{'%stddev':>{FIRST}}" + f"{'%change':>12}{'%stddev':>15}" * len(others))
        lines.append(f"{SLANT:>{FIRST - 2}}  " + f"{'|':>10}{SLANT:>15}  " * len(others))
        for row in rows:
            line = _value(row, row.base)
            for arm in others:
                cell = row.cell(arm.name)
                line += _change(row, cell) + _value(row, cell)
            lines += _named(line, f"{prefix}{row.name}" if full else row.name)
        lines.append("")
    return [line.rstrip() for line in lines]


def _only(session: SessionComparison, case: str) -> SessionComparison:
    """The session with the failures of one case only."""
    cut = tuple(
        one.model_copy(update={"failed_runs": tuple(r for r in one.failed_runs if r.case == case)})
        for one in session.comparisons
    )
    return session.model_copy(update={"comparisons": cut})


def _compiler(arm: ArmRecord) -> str:
    """Its program's name: Debian's clang begins with "Debian clang version"."""
    named = COMPILER.search(arm.kernel.compiler)
    return named[0] if named else arm.kernel.compiler.partition(" ")[0]


def _axes(session: SessionComparison, case: str) -> list[str]:
    """What all arms share: names joined by ``/``, then their values."""
    manifest = session.manifest
    guest, data = manifest.guest, manifest.experiment.dataset
    axes = {
        "compiler": _compiler(manifest.arms[0]),
        "flavour": manifest.arms[0].kernel.flavour,
        "nr_task": str(guest.jobs),
        "cgroup": f"{data.cgroup_limit_mib / guest.scale:g}M",
        "file": f"{data.file_mib / guest.scale:g}M",
        "guest": guest.name,
        "mode": manifest.experiment.mode,
        "testcase": case,
    }
    alike = {name: value for name, value in axes.items() if value}
    if len({arm.kernel.flavour for arm in session.arms}) > 1:
        del alike["flavour"]
    return [fit("/".join(alike) + ":", WIDTH), *mail.wrapped("/".join(alike.values()), "  ")]


def render(session: SessionComparison) -> str:
    """Return subject, tables and what stands below them, ending in a newline."""
    lines = [*mail.wrapped(f"Subject: {subject(session)}", hang=" "), ""]
    lines += mail.wrapped(f"{wording.bottom_line(session)}.")
    lines += ["", *mail.banner(session), *mail.warnings(session)]
    every, ids = across.rows(session), _ids(session)
    for case in session.comparisons[0].cases:
        rows = [row for row in across.of_case(every, case.name) if row.measured]
        lines += ["=" * WIDTH, *_axes(session, case.name), "", "commit:"]
        for arm in session.arms:
            lines.append("  " + fit(f'{ids[arm.name]} ("{arm.label or arm.name}")', WIDTH - 2))
        lines += ["", *_table(session, ascii_only(case.name), rows)]
        lines += mail.below(session, across.of_case(every, case.name))
    lines += [*mail.checked(session), *mail.family(session)]
    return "\n".join(lines).rstrip() + "\n"
