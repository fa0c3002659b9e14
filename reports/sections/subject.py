"""What is compared, on what, and in which session: the head of every report."""

from __future__ import annotations

from reports import verdict_words, wording
from reports.document import Block, Heading, Link, Paragraph, Words, facts
from reports.headline import headline
from reports.sections.view import View
from results.record import ArmRecord


def title(view: View) -> list[Block]:
    """The experiment's title and question."""
    experiment = view.session.manifest.experiment
    body: list[Block] = [Paragraph(experiment.question, "question")] if experiment.question else []
    return [Heading(verdict_words.title(view.session.manifest), 1), *body]


def origin(view: View) -> str:
    """``session filemap-v4-..., 2026-11-22 09:39 UTC, Twinboot 0.9``: which report this is."""
    manifest = view.session.manifest
    when = manifest.created[:16].replace("T", " ")
    lab = f"Twinboot {manifest.provenance.lab_version}"
    return f"session {manifest.session}, {when} UTC, {lab}"


def brief(view: View) -> list[Block]:
    """The subject in a sentence, and which session this is."""
    manifest = view.session.manifest
    experiment = manifest.experiment
    return [
        Paragraph(
            f"{experiment.name}: {verdict_words.subject(experiment)}, guest {manifest.guest.name}, "
            f"{experiment.mode} mode; {verdict_words.against(view.session)}",
            "cause",
        ),
        Paragraph(f"{origin(view)[0].upper()}{origin(view)[1:]}", "cause"),
    ]


def full(view: View) -> list[Block]:
    """Source, series, arms, guest and how often each was run."""
    session, wall = view.session, view.first.wall
    manifest, many = session.manifest, len(session.arms)
    experiment = manifest.experiment
    compared = verdict_words.against(session)
    if headline(session).has_verdicts:
        compared = f"{compared}; {verdict_words.family(session)}"
    if wall:
        how = f"{wall.blocks} of {wall.planned}, every arm once in each, in random order"
    else:
        on = "both" if many == 2 else f"all {many}"
        many_seeds = wording.seeds(len(manifest.seeds))
        fewer = ", ".join(f"{n} of {case}" for case, n in manifest.case_seeds.items())
        how = f"{many_seeds}{f' ({fewer})' if fewer else ''}, each on {on} arms"
        looks = experiment.looks(len(manifest.seeds))
        if looks.sequential:
            after = ", ".join(map(str, looks.seeds))
            how = f"{how}, judged after {after}, of at most {experiment.max_seeds}"
    return [
        Heading("What was compared", 2, "subject"),
        *facts([
            ("Source", verdict_words.sources(experiment)),
            ("Series", verdict_words.series_title(experiment)),
            *(("Posting", words) for words in _postings(view)),
            *((arm.name, _arm(arm)) for arm in session.arms),
            ("Guest", f"{manifest.guest.name}: {manifest.guest.title}"),
            ("Mode", experiment.mode),
            ("Compared", compared),
            ("Blocks" if wall else "Seeds", f"{how}; {session.exactness.text}"),
        ]),
    ]  # fmt: skip


def _postings(view: View) -> list[Words]:
    """Where the mails of the series are, each once."""
    series = view.session.manifest.series
    links = dict.fromkeys(verdict_words.posting(each.message_id) for each in series)
    return [(Link(address, address),) for address in links if address]


def _arm(arm: ArmRecord) -> str:
    """What an arm is made of."""
    patches = len(arm.kernel.patches)
    settings = "; ".join(f"{name} = {value}" for name, value in sorted(arm.settings.items()))
    text = f"{arm.label or arm.name}: {arm.kernel.release}, {patches or 'no'} patch"
    text += "" if patches == 1 else "es"
    return f"{text}; {settings}" if settings else text
