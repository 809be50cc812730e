"""A look at a socket."""

import select


def has_input(descriptor: int) -> bool:
    """Say at once whether something waits to be read. From a peer that sends nothing unasked, this is the end."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))
