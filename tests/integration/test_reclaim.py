"""The experiment of five arms on four nodes, at the size for tests."""

import pytest

from guests import channel
from reports.forms import read_comparison
from tests.integration.conftest import EndedSession, measured
from tests.integration.lab_process import records_of

pytestmark = [pytest.mark.guest, pytest.mark.usefixtures("kept_runs")]
ARMS = ("vanilla", "sleepy", "bourney", "sorted-bourney", "zr1")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> EndedSession:
    """One block of each arm; the kernels differ by mm/vmscan.c and are built in seconds."""
    folder = tmp_path_factory.mktemp("reclaim") / "session"
    sized = ("--set", "guest=smoke-numa", "--set", "blocks=1", "--no-twins", "--no-check")
    return measured(folder, "reclaim-contention", *sized, verb="measure")


def sent(session: EndedSession, arm: str) -> dict[str, bytes]:
    name = f"reclaim-overwrite.b00.{arm}"
    return channel.decode((session.folder / "raw" / name / "result").read_bytes())


def test_every_arm_reclaims_and_is_valid(session: EndedSession) -> None:
    assert session.status == 0, session.err
    records = records_of(session.folder)
    assert len(records) == len(ARMS) + 1
    assert {record.failure for record in records.values()} == {None}
    for arm in ARMS:
        samples = records[f"reclaim-overwrite.b00.{arm}"].samples
        assert samples is not None
        assert samples["overwrite.runtime"] > 0
        assert 0 < samples["overwrite.slowpath_share"] < 50
    # Restored and counted, cold and not: the last arm's repeat.
    pair = ("reclaim-overwrite.b00.zr1", "reclaim-overwrite.b00.zr1.repeat")
    assert len({records[name].fingerprint for name in pair}) == 1


def test_arms_differ_by_what_they_say(session: EndedSession) -> None:
    """One kernel, and zone_reclaim_mode works on it; the patched ones are others."""
    notes = {arm: sent(session, arm)["notes"] for arm in ARMS}
    assert notes["zr1"] == notes["vanilla"]
    assert len(set(notes.values())) == 4
    reclaimed = {arm: _moved(sent(session, arm), "zone_reclaim_success") for arm in ARMS}
    assert reclaimed["zr1"] > 0
    assert {arm for arm in ARMS if reclaimed[arm]} == {"zr1"}


def test_backing_off_waits_less_and_takes_longer(session: EndedSession) -> None:
    """What the document found, far above what a seed changes (2 %)."""
    records = records_of(session.folder)
    vanilla, sleepy = (
        records[f"reclaim-overwrite.b00.{arm}"].samples or {} for arm in ("vanilla", "sleepy")
    )
    assert sleepy["overwrite.slowpath_share"] < vanilla["overwrite.slowpath_share"] / 2
    assert sleepy["overwrite.runtime"] > vanilla["overwrite.runtime"]


def test_the_report_shows_all_arms_and_what_was_published(session: EndedSession) -> None:
    comparisons = read_comparison(session.folder).comparisons
    assert [comparison.manifest.patched for comparison in comparisons] == list(ARMS[1:])
    published = {
        (comparison.manifest.patched, metric.name): metric.published[0].change
        for comparison in comparisons
        for case in comparison.cases
        for metric in case.metrics
        if metric.published
    }
    assert published["sleepy", "overwrite.bw"] == pytest.approx((295 - 470) / 470)
    assert published["zr1", "overwrite.slowpath_share"] == pytest.approx((2.5 - 27.5) / 27.5)


def _moved(files: dict[str, bytes], counter: str) -> int:
    before, after = (
        int(line.split()[1])
        for place in ("before", "after")
        for line in files[f"overwrite/{place}/proc/vmstat"].decode().splitlines()
        if line.startswith(f"{counter} ")
    )
    return after - before
