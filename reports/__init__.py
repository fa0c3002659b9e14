"""Statistics, verdicts, charts and the forms of a report, from a session folder.

One thing is from beside it: the time that a session of native mode measured of the same arms.

The names of the forms are here, in the order they are listed: ``reports.forms`` has what writes
each, and is too slow to import for a ``--help``.
"""

FORM_NAMES = ("text", "markdown", "letter", "lkp", "mmtests", "html", "json", "summary")
