"""What can be wrong with one of several Waku nodes."""

from __future__ import annotations

from enum import StrEnum


class NodeFault(StrEnum):
    """Why a node is left out for sending. It is polled all the same."""

    #: It does not answer.
    UNREACHABLE = "unreachable"
    #: It misses other people's messages that the other nodes have.
    DEAF = "deaf"
    #: What is published on it arrives at no node that hears.
    MUTE = "mute"
