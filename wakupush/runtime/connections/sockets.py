"""A look at a socket."""

from __future__ import annotations

import select


def has_input(descriptor: int) -> bool:
    """Say whether something waits to be read, at once. Who says nothing unasked has closed the connection then."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))
