"""Statistics, verdicts, charts and the report's forms, from a session folder alone."""
