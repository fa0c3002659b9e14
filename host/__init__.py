"""The machine we stand on: subprocesses, errors with someone to blame, host facts."""
