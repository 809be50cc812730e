"""The keys of query topics, and the devices that queries ask for: their sizes are known before they are loaded."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from psycopg import Connection

from wakupush.model.limits import Verdicts
from wakupush.model.registrations import AnswerSizes, QueriedDevice
from wakupush.postgres import query_topics, registrations
from wakupush.server.engine.kind import Context
from wakupush.server.engine.message import Message
from wakupush.server.query.charge import answer_size, is_allowed, is_too_large
from wakupush.server.query.read import OpenedQuery

#: Keys of a topic with which a message is tried at most. Anybody can make keys up whose topic is a user's.
TOPIC_KEYS: Final = 16


@dataclass(frozen=True, slots=True)
class QueriedUsers:
    """What is known of the users that queries ask for, by key hash."""

    sizes: AnswerSizes
    #: Of the users that some query is answered with now.
    devices: Mapping[bytes, Sequence[QueriedDevice]]


def keys(connection: Connection, topics: Collection[bytes]) -> Mapping[bytes, Sequence[bytes | None]]:
    """Return the keys (32 bytes each) of topics (4 bytes each), which several users can share.

    None stands for a key that is not derived yet. Anybody can derive a key who knows the user's public key.
    """
    users_by_topic = query_topics.candidates(connection, list(topics), TOPIC_KEYS)
    return {topic: [user.symmetric_key for user in users] for topic, users in users_by_topic.items()}


def measure(connection: Connection, messages: Sequence[Message], _: Context) -> AnswerSizes:
    """Return the bytes that answers tell of each user."""
    key_hashes = {
        key_hash
        for message in messages
        if isinstance(message.content, OpenedQuery)
        for key_hash in message.content.key_hashes
    }
    return registrations.answer_sizes(connection, key_hashes) if key_hashes else AnswerSizes()


def look_up(
    connection: Connection,
    messages: Sequence[Message],
    sizes: AnswerSizes,
    verdicts: Verdicts,
    context: Context,
) -> tuple[QueriedUsers, set[bytes]]:
    """Load the devices of the users that are answered with, and return the queries for which there is no room."""
    cut: set[bytes] = set()
    users: set[bytes] = set()
    answer_bytes = 0
    for message in messages:
        query = message.content
        if not isinstance(query, OpenedQuery) or is_too_large(query, sizes):
            continue
        if not is_allowed(message.entry, query, verdicts):
            continue
        size = answer_size(query, sizes)
        if answer_bytes and answer_bytes + size > context.room:
            cut.add(message.entry.hash)
        else:
            answer_bytes += size
            users.update(key_hash for key_hash in query.key_hashes if key_hash in sizes.bytes_by_user)
    devices = registrations.devices(connection, users, context.identity.at_rest) if users else {}
    return QueriedUsers(sizes, devices), cut
