"""The names of a report's forms, in the order they are listed: what the command line knows of them.

``reports.forms`` has what writes each; it draws, and is too slow to import for a ``--help``.
"""

FORM_NAMES = ("text", "markdown", "letter", "lkp", "mmtests", "matrix", "html", "json", "summary")
