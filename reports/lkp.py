"""The form of the 0-day robot: the mail that kernel people know by sight, byte for byte.

Columns, heads and precisions are those of the robot's mails of 2025 and 2026: 16 columns
for the first arm, 28 for each further one, and the name behind, however long it is.  The
rows are what is judged and what differs; the rest is left out.  Below each table stands
what the robot does not say: units, n, interval and verdict.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from reports import by_arm, headline, kernel_names, mail, wording
from reports.by_arm import ArmCell, MetricRow
from reports.kernel_names import KernelName
from reports.letter import percentage
from reports.many import SessionComparison
from reports.model import MetricComparison, is_share
from reports.outcome import pending
from reports.repeat import repeat
from reports.verdict import CALLED, Verdict
from results.record import ArmRecord, CaseSize, Manifest
from results.units import VIRTUAL, shown_name
from text import ascii_only

COMPILER = re.compile(r"\S*\b(?:gcc|clang)\b")
MAJOR = re.compile(r"\b(\d+)\.\d+\.\d+")

RULE = 89
FIRST, OTHER = 16, 27
# More columns than the widest mail of the robot that came through whole.
MOST_OTHERS = 3
# Below it a spread is not worth the room: the robot's own rule.
SPREAD_SHOWN = 0.02
# The column has three digits.
WIDEST_SPREAD = 999
# Below it two decimals say less than the change beside them.
SMALL = 0.1


def subject(session: SessionComparison) -> str:
    """``[tree:branch] [subsys]  10-hex: WORKLOAD.METRIC 4.7% regression``, unwrapped.

    It names the largest regression, else the largest improvement, else how all ended.  What
    was not measured in real time says so here, too.  A series that no commit is known of is named
    by its title: what its kernel is called may be that of a kernel without it.
    """
    manifest, names = session.manifest, kernel_names.kernel_names(session)
    headline_metric = _headline_metric(session)
    arm = headline_metric[0] if headline_metric else session.arms[-1].name
    lead = f"[{_tree(manifest, arm)}:{_branch(manifest)}]"
    subsystem = _subsystem(manifest)
    lead += f" [{subsystem}]" if subsystem else ""
    text = _size_of(headline_metric[1]) if headline_metric else headline.text(session).lower()
    if manifest.experiment.mode == "exact" and VIRTUAL not in text:
        text = f"{text} (virtual time)"
    text += " (checks pending)" if pending(session) else ""
    title = "" if names[arm].commit else wording.titles(manifest)
    # Two blanks, as the robot has them.
    return f"{ascii_only(lead)}  {ascii_only(f'{title or names[arm].text}: {text}')}"


def _headline_metric(session: SessionComparison) -> tuple[str, MetricComparison] | None:
    """The arm and metric that the subject is about; None where nothing is called."""
    for verdict in (Verdict.REGRESSION, Verdict.IMPROVEMENT):
        candidates = [
            (comparison.manifest.patched, metric)
            for comparison in session.comparisons
            for metric in comparison.primary
            if metric.judgement.verdict is verdict and metric.judgement.change is not None
        ]
        if candidates:
            return max(candidates, key=lambda each: abs(_estimate(each[1])))
    return None


def _estimate(metric: MetricComparison) -> float:
    return metric.judgement.change.estimate if metric.judgement.change else 0.0


def _size_of(metric: MetricComparison) -> str:
    """``filemap-4k.4k.virtual_bw 4.7% regression``: the word has the sign, as the robot's has.

    One decimal; two where one would say nothing.
    """
    size = abs(_estimate(metric))
    text = f"{100 * size:.1f}%" if size >= 0.001 else percentage(metric).lstrip("+-")
    return f"{_full_name(metric.case, metric.name, metric.unit)} {text} {metric.judgement.verdict}"


def _full_name(case: str, name: str, unit: str) -> str:
    """``filemap-4k.4k.virtual_bw``; a percentage ends in ``%``, and changes by its difference."""
    share = "%" if is_share(unit) and not name.endswith("%") else ""
    return f"{case}.{shown_name(name, unit)}{share}"


def _tree(manifest: Manifest, arm: str) -> str:
    """Where an arm's source comes from, as the robot names the tree."""
    source = kernel_names.source_of(manifest, arm)
    git = kernel_names.COMMIT.match(source)
    place = git["place"] if git else source.partition(":")[2].partition("=")[0]
    return place.rstrip("/").rpartition("/")[2] or "tree"


