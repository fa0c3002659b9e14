"""What every reader of reports may have to catch, apart from what makes them."""

from __future__ import annotations


class ReportError(ValueError):
    """A session that cannot be compared: says what is missing."""
