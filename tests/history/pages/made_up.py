"""A history of made-up nights, some of it hostile, and sessions with reports beside it."""

from pathlib import Path

from history.entry import Entry
from history.store import HistoryStore
from tests.history.factory import Nights
from tests.values import but

# What ends an element, an attribute, a string or a line, and what turns text around.
HOSTILE = (
    "</script><script>window.hurt=1</script><img src=x onerror=window.hurt=1>\"'`&\u202e\u2028"
)
LONG = "a" * 40 + "/" + "very-long-name-" * 20
NIGHTS, STEP, BACK, LAB = 120, 60, 90, 30


def exact_nights(count: int = NIGHTS) -> list[Entry]:
    """A step down on night 60 and back on 90; the lab moves on night 30."""
    levels = tuple(-0.02 if STEP <= night < BACK else 0.0 for night in range(count))
    return Nights(
        levels,
        lab={LAB: 0.004},
        cases=("filemap-4k", "filemap-thp"),
        functions=True,
        experiment="tonight",
    ).entries()


def hostile(entry: Entry) -> Entry:
    """The entry with hostile text wherever text is free."""
    bad = HOSTILE + LONG
    cases = tuple(
        but(
            case,
            title=bad,
            metrics=tuple(but(m, title=bad) for m in case.metrics),
            arms=tuple(but(arm, failures=(bad,), failed=1) for arm in case.arms),
        )
        for case in entry.cases
    )
    return but(
        entry,
        title=bad,
        session=bad,
        link="javascript:window.hurt=1",
        findings=(bad,),
        setting={**entry.setting, bad: bad},
        cases=cases,
        arms=tuple(but(a, label=bad, commit=bad) for a in entry.arms),
    )


def fill(folder: Path) -> HistoryStore:
    """A history with a track, and a hostile one."""
    store = HistoryStore(folder)
    for entry in exact_nights():
        store.add(but(entry, link="https://example.org/run/1"))
    for entry in Nights((0.0, 0.01, 0.0), experiment="hostile").entries():
        store.add(hostile(entry))
    return store
