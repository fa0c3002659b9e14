"""Statistics, verdicts, charts and the forms of a report, from a session folder alone.

The names of the forms are here, in the order they are listed: ``reports.forms`` has what writes
each, and is too slow to import for a ``--help``.
"""

FORM_NAMES = ("text", "markdown", "letter", "lkp", "mmtests", "html", "json", "summary")