def _branch(manifest: Manifest) -> str:
    experiment = manifest.experiment
    series = experiment.series
    return re.split(r"[/:]", series.path.rstrip("/"))[-1] if series else experiment.name


def _subsystem(manifest: Manifest) -> str:
    """``mm/filemap``: what stands before the colon of the first patch's subject."""
    for series in manifest.series:
        for patch in series.patches:
            before, colon, _ = re.sub(r"^\[[^]]*\]\s*", "", patch.subject).partition(":")
            if colon and " " not in before.strip():
                return before.strip()
    return ""


def _opening(session: SessionComparison) -> list[str]:
    """What was measured on what: the paragraph that maintainers read."""
    manifest, names = session.manifest, kernel_names.kernel_names(session)
    headline_metric = _headline_metric(session)
    arm = next(
        (a for a in session.arms if headline_metric and a.name == headline_metric[0]),
        session.arms[-1],
    )
    what = f'{manifest.experiment.name}, "{manifest.experiment.title}",'
    if headline_metric:
        name, size, word = _size_of(headline_metric[1]).rsplit(" ", 2)
        what = f"{'an' if word[0] == 'i' else 'a'} {word} of {size} in {name}"
    base = session.arms[0]
    verb = "measured" if any(m.base or m.patched for m in session.primary) else "did not measure"
    lines = [*mail.wrapped(f"Twinboot {verb} {what} on:", hang=""), ""]
    lines += [_kernel_line(names[arm.name], arm), *_series_lines(manifest)]
    lines += [
        f"against: {_kernel_text(names[base.name], base)}",
        f"source: {_source(manifest, arm)}",
    ]
    cases = ", ".join(case.name for case in manifest.cases)
    lines += ["", f"testcase: {cases}", f"config: {_config(arm)}", f"compiler: {_compiler(arm)}"]
    lines += [f"test machine: {_machine(manifest)}", "parameters:", ""]
    parameters = [_parameters(case.size).items() for case in manifest.cases]
    lines += dict.fromkeys(f"\t{name}: {value}" for each in parameters for name, value in each)
    return [_plain(line) for line in lines]


def _plain(line: str) -> str:
    """A line of ASCII with its tab at the front, and however long it is."""
    tab = "\t" if line.startswith("\t") else ""
    return f"{tab}{ascii_only(line)}"


def _kernel_text(name: KernelName, arm: ArmRecord) -> str:
    return f'{name.commit or name.text} ("{arm.label or arm.name}")'


def _kernel_line(name: KernelName, arm: ArmRecord) -> str:
    return f"{'commit' if name.commit else 'kernel'}: {_kernel_text(name, arm)}"


def _source(manifest: Manifest, arm: ArmRecord) -> str:
    """The arm's source; of a repository on the measuring host its last folder only."""
    source = kernel_names.source_of(manifest, arm.name)
    match = kernel_names.COMMIT.match(source)
    if match:
        return f"git {_tree(manifest, arm.name)} at {match['commit']}"
    return source if source.startswith("deb:") else _tree(manifest, arm.name)


def _series_lines(manifest: Manifest) -> list[str]:
    """The series with the link that finds it, where a list has it."""
    series = manifest.experiment.series
    if series is None:
        return []
    patches = sum(len(record.patches) for record in manifest.series)
    many = f" ({patches} patch{'' if patches == 1 else 'es'})" if patches else ""
    title = wording.titles(manifest) or _branch(manifest)
    lines = [f"series: {title}{many}"]
    links = (record.message_id.strip("<>") for record in manifest.series)
    return [*lines, *(f"https://lore.kernel.org/r/{link}" for link in links if link)]


def _config(arm: ArmRecord) -> str:
    return f"{arm.kernel.arch}-{arm.kernel.flavour}, SHA-256 {arm.kernel.config_sha256[:12]}"


def _machine(manifest: Manifest) -> str:
    """The guest and what ran it; that of exact mode is no machine anywhere."""
    guest = manifest.guest
    cpus = f"{guest.vcpus} vCPU{'' if guest.vcpus == 1 else 's'}"
    memory = f"{guest.memory_mib} MiB of memory"
    if manifest.experiment.mode == "exact":
        return f"{cpus} ({guest.cpu}) with {memory}, simulated by QEMU TCG -icount: no hardware"
    accelerator, host = manifest.provenance.accelerator, manifest.provenance.host
    text = f"{host.get('cpu', 'unknown CPU')}, cores: {host.get('cores', 'unknown')}"
    return f"{cpus} with {memory}, {accelerator or 'unknown accelerator'} on {text}"


