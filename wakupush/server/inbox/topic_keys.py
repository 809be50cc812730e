"""The keys of the query topics on which messages came."""

from collections.abc import Iterable

from wakupush.model.entries import Entry
from wakupush.postgres import query_topics
from wakupush.protocol import topics
from wakupush.server.delivery.worker import Worker


def read(resources: Worker, entries: Iterable[Entry]) -> dict[bytes, list[bytes | None]]:
    """Return the keys (32 bytes each) of the topics (4 bytes each) of messages; None is one that is not derived yet."""
    own = topics.server_content_topics(resources.identity.public_key)
    names = {
        topics.topic_of(entry.message.content_topic) for entry in entries if entry.message.content_topic not in own
    }
    names.discard(None)
    if not names:
        return {}
    with resources.pool.connection() as connection:
        candidates = query_topics.candidates(connection, [topic for topic in names if topic])
    return {topic: [user.symmetric_key for user in users] for topic, users in candidates.items()}
