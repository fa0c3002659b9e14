"""Count what a guest executes, by function, without its noticing."""