def _parameters(size: CaseSize) -> dict[str, str]:
    """What a case ran with; what it has not got is not said."""
    parameters = {
        "nr_task": (size.jobs, ""), "cgroup": (size.limit_mib, "M"), "file": (size.file_mib, "M"),
    }  # fmt: skip
    return {name: f"{number}{unit}" for name, (number, unit) in parameters.items() if number}


def _repeating(session: SessionComparison) -> list[str]:
    """How to measure it again, and what must come out."""
    again = repeat(session, of_others=True)
    exact = session.manifest.experiment.mode == "exact"
    notes = [*again.notes, *(_expected(session) if exact else [])]
    lines = [f"To repeat it, in a checkout of Twinboot {session.manifest.provenance.lab_version}:"]
    lines += ["", *(_plain(f"\t{command}") for command in again.commands), ""]
    return [*lines, *mail.wrapped(" ".join(notes), hang=""), *([""] if notes else [])]


def _expected(session: SessionComparison) -> list[str]:
    """The number that comes out wherever an exact session is repeated."""
    headline_metric = _headline_metric(session)
    metric = (
        headline_metric[1]
        if headline_metric
        else next((m for m in session.primary if m.patched), None)
    )
    if metric is None or metric.base is None or metric.patched is None:
        return []
    name = _full_name(metric.case, metric.name, metric.unit)
    both = f"{wording.figure(metric.base.mean)} -> {wording.figure(metric.patched.mean)}"
    return [f"On any host {name} is {both} to the last digit."]


def _value(cell: ArmCell) -> str:
    """The average in the robot's three precisions, and its spread where that is large."""
    if cell.summary is None:
        return " " * FIRST
    mean, spread = cell.summary.mean, cell.summary.stddev
    size = abs(mean)
    if 0 < size < SMALL or size > 1e8:
        text = f"{mean:10.4g}"
    else:
        text = f"{mean:10.2f}" if size < 1000 else f"{mean:10.0f}"
    if spread is None or spread <= SPREAD_SHOWN:
        return f"{text}      "
    return f"{text} \xb1{min(WIDEST_SPREAD, 100 * spread):3.0f}%"


def _change(row: MetricRow, cell: ArmCell) -> str:
    """The change in percent; of a percentage the difference, without the sign."""
    if cell.withheld:
        return " " * 12
    if row.is_share:
        difference = wording.cell_difference(row, cell)
        return " " * 12 if difference is None else f"{difference:+10.1f}  "
    if cell.change is None:
        return " " * 12
    size = 100 * cell.change.estimate
    return f"{size:+10.1f}% " if abs(size) < 1e5 else f"{size:+10.2g}% "


def _failures(session: SessionComparison, case: str, others: Sequence[ArmRecord]) -> list[str]:
    """``fail:runs`` of every kind of failure of a case, with the robot's heads."""
    runs = [run for run in session.failed_runs if run.case == case and not run.repeat]
    counts = session.failures
    lines = []
    for kind in sorted({run.failure.kind for run in runs}):
        bad = {
            arm.name: sum(run.arm == arm.name and run.failure.kind == kind for run in runs)
            for arm in (session.arms[0], *others)
        }
        total = {name: counts.get((case, name), (0, 0))[1] for name in bad}
        line = ""
        rates = [100 * bad[name] / total[name] if total[name] else 0.0 for name in bad]
        for name, rate in zip(bad, rates, strict=True):
            line += f"{rate - rates[0]:10.0f}% " if line else ""
            line += f"{bad[name] or ' ':>11}:{total[name]:<4}"
        lines.append(f"{line}  {ascii_only(f'{case}.{kind}')}")
    if not lines:
        return []
    many = len(others)
    return [
        "       fail:runs" + "  %reproduction    fail:runs" * many,
        "           |    " + "         |             |    " * many,
        *lines,
    ]


def _moved(session: SessionComparison, row: MetricRow) -> bool:
    """Whether a row is one to show: it is judged, or differs on some arm."""
    metrics = (
        case.metric(row.name)
        for comparison in session.comparisons
        for case in comparison.cases
        if case.name == row.case
    )
    judgements = [metric.judgement for metric in metrics if metric is not None]
    return row.primary or any(each.verdict in CALLED or each.differs for each in judgements)


