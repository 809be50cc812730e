"""Claiming messages: a message that is in the ledger is handled only once."""

from collections.abc import Sequence

from psycopg import Connection

from wakupush.model.entries import Entry
from wakupush.postgres import ledger
from wakupush.server.engine.message import Message


def claim(connection: Connection, messages: Sequence[Message]) -> list[Message]:
    """Enter messages into the ledger, and return those that were not there yet, each once.

    This waits for other workers that handle the same messages. Nothing may be looked up before: two workers would
    decide the same message.
    """
    new = ledger.add(connection, [message.entry for message in messages])
    new_messages = []
    for message in messages:
        if message.entry.hash in new:
            new.discard(message.entry.hash)
            new_messages.append(message)
    return new_messages


def release(connection: Connection, entries: Sequence[Entry]) -> None:
    """Take messages out of the ledger again that are handled elsewhere, or later."""
    ledger.remove(connection, entries)
