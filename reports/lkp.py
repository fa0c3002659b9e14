"""The form of the 0-day robot: the mail that kernel people know by sight, byte for byte.

Columns, heads and precisions are those of the robot's mails of 2025 and 2026: 16 columns for the
first arm, 28 for each further one, and the name behind, however long it is.  The rows are what is
judged and what differs.  Below each table stands what the robot does not say: units, n, interval
and verdict.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.many import ArmCell, MetricRow, SessionComparison
from analysis.model import MetricComparison
from analysis.verdict import CALLED, Verdict
from reports import mail, sentences, wording
from reports.headline import headline, pending
from reports.repeat import COMMIT, DIGITS, KernelName, commit_of, kernel_names, source_of
from results.record import ArmRecord, CaseSize
from results.units import VIRTUAL
from text import ascii_only, counted

COMPILER = re.compile(r"\S*\b(?:gcc|clang)\b")
FIRST, OTHER = 16, 27
# More columns than the widest mail of the robot that came through whole.
MOST_OTHERS = 3


def _size(metric: MetricComparison) -> str:
    """``4.7%``: the word beside it has the sign; two decimals where one would say nothing."""
    size = abs(wording.estimate(metric.judgement.change) or 0.0)
    return f"{100 * size:.{1 if size >= 0.001 else 2}f}%"


@dataclass(frozen=True)
class _Mail:
    """A session with what its mail is about.

    ``called`` is the metric of the largest regression, else improvement; ``arm`` is its arm, and
    the last where there is none.
    """

    session: SessionComparison
    called: MetricComparison | None
    arm: ArmRecord
    names: dict[str, KernelName]
    # As the robot names them.
    tree: str
    branch: str

    @property
    def metric(self) -> str:
        """The name of the metric that is called."""
        return (
            mail.metric_name(self.called.case, self.called.name, self.called.unit)
            if self.called
            else ""
        )


def _mail(session: SessionComparison) -> _Mail:
    sizes = [
        (metric.judgement.verdict is Verdict.REGRESSION, abs(change.estimate), pair, metric)
        for pair in session.comparisons
        for metric in pair.primary
        if metric.judgement.verdict in CALLED and (change := metric.judgement.change)
    ]
    manifest, arm, called = session.manifest, session.arms[-1], None
    if sizes:
        *_, pair, called = max(sizes, key=lambda each: each[:2])
        arm = next(each for each in session.arms if each.name == pair.manifest.patched)
    source, series = source_of(manifest, arm.name), manifest.experiment.series
    git = COMMIT.match(source)
    tree = git["place"] if git else source.partition(":")[2].partition("=")[0]
    branch = re.split(r"[/:]", series.path.rstrip("/"))[-1] if series else manifest.experiment.name
    place = tree.rstrip("/").rpartition("/")[2] or "tree"
    return _Mail(session, called, arm, kernel_names(session), place, branch)


def subject(session: SessionComparison) -> str:
    """``[tree:branch] [subsys]  10-hex: WORKLOAD.METRIC 4.7% regression``, unwrapped.

    A series that no commit is known of is named by its title: what its kernel is called may be
    that of a kernel without it.  What was not measured in real time says so here, too.
    """
    manifest, about = session.manifest, _mail(session)
    lead = f"[{about.tree}:{about.branch}]"
    subjects = [patch.subject for series in manifest.series for patch in series.patches]
    systems = (re.match(r"(?:\[[^]]*\]\s*)?([^\s:]+)\s*:", each) for each in subjects)
    lead += next((f" [{match[1]}]" for match in systems if match), "")
    text = headline(session).text.lower()
    if about.called:
        text = f"{about.metric} {_size(about.called)} {about.called.judgement.verdict}"
    if manifest.experiment.mode == "exact" and VIRTUAL not in text:
        text += " (virtual time)"
    text += " (checks pending)" if pending(session) else ""
    name = about.names[about.arm.name]
    title = (not name.commit and sentences.titles(manifest)) or name.text
    # Two blanks, as the robot has them.
    return f"{ascii_only(lead)}  {ascii_only(f'{title}: {text}')}"


def _parameters(size: CaseSize) -> dict[str, str]:
    """What a case ran with; what it has not got is not said."""
    sizes = {"nr_task": size.jobs, "cgroup": size.limit_mib, "file": size.file_mib}
    return {
        name: str(number) if name == "nr_task" else f"{number}M"
        for name, number in sizes.items()
        if number
    }


def _compiler(arm: ArmRecord) -> str:
    """``gcc-12``: its program's name, as Debian's clang begins with "Debian clang version"."""
    match = COMPILER.search(arm.kernel.compiler)
    if match is None:
        return arm.kernel.compiler.partition(" ")[0]
    major = re.search(r"\b(\d+)\.\d+\.\d+", arm.kernel.compiler[match.end() :])
    return f"{match[0]}-{major[1]}" if major else match[0]


def _opening(about: _Mail) -> list[str]:
    """What was measured on what, and how to measure it again."""
    session, arm = about.session, about.arm
    manifest, base, kernel = session.manifest, session.arms[0], arm.kernel
    experiment, guest, provenance = manifest.experiment, manifest.guest, manifest.provenance
    what = f'{experiment.name}, "{sentences.title(session.manifest)}",'
    if about.called:
        word = about.called.judgement.verdict
        article = "an" if word is Verdict.IMPROVEMENT else "a"
        what = f"{article} {word} of {_size(about.called)} in {about.metric}"
    verb = "measured" if any(m.base or m.patched for m in session.primary) else "did not measure"
    commit, source = commit_of(manifest, arm.name), source_of(manifest, arm.name)
    place = source if source[:4] == "deb:" else about.tree
    against, subject = (
        f'{name.commit or name.text} ("{each.label or each.name}")'
        for each in (base, arm)
        for name in [about.names[each.name]]
    )
    lines = [f"{'commit' if about.names[arm.name].commit else 'kernel'}: {subject}"]
    if experiment.series:
        patches = sum(len(record.patches) for record in manifest.series)
        many = f" ({counted(patches, 'patch')})" if patches else ""
        lines.append(f"series: {sentences.titles(manifest) or about.branch}{many}")
        links = (record.message_id.strip("<>") for record in manifest.series)
        lines += [f"{sentences.LORE}{link}" for link in links if link]
    cpu = f" ({guest.cpu})" if experiment.mode == "exact" else ""
    on = "simulated by QEMU TCG -icount: no hardware"
    if experiment.mode != "exact":
        host = provenance.host
        cores = f"{host.get('cpu', 'unknown CPU')}, cores: {host.get('cores', 'unknown')}"
        on = f"{provenance.accelerator or 'unknown accelerator'} on {cores}"
    vcpus = counted(guest.vcpus, "vCPU")
    lines += [
        f"against: {against}",
        f"source: {f'git {about.tree} at {commit}' if commit else place}",
        "",
        f"testcase: {', '.join(case.name for case in manifest.cases)}",
        f"config: {kernel.arch}-{kernel.flavour}, SHA-256 {kernel.config_sha256[:12]}",
        f"compiler: {_compiler(arm)}",
        f"test machine: {vcpus}{cpu} with {guest.memory_mib} MiB of memory, {on}",
        "parameters:",
        "",
    ]
    sizes = [_parameters(case.size).items() for case in manifest.cases]
    lines += dict.fromkeys(f"\t{name}: {value}" for each in sizes for name, value in each)
    return [*mail.wrapped(f"Twinboot {verb} {what} on:", hang=""), "", *map(mail.plain, lines), ""]


def _value(cell: ArmCell) -> str:
    """The average in the robot's three precisions, and its spread where that is large."""
    if cell.summary is None:
        return " " * FIRST
    mean, spread = cell.summary.mean, cell.summary.stddev
    size = abs(mean)
    # Below 0.1 two decimals say less than the change beside them.
    form = ".4g" if 0 < size < 0.1 or size > 1e8 else ".2f" if size < 1000 else ".0f"
    # Below 2 % a spread is not worth the room: the robot's own rule.
    shown = f" \xb1{min(999, 100 * spread):3.0f}%" if spread and spread > 0.02 else " " * 6
    return f"{mean:10{form}}{shown}"


