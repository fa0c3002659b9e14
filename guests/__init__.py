"""Boot a guest and talk to it."""
