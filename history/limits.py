"""What people may write where a fraction, a date or a pattern is meant: pure.

A gate that is switched off by a slip of the pen says nothing and looks like one that
passed, so what can hardly be meant is refused, with what probably was.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from fnmatch import fnmatchcase

# A word that is said for longer than this is for ever.
LONGEST = timedelta(days=366)
# Names as experiments, guests, cases, metrics and arms have them: short and long, with
# every character that such names begin and end with.
USUAL = (
    "a", "z", "0", "9", "q7", "filemap-v4", "laptop", "filemap-4k", "swap_out", "4k.bw",
    "thp.guest_ns_per_io", "tonight", "base", "x" * 60,
)  # fmt: skip


def fraction(value: float, most: float) -> float:
    """``value`` itself, where it is a fraction up to ``most``.

    Raises:
        ValueError: it is larger, which is a percentage written as a fraction.
    """
    if value <= most:
        return value
    raise ValueError(
        f"found {value:g}: is a fraction, so {100 * value:g} %; allowed: at most {most:g} "
        f"({100 * most:g} %); did you mean {value / 100:g} ({value:g} %)?"
    )


def calendar_date(text: str) -> str:
    """``text`` itself, where it is a day that the calendar has, as YYYY-MM-DD.

    Raises:
        ValueError: it is none.
    """
    try:
        good = date.fromisoformat(text).isoformat() == text
    except ValueError:
        good = False
    if not good:
        raise ValueError(f"found {text!r}: is no date; write YYYY-MM-DD, a day the calendar has")
    return text


def too_late(text: str, today: date, longest: timedelta = LONGEST) -> str:
    """Why a date is too far ahead of ``today``; empty where it is not."""
    latest = today + longest
    if date.fromisoformat(text) <= latest:
        return ""
    days = (date.fromisoformat(text) - today).days
    return f"found {text!r}: is {days} days ahead of today, {today}; allowed: up to {latest}"


def fits_everything(pattern: str) -> bool:
    """Whether a pattern of shells fits whatever a name may be, however it is spelled."""
    return all(fnmatchcase(name, pattern) for name in USUAL)


def has_wildcard(pattern: str) -> bool:
    """Whether a pattern may fit more than the one name it spells."""
    return any(sign in pattern for sign in "*?[")


def fit(names: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether each name fits its pattern."""
    return all(fnmatchcase(name, pattern) for name, pattern in zip(names, patterns, strict=True))
