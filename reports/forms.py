"""The forms of a report: which sections each has, what writes them, and the files of a session.

The same session folder gives the same bytes every time.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from analysis.counts import OnePhase, Paired
from analysis.explain import explanations
from analysis.explain.kinds import EXPLANATION as KINDS_COUNTED
from analysis.explain.stacks import EXPLANATION as STACKS_COUNTED
from analysis.many import SessionComparison, compare_session
from analysis.model import Comparison, ReportError
from analysis.native import TimedArms, judge, same_arms
from analysis.operations import per_operation
from reports import FORM_NAMES, json_form, lkp, mail, mmtests, sentences
from reports.document import Block, Heading, Item, Link, Listing, Paragraph
from reports.headline import headline
from reports.render import html, markdown, text
from reports.sections import View, answer, counted, functions, metrics, of_each_pair, subject, trust
from results import door, native
from results.door import StoreError
from results.profile import KINDS
from results.record import Manifest, Record, RunRecord
from results.session import MeasuredSession, native_beside, open_session
from results.units import shown_unit
from text import clean_line, words

if TYPE_CHECKING:
    import pandas as pd

HTML, TEXT_FILE = "report.html", "report.txt"
# What a page links to beside itself; functions and stacks only where they were counted.
MARKDOWN_FILE, SAMPLES_FILE = "report.md", "samples.csv"
FUNCTIONS_FILE, STACKS_FILE, COUNTS_FILE = "functions.csv", "stacks.csv", "counts.csv"
LINKED = (MARKDOWN_FILE, SAMPLES_FILE, FUNCTIONS_FILE, STACKS_FILE, COUNTS_FILE)
Section = Callable[[View], list[Block]]
Form = Callable[[SessionComparison], str]


def pairs(view: View) -> list[Block]:
    """What is of two arms: all of a session that has no more, else each pair in its fold."""
    body = of_each_pair(view, (metrics.of_pair, counted.blocks, functions.diffs))
    return body if view.session.is_pair else [*body, Paragraph(metrics.note(view.first), "note")]


# In the order of reading: what came out, whether to believe it, where it came from, the rest.
PAGE: tuple[Section, ...] = (
    *(answer.verdicts, trust.differences, trust.host, trust.checks),
    *(metrics.patches, metrics.workloads, metrics.by_arm, pairs),
    *(subject.published, trust.findings, trust.failures),
    *(subject.full, subject.again, subject.made_with, subject.meaning),
)
MARKDOWN: tuple[Section, ...] = (subject.title, subject.brief, *PAGE)
# A terminal has no drawings, and no room for what a session was made with.
TEXT = tuple(each for each in MARKDOWN if each not in (subject.full, subject.made_with))


# The last session that was asked for, and what is shown of it: several forms are made of one.
_shown: list[SessionComparison] = []


def of_operations(session: SessionComparison) -> SessionComparison:
    """The session per read or operation; the JSON and tables alone are of indices."""
    if not _shown or _shown[0] is not session:
        _shown[:] = [session, per_operation(session)]
    return _shown[1]


def _blocks(sections: Sequence[Section], view: View) -> list[Block]:
    return [block for section in sections for block in section(view)]


def as_text(session: SessionComparison, width: int = text.WIDTH, folder: str = "") -> str:
    """The report for a terminal of so many columns, of a session in this folder."""
    return text.text(_blocks(TEXT, View(session, folder=folder)), width)


def answer_lines(
    session: SessionComparison, width: int = text.WIDTH, folder: str = ""
) -> list[str]:
    """The answer and what else the arms differ by, for a terminal at the end of a session."""
    view = View(of_operations(session), folder=folder)
    title = Heading(sentences.title(session.manifest), 1)
    # All options that differ are in the report.
    return text.render([title, *answer.answer(view), *trust.differences(view)[:1]], width)


def as_markdown(session: SessionComparison) -> str:
    """The report as Markdown."""
    return markdown.text(_blocks(MARKDOWN, View(session)))


def as_html(session: SessionComparison, *, drawn: bool = True) -> str:
    """The report as one page, with its charts where it is ``drawn``."""
    view = View(session, drawn=drawn)
    experiment = session.manifest.experiment
    over = f"Twinboot · {experiment.name} · {experiment.mode} mode · {subject.origin(view)}"
    any_counted = view.first.headlines or view.first.attributions
    of_counts = {
        FUNCTIONS_FILE: any_counted,
        STACKS_FILE: STACKS_COUNTED.of(view.first),
        COUNTS_FILE: any_counted,
    }
    files = [name for name in LINKED if of_counts.get(name, True)]
    links = [part for name in files for part in (", ", Link(name, name))][1:]
    beside = Paragraph(("Other files in the session's folder: ", *links), "note")
    window = f"{headline(session).text}: {sentences.title(session.manifest)}"
    return html.page(window, subject.title(view), [*_blocks(PAGE, view), beside], over)


def as_annotated(session: SessionComparison, form: str) -> str:
    """The diff of each pair of arms with how often its lines ran: ``text``, ``markdown``, ``mail``.

    A mail is the text with the diff quoted, as an answer to the series.

    Raises:
        ReportError: there are no such lines on record.
    """
    blocks = [
        block
        for pair in of_operations(session).comparisons
        for block in functions.diffs_shown(pair, session.name_of(pair))
    ]
    if not blocks:
        raise ReportError("no phase has counts of changed lines on record")
    title: list[Block] = [Heading(sentences.title(session.manifest), 1)]
    if form == "markdown":
        return markdown.text([*title, *blocks])
    shown = text.text([*title, *blocks])
    return re.sub(r"^ *\| ?", "> ", shown, flags=re.M) if form == "mail" else shown


# A step's summary may have 1 MiB; a comment 65,536 characters, and it is the smaller one.
MOST = 60_000
CUT = "\n\n(cut here; the whole report is in the artifacts)\n"
# Takes the meaning of "@name", "#1", "a/b#1", "http://" and "www." and changes no glyph.
BREAK = "\u2060"
ACTIVE = re.compile(r"(?<=[@#])(?=\w)|(?<=:)(?=//)|(?<=www)(?=\.)|(?<=GH-)(?=\d)", re.IGNORECASE)


def inert(text: str) -> str:
    """Text in which GitHub finds no user to notify, no issue to link and no address.

    What guests, hosts and mails say may be in any text, and machines act on what a comment says.
    """
    return ACTIVE.sub(BREAK, text)


def as_summary(session: SessionComparison) -> str:
    """One screen of Markdown for a job's summary or a pull request: verdicts, and warnings.

    The whole report is in a fold, as much of it as there is room for: nothing but the fold has to
    be closed where it is cut.
    """
    view = View(session, of_others=True)
    blocks = [Heading(sentences.title(view.session.manifest), 2), *answer.answer(view)]
    warnings = (each for each in view.session.findings if each.level == "warning")
    items = tuple(Item(sentences.of_finding(f), f.level, f.scope) for f in warnings)
    blocks += [Listing(items)] if items else []
    head = inert("\n".join([*markdown.render(blocks), ""]))
    whole = inert(markdown.text(_blocks(MARKDOWN, view)))
    fold = f"<details><summary>The whole report</summary>\n\n{whole}\n</details>\n"
    text = f"{head}\n{fold}"
    return text if len(text) <= MOST else f"{head[:MOST]}{CUT}"


# Of a session per operation, all but the JSON.
_WRITERS: tuple[Form, ...] = (
    *(as_text, as_markdown, mail.letter, lkp.render, mmtests.render),
    *(as_html, json_form.render, as_summary),
)
FORMS: Mapping[str, Form] = MappingProxyType(dict(zip(FORM_NAMES, _WRITERS, strict=True)))


def render(
    session: SessionComparison,
    form: str,
    width: int | None = None,
    folder: str = "",
    *,
    drawn: bool = True,
) -> str:
    """Return all of a session in the named form.

    ``width`` is that of the terminal, in columns, and ``folder`` where the session lies;
    None for a file, which is the same wherever it is written.  A page that is not ``drawn`` has
    no charts, which take seconds.

    Raises:
        ReportError: no such form; the message names the known ones.
    """
    if form not in FORMS:
        raise ReportError(f"unknown form {form!r}; known: {', '.join(FORMS)}")
    shown = session if form == "json" else of_operations(session)
    if form == "text" and width is not None:
        return as_text(shown, width, folder)
    return FORMS[form](shown) if drawn or form != "html" else as_html(shown, drawn=False)


def read_comparison(folder: Path) -> SessionComparison:
    """Return what the session in ``folder`` shows, without writing anything new.

    Raises:
        StoreError: the folder is no session, or cannot be read.
        ReportError: its records cannot be compared.
    """
    return _timed(_compared(open_session(folder)), folder)


def _timed(session: SessionComparison, folder: Path) -> SessionComparison:
    """With what the newest session of native mode beside this one measured of the same arms."""
    if session.manifest.experiment.mode != "exact":
        return session
    for place, head in native_beside(folder):
        if not same_arms(head, session.manifest):
            continue
        # One whose boots are damaged is passed over, as one whose head is.
        with suppress(StoreError):
            judged = judge(*native.read(place))
            timed = TimedArms(
                session=place.name,
                cpu=head.host.get("cpu", "this host"),
                judged=tuple(each for each in judged if each.arm == head.arms[1].name),
            )
            return session.model_copy(update={"timed": timed})
    return session


# The last session that was compared, and what it shows.  A look compares a session, and the report
# that follows it in the same process reads the same records.
_last: list[tuple[MeasuredSession, SessionComparison]] = []


def _compared(session: MeasuredSession) -> SessionComparison:
    if not _last or _last[0][0] != session:
        _last[:] = [(session, compare_session(session))]
    return _last[0][1]


def write_all(
    folder: Path, show: Callable[[SessionComparison], None] | None = None
) -> SessionComparison:
    """Write the HTML, Markdown and text reports and the tidy tables; return the comparison.

    ``show`` gets it first: the charts of a page take seconds, and somebody waits for a verdict.
    ``functions.csv`` is written only where functions were counted, and ``stacks.csv`` where call
    stacks were followed; with more than two arms each further pair has tables of its own, named
    for its arms.

    Raises:
        StoreError: the folder is no session, or cannot be read.
        ReportError: its records cannot be compared.
        OSError: the folder cannot be written.
    """
    session = open_session(folder)
    comparison = _timed(_compared(session), folder)
    if show is not None:
        show(comparison)
    for name, content in _files(session, comparison):
        door.write(folder, name, content)
    return comparison


def published(folder: Path) -> dict[str, str | bytes]:
    """The page of the session in ``folder`` and the files that it links to, by name.

    Made of the records: what lies in the folder under these names may be anybody's.

    Raises:
        StoreError: the folder is no session, or cannot be read.
        ReportError: its records cannot be compared.
    """
    session = open_session(folder)
    files = _files(session, _timed(_compared(session), folder))
    return {name: content for name, content in files if name in (HTML, *LINKED)}


def _files(
    session: MeasuredSession, comparison: SessionComparison
) -> Iterator[tuple[str, str | bytes]]:
    yield from as_files(tidy(session.manifest, session.records)).items()
    for number, pair in enumerate(comparison.comparisons):
        # The first pair has the plain names, the others are named for their arms.
        apart = f"-{pair.manifest.base}-{pair.manifest.patched}" if number else ""
        if pair.attributions:
            yield FUNCTIONS_FILE.replace(".", f"{apart}."), functions_table(pair)
            yield COUNTS_FILE.replace(".", f"{apart}."), counts_table(pair)
        if STACKS_COUNTED.of(pair):
            yield STACKS_FILE.replace(".", f"{apart}."), stacks_table(pair)
    yield HTML, render(comparison, "html")
    yield MARKDOWN_FILE, render(comparison, "markdown")
    yield TEXT_FILE, render(comparison, "text")


SAMPLE_COLUMNS = words(
    "session experiment guest case metric unit direction primary arm block seed value"
)


def tidy(manifest: Manifest, records: Iterable[RunRecord]) -> pd.DataFrame:
    """Return the samples of all valid runs as a frame with :data:`SAMPLE_COLUMNS`.

    Units are as shown: what is counted in virtual time says so.
    Repeats (they check exactness), twins and failed runs are not in it.  Rows are sorted
    by case, metric, block and arm order, so that equal sessions give equal tables.
    """
    # Imported here: pandas takes most of a second, and no form needs it.
    import pandas as pd

    mode = manifest.experiment.mode
    arm_order = {arm.name: position for position, arm in enumerate(manifest.arms)}
    cases = {case.name: case for case in manifest.cases}
    rows: list[tuple[object, ...]] = []
    for record in records:
        if record.samples is None or record.repeat or record.twin:
            continue
        case = cases[record.case]
        rows += [
            (
                manifest.session,
                manifest.experiment.name,
                manifest.guest.name,
                case.name,
                metric.name,
                shown_unit(metric.unit, mode),
                metric.direction,
                metric.name in case.primary,
                record.arm,
                record.block,
                record.seed,
                record.samples[metric.name],
            )
            for metric in case.metrics
            if metric.name in record.samples
        ]
    rows.sort(key=lambda row: (row[3], row[4], row[9], arm_order[str(row[8])]))
    return pd.DataFrame(rows, columns=list(SAMPLE_COLUMNS)).astype({"value": float})


def as_files(frame: pd.DataFrame) -> dict[str, bytes]:
    """``samples.parquet`` and ``samples.csv``, by name."""
    csv = frame.to_csv(index=False).encode()
    sink = io.BytesIO()
    frame.to_parquet(sink, index=False)
    return {"samples.parquet": sink.getvalue(), "samples.csv": csv}


def _csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    sink = io.StringIO()
    csv.writer(sink, lineterminator="\n").writerows([columns, *rows])
    return sink.getvalue()


def _numbers_of(pair: Paired) -> tuple[object, ...]:
    """The cells from ``base`` to ``seeds``; to the last digit."""
    numbers = (pair.base, pair.patched, pair.difference, pair.low, pair.high)
    return (*("" if number is None else repr(number) for number in numbers), pair.n)


FUNCTION_COLUMNS = (
    *("case", "phase", "unit", "function", "file", "line_base", "line_patched", "part_of", "user"),
    *("only_in", "base", "patched", "difference", "low_95", "high_95", "seeds"),
    *("calls_base", "calls_patched", "changed"),
    *(f"{kind}_{arm}" for kind in KINDS for arm in ("base", "patched")),
)


def functions_table(comparison: Comparison) -> str:
    """One row a function, instructions and calls per unit of work, means over the seeds.

    ``only_in`` is ``base`` or ``patched`` whatever the arms are called; ``changed`` is 1 for the
    functions that are called changed, which are tested per a phase's first unit.  Kinds of
    instructions are there per a phase's first unit, too.
    """
    by_kind = {
        (each.case, each.phase, each.unit, row.user, row.name): row
        for each in KINDS_COUNTED.of(comparison)
        for row in each.rows
    }
    rows = []
    for each in comparison.attributions:
        changed = {function.name for function in each.changed}
        for row in each.functions:
            calls = row.calls
            kinds = by_kind.get((each.case, each.phase, each.unit, row.user, row.name))
            of_kinds = [getattr(kinds, kind) if kinds else None for kind in KINDS]
            rows.append(
                (
                    *(each.case, each.phase, each.unit, clean_line(row.name), clean_line(row.file)),
                    *(line or "" for line in row.lines),
                    *(clean_line(row.subsystem), int(row.user), row.only_in),
                    *_numbers_of(row.instructions),
                    *((repr(calls.base), repr(calls.patched)) if calls else ("", "")),
                    int(not row.user and row.name in changed),
                    *(
                        repr(getattr(kind, arm)) if kind else ""
                        for kind in of_kinds
                        for arm in ("base", "patched")
                    ),
                )
            )
    return _csv(FUNCTION_COLUMNS, rows)


def _numbers(
    record: Record | Mapping[str, object], table: str = "", name: str = ""
) -> Iterator[tuple[str, str, str, Paired]]:
    """The table of each number in a record, what of, its name and its value."""
    fields = dict(record)
    texts = (value for value in fields.values() if isinstance(value, str) and table)
    name = " ".join(filter(None, (name, *texts)))
    for key, value in fields.items():
        if isinstance(value, Paired):
            yield table, name, key, value
        below = value if isinstance(value, tuple) else (value,)
        for each in below:
            if isinstance(each, Record | Mapping):
                yield from _numbers(each, f"{table}.{key}".lstrip("."), name)


COUNT_COLUMNS = (
    *("instrument", "run", "case", "phase", "unit", "table", "name", "number"),
    *("base", "patched", "difference", "low_95", "high_95", "seeds"),
)


def counts_table(comparison: Comparison) -> str:
    """One row a number of every row that an explanation has, but functions and stacks.

    ``table`` is the list that the row is in, ``name`` what it is of, in the words of the row, and
    ``run`` the diagnostic run that counted it, empty of the judged ones.
    """
    rows = [
        (
            *(name, getattr(each, "twin", ""), each.case, each.phase, clean_line(each.unit_title)),
            *(table, clean_line(of), number, *_numbers_of(pair)),
        )
        for explanation in explanations()
        if (name := explanation.name) not in ("attributions", "stacks")
        for each in cast("tuple[OnePhase, ...]", explanation.of(comparison))
        for table, of, number, pair in _numbers(each)
    ]
    return _csv(COUNT_COLUMNS, rows)


STACK_COLUMNS = ("case", "phase", "unit", "path", "base", "patched", "calls_base", "calls_patched")


def stacks_table(comparison: Comparison) -> str:
    """One row a path: instructions of its function itself and calls of it, per unit of work.

    Paths are written as tools that draw flame graphs read them, the outermost function first
    (``a;b;c``); values are means over the seeds.
    """
    rows = [
        (
            each.case,
            each.phase,
            clean_line(each.unit_title),
            ";".join(map(clean_line, row.path)),
            *(
                repr(value)
                for pair in (row.instructions, row.calls)
                for value in (pair.base, pair.patched)
            ),
        )
        for each in STACKS_COUNTED.of(comparison)
        for row in each.rows
    ]
    return _csv(STACK_COLUMNS, rows)
