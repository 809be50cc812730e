"""The error that ends a command, or keeps a process from starting, until somebody has changed something."""


class UsageError(Exception):
    """A setting, a file or an argument has to be changed first. The text says what, and contains no secret."""
