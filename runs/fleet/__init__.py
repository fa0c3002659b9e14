"""Many machines for one plan, on dask.distributed; judging stays with the session."""
