"""What `lab.py gate --history` says of made-up histories, and with which exit code."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from history.entry import CaseEntry, Entry
from history.store import HistoryStore
from tests.conftest import Terminal
from tests.history.altered import (
    each_case,
    judged_by,
    lost,
    measured_again,
    on_seeds,
    on_seeds_from,
    renamed,
    without_case,
    without_last_seed,
)
from tests.history.factory import Nights
from tests.values import but, data
from verbs.history import policy_of

STEP = 20
SLOW = -0.02


@dataclass
class GateOutput:
    """An exit code and messages; ``first`` are the titles up to the first colon."""

    code: int
    messages: list[dict[str, Any]] = field(default_factory=list)

    @property
    def first(self) -> list[str]:
        return [m["title"].partition(":")[0] for m in self.messages]

    def of(self, finding: str) -> list[dict[str, Any]]:
        return [m for m in self.messages if m["title"].partition(":")[0] == finding]


Gated = Callable[..., GateOutput]


@pytest.fixture
def gated(main: Terminal, tmp_path: Path) -> Gated:
    """Judge entries by the shipped policy, or by files of these texts."""

    def gate(entries: Iterable[Entry], known: str = "", policy: str = "") -> GateOutput:
        folder = tmp_path / f"history-{len(list(tmp_path.iterdir()))}"
        store = HistoryStore(folder)
        for entry in entries:
            store.add(entry)
        given = ["--known", str(tmp_path / "known.toml")]
        (tmp_path / "known.toml").write_text(known)
        if policy:
            (tmp_path / "policy.toml").write_text(policy)
            given += ["--policy", str(tmp_path / "policy.toml")]
        code = main("gate", "--history", folder, "--json", "--no-annotations", *given)
        if not main.out:
            return GateOutput(code, [{"title": "refused", "text": main.err}])
        return GateOutput(code, json.loads(main.out)["messages"])

    return gate


def track(after: int = 1, size: float = SLOW, **more: Any) -> list[Entry]:
    """Twenty quiet nights and ``after`` slower ones."""
    return Nights((0.0,) * STEP + (size,) * after, **more).entries()


def night(number: int) -> str:
    """The date of a night by its number, the first being 1."""
    return Nights((0.0,) * number).entries()[-1].night


def acknowledged(change: str, until: str = "") -> str:
    given = {"change": change, "reason": "under discussion", "until": until}
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in given.items() if value)
    return f"[[known]]\n{lines}"


def test_a_regression_stays_open_on_every_later_night(gated: Gated) -> None:
    entries = track(after=40)
    for count in (STEP + 1, STEP + 2, STEP + 15, STEP + 40):
        outcome = gated(entries[:count])
        assert (outcome.code, outcome.first) == (1, ["regression"]), count
        assert ("since 2026-01-21" in outcome.messages[0]["text"]) is (count > STEP + 1)


def test_a_regression_ends_when_it_is_fixed_and_not_by_half(gated: Gated) -> None:
    half = Nights((0.0,) * 20 + (-0.05,) * 5 + (-0.03,) * 5).entries()
    assert gated(half).code == 1
    whole = Nights((0.0,) * 20 + (-0.05,) * 5 + (-0.03,) * 5 + (0.0,) * 5).entries()
    assert gated(whole).code == 0
    back = Nights((0.0,) * 20 + (-0.05,) * 5 + (0.0,) * 5 + (-0.05,) * 5).entries()
    assert gated(back).first == ["regression"]


def test_what_is_fixed_is_the_regression_whose_level_is_reached(gated: Gated) -> None:
    entries = Nights((0.0,) * 10 + (-0.05,) * 10 + (-0.08,) * 10 + (-0.05,) * 10).entries()
    (message,) = gated(entries).of("regression")
    assert "since 2026-01-11" in message["text"]


def test_a_regression_measured_again_stays(gated: Gated) -> None:
    entries = track()
    outcome = gated([*entries, measured_again(entries[-1])])
    assert (outcome.code, outcome.first) == (1, ["regression"])


def test_jobs_of_a_night_share_its_id_and_not_a_clock(gated: Gated) -> None:
    slow = track(experiment="before-midnight")
    calm = Nights((0.0,) * (STEP + 2), experiment="after-midnight").entries()[1:]
    outcome = gated([*slow, *calm])
    assert (outcome.code, sorted(outcome.first)) == (1, ["regression", "stale"])
    shared = [
        but(entry, night_id=f"run-{number}")
        for each in (slow, calm)
        for number, entry in enumerate(each)
    ]
    assert (gated(shared).code, gated(shared).first) == (1, ["regression"])


def test_an_experiment_that_was_not_measured_is_no_pass_and_keeps_its_regression(
    gated: Gated,
) -> None:
    slow = track(experiment="left-out")
    others = Nights((0.0,) * (STEP + 10), experiment="measured").entries()
    assert gated([*slow, *others]).code == 1
    calm = gated([*slow[:STEP], *others])
    assert (calm.code, calm.first) == (3, ["stale"])
    assert gated([*slow[:STEP], *others], policy='[[rules]]\nstale = "warn"\n').code == 0
    known = acknowledged(calm.messages[0]["change"])
    assert gated([*slow[:STEP], *others], known).code == 0


@pytest.mark.parametrize(("count", "code"), [(16, 0), (19, 0), (20, 1), (21, 1), (22, 1), (41, 1)])
def test_an_acknowledgement_that_ends_brings_its_regression_back(
    gated: Gated, count: int, code: int
) -> None:
    entries = Nights((0.0,) * 14 + (SLOW,) * 40).entries()[:count]
    outcome = gated(entries, acknowledged(gated(entries).messages[0]["change"], night(20)))
    assert outcome.code == code
    shown = " ".join(message["text"] for message in outcome.of("regression"))
    assert (f"acknowledged until {night(20)}, which has come" in shown) is (code == 1)


def test_what_is_acknowledged_by_its_id_is_so_for_good(gated: Gated) -> None:
    entries = track(after=60)
    name = gated(entries).messages[0]["change"]
    known = acknowledged(name)
    assert gated(entries, known).code == 0
    assert gated([*entries[:-1], *track(after=61, size=-0.05)[-2:]], known).code == 1


def test_entries_about_nothing_are_named(gated: Gated) -> None:
    outcome = gated(track(), acknowledged("0" * 12))
    assert outcome.code == 1
    assert "names no change" in outcome.of("known changes")[0]["text"]


@pytest.mark.parametrize("name", ["4k.instructions", "4k.path", "*.instructions"])
def test_metrics_are_named_as_people_read_them_or_as_they_are_recorded(
    gated: Gated, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    entries = [renamed(entry, "4k.bw", "4k.path") for entry in track()]
    outcome = gated(entries)
    assert outcome.messages[0]["title"].endswith("filemap-4k 4k.instructions")
    assert " 4k.instructions (tonight)" in outcome.messages[0]["text"]
    file = tmp_path / "lax.toml"
    file.write_text(f'[[rules]]\nmetric = "{name}"\nregression = "pass"\n')
    assert gated(entries, policy=file.read_text()).code == 0
    capsys.readouterr()
    policy_of(file)
    note = f"note: {file}: metric = '4k.path' is called '4k.instructions'; both names are read\n"
    assert capsys.readouterr().err == (note if name == "4k.path" else "")


@pytest.mark.parametrize(
    ("rule", "words"), data(__file__, "a_policy_that_fails_nothing_by_mistake_is_refused")
)
def test_a_policy_that_fails_nothing_by_mistake_is_refused(
    gated: Gated, rule: str, words: str
) -> None:
    outcome = gated(track(), policy=f"[[rules]]\n{rule}\n")
    assert outcome.code == 2
    assert words in outcome.messages[0]["text"]


def test_a_metric_may_have_a_smallest_change_of_its_own(gated: Gated) -> None:
    """A step of 2 %: one for the rule of all, none where 5 % are the least that matter."""
    step = track(size=-0.02, after=3)
    assert gated(step, policy="[[rules]]\nchange = 0.0025\n").code == 1
    own = '[[rules]]\nmetric = "4k.bw"\nchange = 0.05\n'
    assert gated(step, policy=own).code == 0
    of_another = '[[rules]]\nmetric = "thp.*"\nchange = 0.05\n'
    assert gated(step, policy=of_another).code == 1


def test_a_regression_that_is_too_small_to_fail_says_by_which_rule(gated: Gated) -> None:
    outcome = gated(track(after=3), policy="[[rules]]\nat_least = 0.05\n")
    assert (outcome.code, outcome.first) == (0, ["regression"])
    assert "below at_least = 5 %" in outcome.messages[0]["text"]


def test_a_metric_that_was_renamed_is_named(gated: Gated) -> None:
    entries = track(size=-0.05, after=3)
    for count in (1, 3):
        new = [renamed(entry, "4k.bw", "4k.rate") for entry in entries[STEP : STEP + count]]
        outcome = gated([*entries[:STEP], *new])
        assert (outcome.code, outcome.first) == (3, ["ended"])
        assert outcome.messages[0]["title"].endswith("filemap-4k 4k.bw")
        assert "last measured on 2026-01-20; new since: 4k.rate" in outcome.messages[0]["text"]
    known = acknowledged(outcome.messages[0]["change"])
    assert gated([*entries[:STEP], *new], known).code == 0
    # The name it had before is back: what was behind the other is compared again.
    assert gated([*entries[:STEP], new[0], *track(size=0.0, after=2)[-1:]]).code == 0
    assert gated([*entries[:STEP], new[0], entries[-1]]).first == ["regression"]


def test_a_metric_that_was_added_and_taken_away_is_named(gated: Gated) -> None:
    entries = track(after=3, size=0.0)
    more = [
        each_case(entry, lambda case: but(case, primary=("4k.bw", "4k.iops")))
        for entry in entries[5:STEP]
    ]
    outcome = gated([*entries[:5], *more, *entries[STEP:]])
    assert (outcome.code, outcome.first) == (3, ["ended"])
    assert outcome.messages[0]["title"].endswith("filemap-4k 4k.iops")


def test_a_case_that_was_left_out_is_named_until_it_is_back(gated: Gated) -> None:
    entries = track(after=3, size=0.0, cases=("filemap-4k", "filemap-thp"))
    cut = [*entries[:STEP], *(without_case(entry, "filemap-thp") for entry in entries[STEP:-1])]
    outcome = gated(cut)
    assert (outcome.code, outcome.first) == (3, ["ended"])
    assert outcome.messages[0]["title"].endswith("exact filemap-thp")
    assert gated([*cut, entries[-1]]).code == 0


def test_a_night_that_was_measured_in_parts_is_whole(gated: Gated) -> None:
    entries = track(after=1, size=0.0, cases=("filemap-4k", "filemap-thp"))
    parts = [
        without_case(entries[-1], "filemap-thp"),
        without_case(measured_again(entries[-1]), "filemap-4k"),
    ]
    assert gated([*entries[:-1], *parts]).code == 0


@pytest.mark.parametrize("own", [{"change": 0.1}, {"alpha": 1e-6}])
def test_the_thresholds_that_judge_are_the_policys(gated: Gated, own: dict[str, float]) -> None:
    entries = track(size=-0.05)
    outcome = gated([*entries[:-1], judged_by(entries[-1], **own)])
    assert (outcome.code, sorted(outcome.first)) == (1, ["regression", "thresholds"])
    calm = track(size=0.0)
    outcome = gated([*calm[:-1], judged_by(calm[-1], **own)])
    assert (outcome.code, outcome.first) == (2, ["thresholds"])
    assert gated(track(size=-0.05), policy="[[rules]]\nchange = 0.1\n").code == 0


def seeds_change(before: range, after: range, *, size: float = 0.0) -> list[Entry]:
    """Twelve seeds there are; other ones are measured from night 21 on."""
    return on_seeds_from(track(after=3, size=size, seeds=12), {0: before, STEP: after})


@pytest.mark.parametrize(
    ("after", "kept"), [(range(5, 13), 4), (range(1, 7), 6), (range(9, 13), 0), (range(3, 11), 6)]
)
def test_other_or_fewer_seeds_are_named_on_every_night(
    gated: Gated, after: range, kept: int
) -> None:
    entries = seeds_change(range(1, 9), after)
    for count in (1, 3):
        outcome = gated(entries[: STEP + count])
        assert outcome.code == 3
        (gap,) = outcome.of("seeds")
        assert f"{kept} of the 8 seeds of 2026-01-20 are measured since 2026-01-21" in gap["text"]
    last = gated(entries)
    ids = {message["change"] for message in last.messages if message["change"]}
    known = "".join(acknowledged(each) for each in ids)
    # No verdict can ever come of fewer than eight, whoever acknowledged that they are fewer.
    assert gated(entries, known).code == (5 if len(after) < 8 else 0)
    assert gated(entries, known, '[[rules]]\ntoo_few = "pass"\n').code == 0


def test_more_seeds_are_no_gap_and_the_old_ones_again_close_it(gated: Gated) -> None:
    assert gated(seeds_change(range(1, 9), range(1, 13))).code == 0
    seeds = {0: range(1, 9), STEP: range(1, 7), STEP + 1: range(1, 9)}
    nights = on_seeds_from(track(after=6, size=0.0, seeds=12), seeds)
    assert gated(nights[: STEP + 1]).code == 3
    assert gated(nights).code == 0
    slow = track(after=6, seeds=12, size=SLOW)
    back = [on_seeds(slow[-1], range(1, 9)), *nights[STEP:]]
    assert gated([*nights[: STEP + 1], *back[:1]]).code == 1


def test_seeds_too_few_for_any_verdict_are_named(gated: Gated) -> None:
    outcome = gated(track(seeds=4))
    assert (outcome.code, outcome.first) == (3, ["incomparable", "too_few"])
    (too_few,) = outcome.of("too_few")
    assert "4 seeds; any verdict needs at least 8" in too_few["text"]
    allowed = '[[rules]]\nincomparable = "pass"\ntoo_few = "warn"\n'
    assert gated(track(seeds=4), policy=allowed).code == 0


def test_a_regression_on_a_night_that_lost_one_of_eight_seeds_is_no_pass(gated: Gated) -> None:
    entries = track(size=-0.05)

    def without_last(case: CaseEntry) -> CaseEntry:
        return but(case, arms=tuple(map(without_last_seed, case.arms)))

    outcome = gated([*entries[:STEP], each_case(entries[STEP], without_last)])
    assert (outcome.code, outcome.of("incomparable")[0]["level"]) == (3, "error")


def test_a_night_that_did_not_repeat_is_no_pass(gated: Gated) -> None:
    entries = track(size=-0.5)
    entries[STEP] = but(entries[STEP], exactness="inexact")
    outcome = gated(entries)
    assert (outcome.of("inexact")[0]["level"], outcome.code) == ("error", 3)
    assert gated(entries, policy='[[rules]]\ninexact = "warn"\nregression = "warn"\n').code == 0
    again = [*entries, measured_again(track(size=0.0)[STEP])]
    assert gated(again).code == 3


def test_kernel_and_lab_together_without_a_pinned_arm_are_reported_until_it_is_back(
    gated: Gated,
) -> None:
    entries = track(after=5, size=-0.1, lab={STEP: 0.0}, pinned=False)
    for count in (1, 5):
        outcome = gated(entries[: STEP + count])
        assert outcome.code == 0
        assert {m["level"] for m in outcome.of("mixed")} == {"warning"}
        assert len(outcome.of("mixed")) == 2
    assert gated(track(size=0.0, lab={STEP: 0.03})).code == 0


def test_a_night_of_the_future_is_left_out_and_named(gated: Gated, tmp_path: Path) -> None:
    entries = track()
    folder = tmp_path / "history"
    store = HistoryStore(folder)
    for entry in entries[:STEP]:
        store.add(entry)
    # As an older lab wrote it.
    wrong = but(entries[STEP - 1], night="2072-03-21")
    path = store.path(wrong)
    path.parent.mkdir(parents=True)
    path.write_text(wrong.model_dump_json())
    read = store.read()
    assert len(read.entries) == STEP
    assert "night 2072-03-21 is 1" in read.problems[0].words
    assert gated(entries).code == 1


@pytest.mark.parametrize(
    ("blame", "finding", "code"), [("series", "broken", 4), ("host", "failed", 3)]
)
def test_what_a_night_lost_stands_until_it_is_measured(
    gated: Gated, blame: str, finding: str, code: int
) -> None:
    entries = track(size=0.0)
    nights = [*entries[:-1], lost(entries[-1], blame)]
    assert (gated(nights).code, gated(nights).first) == (code, [finding])
    others = Nights((0.0,) * (STEP + 5), experiment="others").entries()
    assert gated([*nights, *others]).code == code
    again = [*nights, measured_again(entries[-1])]
    # What the host lost is made good; a kernel that did not run once is broken.
    assert gated(again).code == (4 if blame == "series" else 0)
    assert gated([*nights, track(after=2, size=0.0)[-1]]).code == 0


def test_up_and_down_are_both_judged(gated: Gated) -> None:
    entries = Nights((0.0,) * 10 + (0.05,) * 19 + (0.01,)).entries()
    assert gated(entries).first == ["regression"]
