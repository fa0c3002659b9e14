"""The verb that answers a mail about a commit and a benchmark with a measurement."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from errors import UsageError
from host.facts import cache_folder
from runs.request import SUBJECT, Request
from verbs.cli import Without, flattened
from verbs.invocation import log, options, write_out
from verbs.options import Folder, Measuring, opt, session_folder
from verbs.session import OfTree, measure

if TYPE_CHECKING:
    from history.claim import Benchmark, ReportedChange

app = typer.Typer(add_completion=False)

# Commits are the mail's, or a series has the same change.
OF_ANSWER = Without("name", "automatic", "per_patch", "arms", "mode")


@app.command("answer")
@flattened
def answer_verb(
    request: Annotated[Request, OF_ANSWER],
    commits: Annotated[OfTree, Without("base", "uncommitted")],
    measuring: Measuring,
    file: Annotated[str, typer.Argument(metavar="MAIL", help="a file, - or a message-id")],
    commit: Annotated[
        str, opt("--commit HASH", "which commit it is about, if it names several", SUBJECT)
    ] = "",
    of: Annotated[
        Path | None, opt("--of SESSION", "answer from a session that is measured", SUBJECT)
    ] = None,
    folder: Folder = None,
    reads_only: Annotated[
        bool, opt("--read", "say what is read from it, and measure nothing", SUBJECT)
    ] = False,
) -> None:
    """Measure the commit that a mail reports, and print a reply: what holds here, and what not.

    Read are reports of the kernel test robot, of Fastpath, and of people. The arms are the
    commit and its parent in the tree that you stand in (or --tree); where they are not available,
    --series has the same change as a patch. Workloads are those nearest to the benchmark,
    and the one that executes most of what changed. Where instructions show nothing, diagnostic
    runs follow: lines, locks, misses. The reply ends with the letter of the session.

    Examples:
    ./lab.py answer report.eml --tree ~/linux  # measure, then a reply on standard output
    ./lab.py answer report.eml --read  # what is read from it, and the nearest workload
    ./lab.py answer report.eml --series x.patch --source deb:linux-source-6.12  # as a patch
    """
    from history import claim as claims
    from kernels.mail import read_mail

    of = of and session_folder(of)
    raw = _mail(file)
    mail = read_mail(raw, file)
    identifier = mail.message_id if mail.has_id else ""
    claim = claims.read(
        mail.subject, mail.text, by=mail.poster, message_id=identifier, commit=commit
    )
    near = claims.benchmarks().nearest(claim.benchmark) if claim.benchmark else None
    log(f"read: {claim.text}")
    log(f"nearest: {_nearest(claim, near)}")
    if reads_only:
        return
    elsewhere = ""
    if of is None:
        own = claim.model_copy(update={"commit": commit, "releases": ()}) if commit else claim
        elsewhere = "" if request.series or own == claim else commit
        request = _arms(request, own, commits.tree)
        nearest = near.workloads if near and not request.named_workloads else ()
        if request.arms and nearest:
            request = replace(request, workloads=",".join(nearest))
        on = options(measuring)
        of = measure(request, on, measuring, folder=folder, verb="measure", nearest=nearest)
        if request.twins is None and _is_unseen(claim, of):
            log("instructions do not show it; once more, with diagnostic runs")
            further = folder and folder.with_name(f"{folder.name}-diagnostics")
            request = replace(request, twins=True)
            of = measure(request, on, measuring, folder=further, verb="measure", nearest=nearest)
    write_out(_reply(claim, near, of, elsewhere), end="")


def _is_unseen(claim: ReportedChange, session: Path) -> bool:
    """Whether instructions show nothing, and diagnostic runs can be made."""
    from history import claim as claims
    from reports import forms

    compared = forms.read_comparison(session)
    is_x86 = compared.manifest.experiment.kernel.arch == "x86_64"
    return is_x86 and claims.answer(claim, compared).word in claims.UNSEEN


def _mail(name: str) -> bytes:
    """The mail's bytes; with a message-id that mail of the public archive.

    Raises UsageError: there is none, or it is too large; InfraError: the archive is not at hand.
    """
    from experiment.series_name import kind_of, message_id
    from kernels.intake import thread_of
    from kernels.mail import RAW_ID, split_mbox
    from kernels.series import LARGEST

    if name == "-":
        raw = sys.stdin.buffer.read(LARGEST + 1)
    elif Path(name).is_file():
        with Path(name).open("rb") as opened:
            raw = opened.read(LARGEST + 1)
    elif kind_of(name) == "thread":
        identifier = message_id(name)
        thread = split_mbox(thread_of(identifier, cache_folder()))
        ids = ((each, RAW_ID.search(each)) for each in thread)
        raw = next((each for each, own in ids if own and own[1].decode() == identifier), thread[0])
    else:
        what = "no such file, and no message-id"
        raise UsageError(what, where=name, next_step="save the mail as a file, and name it")
    if len(raw) > LARGEST:
        what = f"larger than {LARGEST >> 20} MiB"
        raise UsageError(what, where=name, next_step="save the report alone, without its thread")
    if not raw.strip():
        raise UsageError("the mail is empty", where=name, next_step="save it with its text")
    return split_mbox(raw)[0]


def _nearest(claim: ReportedChange, near: Benchmark | None) -> str:
    """Which workloads are nearest to what was reported, in words."""
    if near is None:
        what = f"{claim.benchmark} is not known" if claim.benchmark else "no benchmark is named"
        return f"{what}; workloads are chosen by what the change executes"
    if not near.workloads:
        return f"none ({near.likeness}); workloads are chosen by what the change executes"
    return f"{', '.join(near.workloads)}: {near.likeness}"


def _arms(request: Request, claim: ReportedChange, tree: Path | None) -> Request:
    """The request with the commit and its parent as arms, unless it has a series of its own.

    Raises UsageError: the commit is not in the tree, or there is no tree.
    """
    from kernels.git_range import find_commit, tree_at

    if request.series:
        return request
    top = tree_at(tree or Path())
    names = (f"{claim.commit}~1", claim.commit) if claim.commit else claim.releases
    missing = [name for name in names if not find_commit(top, name)]
    if missing:
        raise UsageError(
            f"{', '.join(missing)}: no such commit in this tree",
            where=str(top),
            next_step="git fetch the branch that the mail names; or name the change as a patch: "
            "--series FILE --source SOURCE",
        )
    if claim.releases:
        return replace(request, arms=tuple(f"git:{top}@{name}" for name in names))
    first, last = names
    return OfTree(tree=top).of(replace(request, name=f"{first}..{last}"))


def _reply(claim: ReportedChange, near: Benchmark | None, session: Path, elsewhere: str) -> str:
    """The answer as a mail: who is answered, what was claimed, what holds here, and the letter.

    The change is commit ``elsewhere`` in the tree that was measured; empty where it is the mail's.
    """
    from history import claim as claims
    from reports import forms
    from reports import mail as letters

    compared = forms.of_operations(forms.read_comparison(session))
    answer = claims.answer(claim, compared)
    subject = claim.subject if claim.subject.lower().startswith("re:") else f"Re: {claim.subject}"
    head = [f"Subject: {subject}"]
    head += [f"In-Reply-To: <{claim.message_id}>"] if claim.message_id else []
    likeness = _nearest(claim, near) if near else "workloads are those that execute the change"
    words = [
        f"{claim.by} reported: {claim.text}." if claim.by else f"Reported: {claim.text}.",
        *([f"In the tree that was measured it is commit {elsewhere}."] if elsewhere else []),
        f"Answer: {answer.word}. {answer.why}.",
        f"Measured are instructions counted under emulation, no time on hardware. Nearest to the "
        f"benchmark: {likeness}.",
    ]
    parts = [line for text in words for line in letters.paragraph(text, hang="")]
    return "\n".join([*head, "", *parts, letters.letter(compared)])
