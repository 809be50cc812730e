"""The error that ends a takeover."""


class TakeoverError(Exception):
    """A takeover cannot begin or go on. The text says what to do, and contains no secret."""
