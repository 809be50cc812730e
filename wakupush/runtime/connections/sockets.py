"""A look at a socket."""

import select


def has_input(descriptor: int) -> bool:
    """Return at once whether a socket has bytes to read. A peer that only answers has then closed the connection."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))
