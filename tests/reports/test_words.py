"""What is said of a session of each kind: golden, and the same in every form."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import pytest

from analysis.many import SessionComparison, compare_session
from analysis.model import Comparison
from analysis.operations import per_operation
from experiment.spec import CheckSpec
from reports import forms
from reports.document import (
    Block,
    Callout,
    Facts,
    Fold,
    Heading,
    Listing,
    Paragraph,
    Table,
    Verdicts,
    Words,
    plain,
)
from reports.headline import headline
from reports.render import text
from reports.sections import View, answer, metrics, subject, trust
from tests.analysis import counts_factory
from tests.analysis.factory import ExactSession, all_equal, fails, repeat_of
from tests.analysis.many_factory import Many
from tests.analysis.measured import compare, is_golden, measured, render, whole
from tests.analysis.test_gate import SLEEPS, WARNS, checked, compared
from tests.analysis.wall_factory import WallSession
from tests.reports.render.test_page import ParsedPage
from tests.values import but
from text import clean_line, typeset

# Everything that is said in sentences; the tables have goldens of their own.
SENTENCES = (
    subject.title,
    answer.verdicts,
    trust.differences,
    trust.host,
    trust.checks,
    metrics.patches,
    trust.findings,
    trust.failures,
)
Session = Comparison | SessionComparison


NORMAL = ExactSession()
RECORDS = NORMAL.records()


def failing(many: int = 99, **how: str) -> SessionComparison:
    run_ids = [record.run_id for record in RECORDS if record.arm == "patched"][:many]
    return NORMAL.as_session(fails(RECORDS, *run_ids, message="THP was on", **how))


def inexact() -> SessionComparison:
    other = but(repeat_of(RECORDS[0]), fingerprint="other", run_id="again")
    return NORMAL.as_session([*RECORDS[:-1], other])


def arms_of(*red: str, booted: bool = True) -> SessionComparison:
    many = Many()
    manifest = many.manifest()
    experiment = but(manifest.experiment, check=CheckSpec())
    checks = [checked(name, *([SLEEPS] if name in red else [])) for name in many.arms]
    records = [r for r in many.records() if booted and r.arm not in red]
    manifest = but(manifest, experiment=experiment)
    return compare_session(measured(manifest, records, checks=checks))


def same_counts() -> Comparison:
    session = ExactSession()
    manifest = counts_factory.counted(session.manifest())
    profiles = counts_factory.profiles(session, same=True)
    return compare(manifest, all_equal(session.records()), profiles)


SESSIONS: dict[str, Callable[[], Session]] = {
    "passed": lambda: compared(checked("base"), checked("patched")),
    "broken": lambda: compared(checked("base"), checked("patched", SLEEPS), measured=False),
    "broken after it was measured": lambda: compared(checked("base"), checked("patched", SLEEPS)),
    "broken before the series": lambda: compared(checked("base", WARNS), checked("patched", WARNS)),
    "not checked": lambda: compared(checked("base"), checked("patched", status="not run")),
    "checks pending": lambda: compared(checked("base"), checked("patched", of=3)),
    "7 of 32 runs": lambda: NORMAL.as_session(RECORDS[:7]),
    "no run": lambda: NORMAL.as_session([]),
    "all runs of an arm failed": lambda: failing(kind="panic", blame="series"),
    "6 runs failed": lambda: failing(6),
    "other bits": inexact,
    "same code": lambda: ExactSession(same_code=True).as_session([]),
    "one seed": lambda: ExactSession(seeds=(7,)).as_session(),
    "counted, the same": same_counts,
    "one of many is broken": lambda: arms_of("bourney"),
    "all of many are broken": lambda: arms_of(
        "sleepy", "bourney", "sorted-bourney", "zr-1", booted=False
    ),
    "wall": lambda: WallSession(
        effect=0.03, drift=0.02, busy=(("filemap-4k", 3, "patched"),)
    ).compared(),
    "wall, without KVM": lambda: WallSession(
        blocks=12, effect=0.03, spread=0.2, accelerator="tcg"
    ).compared(),
    "wall, unsteady": lambda: WallSession(effect=0.03, again=0.02).compared(),
    "wall, 1 block": lambda: WallSession(blocks=12, recorded=1).compared(),
}
FIXTURES = ("counted", "five", "failed_five", "stepwise", "matrix")
HOSTILE = ("hostile", "hostile_five", "hostile_counts")
Rendered = Callable[[str, str], str]


@pytest.fixture(scope="module")
def sessions(request: pytest.FixtureRequest) -> dict[str, SessionComparison]:
    every = {name: whole(made()) for name, made in SESSIONS.items()}
    named = {name: whole(request.getfixturevalue(name)) for name in (*FIXTURES, *HOSTILE)}
    return every | named


@pytest.fixture(scope="module")
def rendered(sessions: dict[str, SessionComparison]) -> Rendered:
    """A form of a session, made once for all tests."""
    return cache(lambda name, form: render(sessions[name], form))


def test_golden(sessions: dict[str, SessionComparison]) -> None:
    parts = []
    # The fixtures are like sessions of test_kept.
    for name in SESSIONS:
        blocks = [block for section in SENTENCES for block in section(View(sessions[name]))]
        parts.append(f"=== {name}\n\n{text.text(blocks)}")
    assert is_golden("words.txt", "\n".join(parts))


def parts_of(words: Words) -> list[str]:
    """A text in the pieces that forms mark each in its own way."""
    return [words] if isinstance(words, str) else [plain((part,)) for part in words]


def words_of(blocks: Sequence[Block]) -> Iterator[str]:
    """Every text of the blocks but those that a page alone has."""
    for block in blocks:
        match block:
            case Heading(text=title):
                yield title
            case Paragraph(words=words):
                yield from parts_of(words)
            case Listing(items=items):
                for item in items:
                    yield from parts_of(item.words)
                    yield from words_of(item.blocks)
            case Table(rows=rows, columns=columns):
                yield from (column.head for column in columns)
                yield from (cell.text for row in rows for cell in row.cells)
            case Facts(facts=facts):
                yield from (part for fact in facts for part in parts_of(fact.words))
            case Verdicts(rows=rows):
                for row in rows:
                    yield from (row.change, row.word, *map(plain, row.lines))
            case Callout(blocks=inner):
                yield from words_of(inner)
            case Fold(summary=summary, blocks=inner, page_only=False):
                yield from parts_of(summary)
                yield from words_of(inner)
            case _:
                pass


def joined(form: str) -> str:
    """A form without its line breaks and without what its markup needs."""
    return " ".join(re.sub(r"\\(.)", r"\1", form).split())


@pytest.mark.parametrize("name", [*SESSIONS, *FIXTURES])
def test_every_sentence_of_the_text_is_on_the_page_and_in_markdown(
    name: str, sessions: dict[str, SessionComparison], rendered: Rendered
) -> None:
    session = per_operation(sessions[name])
    # A page has the subject as a list of facts.
    sections = [section for section in forms.TEXT if section is not subject.brief]
    blocks = [block for section in sections for block in section(View(session))]
    sentences = {line for line in words_of(blocks) if line.strip()}
    assert len(sentences) > 15
    page, report = joined(ParsedPage(rendered(name, "html")).text), rendered(name, "markdown")
    report, lines = joined(report), joined(render(session, "text", width=10_000))
    for sentence in sentences:
        line = " ".join(clean_line(sentence).split())
        assert line in report, sentence
        assert line in lines, sentence
        # A command is printed as it is.
        assert typeset(line) in page or line in page, sentence


@pytest.mark.parametrize("name", SESSIONS)
def test_mails_and_the_summary_say_how_it_ended(
    name: str, sessions: dict[str, SessionComparison], rendered: Rendered
) -> None:
    """The headline, whole, and no row of dashes where nothing was measured."""
    session = sessions[name]
    head = headline(session)
    for form in ("lkp", "mmtests", "summary"):
        shown = " ".join(re.sub(r"[\\\u2060]", "", rendered(name, form)).replace("±", "+-").split())
        assert head.text.replace("±", "+-")[:60] in shown, form
    if not head.has_verdicts and not any(metric.base for metric in session.primary):
        assert "4k.refaults_per_io" not in ParsedPage(rendered(name, "html")).text


@pytest.mark.parametrize("name", [*SESSIONS, *HOSTILE])
def test_no_form_moves_a_cursor_or_makes_an_element(name: str, rendered: Rendered) -> None:
    for form in forms.FORMS:
        shown = rendered(name, form)
        assert shown.translate(dict.fromkeys(map(ord, "\n\t\xa0"))).isprintable(), form
        if form == "html":
            page = ParsedPage(shown)
            assert page.open == []
            assert [tag for tag, _ in page.tags].count("script") == 1
        if form in ("markdown", "summary"):
            outside_code = "".join(shown.split("```")[::2])
            assert "<script" not in outside_code.replace(r"\<script", ""), form
        if form in ("letter", "mmtests"):
            assert shown.isascii()
            assert max(map(len, shown.splitlines())) <= 75, form