def _groups(others: Sequence[ArmRecord]) -> list[Sequence[ArmRecord]]:
    """The arms but the base, as evenly as may be, as many at a time as a table has."""
    tables = -(-len(others) // MOST_OTHERS)
    each = -(-len(others) // tables)
    return [others[at : at + each] for at in range(0, len(others), each)]


def _tables(session: SessionComparison, case: str, rows: Sequence[MetricRow]) -> list[str]:
    names = kernel_names.kernel_names(session)
    base, lines = session.arms[0], []
    for others in _groups(session.arms[1:]):
        failed = _failures(session, case, others)
        if not rows and not failed:
            continue
        ids = [f"{ascii_only(names[base.name].cut(FIRST)):>{FIRST}} "]
        ids += [f"{ascii_only(names[arm.name].cut(OTHER)):>{OTHER}} " for arm in others]
        lines += ["".join(ids), f"{'-' * FIRST} " + f"{'-' * OTHER} " * len(others), *failed]
        if rows:
            lines.append("         %stddev" + "     %change         %stddev" * len(others))
            lines.append("             \\  " + "        |                \\  " * len(others))
        for row in rows:
            line = _value(row.base)
            for cell in map(row.cell, (arm.name for arm in others)):
                line += _change(row, cell) + _value(cell)
            lines.append(f"{line}  {ascii_only(_full_name(row.case, row.name, row.unit))}")
        lines.append("")
    return lines


def _compiler(arm: ArmRecord) -> str:
    """``gcc-12``: its program's name, as Debian's clang begins with "Debian clang version"."""
    match = COMPILER.search(arm.kernel.compiler)
    if match is None:
        return arm.kernel.compiler.partition(" ")[0]
    major = MAJOR.search(arm.kernel.compiler[match.end() :])
    return f"{match[0]}-{major[1]}" if major else match[0]


def _axes(session: SessionComparison, case: str) -> list[str]:
    """What all arms share: names joined by ``/``, then their values."""
    manifest, arms = session.manifest, session.arms
    exact = manifest.experiment.mode == "exact"
    machine = "tcg-icount" if exact else manifest.provenance.accelerator
    size = next(each.size for each in manifest.cases if each.name == case)
    axes = _parameters(size) | {
        "compiler": _compiler(arms[0]),
        "kconfig": f"{arms[0].kernel.arch}-{arms[0].kernel.flavour}",
        "tbox_group": f"{machine or 'unknown'}-{manifest.guest.name}",
        "testcase": case,
    }
    if len({arm.kernel.flavour for arm in arms}) > 1:
        del axes["kconfig"]
    alike = sorted(axes.items())
    return [
        f"{'/'.join(name for name, _ in alike)}:",
        f"  {ascii_only('/'.join(value for _, value in alike))}",
    ]


def _kernels(session: SessionComparison) -> list[str]:
    """One line an arm; ``commit`` only where a repository knows the names below."""
    names = kernel_names.kernel_names(session)
    lines = [f"{'commit' if kernel_names.all_of_git(session) else 'kernels'}: "]
    for arm in session.arms:
        name = names[arm.name]
        short = name.commit[: kernel_names.DIGITS] or name.text
        lines.append(f'  {ascii_only(short)} ("{ascii_only(arm.label or arm.name)}")')
    return lines


def render(session: SessionComparison) -> str:
    """Return subject, opening, tables and what stands below them, ending in a newline."""
    every = session.rows
    measured = [row for row in every if row.measured]
    lines = [f"Subject: {subject(session)}", "", *_opening(session), ""]
    lines += [*mail.wrapped(mail.measured_under(session.manifest), hang=""), ""]
    lines += [*mail.wrapped(headline.sentence(session)), ""]
    lines += [*mail.banner(session), *mail.warnings(session)]
    lines += _repeating(session) if measured else mail.unmeasured(session)
    for case in session.comparisons[0].cases:
        rows = [row for row in by_arm.of_case(tuple(measured), case.name)
                if _moved(session, row)]  # fmt: skip
        tables = _tables(session, case.name, rows)
        if tables:
            lines += ["=" * RULE, *_axes(session, case.name), "", *_kernels(session), "", *tables]
        if measured:
            lines += mail.below(session, by_arm.of_case(every, case.name))
    lines += [*mail.checked(session), *(mail.family(session) if measured else [])]
    return "\n".join(lines).rstrip() + "\n"