def _change(row: MetricRow, cell: ArmCell) -> str:
    """The change in percent; of a percentage the difference, without the sign."""
    value = wording.estimate(cell.change)
    if row.is_share:
        value = wording.cell_difference(row, cell)
    if cell.withheld or value is None:
        return " " * 12
    if row.is_share:
        return f"{value:+10.1f}  "
    return f"{100 * value:+10.1f}% " if abs(value) < 1e3 else f"{100 * value:+10.2g}% "


def _failures(session: SessionComparison, case: str, others: Sequence[ArmRecord]) -> list[str]:
    """``fail:runs`` of every kind of failure of a case, with the robot's heads."""
    runs = [run for run in session.failed_runs if run.case == case and not run.repeat]
    lines = []
    for kind in sorted({run.failure.kind for run in runs}):
        line, first = "", 0.0
        for arm in (session.arms[0], *others):
            bad = sum(run.arm == arm.name and run.failure.kind == kind for run in runs)
            total = session.failures.get((case, arm.name), (0, 0))[1]
            rate = 100 * bad / total if total else 0.0
            first = first if line else rate
            line += f"{rate - first:10.0f}% " if line else ""
            line += f"{bad or ' ':>11}:{total:<4}"
        lines.append(f"{line}  {ascii_only(f'{case}.{kind}')}")
    heads = ["       fail:runs" + "  %reproduction    fail:runs" * len(others)]
    heads += ["           |    " + "         |             |    " * len(others)]
    return [*heads, *lines] if lines else []


