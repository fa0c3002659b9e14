"""Source → series → config → build → cached kernel."""
