"""The history of nightly comparisons: kept, queried, judged, and turned into an exit code."""
