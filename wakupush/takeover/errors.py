"""What ends a takeover."""


class TakeoverError(Exception):
    """It cannot be begun, or not go on; the text says what to do, and holds no secret."""
