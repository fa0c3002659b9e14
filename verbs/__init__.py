"""The verbs of the command line, a file a group; ``lab.py`` puts them together."""
