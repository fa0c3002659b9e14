"""A static site from the history alone: opened from disk, or served by anything."""
