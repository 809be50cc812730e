"""The error that ends a takeover."""

from wakupush.runtime.usage import UsageError


class TakeoverError(UsageError):
    """A takeover cannot begin or go on. The text says what to do, and contains no secret."""