def _case(about: _Mail, case: str) -> list[str]:
    """The tables of a case, the arms but the base as evenly as may be."""
    session, names = about.session, about.names
    manifest, arms = session.manifest, session.arms
    rows = []
    for row in session.of_case(case):
        metrics = filter(None, (pair.metric(case, row.name) for pair in session.comparisons))
        differs = any(m.judgement.differs or m.judgement.verdict in CALLED for m in metrics)
        rows += [row] if row.measured and (row.primary or differs) else []
    tables: list[str] = []
    each = -(-(len(arms) - 1) // -(-(len(arms) - 1) // MOST_OTHERS))
    for at in range(1, len(arms), each):
        others = arms[at : at + each]
        many, failed = len(others), _failures(session, case, others)
        if not rows and not failed:
            continue
        ids = [(arms[0], FIRST), *((arm, OTHER) for arm in others)]
        cut = (f"{ascii_only(names[arm.name].cut(wide)):>{wide}} " for arm, wide in ids)
        tables += ["".join(cut), f"{'-' * FIRST} " + f"{'-' * OTHER} " * many, *failed]
        if rows:
            tables.append("         %stddev" + "     %change         %stddev" * many)
            tables.append("             \\  " + "        |                \\  " * many)
        for row in rows:
            cells = [row.cell(arm.name) for arm in others]
            line = _value(row.base) + "".join(_change(row, cell) + _value(cell) for cell in cells)
            tables.append(f"{line}  {ascii_only(mail.metric_name(row.case, row.name, row.unit))}")
        tables.append("")
    if not tables:
        return []
    # What all arms share: names joined by "/", then their values.
    exact = manifest.experiment.mode == "exact"
    machine = "tcg-icount" if exact else manifest.provenance.accelerator or "unknown"
    shared = _parameters(next(each.size for each in manifest.cases if each.name == case))
    shared |= {"compiler": _compiler(arms[0]), "testcase": case}
    shared |= {"tbox_group": f"{machine}-{manifest.guest.name}"}
    if len({arm.kernel.flavour for arm in arms}) == 1:
        shared["kconfig"] = f"{arms[0].kernel.arch}-{arms[0].kernel.flavour}"
    axes = dict(sorted(shared.items()))
    head = ["=" * 89, f"{'/'.join(axes)}:", f"  {ascii_only('/'.join(axes.values()))}", ""]
    # "commit" only where a repository knows the names below.
    of_git = all(commit_of(manifest, arm.name) for arm in arms)
    head.append(f"{'commit' if of_git else 'kernels'}: ")
    for arm in arms:
        short = names[arm.name].commit[:DIGITS] or names[arm.name].text
        head.append(f'  {ascii_only(short)} ("{ascii_only(arm.label or arm.name)}")')
    return [*head, "", *tables]


def render(session: SessionComparison) -> str:
    """Return subject, opening, tables and what stands below them, ending in a newline."""
    about, measured = _mail(session), any(row.measured for row in session.rows)
    lines = [f"Subject: {subject(session)}", "", *_opening(about)]
    lines += [*mail.under(session), *mail.paragraph(headline(session).sentence)]
    lines += [*mail.apart(session), *mail.warnings(session)]
    lines += mail.repeating(session, about.called) if measured else mail.unmeasured(session)
    for case in session.cases:
        lines += _case(about, case.name)
        if measured:
            lines += mail.below(session.of_case(case.name))
    lines += mail.closing(session, measured=measured)
    return "\n".join(lines).rstrip() + "\n"
