"""What every reader of reports may have to catch, apart from what makes them."""

from __future__ import annotations

from errors import RecordError


class ReportError(RecordError):
    """A session that cannot be compared: says what is missing."""
