"""The form of the 0-day robot: the mail that kernel people know by sight, byte for byte.

Columns, heads and precisions are those of the robot's mails of 2025 and 2026: 16 columns for the
first arm, 28 for each further one, and the name behind, however long it is.  The rows are what is
judged and what differs.  Below each table stands what the robot does not say: units, n, interval
and verdict.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from analysis.many import ArmCell, MetricRow, SessionComparison
from analysis.model import MetricComparison, is_share
from analysis.verdict import CALLED, Verdict
from reports import mail, repeat, sentences, wording
from reports.headline import headline, pending
from results.record import ArmRecord, CaseSize, Manifest
from results.units import VIRTUAL, shown_name
from text import ascii_only, counted

COMPILER = re.compile(r"\S*\b(?:gcc|clang)\b")
FIRST, OTHER = 16, 27
# More columns than the widest mail of the robot that came through whole.
MOST_OTHERS = 3


def _called(session: SessionComparison) -> tuple[str, MetricComparison] | None:
    """Arm and metric of the largest regression, else improvement: what the mail is about."""
    sizes = [
        (metric.judgement.verdict is Verdict.REGRESSION, abs(change.estimate), pair, metric)
        for pair in session.comparisons
        for metric in pair.primary
        if metric.judgement.verdict in CALLED and (change := metric.judgement.change)
    ]
    largest = max(sizes, key=lambda each: each[:2], default=None)
    return (largest[2].manifest.patched, largest[3]) if largest else None


def _name(case: str, name: str, unit: str) -> str:
    """``filemap-4k.4k.virtual_bw``; a percentage ends in ``%``, and changes by its difference."""
    return f"{case}.{shown_name(name, unit)}{'%' if is_share(unit) and name[-1] != '%' else ''}"


def _size(metric: MetricComparison) -> str:
    """``4.7%``: the word beside it has the sign; two decimals where one would say nothing."""
    size = abs(metric.judgement.change.estimate) if metric.judgement.change else 0.0
    return f"{100 * size:.{1 if size >= 0.001 else 2}f}%"


def _place(manifest: Manifest, arm: str) -> tuple[str, str]:
    """Tree and branch, as the robot names them."""
    source, series = repeat.source_of(manifest, arm), manifest.experiment.series
    git = repeat.COMMIT.match(source)
    tree = git["place"] if git else source.partition(":")[2].partition("=")[0]
    branch = re.split(r"[/:]", series.path.rstrip("/"))[-1] if series else manifest.experiment.name
    return tree.rstrip("/").rpartition("/")[2] or "tree", branch


def subject(session: SessionComparison) -> str:
    """``[tree:branch] [subsys]  10-hex: WORKLOAD.METRIC 4.7% regression``, unwrapped.

    A series that no commit is known of is named by its title: what its kernel is called may be
    that of a kernel without it.  What was not measured in real time says so here, too.
    """
    manifest, called = session.manifest, _called(session)
    names = repeat.kernel_names(session)
    arm = called[0] if called else session.arms[-1].name
    lead = "[{}:{}]".format(*_place(manifest, arm))
    subjects = [patch.subject for series in manifest.series for patch in series.patches]
    systems = (re.match(r"(?:\[[^]]*\]\s*)?([^\s:]+)\s*:", each) for each in subjects)
    lead += next((f" [{match[1]}]" for match in systems if match), "")
    text = headline(session).text.lower()
    if called:
        metric = called[1]
        name = _name(metric.case, metric.name, metric.unit)
        text = f"{name} {_size(metric)} {metric.judgement.verdict}"
    if manifest.experiment.mode == "exact" and VIRTUAL not in text:
        text += " (virtual time)"
    text += " (checks pending)" if pending(session) else ""
    title = (not names[arm].commit and sentences.titles(manifest)) or names[arm].text
    # Two blanks, as the robot has them.
    return f"{ascii_only(lead)}  {ascii_only(f'{title}: {text}')}"


def _parameters(size: CaseSize) -> dict[str, str]:
    """What a case ran with; what it has not got is not said."""
    limit, file = (size.limit_mib, "M"), (size.file_mib, "M")
    sizes = {"nr_task": (size.jobs, ""), "cgroup": limit, "file": file}
    return {name: f"{number}{unit}" for name, (number, unit) in sizes.items() if number}


def _compiler(arm: ArmRecord) -> str:
    """``gcc-12``: its program's name, as Debian's clang begins with "Debian clang version"."""
    match = COMPILER.search(arm.kernel.compiler)
    if match is None:
        return arm.kernel.compiler.partition(" ")[0]
    major = re.search(r"\b(\d+)\.\d+\.\d+", arm.kernel.compiler[match.end() :])
    return f"{match[0]}-{major[1]}" if major else match[0]


def _opening(session: SessionComparison) -> list[str]:
    """What was measured on what, and how to measure it again."""
    manifest, called = session.manifest, _called(session)
    names = repeat.kernel_names(session)
    arm = next(each for each in session.arms if not called or each.name == called[0])
    arm = arm if called else session.arms[-1]
    base, experiment, guest = session.arms[0], manifest.experiment, manifest.guest
    what = f'{experiment.name}, "{experiment.title}",'
    if called:
        metric = called[1]
        word, name = metric.judgement.verdict, _name(metric.case, metric.name, metric.unit)
        article = "an" if word is Verdict.IMPROVEMENT else "a"
        what = f"{article} {word} of {_size(metric)} in {name}"
    verb = "measured" if any(m.base or m.patched for m in session.primary) else "did not measure"
    (tree, branch), source = _place(manifest, arm.name), repeat.source_of(manifest, arm.name)
    commit = repeat.commit_of(manifest, arm.name)
    place = f"git {tree} at {commit}" if commit else source if source[:4] == "deb:" else tree
    texts = {
        each.name: f'{name.commit or name.text} ("{each.label or each.name}")'
        for each in (base, arm)
        for name in [names[each.name]]
    }
    lines = [f"{'commit' if names[arm.name].commit else 'kernel'}: {texts[arm.name]}"]
    if experiment.series:
        patches = sum(len(record.patches) for record in manifest.series)
        many = f" ({counted(patches, 'patch')})" if patches else ""
        links = (record.message_id.strip("<>") for record in manifest.series)
        lines += [f"series: {sentences.titles(manifest) or branch}{many}"]
        lines += [f"https://lore.kernel.org/r/{link}" for link in links if link]
    machine = f"{counted(guest.vcpus, 'vCPU')}{{}} with {guest.memory_mib} MiB of memory, {{}}"
    host, accelerator = manifest.provenance.host, manifest.provenance.accelerator
    on = f"{host.get('cpu', 'unknown CPU')}, cores: {host.get('cores', 'unknown')}"
    how = ("", f"{accelerator or 'unknown accelerator'} on {on}")
    if experiment.mode == "exact":
        how = (f" ({guest.cpu})", "simulated by QEMU TCG -icount: no hardware")
    kernel = arm.kernel
    lines += [
        f"against: {texts[base.name]}", f"source: {place}", "",
        f"testcase: {', '.join(case.name for case in manifest.cases)}",
        f"config: {kernel.arch}-{kernel.flavour}, SHA-256 {kernel.config_sha256[:12]}",
        f"compiler: {_compiler(arm)}", f"test machine: {machine.format(*how)}", "parameters:", "",
    ]  # fmt: skip
    sizes = [_parameters(case.size).items() for case in manifest.cases]
    lines += dict.fromkeys(f"\t{name}: {value}" for each in sizes for name, value in each)
    return [*mail.wrapped(f"Twinboot {verb} {what} on:", hang=""), "", *map(_plain, lines), ""]


def _plain(line: str) -> str:
    """A line of ASCII with its tab at the front, and however long it is."""
    return f"{line[: line.startswith(chr(9))]}{ascii_only(line)}"


def _repeating(session: SessionComparison) -> list[str]:
    """How to measure it again, and the number that comes out wherever an exact session is."""
    again, called = repeat.repeat(session, of_others=True), _called(session)
    metric = called[1] if called else next((m for m in session.primary if m.patched), None)
    notes = [*again.notes]
    if session.manifest.experiment.mode == "exact" and metric and metric.base and metric.patched:
        both = f"{wording.figure(metric.base.mean)} -> {wording.figure(metric.patched.mean)}"
        name = _name(metric.case, metric.name, metric.unit)
        notes.append(f"On any host {name} is {both} to the last digit.")
    head = f"To repeat it, in a checkout of Twinboot {session.manifest.provenance.lab_version}:"
    commands = [_plain(f"\t{command}") for command in again.commands]
    return [head, "", *commands, "", *mail.paragraph(" ".join(notes))]


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
    difference = wording.cell_difference(row, cell) if row.is_share else None
    if cell.withheld or (difference is None if row.is_share else cell.change is None):
        return " " * 12
    if difference is not None:
        return f"{difference:+10.1f}  "
    size = 100 * cell.change.estimate if cell.change else 0.0
    return f"{size:+10.1f}% " if abs(size) < 1e5 else f"{size:+10.2g}% "


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


def _case(session: SessionComparison, case: str) -> list[str]:
    """The tables of a case, the arms but the base as evenly as may be."""
    arms, names = session.arms, repeat.kernel_names(session)
    rows = [
        row for row in session.of_case(case)
        if row.measured and (row.primary or any(
            m.judgement.differs or m.judgement.verdict in CALLED
            for pair in session.comparisons if (m := pair.metric(case, row.name))
        ))
    ]  # fmt: skip
    tables: list[str] = []
    each = -(-(len(arms) - 1) // -(-(len(arms) - 1) // MOST_OTHERS))
    for at in range(1, len(arms), each):
        others = arms[at : at + each]
        many, failed = len(others), _failures(session, case, others)
        if not rows and not failed:
            continue
        ids = [f"{ascii_only(names[arms[0].name].cut(FIRST)):>{FIRST}} "]
        ids += [f"{ascii_only(names[arm.name].cut(OTHER)):>{OTHER}} " for arm in others]
        tables += ["".join(ids), f"{'-' * FIRST} " + f"{'-' * OTHER} " * many, *failed]
        if rows:
            tables.append("         %stddev" + "     %change         %stddev" * many)
            tables.append("             \\  " + "        |                \\  " * many)
        for row in rows:
            cells = [row.cell(arm.name) for arm in others]
            line = _value(row.base) + "".join(_change(row, cell) + _value(cell) for cell in cells)
            tables.append(f"{line}  {ascii_only(_name(row.case, row.name, row.unit))}")
        tables.append("")
    if not tables:
        return []
    # What all arms share: names joined by "/", then their values.
    manifest = session.manifest
    exact = manifest.experiment.mode == "exact"
    machine = "tcg-icount" if exact else manifest.provenance.accelerator or "unknown"
    shared = _parameters(next(each.size for each in manifest.cases if each.name == case))
    shared |= {"compiler": _compiler(arms[0]), "testcase": case}
    shared |= {"tbox_group": f"{machine}-{manifest.guest.name}"}
    if len({arm.kernel.flavour for arm in arms}) == 1:
        shared["kconfig"] = f"{arms[0].kernel.arch}-{arms[0].kernel.flavour}"
    axes = sorted(shared.items())
    values = "/".join(value for _, value in axes)
    head = ["=" * 89, f"{'/'.join(name for name, _ in axes)}:", f"  {ascii_only(values)}", ""]
    # "commit" only where a repository knows the names below.
    of_git = all(repeat.commit_of(manifest, arm.name) for arm in arms)
    head.append(f"{'commit' if of_git else 'kernels'}: ")
    for arm in arms:
        short = names[arm.name].commit[: repeat.DIGITS] or names[arm.name].text
        head.append(f'  {ascii_only(short)} ("{ascii_only(arm.label or arm.name)}")')
    return [*head, "", *tables]


def render(session: SessionComparison) -> str:
    """Return subject, opening, tables and what stands below them, ending in a newline."""
    measured = any(row.measured for row in session.rows)
    lines = [f"Subject: {subject(session)}", "", *_opening(session)]
    lines += [*mail.measured_under(session), *mail.paragraph(headline(session).sentence, hang="  ")]
    lines += [*mail.banner(session), *mail.warnings(session)]
    lines += _repeating(session) if measured else mail.unmeasured(session)
    for case in session.cases:
        lines += _case(session, case.name)
        if measured:
            lines += mail.below(session, session.of_case(case.name))
    lines += [*mail.checked(session), *(mail.family(session) if measured else [])]
    return "\n".join(lines).rstrip() + "\n"
