"""Messages as workflow commands of GitHub Actions: pure.

What a guest, a mail or a branch name says may be in a message.  A line break would begin
a command of its own, so it is escaped, as the runner's own toolkit does: "%", CR and LF in
a message, and ":" and "," besides in a property.
"""

from __future__ import annotations

from collections.abc import Iterable

from history.gate import Message
from text import clean_line


def annotation(message: Message) -> str:
    """``::error title=TITLE::TEXT``, one line; no file is named."""
    title = _escaped(message.title).replace(":", "%3A").replace(",", "%2C")
    return f"::{message.level} title={title}::{_escaped(message.text)}"


def workflow_commands(messages: Iterable[Message]) -> str:
    """One line a message."""
    return "".join(f"{annotation(message)}\n" for message in messages)


def _escaped(text: str) -> str:
    return clean_line(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))
