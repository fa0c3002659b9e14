"""What a session's comparison leaves in the queue's entry."""

from analysis.many import compare_session
from analysis.operations import per_operation
from queues.store import QueueEntry
from queues.work import of_session
from reports.sentences import changed_per_unit
from runs.request import Request
from tests.analysis import counts_factory
from tests.analysis.factory import ExactSession
from tests.analysis.measured import measured


def test_an_entry_says_which_functions_changed_in_the_words_of_the_report() -> None:
    session = ExactSession()
    manifest, records = counts_factory.counted(session.manifest()), session.records()
    profiles = counts_factory.profiles(session)
    compared = compare_session(measured(manifest, records, profiles))
    ending = of_session(compared)
    first = per_operation(compared).comparisons[0].headlines[0]
    assert ending.functions[0] == f"filemap-4k 4k: {changed_per_unit(first)}"
    assert len(ending.functions) == 3
    waiting = QueueEntry(
        id="one", question=Request(name="filemap-v4"), added="2026-01-01T00:00:00Z"
    )
    ended = waiting.closed(ending, "2026-01-01T01:00:00Z")
    assert QueueEntry.model_validate_json(ended.model_dump_json()).functions == ending.functions
    assert ended.requeued(anew=True).functions == ()
    # Where nothing was counted nothing is said.
    assert of_session(compare_session(measured(manifest, records))).functions == ()
