"""Documents: their links lead somewhere, their commands exist, and the index has all of them."""

import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import lab
from experiment.load import load_experiment
from runs.resolved import catalogue
from tests.values import data
from verbs.cli import expanded
from workloads.spec import Check, load_workload, phase_names

CHECKOUT = Path(lab.__file__).resolve().parent
DOCS = CHECKOUT / "docs"
# Entries that nobody has to read: how instruments work, what was simulated and measured.
NOTEBOOK = sorted((DOCS / "notebook").glob("*.md"))
PAGES = [*sorted(CHECKOUT.glob("*.md")), *sorted(DOCS.glob("*.md")), *NOTEBOOK]
BLOCK = re.compile(r"^(```.*?^```|(?:^(?: {4}|\t)[^\n]*\n?)+)", re.M | re.S)
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
PROGRAM = re.compile(r"^\s*(?:\$ )?(?:cd \S+ && )?(?:\./lab\.py|twinboot) (\S.*)$")
MAKE = re.compile(r"^\s*(?:\$ )?make ([a-z-]+)(?!\S)")
# Words of this house, and what the field says instead.
VOCABULARY = data(__file__, "vocabulary")


def without_code(text: str) -> str:
    """A page's prose: code has brackets that are no links."""
    return CODE.sub("", BLOCK.sub("", text))


def anchor(heading: str) -> str:
    """The id that GitHub gives a heading."""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")


def anchors(text: str) -> set[str]:
    """The ids of a page's headings, those of equal ones with numbers behind them."""
    counts: dict[str, int] = {}
    ids = set()
    for heading in re.findall(r"^#{1,6} (.*)$", BLOCK.sub("", text), re.M):
        name = anchor(heading)
        count = counts[name] = counts.get(name, -1) + 1
        ids.add(f"{name}-{count}" if count else name)
    return ids


def broken_links(page: Path, text: str) -> list[str]:
    """The links of a page that lead to no file, or to no heading of one."""
    broken = []
    for link in LINK.findall(without_code(text)):
        place, _, heading = link.partition("#")
        if ":" in place:
            continue
        target = (page.parent / place).resolve() if place else page
        readable = target.suffix == ".md" and target.exists()
        known = anchors(target.read_text(encoding="utf-8")) if readable else set()
        if not target.exists() or (heading and heading not in known):
            broken.append(link)
    return broken


def house_words(text: str) -> dict[str, str]:
    """Words of the house in a text, each with what to say instead."""
    plain = " ".join(text.split())
    return {
        match[0]: standard
        for word, standard in VOCABULARY.items()
        for match in re.finditer(rf"\b(?:{word})\b", plain, re.I)
    }


@cache
def program() -> Any:
    """The command line, of which hundreds of lines are looked up."""
    return lab.command_line()


@cache
def loaded(command: Any) -> Any:
    return command.load() if hasattr(command, "load") else command


def verbs(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """A command and all below it, with their names."""
    command = loaded(command)
    yield name, command
    for each, below in getattr(command, "commands", {}).items():
        yield from verbs(below, f"{name} {each}".strip())


def commands(text: str) -> Iterator[str]:
    """Command lines of the lab that a page shows, each without the name of the program."""
    for block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if match := PROGRAM.match(line):
                # A remark stands three blanks away, or behind a hash.
                yield re.split(r"\s{3,}|\s#", match[1])[0]
    for code in CODE.findall(BLOCK.sub("", text)):
        if match := PROGRAM.match(" ".join(code.split())):
            yield match[1]


def unknown_in(line: str) -> str:
    """The verb or the options of a command line that the lab does not know; empty if none."""
    words = re.split(r" [|>;]|>>", line.translate(str.maketrans("", "", "[]…")))[0]
    verb, *rest = expanded(shlex.split(words.replace("...", "")))
    if verb.isupper() or verb == "--help":
        return ""
    command: Any = program().commands.get(verb)
    while command is not None:
        command = loaded(command)
        if not hasattr(command, "commands") or not rest or rest[0].startswith("-"):
            break
        verb, *rest = rest
        command = command.commands.get(verb)
    if command is None:
        return verb
    known = {name for option in command.params for name in option.opts + option.secondary_opts}
    given = [word.partition("=")[0] for word in rest if word.startswith("-") and word != "-"]
    return " ".join(word for word in given if word not in known | {"--help", "-h"})


def wrong(problems: Callable[[Path, str], Any], pages: Iterable[Path] = PAGES) -> dict[str, Any]:
    """By page what is wrong there, of those where anything is."""
    every = {page.name: problems(page, page.read_text(encoding="utf-8")) for page in pages}
    return {name: each for name, each in every.items() if each}


def test_links_lead_to_files_and_headings() -> None:
    assert wrong(broken_links) == {}


def test_commands_are_those_of_the_lab() -> None:
    assert wrong(lambda page, text: [line for line in commands(text) if unknown_in(line)]) == {}


def test_targets_of_make_exist() -> None:
    targets = re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.M)

    def unknown(page: Path, text: str) -> set[str]:
        shown = [line for block in BLOCK.findall(text) for line in block.splitlines()]
        shown += CODE.findall(BLOCK.sub("", text))
        return {match[1] for line in shown if (match := MAKE.match(line))} - set(targets)

    assert wrong(unknown) == {}


