"""Series that wait to be measured: where they come from, and how they are worked off."""
