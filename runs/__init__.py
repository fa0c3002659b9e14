"""Do the plan: build what is missing, boot, run, record, resume."""
