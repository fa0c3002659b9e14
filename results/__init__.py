"""The record: run records, the append-only store, the tidy table."""