def test_documents_use_the_words_of_the_field() -> None:
    pages = [page for page in PAGES if page not in NOTEBOOK]
    assert wrong(lambda page, text: house_words(without_code(text)), pages) == {}


def test_help_uses_the_words_of_the_field() -> None:
    spoken = {}
    for name, command in verbs(program(), ""):
        texts = [
            command.help,
            command.epilog,
            *(getattr(each, "help", "") for each in command.params),
        ]
        if words := house_words(" ".join(filter(None, texts))):
            spoken[name] = words
    assert spoken == {}


def test_the_index_has_every_document() -> None:
    linked = set(LINK.findall((DOCS / "README.md").read_text(encoding="utf-8")))
    assert {page.name for page in DOCS.glob("*.md")} - {"README.md"} <= linked


def test_the_notebook_is_linked_from_the_method_and_no_page_for_users_needs_it() -> None:
    linking = {
        page.name: set(re.findall(r"\]\((?:docs/)?notebook/([\w-]+\.md)", page.read_text("utf-8")))
        for page in PAGES
        if page not in NOTEBOOK
    }
    assert linking["method.md"] == {page.name for page in NOTEBOOK}
    allowed = {"method.md", "inside.md"}
    assert {name for name, links in linking.items() if links} <= allowed


def test_documents_for_users_have_bounds() -> None:
    # Tables that a command makes are looked up, and not read.
    tables = ("coverage-table.md", "recall.md")
    others = ("architecture.md", "inside.md", "experiment-file.md", *tables)
    words = {page: len(page.read_text("utf-8").split()) for page in PAGES if page not in NOTEBOOK}
    users = [page for page in words if page.parent == DOCS and page.name not in others]
    readme = words[CHECKOUT / "README.md"]
    assert readme <= 650
    assert readme + sum(words[page] for page in users) <= 25_000


def test_the_picture_has_the_numbers_that_readme_prints() -> None:
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    why = re.search(r"fewer instructions per read: (.*?);", " ".join(readme.split()))
    title = re.search(r"<title[^>]*>(.*?)</title>", (DOCS / "filemap-v4.svg").read_text("utf-8"))
    assert why
    assert title
    assert set(why[1].split(", ")) < set(re.split(r"[:;] ", title[1]))


def test_the_workload_that_is_shown_can_be_used_as_it_stands(tmp_path: Path) -> None:
    text = (DOCS / "adding-a-workload.md").read_text(encoding="utf-8")
    workload, experiment = re.findall(r"^```toml\n(.*?)^```", text, re.M | re.S)
    name = tomllib.loads(workload)["name"]
    (tmp_path / f"{name}.toml").write_text(workload)
    (tmp_path / "mine.toml").write_text(experiment)
    phases = phase_names({name: load_workload(tmp_path / f"{name}.toml")})
    known = replace(catalogue(CHECKOUT), workloads=phases)
    (case,) = load_experiment(tmp_path / "mine.toml", catalogue=known).cases
    assert case.workload == name


def test_every_check_of_a_workload_is_explained() -> None:
    text = (DOCS / "adding-a-workload.md").read_text(encoding="utf-8")
    explained = re.findall(r"^\| `(\w+)` \|", text.partition("## Checks")[2], re.M)
    assert sorted(explained) == sorted(get_args(Check))


def test_words_of_the_house_are_named_with_those_of_the_field() -> None:
    assert house_words("Twins of\nits own, whose turns off") == {
        "Twins": "diagnostic runs",
        "of its own": "separate, or nothing",
    }
    assert house_words("two labels, a laboratory, 2 of 3 returns") == {}


def test_what_is_wrong_is_reported(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `word`, two\n\n## Two\n")
    assert broken_links(page, "[a](#two) [b](page.md#one-word-two) [c](https://d/#e)") == []
    assert broken_links(page, "[a](#three) [b](no.md)\n\n    [c](in-code.md)\n") == [
        "#three",
        "no.md",
    ]
    shown = "`./lab.py bogus x`\n\n"
    shown += "    ./lab.py run NAME --quick   of --bogus\n"
    shown += "    twinboot A.. --bogus\n"
    assert [unknown_in(line) for line in commands(shown)] == ["", "--bogus", "bogus"]
